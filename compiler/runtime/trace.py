"""The trace of a library for a scratchpad: what its reference transfers and its stripes did, and when."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

KINDS = ("load", "store", "wait load", "wait store", "compute")
CHUNK = 1024


class Traced(NamedTuple):
    """One event of the program. ``number`` counts those of its kind (a wait has that of its transfer); times are
    seconds of a steady clock: ``issued`` by the program, from ``start`` to ``end`` (of a transfer, the copying)."""

    action: str
    number: int
    issued: float
    start: float
    end: float


class _Event(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("number", ctypes.c_int),
        ("issued", ctypes.c_double),
        ("start", ctypes.c_double),
        ("end", ctypes.c_double),
    ]


def take_trace(library: object, name: str) -> tuple[Traced, ...]:
    """The events since the last call; none from a library without a scratchpad."""
    function = getattr(library, f"{name}_trace", None)
    if function is None:
        return ()
    function.restype, function.argtypes = ctypes.c_size_t, (ctypes.POINTER(_Event), ctypes.c_size_t)
    events = (_Event * CHUNK)()
    found: list[Traced] = []
    while count := function(events, CHUNK):
        found += [Traced(KINDS[e.kind], e.number, e.issued, e.start, e.end) for e in events[:count]]
    return tuple(found)
