"""Keys of the cache: a digest of all that an entry depends on."""

from __future__ import annotations

import hashlib


def key_of(*parts: str | bytes) -> str:
    """A digest of all parts, each with its length, so that no two lists of parts run together."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
