"""Object code that was compiled before, on disk: a key that names all that it depends on -> its bytes.

    cache = ObjectCache(folder)
    key = key_of("function", text, version)
    cache.get(key)           the bytes, or None: not there, or damaged
    cache.put(key, data)     whole or not at all; several processes may write the same entry

An entry is a file of its own, named by its key, which begins with the hash of what follows. No failure of the disk is
one of the build: what can't be read is compiled again, what can't be written is left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HALOTILE_OBJECT_CACHE"
COUNTS: Counter[str] = Counter()  # of this process: "found" and "compiled"
_DIGEST = hashlib.sha256().digest_size


def key_of(*parts: str | bytes) -> str:
    """A digest of all parts, each with its length, so that no two lists of parts run together."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@dataclass(frozen=True)
class ObjectCache:
    """Entries under ``folder``, which is made by the first that is written."""

    folder: Path

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry, which counts as used now; None where it is missing or damaged."""
        path = self._path(key)
        try:
            whole = path.read_bytes()
            os.utime(path)
        except OSError:
            whole = b""
        digest, data = whole[:_DIGEST], whole[_DIGEST:]
        found = len(digest) == _DIGEST and hashlib.sha256(data).digest() == digest
        COUNTS["found" if found else "compiled"] += 1
        return data if found else None

    def put(self, key: str, data: bytes) -> None:
        """Writes an entry beside its place and moves it there."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(prefix=".", dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(data).digest() + data)
                os.replace(written, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(written)
                raise

    def trim(self, most_bytes: int) -> None:
        """Removes the entries that were used longest ago, until at most ``most_bytes`` are left."""
        entries = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime_ns, status.st_size, path))
        left = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if left <= most_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            left -= size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key


def cache_of_environment() -> ObjectCache | None:
    """In the folder that ``HALOTILE_OBJECT_CACHE`` names; None where it is not set."""
    name = os.environ.get(VARIABLE)
    return ObjectCache(Path(name)) if name else None
