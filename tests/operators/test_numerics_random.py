"""Random graphs of choosing, reducing, comparing and moving operators full of NaN, infinities, zeros of both signs and
denormal numbers give what NumPy gives, operator by operator.

Finite numbers are small and dyadic, so that sums and products have no rounding to differ by. HALOTILE_NUMERICS=2000
tries that many graphs instead of a few.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import halotile
import numpy as np
import pytest
from numeric_orders import extreme_position, largest_number, order, windows
from numerics import Sheet
from onnx import TensorProto

F = np.float32
NUMBERS = np.array([-3, -1.5, -0.5, 0.25, 1, 2, 5], F)
POOL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40], F)
CONSTANTS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.nan, np.inf, -np.inf]
COMPARISONS: dict[str, Any] = {
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
GRAPHS = int(os.environ.get("HALOTILE_NUMERICS", 15))
TOGETHER = 15  # graphs of one model


@dataclass
class Value:
    name: str
    array: np.ndarray
    told: bool = True  # the sign of its zeros follows from IEEE 754; a maximum of two zeros may be either


class Graph:
    """Grows value by value; each step picks operands from what is there."""

    def __init__(self, sheet: Sheet, rng: np.random.Generator) -> None:
        self.s, self.rng = sheet, rng
        self.values: list[Value] = []
        self.read: set[str] = set()
        for shape in ((2, 3, 5, 7), (3, 1, 7), (2, 3, 5, 7), (4, 19)):
            array = np.where(
                rng.random(shape) < 0.3, rng.choice(POOL, shape), rng.choice(NUMBERS, shape)
            ).astype(F)
            self.values.append(Value(sheet.input(array), array))

    def choose(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        found = [v for v in self.values if wanted(v)]
        return self.choose(found[-3:] if self.rng.random() < 0.7 else found) if found else None

    def add(self, node: str, array: Any, told: bool, *operands: Value) -> None:
        self.read.update(v.name for v in operands)
        self.values.append(Value(node, np.asarray(array).astype(F), told and all(v.told for v in operands)))

    def step(self) -> None:
        with np.errstate(all="ignore"):
            self.choose([*[self.unary] * 3, *[self.binary] * 4, *[self.constant] * 4, self.compare, self.inverse,
                         self.clip, self.move, self.move, self.reduce, self.reduce, self.position, self.top,
                         self.pool, self.running])()  # fmt: skip

    def unary(self) -> None:
        v = self.pick()
        assert v is not None
        operator, function, told = self.choose([
            ("Abs", np.abs, True), ("Neg", np.negative, True), ("Ceil", np.ceil, True), ("Floor", np.floor, True),
            ("Sign", np.sign, False), ("Relu", lambda x: np.maximum(x, 0), False),
            ("IsNaN", np.isnan, True), ("ThresholdedRelu", lambda x: np.where(x > 1, x, 0), True),
            ("LeakyRelu", lambda x: np.where(x < 0, F(0.5) * x, x), True),
        ])  # fmt: skip
        attributes = {"alpha": 0.5} if operator == "LeakyRelu" else {}
        node = self.s.node(operator, v.name, **attributes)
        if operator == "IsNaN":
            node = self.s.node("Cast", node, to=TensorProto.FLOAT)
        self.add(node, function(v.array), told, v)

    def mates(self) -> tuple[Value, Value] | None:
        a = self.pick()
        assert a is not None
        b = self.pick(lambda v: _broadcasts(a.array.shape, v.array.shape))
        return (a, b) if b is not None and self.rng.random() < 0.5 else (b or a, a)

    def binary(self) -> None:
        found = self.mates()
        assert found is not None
        a, b = found
        operator, function, told = self.choose([
            ("Add", np.add, True), ("Sub", np.subtract, True), ("Mul", np.multiply, True), ("Max", np.maximum, False),
            ("Min", np.minimum, False),
        ])  # fmt: skip
        result = function(a.array, b.array)
        if np.abs(result[np.isfinite(result)]).max(initial=0) < 1e4:
            self.add(self.s.node(operator, a.name, b.name), result, told, a, b)

    def constant(self) -> None:
        v = self.pick()
        assert v is not None
        number = F(self.choose(CONSTANTS))
        c = np.full(v.array.shape[-1:] if v.array.ndim and self.rng.random() < 0.3 else (), number, F)
        operator, function, told = self.choose([
            ("Add", np.add, True), ("Sub", np.subtract, True), ("Mul", np.multiply, True), ("Max", np.maximum, False),
            ("Min", np.minimum, False),
        ])  # fmt: skip
        pair = [(v.name, v.array), (self.s.constant(c), c)]
        pair = pair if self.rng.random() < 0.6 else pair[::-1]
        self.add(self.s.node(operator, *(n for n, _ in pair)), function(*(x for _, x in pair)), told, v)

    def compare(self) -> None:
        found = self.mates()
        assert found is not None
        a, b = found
        name = self.choose(list(COMPARISONS))
        flag, array = self.s.node(name, a.name, b.name), COMPARISONS[name](a.array, b.array)
        if self.rng.random() < 0.4:
            flag, array = self.s.node("Not", flag), ~array
        if self.rng.random() < 0.5:
            self.add(self.s.node("Cast", flag, to=TensorProto.FLOAT), array, True, a, b)
        else:
            self.add(
                self.s.node("Where", flag, a.name, b.name), np.where(array, a.array, b.array), True, a, b
            )

    def inverse(self) -> None:
        v = self.pick(lambda v: v.told)
        if v is None:
            return
        result = F(1) / v.array
        dyadic = np.abs(v.array) == np.exp2(np.round(np.log2(np.abs(v.array))))
        if (dyadic | ~np.isfinite(v.array) | (v.array == 0)).all():
            self.add(self.s.node("Reciprocal", v.name), result, True, v)
            return
        zeros = np.where(v.array == 0, v.array, F(1))  # tells the zeros apart, and nothing else
        where = self.s.node(
            "Where", self.s.node("Equal", v.name, self.s.constant(0.0)), v.name, self.s.constant(1.0)
        )
        self.add(self.s.node("Reciprocal", where), F(1) / zeros, True, v)

    def clip(self) -> None:
        v = self.pick()
        assert v is not None
        low, high = self.choose([(0, 2), (-1, np.inf), (-np.inf, 0.5), (0, np.nan), (-0.5, -0.5)])
        node = self.s.node("Clip", v.name, self.s.constant(low), self.s.constant(high))
        self.add(node, np.minimum(np.maximum(v.array, F(low)), F(high)), False, v)

    def move(self) -> None:
        v = self.pick(lambda v: v.array.ndim > 0)
        assert v is not None
        x, rank = v.array, v.array.ndim
        axis = int(self.rng.integers(rank))
        kind = self.choose(["turn", "cut", "join", "pad", "flat"])
        if kind == "turn":
            axes = [int(a) for a in self.rng.permutation(rank)]
            self.add(self.s.node("Transpose", v.name, perm=axes), x.transpose(axes), True, v)
        elif kind == "cut" and x.shape[axis] > 2:
            node = self.s.node(
                "Slice", v.name, *(self.s.constant([i], np.int64) for i in (1, x.shape[axis], axis))
            )
            self.add(node, np.take(x, range(1, x.shape[axis]), axis), True, v)
        elif kind == "join" and x.size < 400:
            self.add(self.s.node("Concat", v.name, v.name, axis=axis), np.concatenate([x, x], axis), True, v)
        elif kind == "pad" and x.size < 400:
            fill = self.choose(POOL[:5])
            pads = [int(a == axis) for a in range(rank)] * 2
            node = self.s.node("Pad", v.name, self.s.constant(pads, np.int64), self.s.constant(fill))
            self.add(
                node, np.pad(x, [(int(a == axis),) * 2 for a in range(rank)], constant_values=fill), True, v
            )
        elif kind == "flat":
            self.add(self.s.node("Reshape", v.name, self.s.constant([-1], np.int64)), x.reshape(-1), True, v)

    def reduce(self) -> None:
        v = self.pick(lambda v: v.array.ndim > 0)
        assert v is not None
        axis, keep = int(self.rng.integers(v.array.ndim)), bool(self.rng.integers(2))
        operator, function, told = self.choose(
            [("ReduceMax", np.max, False), ("ReduceMin", np.min, False), ("ReduceSum", np.sum, False)]
        )
        node = self.s.node(operator, v.name, self.s.constant([axis], np.int64), keepdims=int(keep))
        self.add(node, function(v.array, axis, keepdims=keep), told, v)

    def position(self) -> None:
        v = self.pick(lambda v: v.array.ndim > 0)
        assert v is not None
        axis, largest, last = (
            int(self.rng.integers(v.array.ndim)),
            bool(self.rng.integers(2)),
            bool(self.rng.integers(2)),
        )
        node = self.s.node(
            "ArgMax" if largest else "ArgMin", v.name, axis=axis, keepdims=0, select_last_index=int(last)
        )
        found = extreme_position(v.array, axis, bool(largest), bool(last))
        self.add(self.s.node("Cast", node, to=TensorProto.FLOAT), found, True, v)

    def top(self) -> None:
        v = self.pick(lambda v: v.array.ndim > 0)
        assert v is not None
        axis, largest = int(self.rng.integers(v.array.ndim)), bool(self.rng.integers(2))
        k = int(self.rng.integers(1, v.array.shape[axis] + 1))
        at = np.take(order(v.array, axis, largest), range(k), axis)
        values, _ = self.s.node(
            "TopK", v.name, self.s.constant([k], np.int64), outputs=2, axis=axis, largest=int(largest)
        )
        self.add(values, np.take_along_axis(v.array, at, axis), True, v)

    def pool(self) -> None:
        v = self.pick(lambda v: v.array.ndim >= 3 and min(v.array.shape[2:]) >= 2 and v.array.ndim <= 5)
        if v is None:
            return
        rank = v.array.ndim - 2
        if self.rng.random() < 0.3:
            axes = tuple(range(2, v.array.ndim))
            self.add(self.s.node("GlobalMaxPool", v.name), largest_number(v.array, axes, True), False, v)
            return
        kernel, stride, pad = self.choose([(2, 1, 0), (2, 2, 1), (2, 1, 1)])
        attributes = {"kernel_shape": [kernel] * rank, "strides": [stride] * rank, "pads": [pad] * (2 * rank)}
        result = largest_number(windows(v.array, kernel, stride, pad, -np.inf), -1)
        self.add(self.s.node("MaxPool", v.name, **attributes), result, False, v)

    def running(self) -> None:
        v = self.pick(
            lambda v: v.array.ndim > 0 and np.abs(v.array[np.isfinite(v.array)]).max(initial=0) < 100
        )
        if v is not None:
            axis = int(self.rng.integers(v.array.ndim))
            node = self.s.node("CumSum", v.name, self.s.constant(axis, np.int64))
            self.add(node, np.cumsum(v.array, axis), False, v)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return int(np.prod(np.broadcast_shapes(a, b))) <= 500
    except ValueError:
        return False


def grown(s: Sheet, seed: int) -> None:
    graph = Graph(s, np.random.default_rng(seed))
    for _ in range(14):
        graph.step()
    for i, v in enumerate(v for v in graph.values[4:] if v.name not in graph.read):
        s.case(f"graph {seed}, output {i}", v.name, v.array, rtol=1e-5)


@pytest.mark.parametrize("first", range(0, GRAPHS, TOGETHER))
def test_random_graphs(first: int) -> None:
    s = Sheet()
    for seed in range(first, first + TOGETHER):
        grown(s, seed)
    results = halotile.compile(s.model())(s.feeds)
    for name in s.cases:
        s.check(name, results)
