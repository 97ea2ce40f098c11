"""A place in a kernel that LLVM's scheduler moves no load past, which takes no instruction.

    x0 = load; w = load; acc += x0 * w          x0, x1, x2 ... = loads      what the scheduler makes of a reduction's
    x1 = load; w = load; acc += x1 * w    ->    acc += x0 * w               steps that are written out, since they are
    ...                                         ...                         one block: some loads of all come first

It pairs loads of neighbouring elements, which belong to different steps here, before it is known which values there are
registers for; what there are none for goes to the stack and comes back. Of the 1x1 layers of MobileNetV2 half ran at 66
to 80% of a Cortex-A76's multiply-add rate so, 15 to 30 vectors going to the stack for 96 multiply-adds, and at 98 to
100% with each step's loads kept in it (by llvm-mca). Turning the pairing off in LLVM does the same, but its options are
the process's: no two kernels could be compiled side by side.

Cores that execute out of order need no load hoisted. Those that execute in order do, and their tiles leave registers
for that (:mod:`..kernel.register_budget`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from ...targets.target import Target

if TYPE_CHECKING:
    from ..emit.builder import KernelBuilder

# LLVM's stand-in for so many bytes of code that it knows nothing of: here none. No load or store is scheduled past it.
NO_BYTES = "llvm.aarch64.space"


def keeps_loads(target: Target) -> bool:
    """True if the steps of a register tile's reduction keep their loads there."""
    return target.is_aarch64 and not target.in_order


def keep_loads(k: KernelBuilder, target: Target) -> None:
    """Adds to the kernel ``k`` that loads which follow are not done earlier, and those before not later."""
    if keeps_loads(target):
        zero = tirx.IntImm("int32", 0), tirx.IntImm("int64", 0)
        k.add(tirx.Evaluate(tirx.call_llvm_intrin("int64", NO_BYTES, *zero)))
