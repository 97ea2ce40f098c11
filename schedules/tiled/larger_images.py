"""A kernel for images much larger than those that the build plans for, where another algorithm pays.

    ResNet-18 planned for 128 x 128, a layer of    8 x 8       F(2x2, 3x3), best at the planned size
                                                   11 x 11     F(4x4, 3x3) from here on, as fast or faster
                                                   16 x 16     0.58 of the cycles: enough for a second kernel

It reads weights of its own, which is why it has to save a quarter at twice the rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..dispatch import build_kernel, family_of, select
from ..words.dims import bounds, is_open
from ..words.group import Packed, Request, dtype_bytes
from ..words.sizes import usual
from .open_boxes import BoxKernel, of_batches

TIMES = 2.0  # as many rows and columns as planned for: the middle of what lies above these (register_tile.PLANNED)
LEAST = 1.4  # times; where images are not as large, there is nothing to gain
PAYS = 0.75  # of the usual kernel's cycles, at that size, may another take that brings weights of its own
MOST = 8 << 20  # bytes of these: libraries would be several times as large for images that may never come
STEPS = 16  # sizes are tried in steps of such a part of theirs


def larger_kernel(request: Request, first: BoxKernel, boxed: Callable[[float], Request]) -> BoxKernel | None:
    """The kernel that computes images before ``first`` does, which is best at the planned size; None where that stays
    best. ``boxed``: the request for images so many times as high and as wide as planned."""
    size, batch = request.group.outputs[0].shape[2:], request.group.outputs[0].shape[0]
    times = min([TIMES, *(bounds(d)[1] / usual(d) for d in size if is_open([d]))])
    if not is_open(size) or times < LEAST:
        return None
    large = boxed(times)
    choice, box = select(large), large.box
    assert box is not None
    if not family_of(large).transforms(choice, first.choice):
        return None

    def faster(rows: int, columns: int, images: int, share: float = 1.0) -> bool:
        here = replace(large, box=replace(box, rows=rows, columns=columns))
        own, usually = (family_of(here).expected(here, c, images) for c in (choice, first.choice))
        return own is not None and usually is not None and own <= share * usually

    if not faster(box.rows, box.columns, max(1, int(bounds(batch)[0])), PAYS):
        return None
    kernel = build_kernel(replace(large, choice=choice))
    weights = (o for o in kernel.operands if isinstance(o, Packed))
    if sum(w.elements * dtype_bytes(w.dtype) for w in weights) > MOST:
        return None

    workers = request.workers
    most = max(kernel.least[0], min(box.rows * workers, round(times * usual(size[0])))), box.columns

    def smallest(images: int) -> tuple[int, int]:
        """In bands of rows that cores share, where they can't share channels."""
        rows, columns = kernel.least
        while (rows, columns) != most:
            bands = 1 if kernel.groups >= workers else min(rows // kernel.least[0], workers)
            if faster(-(-rows // bands), columns, images):
                break
            rows, columns = min(most[0], _next(rows)), min(most[1], _next(columns))
        return rows, columns

    (_, since), *batches = of_batches(workers, large, kernel, smallest)
    return BoxKernel(kernel, choice, since, batches=tuple(batches))


def _next(extent: int) -> int:
    return extent + max(1, extent // STEPS)
