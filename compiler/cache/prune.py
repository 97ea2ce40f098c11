"""Keeps the cache within its bytes: what was used longest ago goes first.

Whole libraries may have three quarters of them, object code a quarter. Libraries are few, and counted whenever one was
added; objects may be a hundred thousand, and are counted every ten minutes at most.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .store import Cache

_PAUSE_SECONDS = 600.0
_DEAD_SECONDS = 3600.0  # what is in tmp/ stands there for seconds, what is in locks/ as long as a build takes

Entry = tuple[int, int, Path]  # time of its last use, bytes, place


def most_of_libraries(cache: Cache) -> int:
    """Bytes that all whole libraries may have together."""
    return cache.most_bytes - cache.most_bytes // 4


def prune(cache: Cache) -> None:
    """Removes what is too much, and what processes that were killed have left."""
    libraries = cache.folder / "libraries"
    _shorten(_libraries(libraries), most_of_libraries(cache), lambda path: _remove_folder(cache, path))
    mark = cache.folder / "pruned"
    if not _older(mark, _PAUSE_SECONDS):
        return
    with contextlib.suppress(OSError):
        mark.touch()
    _shorten(_objects(cache.folder / "objects"), cache.most_bytes // 4, os.unlink)
    for path in (*_listed(cache.folder / "tmp"), *_listed(cache.folder / "locks")):
        if _older(path, _DEAD_SECONDS):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _remove_folder(cache: Cache, path: Path) -> None:
    """Takes its name away in one step, so that nobody finds half of it."""
    away = tempfile.mkdtemp(dir=cache.temporary())
    os.replace(path, away)
    shutil.rmtree(away, ignore_errors=True)


def _shorten(entries: Iterable[Entry], most_bytes: int, remove: Callable[[Path], None]) -> None:
    listed = sorted(entries, key=lambda entry: entry[0])
    left = sum(size for _, size, _ in listed)
    for _, size, path in listed:
        if left <= most_bytes:
            return
        with contextlib.suppress(OSError):
            remove(path)
        left -= size


def _objects(folder: Path) -> list[Entry]:
    found = []
    for shard in _listed(folder):
        for path in _listed(shard):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, status.st_size, path))
    return found


def _libraries(folder: Path) -> list[Entry]:
    found = []
    for path in _listed(folder):
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in path.iterdir())
            found.append((path.stat().st_mtime_ns, size, path))
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _older(path: Path, seconds: float) -> bool:
    """Whether a file was last changed longer ago than this; one that is not there was."""
    try:
        return time.time() - path.stat().st_mtime > seconds
    except OSError:
        return True
