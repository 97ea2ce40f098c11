"""Running sums and products, and the k largest elements: loops along the axis, linear and n log k."""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..math.wrapping import plus, times
from .common import dtype_of, is_float, shape_of
from .filtered import offer_all
from .heap import Before, Heap, RankHeap, order, rank_of
from .loops import PARALLEL_WORK, accumulator, cast, split_at, written
from .radix import key_of, radix_pays, sort_descending
from .registry import define

LANES = 16  # running sums side by side, where the axis is not the innermost one


def _running(x: te.Tensor, axis: int, exclusive: bool, reverse: bool, product: bool) -> te.Tensor:
    """One pass along the axis for each row; rows next to each other in memory run in vectors."""
    outer, length, inner = split_at(x, axis)
    dtype, wide = dtype_of(x), accumulator(dtype_of(x))
    lanes = min(inner, LANES)
    blocks = -(-inner // lanes)

    def write(k: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        kind = "parallel" if outer * length * inner >= PARALLEL_WORK else "serial"
        with k.loop(outer * blocks, kind, "row") as row:
            before, block = row // blocks, row % blocks
            first = tirx.min(block * lanes, inner - lanes)  # the last block overlaps the one before it
            total = k.local("total", wide, lanes)
            with k.loop(lanes, "vectorized") as v:
                k.store(total, v, tirx.Cast(wide, tirx.IntImm("int32", int(product))))
            with k.loop(length, name="t") as t:
                at = (before * length + (length - 1 - t if reverse else t)) * inner + first
                with k.loop(lanes, "vectorized") as v:
                    element = cast(wide, k.load(ins[0], at + v))
                    after = k.bind((times if product else plus)(total[v], element))
                    k.store(outs[0], at + v, cast(dtype, total[v] if exclusive else after))
                    k.store(total, v, after)

    return written("running", [x], [(shape_of(x), dtype)], write)[0]


@define("halotile.cumsum")
def cumsum(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """The sum of the elements up to each one (without it when exclusive; from the end when reverse)."""
    return _running(x, axis, exclusive, reverse, product=False)


@define("halotile.cumprod")
def cumprod(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """The product of the elements up to each one (without it when exclusive; from the end when reverse)."""
    return _running(x, axis, exclusive, reverse, product=True)


@define("halotile.topk")
def topk(x: te.Tensor, *, k: int, axis: int, largest: bool) -> list[te.Tensor]:
    """The k largest (smallest) elements along ``axis`` in order, and their positions (int64); equals keep theirs.

    A heap of k positions with the last in order at the root, kept in the output itself: an element that comes before
    the root replaces it, and at the end the heap is taken apart from its root, back to front. Of types up to 32 bits it
    holds ranks, which compare at once, and rows are compared with its root in vectors (:mod:`.filtered`). Where most
    are wanted, they are sorted instead (:mod:`.radix`). A NaN counts as larger than any number.
    """
    if k == 1:
        return first_of(x, axis, order(is_float(dtype_of(x)), largest))
    shape = shape_of(x)
    outer, length, inner = split_at(x, axis)
    out = [k if a == axis else d for a, d in enumerate(shape)]
    rank = rank_of(dtype_of(x), largest)
    wide: Any = key_of(dtype_of(x), largest) if rank is None else None
    sorts = (rank or wide) is not None and radix_pays(length, k, rank is None)
    before = order(is_float(dtype_of(x)), largest)

    def write(b: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        values, positions = outs
        kind = "parallel" if outer * length * inner >= PARALLEL_WORK else "serial"
        with b.loop(outer * inner, kind, "row") as row:
            source = row // inner * (length * inner) + row % inner
            target = row // inner * (k * inner) + row % inner

            def value(p: Any) -> Any:
                return b.load(ins[0], source + p * inner)

            def put(o: Any, at: Any) -> None:
                b.store(values, target + o * inner, value(at))
                b.store(positions, target + o * inner, cast("int64", at))

            if sorts:
                number = (lambda p: rank(b, value(p), p)) if rank else (lambda p: wide(b, value(p)))
                stood = sort_descending(b, number, length, rank is None)
                with b.loop(k, name="o") as o:
                    put(o, b.bind(stood(o)))
                return
            ranked = None
            if rank is not None:
                ranked = RankHeap(b, positions, target, inner, lambda p: rank(b, value(p), p))
            heap = ranked or Heap(b, positions, target, inner, value, before)
            heap.fill(k)
            if ranked is not None and inner == 1 and length - k >= LANES:
                offer_all(b, ranked, value, k, length, largest, dtype_of(x))
            elif length > k:
                with b.loop(length - k, name="p") as rest:
                    heap.offer(rest + k, k)
            if k > 1:
                with b.loop(k - 1, name="s") as step:
                    heap.take(k - 1 - step)
            with b.loop(k, name="o") as o:
                put(o, b.bind(heap.position(o)))

    return written("topk", [x], [(out, dtype_of(x)), (out, "int64")], write)


def first_of(x: te.Tensor, axis: int, before: Before) -> list[te.Tensor]:
    """The first element in the order along ``axis``, and its position: in vectors of rows next to each other in memory,
    or of parts of one row, whose best ones are compared at the end."""
    outer, length, inner = split_at(x, axis)
    dtype = dtype_of(x)
    along = inner == 1
    lanes = min(length if along else inner, LANES)
    blocks = 1 if along else -(-inner // lanes)

    def write(b: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        kind = "parallel" if outer * length * inner >= PARALLEL_WORK else "serial"
        with b.loop(outer * blocks, kind, "row") as row:
            start = row // blocks * (length * inner)
            column = tirx.min(row % blocks * lanes, inner - lanes) if not along else tirx.IntImm("int32", 0)
            best, at = b.local("best", dtype, lanes), b.local("at", "int32", lanes)
            steps = -(-length // lanes) if along else length
            with b.loop(lanes, "vectorized") as v:
                b.store(best, v, b.load(ins[0], start + column + v))
                b.store(at, v, v if along else tirx.IntImm("int32", 0))
            with b.loop(steps - 1, name="t") as t:
                first = b.bind(tirx.min((t + 1) * lanes, length - lanes)) if along else t + 1
                with b.loop(lanes, "vectorized") as v:
                    place = first + v if along else tirx.Cast("int32", first)
                    value = b.bind(b.load(ins[0], start + (place if along else place * inner + column + v)))
                    wins = b.bind(before(value, place, best[v], at[v]))
                    b.store(at, v, tirx.Select(wins, place, at[v]))
                    b.store(best, v, tirx.Select(wins, value, best[v]))
            if along:
                with b.loop(lanes - 1, name="v") as v:
                    with b.when(before(best[v + 1], at[v + 1], best[0], at[0])):
                        b.store(best, 0, best[v + 1])
                        b.store(at, 0, at[v + 1])
            with b.loop(1 if along else lanes, "serial") as v:
                target = row // blocks * inner + column + v
                b.store(outs[0], target, best[v])
                b.store(outs[1], target, cast("int64", at[v]))

    out = [1 if a == axis else d for a, d in enumerate(shape_of(x))]
    return written("first", [x], [(out, dtype), (out, "int64")], write)
