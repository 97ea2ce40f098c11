"""Kernels of one group for boxes of every size: the fast one, and others for boxes that are too small for it.

Register tiles are the target's, for the size that is expected; that boxes have any size, and the last tile of a row
moves back, is what they need for tile groups of fixed size as well. Kernels for smaller boxes read the same packed
weights where they can.

An algorithm that won by its cycles loses where few tiles of its transform are full: in images it is taken from the size
on where it still wins, and register tiles for the sizes below compute smaller ones. Boxes of tile groups are nearly all
as large as is expected, and only what is too small for a tile is computed otherwise.

Where several register tiles read the same weights, each image takes the one whose tiles, of which the last ones move
back, need the fewest cycles for its rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..conv.register_tile import PLANNED, SMALLER, Sizes, sizes_below
from ..dispatch import build_kernel, family_of, select
from ..words.choice import Choice
from ..words.dims import Dim, Open, bounds
from ..words.group import Kernel, Request
from ..words.sizes import usual

BATCHES = (2, 4, 8)  # images for which it is asked from which size on an algorithm pays


@dataclass(frozen=True)
class BoxKernel:
    """A kernel, its choice, and from how many (rows, columns) on it computes an image; smaller ones are the next
    kernel's. ``cycles``: of one of its tiles, where images choose between several kernels; else None. ``batches``:
    (images, (rows, columns)), where so many images that it computes together may each be smaller."""

    kernel: Kernel
    choice: Choice
    since: tuple[int, int]
    cycles: float | None = None
    batches: tuple[tuple[int, tuple[int, int]], ...] = ()

    def __str__(self) -> str:
        rows, columns = self.since
        return self.kernel.schedule + (f" from {rows} x {columns}" if self.since != self.kernel.least else "")


def box_kernels(request: Request) -> Iterator[Kernel]:
    """Kernels of the open box that ``request`` has, each for boxes that are too small for those before it, down to its
    ``steps``."""
    return (own.kernel for own in _kernels(request, lambda _, __, kernel: [(1, kernel.least)], lambda _: False))


def image_kernels(
    request: Request, workers: int, enough: Callable[[tuple[int, int]], bool]
) -> Iterator[BoxKernel]:
    """The same for boxes that are images, or the bands of their rows that ``workers`` share: each for the images that
    the kernels before it do not pay for, down to the smallest of which ``enough`` says that there is none smaller."""
    return _kernels(request, partial(_since, workers), enough)


def _kernels(
    request: Request,
    begins: Callable[[Request, Choice, Kernel], list[tuple[int, tuple[int, int]]]],
    enough: Callable[[tuple[int, int]], bool],
) -> Iterator[BoxKernel]:
    box = request.box
    assert box is not None and box.open
    units, boxed, below = box.steps, request, replace(box, spread=())
    choice = select(boxed)
    least: tuple[int, int] | None = None
    while True:
        if among := family_of(boxed).peers(boxed, choice) if units == (1, 1) else []:
            yield from _peers(boxed, among, enough)
            return
        kernel = build_kernel(replace(boxed, choice=choice))
        smallest = boxed.box == replace(below, rows=units[0], columns=units[1])
        many: Sizes = ()
        if kernel.least != least:
            least = kernel.least
            won = choice.cycles < math.inf
            (_, since), *batches = begins(boxed, choice, kernel) if won else [(1, least)]
            yield BoxKernel(kernel, choice, since, batches=tuple(batches))
            fits = all(n <= unit for n, unit in zip(since, units))
            if fits or enough(since):
                return
            following = family_of(boxed).smaller(choice, least, SMALLER)
            many = sizes_below(*since) if won and box.spread and not planned_from(boxed, since) else ()
            columns = max(units[1], -(-since[1] // 2) if won else least[1] // SMALLER)
        elif smallest:
            raise Open(f"no kernel computes images smaller than {least[0]} x {least[1]}")
        else:
            following, columns = None, units[1]
        if following is None:
            boxed = replace(boxed, box=replace(below, rows=units[0], columns=columns, spread=many))
        choice = following or select(boxed)


def _peers(
    boxed: Request, among: Sequence[tuple[Choice, float]], enough: Callable[[tuple[int, int]], bool]
) -> Iterator[BoxKernel]:
    """The kernels that images choose from, down to that of a single output; without it, where another computes all."""
    box, whole = boxed.box, False
    assert box is not None
    for choice, cycles in among:
        single = choice is among[-1][0]
        if single and whole:
            return
        own = replace(boxed, box=replace(box, rows=1, columns=1)) if single else boxed  # vectors left over likewise
        kernel = build_kernel(replace(own, choice=choice))
        if single and kernel.least != (1, 1):
            raise Open(f"no kernel computes images smaller than {kernel.least[0]} x {kernel.least[1]}")
        whole = whole or enough(kernel.least)
        yield BoxKernel(kernel, choice, kernel.least, cycles)


def planned_from(boxed: Request, since: tuple[int, int]) -> bool:
    """True if images as small as any that the build plans for have at least ``since`` rows and columns: those below
    need what computes them, but no kernels more to be as fast as can be."""
    extents = boxed.group.outputs[0].shape[2:4]
    return all(n <= PLANNED[0] * usual(extent) for n, extent in zip(since, extents))


def _since(workers: int, boxed: Request, choice: Choice, kernel: Kernel) -> list[tuple[int, tuple[int, int]]]:
    """(images, (rows, columns)): the smallest images from which on the choice pays where so many are computed together,
    whatever its tiles leave over; the first of as few images as there may be, the others of more and smaller ones."""
    return of_batches(workers, boxed, kernel, partial(_smallest, workers, boxed, choice, kernel))


def of_batches(
    workers: int, boxed: Request, kernel: Kernel, smallest: Callable[[int], tuple[int, int]]
) -> list[tuple[int, tuple[int, int]]]:  # fmt: skip
    """(images, (rows, columns)) that ``smallest`` says of so many images: of as few as there may be, and of more where
    that is less."""
    batch = boxed.group.outputs[0].shape[0]
    if not isinstance(batch, Dim):
        return [(batch, smallest(batch))]
    fewest = max(1, int(bounds(batch)[0]))
    together = workers == 1 or kernel.groups >= workers
    found: list[tuple[int, tuple[int, int]]] = []
    for images in dict.fromkeys((fewest, *(n for n in BATCHES if n > fewest and together))):
        since = smallest(images)
        if not found or math.prod(since) < math.prod(found[-1][1]):
            found.append((images, since))
    return found


def _smallest(workers: int, boxed: Request, choice: Choice, kernel: Kernel, images: int) -> tuple[int, int]:
    """The smallest of so many ``images``, of the kernel's least rows and columns or as many more of both, from which on
    the choice pays: in bands of rows that cores share, where they can't share channels; at most the image that it was
    made for."""
    box, least = boxed.box, kernel.least
    assert box is not None
    most = min(box.rows * workers, usual(boxed.group.outputs[0].shape[2])), box.columns
    since = size = least
    paid = 0  # sizes in a row
    while paid < max(least) and size != most:
        bands = 1 if kernel.groups >= workers else min(size[0] // least[0], workers)
        own = replace(box, rows=-(-size[0] // bands), columns=size[1])
        paid = paid + 1 if family_of(boxed).pays(replace(boxed, box=own), choice, images) else 0
        size = min(size[0] + 1, most[0]), min(size[1] + 1, most[1])
        since = since if paid else size
    return since
