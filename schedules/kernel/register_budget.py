"""Vector registers that a register tile leaves to loads on their way.

A core that executes out of order renames registers, so one is enough where each operand is loaded when it is due. One
that executes in order stops at the first multiply-add whose operand has not arrived, so loads must run ahead, and each
that does holds a register. An operand serves as many multiply-adds as the tile has vectors, one a cycle: LATE / vectors
operands cover the time that one takes to arrive.

Where LLVM unrolls the reduction on 64-bit ARM, it loads the operands of two steps in pairs, and keeps the later ones in
registers, or on the stack where there are none: tiles of up to 24 accumulators have enough on every core tried. Direct
convolutions keep their loads apart there (:mod:`..instructions.load_order`), which the figures below are older than.

Shares of the multiply-add rate that benchmarks/mca.py gives for tiles of positions x vectors:

    Cortex-A55, convolution   28x1 46%  24x1 59%  20x1 84%    12x2 92%  10x2 91%  8x2 81%    6x4 85%  4x4 67%
    Cortex-A55, product       9x3 71%  8x3 93%  7x3 91%       12x2 92%  10x2 94%  8x2 88%    6x4 80%  4x4 72%
    Cortex-A76, convolution   14x2 77%  13x2 78%  12x2 97%  10x2 99%    6x4 99%
    Neoverse V1, convolution  14x2 62 to 88%  12x2 94 to 99%            6x4 93 to 99%
"""

from __future__ import annotations

from ...targets.target import Target

LATE = 8  # cycles: a load's latency, and as much again for a schedule that has to place it
PAIRED = 24  # accumulators beside pairs of operands


def free_registers(target: Target, vectors: int, unrolled: bool = False) -> int:
    """Registers beside the accumulators and one step's ``vectors``. ``unrolled``: LLVM unrolls the reduction."""
    if target.in_order:
        return (2 + LATE // vectors) * target.vector_registers // 32  # of half as many, half
    paired = target.vector_registers - PAIRED - vectors if unrolled and target.is_aarch64 else 1
    return max(1, paired)
