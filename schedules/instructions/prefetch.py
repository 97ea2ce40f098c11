"""Hints that a line of memory will soon be read or written, or that it will not be read soon. One past the end of a
buffer cannot fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from ...targets.target import Target
from ..words.tvm_types import Buffer, Expr

if TYPE_CHECKING:
    from ..emit.builder import KernelBuilder

LINE = 64  # bytes that one hint brings
FIRST_LEVEL, SECOND_LEVEL = 3, 2  # where the line is wanted, as LLVM counts: 0 is "used once"


def hint(k: KernelBuilder, buffer: Buffer, index: Expr, level: int = SECOND_LEVEL, written: bool = False) -> None:
    """Adds to the kernel ``k`` that the line with element ``index`` of ``buffer`` will be read, or ``written``."""
    place = tirx.address_of(getattr(buffer, "stored", buffer)[index])
    k.add(tirx.Evaluate(tirx.call_intrin("void", "tirx.prefetch", place, int(written), level, 1)))


def wanted_level(target: Target) -> int:
    """The level that what a loop reads from the second one is wanted in, some thousand cycles ahead. The first, where
    that was measured: on x86 with 32 vector registers, which leave room for the hints' addresses."""
    near = target.triple.startswith("x86_64") and target.vector_registers > 16
    return FIRST_LEVEL if near else SECOND_LEVEL


def can_stream(target: Target) -> bool:
    """True if large results are written past the caches (``target.fitted.memory.past``), where a line is a vector."""
    return target.triple.startswith("x86_64") and target.vector_bits == 8 * LINE and target.memory_kind == "cache"
