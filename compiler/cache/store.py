"""The cache's folder: entries of bytes by key, whole or not there, for any number of processes.

    cache = Cache(folder)
    cache.entry(key, make)   its bytes; ``make`` gives them where they are missing or damaged
    cache.library(key)       the folder of a whole library (library.py)

    objects/ab/abcd...       an entry: the SHA-256 of what follows, and that
    libraries/abcd...        a library as a build makes it, with its manifest
    locks/, tmp/             of whoever is at work; what the dead left there goes with the next pruning (prune.py)

No failure of the disk is one of the build: what can't be read is made again, what can't be written is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from .lock import held

COUNTS: Counter[str] = Counter()  # of this process's entries: "found" and "compiled"
MOST_BYTES = 4 << 30
_DIGEST = hashlib.sha256().digest_size
_PATIENCE = {"objects": 60.0, "libraries": 600.0}  # seconds that a build may take elsewhere before it is done here too


@dataclass(frozen=True)
class Cache:
    """Entries under ``folder``, which is made by the first that is written. ``libraries``: whole ones are kept, too."""

    folder: Path
    libraries: bool = True
    most_bytes: int = MOST_BYTES

    def entry(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The bytes of an entry. Where there are none, one process makes and keeps them, for whom others wait."""
        kept = self.get(key)
        if kept is None:
            with self.alone("objects", key):
                kept = self.get(key)
                COUNTS["compiled" if kept is None else "found"] += 1
                if kept is None:
                    kept = make()
                    self.put(key, kept)
        else:
            COUNTS["found"] += 1
        return kept

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry, which counts as used now; None where it is missing or damaged."""
        path = self._path(key)
        try:
            whole = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, data = whole[:_DIGEST], whole[_DIGEST:]
        return data if hashlib.sha256(data).digest() == digest else None

    def put(self, key: str, data: bytes) -> None:
        """Writes an entry elsewhere and moves it to its place."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            handle, written = tempfile.mkstemp(dir=self.temporary())
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(data).digest() + data)
                path.parent.mkdir(parents=True, exist_ok=True)
                os.replace(written, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(written)
                raise

    def library(self, key: str) -> Path:
        """Where a library lies, or would."""
        return self.folder / "libraries" / key

    def alone(self, kind: str, key: str) -> AbstractContextManager[bool]:
        """While it is held, no one else makes the entry of that kind (``objects``, ``libraries``) and key."""
        with contextlib.suppress(OSError):
            self.temporary()
        return held(self.folder / "locks" / f"{kind}-{key}", _PATIENCE[kind])

    def temporary(self) -> Path:
        """The folder for what is being written, on the cache's own file system; it is this user's alone."""
        folder = self.folder / "tmp"
        if not folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _path(self, key: str) -> Path:
        return self.folder / "objects" / key[:2] / key
