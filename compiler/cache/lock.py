"""One process at a time: locks on files, which the system takes back from whoever dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_SECONDS = 0.02


@contextlib.contextmanager
def held(path: Path, patience: float) -> Iterator[bool]:
    """Holds the lock that ``path`` stands for: True within. One thread of one process does at a time.

    ``patience``: seconds to wait for another, who may have been stopped; after these, and where the file system has no
    locks or can't be written, nothing is held (False), and work is done twice at worst. The file goes with the lock.
    """
    file = _acquired(path, patience)
    try:
        yield file is not None
    finally:
        if file is not None:
            with contextlib.suppress(OSError):
                os.unlink(path)  # while it is held: whoever waits for this file sees that it has no name any more
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)  # also for children that were forked meanwhile
            os.close(file)


def _acquired(path: Path, patience: float) -> int | None:
    until = time.monotonic() + patience
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if _locked(file, until) and _is_at(file, path):
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)
            if time.monotonic() >= until:
                return None
    except OSError:
        return None


def _locked(file: int, until: float) -> bool:
    """Whether the lock was had in time."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_SECONDS)


def _is_at(file: int, path: Path) -> bool:
    """Whether the file still has its name: its last holder took it along."""
    ours = os.fstat(file)
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)
