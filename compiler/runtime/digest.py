"""SHA-256 of files, each read once as long as it does not change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_SETTLED_NS = 2_000_000_000  # some file systems keep times of two seconds: a younger file may change unseen
_known: dict[tuple[object, ...], str] = {}
_ahead: dict[Path, threading.Thread] = {}


class Identity(NamedTuple):
    """What changes with a file's content."""

    device: int
    inode: int
    size: int
    written_ns: int
    changed_ns: int  # with its name, its owner and its links, too

    @property
    def settled(self) -> bool:
        """Whether whatever is written to the file from now on changes its identity."""
        return max(self.written_ns, self.changed_ns) + _SETTLED_NS < time.time_ns()


def begin(path: Path) -> None:
    """Reads a file beside whatever comes next (modules that are imported), so that :func:`digest` has it sooner:
    OpenSSL hashes without the interpreter's lock."""

    def read() -> None:
        with contextlib.suppress(OSError):  # whoever asks is told
            digest(path)

    thread = _ahead[path] = threading.Thread(target=read, daemon=True)
    thread.start()


def digest(path: Path, spans: Sequence[tuple[int, int]] | None = None) -> str:
    """SHA-256 of a file, or of the bytes of ``spans`` (begin, end) of it, read in pieces."""
    if (ahead := _ahead.get(path)) is not None and ahead is not threading.current_thread():
        _ahead.pop(path, None)
        ahead.join()
    with path.open("rb") as file:
        before = identity(file.fileno())
        settled = before.settled
        key = (*before, *(spans or ()))
        if key in _known:
            return _known[key]
        found = hashlib.sha256()
        for begin, end in [(0, before.size)] if spans is None else spans:
            file.seek(begin)
            while block := file.read(min(1 << 20, end - file.tell())):
                found.update(block)
        if settled and identity(file.fileno()) == before:
            _known[key] = found.hexdigest()
        return found.hexdigest()


def identity(file: int | Path) -> Identity:
    """That of a file, or of one that is open."""
    status = os.stat(file)
    return Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
