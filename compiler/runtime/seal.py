"""The seal at the end of a shared library: the SHA-256 of all that stands before it, for those who have no manifest.

    ... sections | "\\nhalotile sha256 " + 64 digits + "\\n"

Nothing that maps or links a library looks behind its sections. A tool that rewrites one (strip) leaves the seal out,
and what it makes is taken as it is.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ...errors import OutputError
from .digest import digest

_MARK = b"\nhalotile sha256 "
_SEAL = re.compile(re.escape(_MARK) + rb"([0-9a-f]{64})\n\Z")
BYTES = len(_MARK) + 65


def seal(path: Path) -> str:
    """The SHA-256 of a library that is finished, with the seal that is appended to it here."""
    found = hashlib.sha256()
    with path.open("r+b") as file:
        while block := file.read(1 << 20):
            found.update(block)
        mark = _MARK + found.hexdigest().encode() + b"\n"
        file.write(mark)
    found.update(mark)
    return found.hexdigest()


def check_seal(path: Path) -> None:
    """Raises OutputError for a library that is not what was sealed."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - BYTES))
        found = _SEAL.match(file.read())
    if found and digest(path, [(0, size - BYTES)]) != found[1].decode():
        raise OutputError(f"{path} is damaged: its SHA-256 is not the one that it was sealed with; build it again")
