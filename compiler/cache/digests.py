"""Digests of large files that outlive the process: a file that is as it was is not read again.

    digest_of(path, cache)                 SHA-256 of a file, the model's for example
    digest_of(path, cache, linked=True)    of one of the cache's own libraries
    note(path, cache, sha)                 for those who know it already

What is kept is an entry of the cache by all that changes with a file's content: its path, device, inode and size, when
it was written and when changed, and besides the run of the system (its boot): after a power failure, on another machine
that shares the cache, or where devices have other numbers, every file is read once again. Nothing is kept of a file so
young that it could be written once more with the same times, nor of one from the future.

A library in the cache gets another time of change with every link to it, and each process has links of its own: there
the time of writing stands alone. Whoever alters one and puts back that time to the nanosecond is not noticed; but who
can do that can write an entry as well. The cache's folder is the user's own, and is trusted so far.
"""

from __future__ import annotations

import functools
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..runtime import digest as reading
from ..runtime.digest import Identity, digest, identity
from .keys import key_of
from .store import Cache

LEAST_BYTES = 1 << 20  # of a file that is worth an entry; less is read in 3 ms
_FORM = "1"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SHA = re.compile(rb"[0-9a-f]{64}")
_COARSE_NS, _FINE_NS = 2_000_000_000, 50_000_000  # of file systems' clocks, without and with parts of milliseconds


def begin(path: Path, cache: Cache | None) -> None:
    """Reads a file beside whatever comes next, unless its digest is kept."""
    try:
        needless = _kept(path, cache, None, identity(path), linked=False) is not None
    except OSError:
        needless = False
    if not needless:
        reading.begin(path)


def digest_of(
    path: Path, cache: Cache | None, spans: Sequence[tuple[int, int]] | None = None, *, linked: bool = False
) -> str:
    """SHA-256 of a file, or of the bytes of ``spans`` (begin, end) of it. ``linked``: it is the cache's own, of which
    others make links meanwhile."""
    before = identity(path)
    if (kept := _kept(path, cache, spans, before, linked)) is not None:
        return kept
    settled = _settled(cache, before) if linked and cache is not None else before.settled
    found = digest(path, spans)
    if settled and _same(identity(path), before, linked):
        _keep(path, cache, spans, before, linked, found)
    return found


def note(path: Path, cache: Cache, sha: str) -> None:
    """Keeps the digest of a library's file, which is known: this process made it, and nobody else writes to it."""
    before = identity(path)
    if before.size >= LEAST_BYTES and _settled(cache, before):
        _keep(path, cache, None, before, True, sha)


def unchanged(before: Identity, path: Path) -> bool:
    """Whether one of the cache's own files is what it was, links to it apart."""
    return _same(identity(path), before, linked=True)


def _kept(
    path: Path, cache: Cache | None, spans: Sequence[tuple[int, int]] | None, found: Identity, linked: bool
) -> str | None:
    key = _key(path, spans, found, linked)
    data = cache.get(key) if cache is not None and key is not None else None
    return data.decode() if data is not None and _SHA.fullmatch(data) else None


def _keep(
    path: Path, cache: Cache | None, spans: Sequence[tuple[int, int]] | None, found: Identity, linked: bool, sha: str
) -> None:
    key = _key(path, spans, found, linked)
    if cache is not None and key is not None:
        cache.put(key, sha.encode())


def _key(path: Path, spans: Sequence[tuple[int, int]] | None, found: Identity, linked: bool) -> str | None:
    """None for a file that is too small, and where the system does not say which run of it this is."""
    if found.size < LEAST_BYTES or not (boot := _boot()):
        return None
    told = found._replace(changed_ns=0) if linked else found
    return key_of("digest", _FORM, boot, os.fsencode(os.path.abspath(path)), json.dumps([told, spans]))


def _same(now: Identity, before: Identity, linked: bool) -> bool:
    return now._replace(changed_ns=before.changed_ns) == before if linked else now == before


def _settled(cache: Cache, found: Identity) -> bool:
    """Whether the next write to a file of the cache's changes when it was written, by the clock of its own file
    system."""
    grain = _FINE_NS if found.written_ns % 1_000_000 else _COARSE_NS
    try:
        with tempfile.TemporaryFile(dir=cache.temporary()) as now:
            return found.written_ns + grain < os.fstat(now.fileno()).st_mtime_ns
    except OSError:
        return False


@functools.cache
def _boot() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
