"""Asks for weights before they are needed.

Weights beyond the second-level cache are read in order, but faster than the hardware's prefetchers follow: those stop
at every page. A hint a step of the reduction, AHEAD bytes in front, keeps the stream running: 8 KiB are some fifty
steps of a register tile, longer than a read from memory takes. Where weights are near, it costs nothing measurable.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from ..halves import Widened

AHEAD = 8192  # bytes
LINE = 64  # bytes that one hint brings
NEAREST = 3  # the first-level cache
KEEP = 2  # of 0 (use once) to 3 (first-level cache): fetched into the second level


def prefetch(
    k: Any, buffer: Any, offset: Any, vectors: int, lanes: int, element_bytes: int = 4, ahead: int = AHEAD
) -> None:
    """Hints that ``vectors`` of ``lanes`` elements, ``ahead`` bytes past ``offset``, will be read. Past the buffer
    it is without effect: a hint cannot fault."""
    if isinstance(buffer, Widened):
        buffer, element_bytes = buffer.stored, 2
    for vector in range(0, vectors, max(1, LINE // (lanes * element_bytes))):
        place = tirx.address_of(buffer[offset + (ahead // element_bytes + vector * lanes)])
        k.add(_hint(place, False, KEEP))


def ask(k: Any, buffer: Any, offset: Any, written: bool) -> None:
    """Hints that the line at ``offset`` will soon be read, or written."""
    k.add(_hint(tirx.address_of(buffer[offset]), written, NEAREST if written else KEEP))


def _hint(place: Any, written: bool, keep: int) -> Any:
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", place, int(written), keep, 1))
