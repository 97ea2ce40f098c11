"""Who computes what: each core takes the same band of rows in every kernel.

What a core has written lies in its own cache; from another core's, a line takes fifty times as long where the two share
no cache. A layer reads all channels of the rows around its own, so kernels over images deal rows to cores, whatever
order they loop in:

    parallel for core c                                  each zeros the margins beside its rows first
      for group of channels g
        for row q from ceil((first - g) / G) up to ceil((last - g) / G)

Pairs (q, g) count row by row, p = q * G + g, and core c of C has those from first = c * Q * G / C up to
last = (c + 1) * Q * G / C: bands differ by one pair at most, and only a row in the middle is shared, by groups.
Where there are images enough, a core takes whole ones.

In channel blocks a core's rows are a run of memory in each block, and the hardware's prefetchers read and claim lines
past its end: the neighbour's. Where runs are short, this is most of the time of a kernel that moves more than it
computes: a depthwise layer of 576 channels at 14 x 14 takes 15 us on one core, 18 on two by rows, 10 by channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.vector_reads import index
from ..words.dims import Size, is_open
from ..words.sizes import usual
from ..words.tvm_types import Expr
from .context import Context

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

LEAST_ROWS = 4  # of a core: with fewer, neighbouring cores would read most of each other's rows
LONG_ROWS = 8  # of a core: with fewer, what is asked for past the end of its rows costs more than reading all of them


def has_bands(rows: Size, workers: int) -> bool:
    """True if an image is high enough for cores to share it by rows; else they share channels, where they can."""
    return usual(rows) >= LEAST_ROWS * workers


def has_long_bands(rows: int, workers: int) -> bool:
    """True if cores share an image by rows also where they do little more than move it."""
    return usual(rows) >= LONG_ROWS * workers


@contextmanager
def bands(
    ctx: Context,
    images: int,
    groups: int,
    rows: int,
    parallel: bool,
    order: str = "bands",
    first: Callable[[Expr, Expr, SizeLike], None] | None = None,
    passes: int = 1,
    step: int = 1,
    short: int = 0,
) -> Iterator[tuple[Expr, Expr, Expr]]:
    """Loops over images, groups and rows; gives their indices.

    ``first(image, part, parts)`` is called where a core begins one of the parts of an image. ``order``: "bands" of
    rows, all rows of a group following each other; "rows", all groups of a row; or "groups", of which each core takes
    its own, with all rows (where the groups' weights are far more than the image). With ``passes`` a core goes through
    its rows of a group so many times, and the group's index is ``group * passes + pass``. Where a row stands for
    ``step`` rows, of which the last lacks ``short``, cores share these evenly, but in order "rows".
    """
    k, simplify = ctx.k, ctx.analyzer.simplify
    workers = ctx.request.workers if parallel else 1
    parts = 1 if images % workers == 0 else workers if is_open([rows, groups]) else min(workers, rows * groups)
    total = rows * groups
    if order == "rows":
        step, short = 1, 0
    height = rows * step - short

    def named(value: Expr, extent: int) -> Expr:
        value = simplify(value)
        return value if isinstance(value, (tirx.Var, tirx.IntImm)) else ctx.ranged(k.bind(value, "o"), extent)

    with k.loop(images * parts, "parallel" if workers > 1 else "serial", "p") as p:
        ctx.ranged(p, images * parts)
        image, part = named(tirx.floordiv(p, parts), images), named(tirx.floormod(p, parts), parts)
        if first is not None:
            first(image, part, parts)
        begin: Expr = tirx.IntImm("int32", 0)
        end: Expr = index(total)
        if parts > 1:
            begin, end = (tirx.floordiv((part + i) * (height * groups), parts) for i in (0, 1))
        if order == "rows":
            with k.loop(simplify(end - begin), name="q", begin=simplify(begin)) as pair:
                ctx.ranged(pair, total)
                row, group = named(tirx.floordiv(pair, groups), rows), named(tirx.floormod(pair, groups), groups)
                with k.loop(passes, name="turn") as turn:
                    yield image, simplify(group * passes + ctx.ranged(turn, passes)), row
            return
        low: Expr = tirx.IntImm("int32", 0)
        count: Expr = index(groups)
        if order == "groups" and parts > 1:
            low = named(tirx.floordiv(begin, height), groups)
            count = simplify(tirx.floordiv(end + (height - 1), height) - low)
        with k.loop(count, name="g") as number:
            group = named(low + ctx.ranged(number, groups), groups)
            own = [tirx.IntImm("int32", 0), index(rows)]
            if parts > 1 and order == "groups":
                low, high = (tirx.floordiv(e + (step - 1) - group * height, step) for e in (begin, end))
                own = [simplify(tirx.max(low, 0)), simplify(tirx.min(high, rows))]
            elif parts > 1:
                # as if the last were whole, to which the last core's end moves
                high = end + tirx.floordiv(part + 1, parts) * (short * groups) if short else end
                pitch = step * groups
                own = [simplify(tirx.floordiv(e + (pitch - 1) - group * step, pitch)) for e in (begin, high)]
            with k.loop(passes, name="turn") as turn:
                ctx.ranged(turn, passes)
                with k.loop(simplify(own[1] - own[0]), name="q", begin=own[0]) as row:
                    yield image, simplify(group * passes + turn), ctx.ranged(row, rows)


@contextmanager
def image_rows(ctx: Context, images: int, rows: int, parallel: bool) -> Iterator[tuple[Expr, Expr]]:
    """Loops over the rows of images, all channels of each: of whole images in bands, whose margins each core fills
    before, or of the kernel's box. Gives an image's index and that of a row in the tensor."""
    if ctx.origin is None:
        ctx.expect_margins()

        def margins(image: Expr, part: Expr, parts: int) -> None:
            ctx.fill_parts(None, image, part, parts)

        with bands(ctx, images, 1, rows, parallel, first=margins) as (image, _, row):
            yield image, row
        return
    with ctx.k.loop(images, name="n") as image, ctx.k.loop(rows, name="y") as row:
        ctx.ranged(image, images)
        ctx.ranged(row, rows)
        yield image, row + ctx.origin[0]
