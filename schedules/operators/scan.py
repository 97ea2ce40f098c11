"""Running sums and products, and the k largest elements: loops along the axis, linear and n log k."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ..emit import KernelBuilder
from ..operator import define
from .common import dtype_of, is_float, is_nan, shape_of
from .loops import PARALLEL_WORK, accumulator, cast, split_at, until, written

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
                    after = k.bind(total[v] * element if product else total[v] + element)
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
    the root replaces it, and at the end the heap is taken apart from its root, back to front. A NaN counts as larger
    than any number.
    """
    if k == 1:
        return first_of(x, axis, order(is_float(dtype_of(x)), largest))
    shape = shape_of(x)
    outer, length, inner = split_at(x, axis)
    out = [k if a == axis else d for a, d in enumerate(shape)]
    before = order(is_float(dtype_of(x)), largest)

    def write(b: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        values, positions = outs
        kind = "parallel" if outer * length * inner >= PARALLEL_WORK else "serial"
        with b.loop(outer * inner, kind, "row") as row:
            source = (row // inner) * (length * inner) + row % inner
            target = (row // inner) * (k * inner) + row % inner
            heap = Heap(b, positions, target, inner, lambda p: b.load(ins[0], source + p * inner), before)
            heap.fill(k)
            if length > k:
                with b.loop(length - k, name="p") as rest:
                    candidate = rest + k
                    with b.when(before(heap.value(candidate), candidate, heap.value(heap[0]), heap[0])):
                        heap.put(0, candidate)
                        heap.sink(0, k)
            if k > 1:
                with b.loop(k - 1, name="s") as step:
                    last = k - 1 - step
                    worst = b.local("worst", "int32", 1)
                    b.store(worst, 0, heap[0])
                    heap.put(0, heap[last])
                    heap.put(last, worst[0])
                    heap.sink(0, last)
            with b.loop(k, name="o") as o:
                b.store(values, target + o * inner, heap.value(heap[o]))

    return written("topk", [x], [(out, dtype_of(x)), (out, "int64")], write)


Before = Callable[[Any, Any, Any, Any], Any]


def order(floats: bool, largest: bool) -> Before:
    """True when element a at position p comes before b at q: larger (smaller), or equal and earlier."""

    def before(a: Any, p: Any, b: Any, q: Any) -> Any:
        wins = a > b if largest else a < b
        same = a == b
        if floats:
            a_nan, b_nan = is_nan(a), is_nan(b)
            ahead, behind = (a_nan, b_nan) if largest else (b_nan, a_nan)
            wins = tirx.any(wins, tirx.all(ahead, tirx.Not(behind)))
            same = tirx.any(same, tirx.all(a_nan, b_nan))
        return tirx.any(wins, tirx.all(same, p < q))

    return before


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


class Heap:
    """Positions at ``target``, ``stride`` apart; every parent comes after its two children in the order."""

    def __init__(
        self, b: KernelBuilder, store: Any, target: Any, stride: int, value: Callable[[Any], Any], before: Before
    ) -> None:
        self.b, self.store, self.target, self.stride = b, store, target, stride
        self.value, self.before = value, before

    def __getitem__(self, index: Any) -> Any:
        return tirx.Cast("int32", self.b.load(self.store, self.target + index * self.stride))

    def put(self, index: Any, position: Any) -> None:
        self.b.store(self.store, self.target + index * self.stride, cast(str(self.store.dtype), position))

    def fill(self, size: int) -> None:
        """The first ``size`` positions, made a heap from the last parent up."""
        with self.b.loop(size, name="f") as i:
            self.put(i, i)
        if size > 1:
            with self.b.loop(size // 2, name="h") as i:
                self.sink(size // 2 - 1 - i, size)

    def sink(self, start: Any, size: Any) -> None:
        """Moves the position at ``start`` down until both its children, below ``size``, come before it."""
        b = self.b
        at = b.local("at", "int32", 1)
        b.store(at, 0, tirx.IntImm("int32", start) if isinstance(start, int) else start)
        moving = b.local("moving", "int32", 1)
        b.store(moving, 0, self[at[0]])
        child = b.local("child", "int32", 1)
        with until(b) as done:
            b.store(child, 0, at[0] * 2 + 1)
            with b.when(child[0] + 1 < size):
                with b.when(self._before(self[child[0]], self[child[0] + 1])):
                    b.store(child, 0, child[0] + 1)
            b.store(done, 0, tirx.IntImm("int32", 1))
            with b.when(child[0] < size):
                with b.when(self._before(moving[0], self[child[0]])):
                    self.put(at[0], self[child[0]])
                    b.store(at, 0, child[0])
                    b.store(done, 0, tirx.IntImm("int32", 0))
        self.put(at[0], moving[0])

    def _before(self, p: Any, q: Any) -> Any:
        return self.before(self.value(p), p, self.value(q), q)
