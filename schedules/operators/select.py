"""Choosing elements: how many there are is only known at run time, so results have room for all that there can be.

    nonzero([0, 3, 0, 5]) -> positions [[1, 3, 0, 0]], count [2]

What lies behind the last that was chosen is zero: a position that can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm import te, tirx
from tvm.ir.prim import expr as prim

from ..emit.builder import KernelBuilder
from ..emit.inline import negation
from ..emit.vector_reads import index
from ..math.exponential import ordered
from ..words.dims import minimum
from ..words.sizes import product
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, shape_of, wide
from .heap import Heap, order
from .loops import cast, kind_of, until, written
from .registry import define


@define("halotile.nonzero")
def nonzero(x: te.Tensor) -> list[te.Tensor]:
    """Positions of the elements that are not zero (NaN is not), in order: int64 [rank, elements], and their number:
    int64 [1]."""
    shape = shape_of(x)
    elements, rank = product(shape), len(shape)

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        positions, count = outs
        k.store(count, 0, tirx.IntImm("int64", 0))
        with k.loop(elements, name="e") as e:
            element = k.load(ins[0], e)
            chosen = element if dtype_of(x) == "bool" else negation(prim.EQ(element, tirx.const(0, dtype_of(x))))
            with k.when(chosen):
                place, left = k.bind(cast("int32", count[0])), e
                for d in range(rank - 1, -1, -1):
                    k.store(positions, d * elements + place, cast("int64", left % shape[d] if d else left))
                    left = left // shape[d]
                k.store(count, 0, count[0] + tirx.IntImm("int64", 1))
        first = k.bind(cast("int32", count[0]))
        for d in range(rank):
            with k.loop(elements - first, name="z") as z:
                k.store(positions, d * elements + first + z, tirx.IntImm("int64", 0))

    return written("nonzero", [x], [((rank, elements), "int64"), ((1,), "int64")], write)


@define("halotile.non_max_suppression")
def non_max_suppression(
    boxes: te.Tensor,
    scores: te.Tensor,
    *more: te.Tensor,
    names: str = "",
    most: int | None = None,
    overlap: float = 0.0,
    above: float | None = None,
    centre: bool,
) -> list[te.Tensor]:
    """Boxes in the order of their scores, without those that overlap a better one of their class by more than
    ``overlap`` of their union.

    boxes: [B, N, 4], scores: [B, C, N]. ``more`` are numbers of run time, [1] each, told by the letters of ``names``:
    n, how many of the N boxes there are (int64), m, how many to take at most (int64, from 0), o and a, thresholds of
    the overlap and of the scores in place of ``overlap`` and ``above``. Gives rows (batch, class, box),
    int64 [B * C * most, 3], and their number, int64 [1]; what follows is memory to work in. Of every class of every
    image at most ``most`` are taken (without it, all of N), of scores larger than ``above`` (a NaN is not larger than
    anything), and equal scores in the order of the boxes.

    A class is a heap of its boxes with the best at the root; it is taken apart until enough are kept, so what costs is
    the boxes above the threshold, and log n for each that is looked at.
    """
    (batches, count, _), classes = shape_of(boxes), shape_of(scores)[1]
    rows, dtype = batches * classes, dtype_of(boxes)
    most = count if most is None else minimum(most, count)
    later = order(True, True)

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        selected, total, heaps, kept, counts = outs
        given = dict(zip(names, ins[2:]))
        available: Expr = index(count)
        if "n" in given:
            available = tirx.min(cast("int32", given["n"][0]), count)
        enough: Expr = index(most)
        if "m" in given:
            enough = k.bind(cast("int32", tirx.min(given["m"][0], wide(most))))
        too_near = given["o"][0] if "o" in given else tirx.const(overlap, dtype)
        least = given["a"][0] if "a" in given else None if above is None else tirx.const(above, dtype)
        with k.loop(rows, kind_of(rows * count), "row") as row:
            corner = row // classes * (count * 4)

            def score(p: Expr) -> Expr:
                return k.load(ins[1], row * count + p)

            heap = Heap(k, heaps, row * count, 1, score, lambda a, p, b, q: later(b, q, a, p))
            size = k.local("size", "int32", 1)
            k.store(size, 0, tirx.IntImm("int32", 0))
            with k.loop(available, name="n") as n:
                with k.when(ordered(score(n)) if least is None else score(n) > least):
                    heap.put(size[0], n)
                    k.store(size, 0, size[0] + 1)
            half = k.bind(size[0] // 2)
            with k.loop(half, name="h") as h:
                heap.sink(half - 1 - h, size[0])
            k.store(counts, row, tirx.IntImm("int32", 0))
            fits, best = k.local("fits", "int32", 1), k.local("best", "int32", 1)
            with until(k) as done:
                k.store(done, 0, tirx.Cast("int32", tirx.any(size[0] == 0, counts[row] >= enough)))
                with k.when(done[0] == 0):
                    k.store(best, 0, heap[0])
                    k.store(size, 0, size[0] - 1)
                    heap.put(0, heap[size[0]])
                    with k.when(size[0] > 0):
                        heap.sink(0, size[0])
                    k.store(fits, 0, tirx.IntImm("int32", 1))
                    with k.loop(counts[row], name="j") as j:
                        with k.when(fits[0] != 0):
                            new, old = (corner + at * 4 for at in (best[0], kept[row * most + j]))
                            with _overlapping(k, ins[0], new, old, too_near, centre, dtype):
                                k.store(fits, 0, tirx.IntImm("int32", 0))
                    with k.when(fits[0] != 0):
                        k.store(kept, row * most + counts[row], best[0])
                        k.store(counts, row, counts[row] + 1)
        k.store(total, 0, tirx.IntImm("int64", 0))
        with k.loop(rows, name="row") as row:
            with k.loop(counts[row], name="j") as j:
                start = k.bind(cast("int32", total[0]) * 3)
                for i, value in enumerate((row // classes, row % classes, kept[row * most + j])):
                    k.store(selected, start + i, cast("int64", value))
                k.store(total, 0, total[0] + tirx.IntImm("int64", 1))
        filled = k.bind(cast("int32", total[0]) * 3)
        with k.loop(rows * most * 3 - filled, name="z") as z:
            k.store(selected, filled + z, tirx.IntImm("int64", 0))

    outputs = [((rows * most, 3), "int64"), ((1,), "int64"), ((rows, count), "int32"), ((rows, most), "int32"),
               ((rows,), "int32")]  # fmt: skip
    return written("non_max_suppression", [boxes, scores, *more], outputs, write)


@contextmanager
def _overlapping(
    k: KernelBuilder, boxes: Buffer, a: Expr, b: Expr, overlap: Expr, centre: bool, dtype: str
) -> Iterator[None]:
    """A scope for when two boxes share more than ``overlap`` of their union; those without area share nothing.

    Most pairs lie apart, and areas and quotients are for the others.
    """
    (top_a, bottom_a, left_a, right_a), (top_b, bottom_b, left_b, right_b) = (
        _sides(k, boxes, at, centre, dtype) for at in (a, b)
    )
    nothing = tirx.const(0, dtype)
    height = k.bind(tirx.min(bottom_a, bottom_b) - tirx.max(top_a, top_b))
    width = k.bind(tirx.min(right_a, right_b) - tirx.max(left_a, left_b))
    with k.when(tirx.all(height > nothing, width > nothing)):
        shared = k.bind(height * width)
        first, second = k.bind((right_a - left_a) * (bottom_a - top_a)), k.bind((right_b - left_b) * (bottom_b - top_b))
        union = k.bind(first + second - shared)
        real = tirx.all(*(v > nothing for v in (shared, first, second, union)))
        with k.when(tirx.all(real, shared / union > overlap)):
            yield


def _sides(k: KernelBuilder, boxes: Buffer, at: Expr, centre: bool, dtype: str) -> tuple[Expr, Expr, Expr, Expr]:
    """Low and high y, low and high x: of [y, x, y, x] of any two opposite corners, or of [x, y, width, height]."""
    v = [k.bind(k.load(boxes, at + i)) for i in range(4)]
    if centre:
        half = tirx.const(0.5, dtype)
        return v[1] - v[3] * half, v[1] + v[3] * half, v[0] - v[2] * half, v[0] + v[2] * half
    return tirx.min(v[0], v[2]), tirx.max(v[0], v[2]), tirx.min(v[1], v[3]), tirx.max(v[1], v[3])
