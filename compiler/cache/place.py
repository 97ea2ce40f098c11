"""Where the cache is: in the user's folder for caches, or where the environment or the caller says; or nowhere.

    HALOTILE_CACHE            a folder, or ``off``               [$XDG_CACHE_HOME/halotile, ~/.cache/halotile]
    HALOTILE_CACHE_SIZE       the most that it holds             [4GiB]
    HALOTILE_CACHE_LIBRARIES  ``off``: object code only, for those who change the compiler itself
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ...errors import HalotileError
from ..options import bytes_of, can_be, path_of
from .store import MOST_BYTES, Cache

VARIABLE = "HALOTILE_CACHE"
SIZE = "HALOTILE_CACHE_SIZE"
LIBRARIES = "HALOTILE_CACHE_LIBRARIES"
_OFF = ("off", "0", "no", "false", "none")


def cache_of_environment() -> Cache | None:
    """The cache that the environment names, the user's own without; None where it is off, or nobody has a home."""
    text = os.environ.get(VARIABLE, "")
    if text.lower() in _OFF:
        return None
    folder = Path(os.path.abspath(os.path.expanduser(text))) if text else _default()
    return None if folder is None else _sized(folder)


def chosen_cache(cache: Any) -> Cache | None:
    """What a caller's ``cache`` means: None is as the environment says, False and ``off`` are none, True the user's own
    where the environment has it off, a path that folder."""
    if cache is None:
        return cache_of_environment()
    if isinstance(cache, Cache):
        return cache
    if isinstance(cache, bool):
        own = _default()
        return (cache_of_environment() or (_sized(own) if own else None)) if cache else None
    if isinstance(cache, str) and cache.lower() in _OFF:
        return None
    folder = path_of(cache)
    if folder is None or not can_be(folder) or not os.fspath(cache):
        raise HalotileError(f"cache={cache!r}: give a folder, True, False, or None for what {VARIABLE} says")
    return _sized(Path(os.path.abspath(os.path.expanduser(folder))))


def _default() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # a relative one counts as none, says the XDG's standard
        base = os.path.expanduser("~/.cache")
    return Path(base) / "halotile" if os.path.isabs(base) else None


def _sized(folder: Path) -> Cache:
    text = os.environ.get(SIZE, "")
    size = bytes_of(text) if text else MOST_BYTES
    if size is None:
        raise HalotileError(f"{SIZE}={text!r} is not a size such as 4GiB")
    return Cache(folder, os.environ.get(LIBRARIES, "").lower() not in _OFF, size)
