"""Where the tiles of one group of channels leave their sums from one part of a panel of weights to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..words.group import dtype_bytes
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from .kernel import ConvKernel

STACK_SUMS = 64 * 1024  # bytes that a task may hold on its stack


def make_sums(conv: ConvKernel, task: Expr, tasks: int) -> None:
    """A place for these of each task: on its stack, where there is room, else in the arena."""
    size, dtype = max(conv.sums_elements, conv.sums_room), conv.facts.output.dtype
    if size * dtype_bytes(dtype) <= STACK_SUMS:
        conv.sums = conv.k.local("sums", dtype, size, "global")
    else:
        conv.sums, conv.sums_base = conv.ctx.scratch(tasks * size, dtype), conv.bind(task * size, tasks * size)
