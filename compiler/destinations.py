"""Files that a caller names for a result: refused before anything long begins where they can't be, and written whole
or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import OutputError


def check_file_destination(path: Path) -> None:
    """Refuses, before anything long begins, a file that can't be written at the end."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise OutputError(f"output {path} can't be written: there is no folder {folder}")
    if path.is_dir():
        raise OutputError(f"output {path} can't be written: it is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise OutputError(f"output {path} can't be written: no permission")


def write_whole(final: Path, text: str) -> None:
    """Writes a file, whole or not at all; OutputError where that can't be."""
    part = final.with_name(f".{final.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8", errors="replace")
        os.replace(part, final)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"can't write {final}: {error.strerror}; name a file that can be written") from None
