"""Kernels of one group for boxes of every size: the fast one, and others for boxes that are too small for it.

Register tiles are the target's, for the size that is expected; that boxes have any size, and the last tile of a row
moves back, is what they need for tile groups of fixed size as well. Kernels for smaller boxes read the same packed
weights where they can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ..dispatch import build_kernel, select, smaller
from ..words.dims import Open
from ..words.group import Kernel, Request

SMALLER = 3  # times fewer columns has the next smaller tile


def box_kernels(request: Request, enough: Callable[[tuple[int, int]], bool]) -> Iterator[Kernel]:
    """Kernels of the open box that ``request`` has, each for boxes that are too small for those before it, down to its
    ``steps``, or to the smallest box of which ``enough`` says that there is none smaller."""
    box = request.box
    assert box is not None and box.open
    units, boxed = box.steps, request
    choice = select(boxed)
    least: tuple[int, int] | None = None
    while True:
        kernel = build_kernel(replace(boxed, choice=choice))
        smallest = boxed.box == replace(box, rows=units[0], columns=units[1])
        if kernel.least != least:
            least = kernel.least
            yield kernel
            fits = all(n <= unit for n, unit in zip(least, units))
            if fits or enough(least):
                return
            following = smaller(boxed, choice, least, SMALLER)
            columns = max(units[1], least[1] // SMALLER)
        elif smallest:
            raise Open(f"no kernel computes images smaller than {least[0]} x {least[1]}")
        else:
            following, columns = None, units[1]
        if following is None:
            boxed = replace(boxed, box=replace(box, rows=units[0], columns=columns))
        choice = following or select(boxed)
