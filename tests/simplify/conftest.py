"""Small Relax modules for the tests of simplify, and the questions the tests ask of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from halotile.passes.result import Result
from halotile.passes.simplify import Simplify
from halotile.passes.simplify.convert import read
from halotile.passes.simplify.graph import CONST, INPUT
from halotile.passes.simplify.interpret import interpret
from hypothesis import settings
from tvm import relax
from tvm.tirx import Var

settings.register_profile("thorough", max_examples=5000, deadline=None)


def const(value: Any, dtype: str = "float32") -> Any:
    """A Relax constant; arrays keep their dtype."""
    return (
        relax.const(value, str(value.dtype)) if isinstance(value, np.ndarray) else relax.const(value, dtype)
    )


def module(inputs: Sequence[tuple], body: Callable[..., Any]) -> Any:
    """A module of ``inputs`` (shape, dtype; names in a shape are symbols) that returns ``body(emit, *inputs)``."""
    symbols: dict[str, Var] = {}

    def dim(d: int | str) -> Any:
        return d if isinstance(d, int) else symbols.setdefault(d, Var(d, "int64"))

    parameters = [
        relax.Var(f"x{k}", relax.TensorType([dim(d) for d in shape], dtype))
        for k, (shape, dtype) in enumerate(inputs)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            outputs = body(builder.emit, *parameters)
            fields = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
            result = builder.emit_output(relax.Tuple(fields))
        builder.emit_func_output(result)
    return builder.get()


def operators(result: Result | Any) -> list[str]:
    """The operators of ``main`` in order, without their ``relax.`` prefix."""
    mod = result.module if isinstance(result, Result) else result
    graph = read(mod["main"])
    return [n.op.removeprefix("relax.") for n in graph.order() if n.op not in (INPUT, CONST)]


def values(mod: Any, feeds: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of ``main``; open dims take the lengths that the feeds have."""
    function = mod["main"]
    lengths = {}
    for parameter, array in zip(function.params, feeds):
        for dim, length in zip(parameter.ty.shape.values, array.shape):
            if isinstance(dim, Var):
                lengths[dim] = length
    if lengths:
        function = function.bind_symbolic_vars(lengths)
    graph = read(function)
    return interpret(graph.outputs, dict(zip(graph.inputs, feeds)))


def feeds(
    mod: Any, seed: int = 0, special: bool = False, dims: dict[str, int] | None = None
) -> list[np.ndarray]:
    """Random inputs for ``main``; ``special`` sprinkles NaN, infinities, zeros of both signs and tiny numbers."""
    rng = np.random.default_rng(seed)
    arrays = []
    for parameter in mod["main"].params:
        dims_of = parameter.ty.shape.values
        shape = [int(d.value) if hasattr(d, "value") else (dims or {}).get(d.name, 3) for d in dims_of]
        dtype = str(parameter.ty.dtype.dtype)
        if dtype == "bool":
            array = rng.integers(0, 2, shape).astype(bool)
        elif "int" in dtype:
            array = rng.integers(0 if dtype[0] == "u" else -50, 100, shape).astype(dtype)
        else:
            array = np.asarray(rng.standard_normal(shape) * 2).astype(dtype)
            if special:
                pool = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 1e30, -1e30])
                chosen = rng.random(array.shape) < 0.3
                with np.errstate(all="ignore"):
                    array = np.where(chosen, rng.choice(pool, array.shape), array).astype(dtype)
        arrays.append(array)
    return arrays


def assert_same_values(before: Any, after: Any, *, exact: bool, special: bool = False, **dims: int) -> None:
    """Equal outputs on random inputs: bit for bit, or NaN for NaN, inf for inf and numbers within rounding."""
    for seed in range(3):
        inputs = feeds(before, seed, special, dims)
        for a, b in zip(values(before, inputs), values(after, inputs), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            if exact or a.dtype.kind in "biu":
                np.testing.assert_array_equal(a, b)
                if a.dtype.kind == "f":
                    np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))
                continue
            tolerance = 2e-2 if a.dtype == np.float16 else 2e-4
            largest = np.max(np.abs(a[np.isfinite(a)]), initial=1.0) if not special else 1.0
            np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * largest)


@pytest.fixture
def tools() -> SimpleNamespace:
    return SimpleNamespace(
        const=const, module=module, operators=operators, values=values, feeds=feeds, same=assert_same_values
    )


@pytest.fixture
def check(tools: SimpleNamespace) -> Callable[..., Result]:
    """``check(inputs, body, expected, mode=..., exact=..., special=...)``: simplifies, compares operators and values,
    and that a second run changes nothing."""

    def run(
        inputs: Sequence[tuple],
        body: Callable[..., Any],
        expected: Sequence[str] | None,
        mode: str = "strict",
        exact: bool = False,
        special: bool = False,
        declined: str | None = None,
        grows: bool = False,
        **dims: int,
    ) -> Result:
        before = module(inputs, body)
        result = Simplify(mode).apply(before)
        relax.analysis.well_formed(result.module)
        if expected is not None:
            assert operators(result) == list(expected), result.notes
        if declined is not None:
            reasons = [d["reason"] for d in result.details["declined"]]
            assert any(declined in r for r in reasons), (declined, reasons)
        assert_same_values(before, result.module, exact=exact or mode == "exact", special=special, **dims)
        checked = Simplify(mode, check=True).apply(before)
        assert operators(checked) == operators(result) and not checked.details.get("unchecked")
        again = Simplify(mode).apply(result.module)
        assert not again.changed, again.notes
        assert grows or len(operators(result)) <= len(operators(before))
        return result

    return run
