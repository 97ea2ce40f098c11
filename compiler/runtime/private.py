"""A folder of this process alone: it goes with its object, never with a child that was forked, and where the process
was killed, with the next one that makes such a folder."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "halotile-"
_LOCK = ".alive"


class PrivateFolder:
    """A new folder called ``name``, removed with :meth:`cleanup`, with the object, or when the process ends.

    ``tempfile.TemporaryDirectory`` would be removed by a forked child that ends, too, under the parent's feet. A lock
    on a file in it says that its process lives: the system lets go of it, however that ends.
    """

    def __init__(self, prefix: str = PREFIX) -> None:
        sweep(Path(tempfile.gettempdir()))
        self.name = tempfile.mkdtemp(prefix=prefix)
        alive = locked(Path(self.name))
        self._end = weakref.finalize(self, _remove, self.name, os.getpid(), alive)

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Removes the folder now. Harmless when repeated."""
        self._end()


def sweep(place: Path, prefix: str = PREFIX) -> None:
    """Removes the folders in ``place`` whose names begin so, which processes that have ended locked."""
    for folder in place.glob(f"{glob.escape(prefix)}*"):
        lock = folder / _LOCK
        with contextlib.suppress(OSError):
            file = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if os.fstat(file).st_uid != os.geteuid():
                    continue
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(file)


def locked(folder: Path) -> int | None:
    """The lock of a new folder, an open file that is the caller's to close; None where the file system has no locks."""
    try:
        file = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # before it has its name: what has it was held once
        os.rename(folder / "lock", folder / _LOCK)
        return file
    except OSError:
        os.close(file)
        return None


def _remove(folder: str, process: int, alive: int | None) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
        if alive is not None:
            with contextlib.suppress(OSError):
                os.close(alive)
