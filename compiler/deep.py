"""Room for deep recursion: expressions of a kernel are walked by recursion, as deep as they are nested.

    with deep():    a power of 64-bit integers is 1,169 frames deep where Python allows 1,000

A group has at most ``MOST_NODES`` operators (passes/fuse), so the depth has an end: some 3,000 frames for the deepest
operators behind each other. ``LIMIT`` of them take 4 MB of a thread's stack in CPython 3.10, less in later ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LIMIT = 8000


@contextmanager
def deep() -> Iterator[None]:
    """Raises Python's limit of recursion to ``LIMIT`` frames, unless it is higher, and puts it back at the end. The
    limit is the whole process's: whoever calls this lets others wait."""
    before = sys.getrecursionlimit()
    if before >= LIMIT:
        yield
        return
    sys.setrecursionlimit(LIMIT)
    try:
        yield
    finally:
        if sys.getrecursionlimit() == LIMIT:  # nobody else has set it since
            sys.setrecursionlimit(before)
