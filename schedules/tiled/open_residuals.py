"""Kernels of an open image that let its result lie where a residual lies: no output is computed twice.

    image as large as Winograd's algorithm pays for    its kernel, which stores each output once
    smaller:  columns 0 .. 4k                          register tiles of one row and four columns
              the one to three that are left           those of one position

Register tiles of which the last one moves back read a residual that the one before has written over. Where only images
smaller than any that the build plans for take register tiles, they are these instead, for as little of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..conv.register_tile import Tile
from ..dispatch import build_kernel, select
from ..words.group import Kernel, Request, Value
from .open_boxes import BoxKernel, planned_from

COLUMNS = 4  # of a tile, which four to eight sums hide the latency of


@dataclass(frozen=True)
class OnceKernels:
    """Two kernels for images of any size: ``first`` computes multiples of COLUMNS columns, ``rest`` any number."""

    first: BoxKernel
    rest: BoxKernel

    def __str__(self) -> str:
        return f"{self.first.kernel.schedule}, columns over in tiles of one"


def once_kernels(boxed: Request, made: Sequence[BoxKernel]) -> OnceKernels | None:
    """What may stand for all of ``made`` but the first, which computes each output once, and the output's memory then
    be a residual's; None where there is no residual, or where images that a build plans for need the others."""
    box, inplace = boxed.box, made[0].kernel.inplace
    if not inplace or len(made) < 2 or box is None or box.steps != (1, 1) or not planned_from(boxed, made[0].since):
        return None
    found: list[BoxKernel] = []
    for columns in (COLUMNS, 1):
        asked = replace(
            boxed,
            box=replace(box, rows=1, columns=columns, spread=()),
            limits=replace(boxed.limits, once=columns),
        )
        choice = found[0].choice if found else select(asked)
        if found:
            choice = replace(choice, plan=replace(choice.plan, columns=1))  # from the same weights
        if not isinstance(choice.plan, Tile) or choice.plan.rows > 1:
            return None
        kernel = build_kernel(replace(asked, choice=choice))
        if kernel.least[0] > 1 or columns % kernel.least[1] or any(v not in kernel.inplace for v in inplace):
            return None
        found.append(BoxKernel(kernel, choice, (1, 1)))
    return OnceKernels(*found)


def overwritten_by_all(kernels: Sequence[Kernel]) -> tuple[Value, ...]:
    """The inputs whose memory the output may take, whichever of the kernels computes it."""
    return tuple(v for v in kernels[0].inplace if all(v in kernel.inplace for kernel in kernels))
