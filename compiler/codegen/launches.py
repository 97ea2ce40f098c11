"""Kernels that one core computes at some sizes: those with too little work there for a launch.

A build for one shape decides it once, in each kernel. One for open sizes has loops that cores share wherever that pays
at the sizes it is planned for; before it calls such a kernel, ``main`` tells the runtime whether the size of the run is
one of those at which the calling thread computes all of it:

    halotile_alone(elements of a tensor < so many)

Bands and tasks are those of all cores, one after the other, so that results have the same bits.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx
from tvm.tirx.stmt import ForKind

from ...schedules.conv.kernel import PARALLEL_FLOPS
from ...schedules.general.loop_nest import LOCAL_WORK
from ...schedules.tiled import TiledKernel
from ...schedules.words.dims import is_open, to_relax
from ...schedules.words.group import Kernel, Value
from ...schedules.words.sizes import product, usual
from ...schedules.words.tvm_types import Expr, Stmt
from ..flow.kernel import FlowKernel


def tell(kernel: Kernel) -> list[Stmt]:
    """What ``main`` tells the runtime before it calls a kernel: nothing of one that cores don't share."""
    return [tirx.Evaluate(tirx.call_extern("int32", "halotile_alone", alone(kernel)))] if launches(kernel) else []


def launches(kernel: Kernel) -> bool:
    """True if a kernel, or a part of it, has loops that cores share."""
    return _has_parallel(kernel.function.body) or isinstance(kernel, TiledKernel) and any(map(launches, kernel.parts))


def alone(kernel: Kernel) -> Expr:
    """Whether one core computes a kernel at the size of the run: 1 or 0, int32.

    What a launch is worth are PARALLEL_FLOPS, or LOCAL_WORK elements of the largest tensor, or what the kernel says;
    these grow with the largest open tensor from what they are at the size that is planned for. Loops of operators' own,
    such as recurrent layers, launch anyway: their work does not follow from what they read and write.
    """
    never = tirx.IntImm("int32", 0)
    values = dict.fromkeys((*kernel.outputs, *(o for o in kernel.operands if isinstance(o, Value))))
    every = [product(v.shape) for v in values]
    if kernel.shared or isinstance(kernel, FlowKernel) or not is_open(every):
        return never
    elements = max((n for n in every if is_open([n])), key=usual)
    worth = kernel.flops / PARALLEL_FLOPS + max(map(usual, every)) / LOCAL_WORK
    least = int(usual(elements) * (kernel.since if 1 < kernel.since < math.inf else 1 / worth))
    few = to_relax(elements) < tirx.IntImm("int64", max(1, least)) if is_open([elements]) else never
    return tirx.Cast("int32", few)


def _has_parallel(statement: Stmt) -> bool:
    found = False

    def look(loop: Stmt) -> None:
        nonlocal found
        found |= loop.kind == ForKind.PARALLEL

    tvm_ffi.structural_walk(statement, (tirx.For, look))
    return found
