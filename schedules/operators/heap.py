"""Heaps of positions, for the k largest elements: the last in order at the root, in memory of the output itself."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ..emit.builder import KernelBuilder, sequence
from ..words.sizes import surely
from ..words.tvm_types import Buffer, Expr
from .common import is_float, is_nan
from .loops import cast, until

LOW = 0x7FFFFFFF  # the half of a rank that tells the position

Before = Callable[[Expr, Expr, Expr, Expr], Expr]


def order(floats: bool, largest: bool) -> Before:
    """True when element a at position p comes before b at q: larger (smaller), or equal and earlier."""

    def before(a: Expr, p: Expr, b: Expr, q: Expr) -> Expr:
        wins = a > b if largest else a < b
        same = a == b
        if floats:
            a_nan, b_nan = is_nan(a), is_nan(b)
            ahead, behind = (a_nan, b_nan) if largest else (b_nan, a_nan)
            wins = tirx.any(wins, tirx.all(ahead, tirx.Not(behind)))
            same = tirx.any(same, tirx.all(a_nan, b_nan))
        return tirx.any(wins, tirx.all(same, p < q))

    return before


def rank_of(dtype: str, largest: bool) -> Callable[[KernelBuilder, Expr, Expr], Expr] | None:
    """A whole number for element ``value`` at ``position``: greater ones come first, no two are equal, and the low half
    tells the position. None for types wider than the other half."""
    if dtype not in ("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint16", "uint8"):
        return None

    def rank(b: KernelBuilder, value: Expr, position: Expr) -> Expr:
        bits = value
        if is_float(dtype):
            zero, value = tirx.const(0, "float32"), b.bind(cast("float32", value))
            raw = b.bind(tirx.reinterpret("int32", tirx.Select(value == zero, zero, value)))  # -0 equals 0
            turned = tirx.bitwise_xor(raw, tirx.bitwise_and(tirx.shift_right(raw, 31), 0x7FFFFFFF))
            bits = tirx.Select(is_nan(value), tirx.IntImm("int32", 0x7FFFFFFF), turned)
        wide = b.bind(cast("int64", bits if largest else tirx.bitwise_not(cast("int32", bits))))
        low = tirx.bitwise_xor(cast("int64", position), tirx.IntImm("int64", LOW))
        return b.bind(tirx.bitwise_or(tirx.shift_left(wide, tirx.IntImm("int64", 32)), low))

    return rank


def position_of(rank: Expr) -> Expr:
    """The position that a number of :func:`rank_of` tells. As a difference from ``LOW`` it would be index arithmetic:
    TVM's simplifier adds ``LOW`` to where a row begins, beyond int32, and LLVM takes every row for the first."""
    low = tirx.bitwise_and(rank, tirx.IntImm("int64", LOW))
    return cast("int32", tirx.bitwise_xor(low, tirx.IntImm("int64", LOW)))


