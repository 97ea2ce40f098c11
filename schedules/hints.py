"""Hints that a line of memory will soon be read or written. One past the end of a buffer cannot fault."""

from __future__ import annotations

from typing import Any

from tvm import tirx

LINE = 64  # bytes that one hint brings
FIRST_LEVEL, SECOND_LEVEL = 3, 2  # where the line is wanted, as LLVM counts: 0 is "used once"


def hint(k: Any, buffer: Any, index: Any, level: int = SECOND_LEVEL, written: bool = False) -> None:
    """Adds to the kernel ``k`` that the line with element ``index`` of ``buffer`` will be read, or ``written``."""
    place = tirx.address_of(buffer[index])
    k.add(tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", place, int(written), level, 1)))
