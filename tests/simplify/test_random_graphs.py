"""Random graphs of simplifiable operators give the same values before and after, in every float mode.

``pytest --hypothesis-profile=thorough tests/simplify/test_random_graphs.py`` runs 5,000 of them instead of a hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from halotile.passes.simplify import Simplify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.tirx import IntImm

op = relax.op
F32, I32, BOOL = "float32", "int32", "bool"
UNARY_CLEAN = [op.abs, op.negative, op.floor, op.ceil, op.round, op.sign, op.nn.relu]
UNARY_ROUNDED = [op.tanh, op.sigmoid, op.exp, op.erf, op.sqrt]
COMPARISONS = [op.less, op.less_equal, op.greater, op.greater_equal, op.equal, op.not_equal]
DYADIC = [-2.0, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.0, 2.0, 3.0, 4.0]


@dataclass
class Value:
    """``clean``: every rewrite must give the same bits, so that comparing, rounding or casting it is fair."""

    var: Any
    clean: bool

    @property
    def shape(self) -> list[Any]:
        """Ints, and strings for open dims."""
        return [d.value if isinstance(d, IntImm) else str(d) for d in self.var.ty.shape.values]

    @property
    def dims(self) -> list[Any]:
        return list(self.var.ty.shape.values)

    @property
    def static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def size(self) -> int:
        return int(np.prod([d if isinstance(d, int) else 3 for d in self.shape]))

    @property
    def dtype(self) -> str:
        return str(self.var.ty.dtype.dtype)


class Generator:
    """Grows a graph value by value; each step picks operands from what is there."""

    def __init__(
        self, emit: Callable[..., Any], inputs: list[Any], rng: np.random.Generator, finite: bool
    ) -> None:
        self.emit, self.rng, self.finite = emit, rng, finite
        self.values = [Value(x, True) for x in inputs]
        self.read: set[Any] = set()

    def pick(self, dtype: str | None = None, clean: bool = False) -> Value | None:
        same = [v for v in self.values if dtype in (None, v.dtype) or dtype == I32 and "int" in v.dtype]
        found = [v for v in same if v.clean or not clean]
        if found and self.rng.random() < 0.7:
            found = found[-3:]
        return found[self.rng.integers(len(found))] if found else None

    def choose(self, items: list[Any]) -> Any:
        return items[self.rng.integers(len(items))]

    def add(self, call: Any, clean: bool) -> None:
        for arg in call.args:
            self.read.update([arg] if isinstance(arg, relax.Var) else getattr(arg, "fields", []))
        self.values.append(Value(self.emit(call), clean))

    def constant(self, dtype: str, shape: list[int]) -> Any:
        if dtype == BOOL:
            array = self.rng.integers(0, 2, shape).astype(bool)
        elif "int" in dtype:
            array = self.rng.integers(-3, 4, shape).astype(dtype)
        else:
            array = self.rng.choice(DYADIC, shape).astype(F32)
        if self.rng.random() < 0.4:
            array = np.full(shape, array.reshape(-1)[0] if array.size else 0, array.dtype)
        return relax.const(array, dtype)

    def broadcastable(self, shape: list[int]) -> list[int]:
        """A shape that broadcasts against ``shape``: some dims one, some leading dims missing."""
        kept = shape[self.rng.integers(len(shape) + 1) :]
        return [d if isinstance(d, int) and self.rng.random() < 0.6 else 1 for d in kept]

    def step(self) -> None:
        self.choose(
            [
                *[self.arithmetic] * 4,
                *[self.with_constant] * 6,
                *[self.unary] * 3,
                *[self.logic, self.compare, self.where, self.cast],
                *[self.reshape, self.permute, self.slice, self.slice, self.concat, self.stretch, self.pad],
                *[self.product, self.reduce, self.softmax],
            ]
        )()

    def arithmetic(self) -> None:
        a = self.pick(self.choose([F32, I32]))
        if a is None:
            return
        mates = [v for v in self.values if v.dtype == a.dtype and _broadcasts(v.shape, a.shape)]
        others = [v for v in mates if v is not a]
        b = self.choose(others if others and self.rng.random() < 0.8 else mates)
        function = self.choose([op.add, op.subtract, op.multiply, op.maximum, op.minimum])
        if function is op.multiply and a.dtype == F32 and not self.finite and self.rng.random() < 0.5:
            function = op.add
        self.add(function(a.var, b.var), a.clean and b.clean)

    def with_constant(self) -> None:
        a = self.pick(self.choose([F32, F32, I32]))
        if a is None:
            return
        c = self.constant(a.dtype, self.broadcastable(a.shape))
        function = self.choose([op.add, op.subtract, op.multiply, op.multiply, op.maximum, op.minimum])
        if a.dtype == F32 and self.rng.random() < 0.25:
            divisors = np.asarray(self.rng.choice([2.0, -4.0, 0.5, 3.0], self.broadcastable(a.shape)), F32)
            self.add(op.divide(a.var, relax.const(divisors, F32)), False)
            return
        pair = (a.var, c) if self.rng.random() < 0.7 else (c, a.var)
        self.add(function(*pair), a.clean)

    def unary(self) -> None:
        if self.rng.random() < 0.3 and (flag := self.pick(BOOL)) is not None:
            self.add(op.logical_not(flag.var), flag.clean)
            return
        function = self.choose(UNARY_CLEAN + UNARY_ROUNDED)
        stepwise = function in (op.floor, op.ceil, op.round, op.sign)
        a = self.pick(F32, clean=stepwise)
        if a is not None:
            self.add(function(a.var), a.clean and function in UNARY_CLEAN)

    def logic(self) -> None:
        a = self.pick(BOOL)
        if a is None:
            return
        mates = [v for v in self.values if v.dtype == BOOL and _broadcasts(v.shape, a.shape)]
        b = (
            self.choose(mates).var
            if self.rng.random() < 0.7
            else self.constant(BOOL, self.broadcastable(a.shape))
        )
        self.add(self.choose([op.logical_and, op.logical_or, op.logical_xor])(a.var, b), True)

    def compare(self) -> None:
        a = self.pick(self.choose([F32, I32]), clean=True)
        if a is not None:
            c = self.constant(a.dtype, self.broadcastable(a.shape))
            b = a.var if self.rng.random() < 0.2 else c
            self.add(self.choose(COMPARISONS)(a.var, b), True)

    def where(self) -> None:
        flag, a = self.pick(BOOL), self.pick(F32)
        if flag is None or a is None or not _broadcasts(flag.shape, a.shape):
            return
        other = self.constant(F32, self.broadcastable(a.shape))
        pair = (a.var, other) if self.rng.random() < 0.5 else (other, a.var)
        self.add(op.where(flag.var, *pair), a.clean)

    def cast(self) -> None:
        a = self.pick(self.choose([BOOL, I32, F32]))
        if a is None:
            return
        flags = [I32, F32, "int64", "float16"]
        integers = ["int64", BOOL, "int8", "uint8", I32, "float64"]
        target = self.choose({BOOL: flags, F32: ["float64"]}.get(a.dtype, integers))
        self.add(op.astype(a.var, target), a.clean)
        if target.startswith("float") and target != F32:
            self.add(op.astype(self.values[-1].var, F32), a.clean)

    def reshape(self) -> None:
        a = self.pick()
        if not a.static:
            position = int(self.rng.integers(len(a.dims) + 1))
            self.add(op.reshape(a.var, [*a.dims[:position], 1, *a.dims[position:]]), a.clean)
            return
        size = a.size
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        first = self.choose(divisors)
        self.add(op.reshape(a.var, self.choose([[size], [first, size // first], [1, *a.shape]])), a.clean)

    def permute(self) -> None:
        a = self.pick()
        self.add(op.permute_dims(a.var, [int(k) for k in self.rng.permutation(len(a.shape))]), a.clean)

    def slice(self) -> None:
        a = self.pick()
        axis = int(self.rng.integers(len(a.shape))) if a.shape else None
        if axis is None or not isinstance(a.shape[axis], int) or a.shape[axis] < 2:
            return
        begin = int(self.rng.integers(0, 2))
        end = self.choose([a.shape[axis], a.shape[axis] - 1, 2**31 - 1, -1])
        if len(range(a.shape[axis])[begin:end]) > 0:
            self.add(op.strided_slice(a.var, [axis], [begin], [end], [self.choose([1, 1, 2])]), a.clean)

    def concat(self) -> None:
        a = self.pick()
        if not a.shape:
            return
        axis = int(self.rng.integers(len(a.shape)))
        mates = [
            v
            for v in self.values
            if v.dtype == a.dtype and len(v.shape) == len(a.shape) and _equal_but(v.shape, a.shape, axis)
        ]
        b = self.choose(mates)
        if a.size + b.size <= 200:
            self.add(op.concat([a.var, b.var], axis), a.clean and b.clean)

    def stretch(self) -> None:
        a = self.pick()
        if a.size > 60 or not a.shape:
            return
        if self.rng.random() < 0.5 or not a.static:
            repeats = [int(r) for r in self.rng.integers(1, 3, len(a.shape))]
            self.add(op.tile(a.var, repeats), a.clean)
        else:
            self.add(
                op.broadcast_to(a.var, [self.choose([1, 2]), *(3 if d == 1 else d for d in a.shape)]), a.clean
            )

    def pad(self) -> None:
        a = self.pick(F32)
        if a is not None and a.shape and a.size < 60:
            width = [int(w) for w in self.rng.integers(0, 2, 2 * len(a.shape))]
            self.add(op.nn.pad(a.var, width), a.clean)

    def product(self) -> None:
        a = self.pick(F32)
        if a is not None and len(a.shape) >= 2 and isinstance(a.shape[-1], int):
            self.add(op.matmul(a.var, self.constant(F32, [a.shape[-1], self.choose([1, 3])])), False)

    def reduce(self) -> None:
        a = self.pick(F32)
        if a is not None and a.shape:
            axis = int(self.rng.integers(len(a.shape)))
            function = self.choose([op.max, op.min, op.mean, op.sum])
            self.add(
                function(a.var, [axis], bool(self.rng.integers(2))), a.clean and function in (op.max, op.min)
            )

    def softmax(self) -> None:
        a = self.pick(F32)
        if a is not None and a.shape:
            self.add(op.nn.softmax(a.var, -1), False)


def _broadcasts(a: list[int], b: list[int]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(a[::-1], b[::-1]))


def _equal_but(a: list[int], b: list[int], axis: int) -> bool:
    return all(x == y for k, (x, y) in enumerate(zip(a, b)) if k != axis)


def random_module(tools: Any, seed: int, finite: bool, steps: int = 14) -> Any:
    """Four inputs, the batch open in every third graph."""
    rng = np.random.default_rng(seed)
    batch = "n" if rng.random() < 0.33 else 2
    shapes = [[batch, 3, 4], [3, 1], [batch, 3, 4], [batch, 1, 4]]
    dtypes = [F32, F32, str(rng.choice([I32, I32, "int8", "uint8", "int64"])), BOOL]

    def body(emit: Callable[..., Any], *inputs: Any) -> list[Any]:
        generator = Generator(emit, list(inputs), rng, finite)
        for _ in range(steps):
            generator.step()
        made = [v.var for v in generator.values[len(inputs) :]] or list(inputs)
        return [v for v in made if v not in generator.read] + made[: int(rng.integers(2))]

    return tools.module([(s, d) for s, d in zip(shapes, dtypes)], body)


def random_feeds(tools: Any, mod: Any, seed: int, finite: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for array in tools.feeds(mod, seed, dims={"n": int(rng.integers(1, 4))}):
        if array.dtype == np.float32:
            array = rng.choice([-3.0, -1.5, -0.5, 0.25, 1.0, 2.0, 5.0], array.shape).astype(F32)
            if not finite:
                pool = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40], F32)
                array = np.where(rng.random(array.shape) < 0.25, rng.choice(pool, array.shape), array)
        elif array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            extreme = rng.choice(np.array([limits.min, limits.max, 0, 1], array.dtype), array.shape)
            small = rng.integers(-4, 5, array.shape).astype(array.dtype)
            array = np.where(rng.random(array.shape) < 0.2, extreme, small)
        arrays.append(array)
    return arrays


def assert_alike(before: list[np.ndarray], after: list[np.ndarray], exact: bool) -> None:
    for a, b in zip(before, after, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if exact or a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("mode", ["exact", "strict", "finite"])
@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
def test_values_stay(tools: Any, mode: str, seed: int) -> None:
    finite = mode == "finite"
    before = random_module(tools, seed, finite)
    result = Simplify(mode).apply(before)
    for k in range(2):
        inputs = random_feeds(tools, before, seed + k, finite)
        expected = tools.values(before, inputs)
        if finite and not all(np.all(np.isfinite(e)) for e in expected if e.dtype.kind == "f"):
            continue
        assert_alike(expected, tools.values(result.module, inputs), mode == "exact")
    assert len(tools.operators(result)) <= len(tools.operators(before))
    again = Simplify(mode).apply(result.module)
    assert not again.changed, again.notes