class Heap:
    """Positions at ``target``, ``stride`` apart; every parent comes after its two children in the order."""

    def __init__(
        self, b: KernelBuilder, store: Buffer, target: Expr, stride: int, value: Callable[[Expr], Expr], before: Before
    ) -> None:
        self.b, self.store, self.target, self.stride = b, store, target, stride
        self.value, self.before = value, before

    def __getitem__(self, index: Expr) -> Expr:
        return tirx.Cast("int32", self.b.load(self.store, self.target + index * self.stride))

    def put(self, index: Expr, position: Expr) -> None:
        self.b.store(self.store, self.target + index * self.stride, cast(str(self.store.dtype), position))

    def position(self, index: Expr) -> Expr:
        return self[index]

    def fill(self, size: Expr) -> None:
        """The first ``size`` positions, made a heap from the last parent up."""
        with self.b.loop(size, name="f") as i:
            self.put(i, i)
        if not surely(lambda: size <= 1):
            with self.b.loop(size // 2, name="h") as i:
                self.sink(size // 2 - 1 - i, size)

    def offer(self, candidate: Expr, size: Expr) -> None:
        """Puts the position in place of the root if it comes before that."""
        with self.b.when(self._before(candidate, self[0])):
            self.put(0, candidate)
            self.sink(0, size)

    def take(self, last: Expr) -> None:
        """Moves the root behind the heap, to ``last``, and makes one of what is left."""
        worst = self.b.local("worst", "int32", 1)
        self.b.store(worst, 0, self[0])
        self.put(0, self[last])
        self.put(last, worst[0])
        self.sink(0, last)

    def sink(self, start: Expr, size: Expr) -> None:
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

    def _before(self, p: Expr, q: Expr) -> Expr:
        return self.before(self.value(p), p, self.value(q), q)


class RankHeap:
    """Whole numbers that tell order and position at once (:func:`rank_of`), at ``target``, ``stride`` apart; no parent
    is greater than its two children. The hole that a moving one leaves goes down to the leaves by the lesser child, and
    from there up to its place, which is near: the way down has no branch that could be mistaken."""

    def __init__(
        self, b: KernelBuilder, store: Buffer, target: Expr, stride: int, rank: Callable[[Expr], Expr]
    ) -> None:
        self.b, self.store, self.target, self.stride, self.rank = b, store, target, stride, rank

    def __getitem__(self, index: Expr) -> Expr:
        return self.b.load(self.store, self.target + index * self.stride)

    def put(self, index: Expr, rank: Expr) -> None:
        self.b.store(self.store, self.target + index * self.stride, rank)

    def position(self, index: Expr) -> Expr:
        return position_of(self[index])

    def fill(self, size: Expr) -> None:
        with self.b.loop(size, name="f") as i:
            self.put(i, self.rank(i))
        if not surely(lambda: size <= 1):
            with self.b.loop(size // 2, name="h") as i:
                start = self.b.bind(size // 2 - 1 - i)
                self.sink(start, size, self[start])

    def offer(self, candidate: Expr, size: Expr) -> None:
        rank = self.b.bind(self.rank(candidate))
        with self.b.when(rank > self[0]):
            self.sink(0, size, rank)

    def take(self, last: Expr) -> None:
        worst = self.b.local("worst", "int64", 1)
        self.b.store(worst, 0, self[0])
        moving = self.b.local("freed", "int64", 1)
        self.b.store(moving, 0, self[last])
        self.put(last, worst[0])
        self.sink(0, last, moving[0])

    def sink(self, start: Expr, size: Expr, rank: Expr) -> None:
        """Puts ``rank`` into the heap below the hole at ``start``."""
        b = self.b
        moving, at, child = b.local("moving", "int64", 1), b.local("at", "int32", 1), b.local("child", "int32", 1)
        b.store(moving, 0, rank)
        start = tirx.IntImm("int32", start) if isinstance(start, int) else start
        b.store(at, 0, start)
        b.store(child, 0, start * 2 + 1)

        def loop(condition: Expr, body: Callable[[], None]) -> None:
            with b.capture() as statements:
                body()
            b.add(tirx.While(condition, sequence(statements)))

        def down() -> None:
            b.store(child, 0, child[0] + cast("int32", self[child[0] + 1] < self[child[0]]))
            self.put(at[0], self[child[0]])
            b.store(at, 0, child[0])
            b.store(child, 0, child[0] * 2 + 1)

        def up() -> None:
            b.store(child, 0, tirx.shift_right(at[0] - 1, 1))
            self.put(at[0], self[child[0]])
            b.store(at, 0, child[0])

        loop(child[0] + 1 < size, down)
        with b.when(child[0] < size):  # a last child without a sister
            self.put(at[0], self[child[0]])
            b.store(at, 0, child[0])
        parent = self.b.load(self.store, self.target + tirx.max(tirx.shift_right(at[0] - 1, 1), 0) * self.stride)
        loop(tirx.all(at[0] > start, parent > moving[0]), up)
        self.put(at[0], moving[0])
