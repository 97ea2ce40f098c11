"""Asks for weights before they are needed.

Weights beyond the second-level cache are read in order, but faster than the hardware's prefetchers follow: those stop
at every page. A hint a step of the reduction, AHEAD bytes in front, keeps the stream running: 8 KiB are some fifty
steps of a register tile, longer than a read from memory takes. Where weights are near, it costs nothing measurable.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

AHEAD = 8192  # bytes
KEEP = 2  # of 0 (use once) to 3 (first-level cache): fetched into the second level


def prefetch(k: Any, buffer: Any, offset: Any, vectors: int, lanes: int, element_bytes: int = 4) -> None:
    """Hints that ``vectors`` of ``lanes`` elements at ``offset + AHEAD`` will be read. Past the buffer's end it is
    without effect: a hint can't fault."""
    for vector in range(vectors):
        place = tirx.address_of(buffer[offset + (AHEAD // element_bytes + vector * lanes)])
        k.add(tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", place, 0, KEEP, 1)))
