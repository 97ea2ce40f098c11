"""SHA-256 of files, each read once as long as it does not change."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

_SETTLED_NS = 2_000_000_000  # some file systems keep times of two seconds: a younger file may change unseen
_known: dict[tuple[object, ...], str] = {}
_ahead: dict[Path, threading.Thread] = {}


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
        before, now = _identity(file.fileno()), time.time_ns()
        key = (*before, *(spans or ()))
        if key in _known:
            return _known[key]
        found = hashlib.sha256()
        for begin, end in [(0, before[2])] if spans is None else spans:
            file.seek(begin)
            while block := file.read(min(1 << 20, end - file.tell())):
                found.update(block)
        if max(before[-2:]) + _SETTLED_NS < now and _identity(file.fileno()) == before:
            _known[key] = found.hexdigest()
        return found.hexdigest()


def _identity(file: int) -> tuple[int, ...]:
    """What changes with a file's content."""
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
