"""Where the tiles of one group of channels leave their sums from one part of a panel of weights to the next."""

from __future__ import annotations

from collections.abc import Callable

from ..kernel.context import Context
from ..words.group import dtype_bytes
from ..words.tvm_types import Buffer, Expr

STACK_SUMS = 64 * 1024  # bytes that a task may hold on its stack


def make_sums(
    ctx: Context, size: int, dtype: str, task: tuple[Expr, int], bind: Callable[[Expr, int], Expr]
) -> tuple[Buffer, Expr]:
    """A place for ``size`` of these of each task, and where in it those of this ``task``, of so many, begin: on its
    stack, where there is room, else in the arena."""
    if size * dtype_bytes(dtype) <= STACK_SUMS:
        return ctx.k.local("sums", dtype, size, "global"), 0
    number, tasks = task
    return ctx.scratch(tasks * size, dtype), bind(number * size, tasks * size)
