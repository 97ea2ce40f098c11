"""Integers wrap in every type: what simplifiers of unbounded integers would have otherwise, case by case."""

from __future__ import annotations

import sys
from collections.abc import Callable

import halotile
import numpy as np
import pytest
from evaluate import evaluate, one_node
from integer_graphs import INTEGERS, OPSET, SIGNED, Graphs, Tensor, edges, powers, quotient, truncated
from onnx import helper

FLOATS = np.array(
    [0, -0.0, 0.5, -0.5, 1.9, -1.9, 127.5, 128, -129, 255.9, 256, 300, -300, 32768, -40000, 65535.5, 2**31 - 129, 2**31]
    + [-(2**31), -(2**31) - 513, 3e9, 2**32, 2**53, 9.3e18, -9.3e18, 1.7e19, 1.9e19, 1e30, -1e30, np.inf, -np.inf]
    + [np.nan, 7, 100, -100],
)  # fmt: skip


def run(graphs: Graphs, exact: bool) -> None:
    compiled = halotile.compile(graphs.model(), threads=1, exact=exact)
    got = compiled({i.name: graphs.inputs[i.name] for i in compiled.inputs})
    for name, wanted in graphs.wanted.items():
        np.testing.assert_array_equal(got[name], wanted, graphs.stories[name])


def every_type(graph: Callable[[Graphs, Tensor, Callable[[int], Tensor]], None], exact: bool, types=INTEGERS) -> None:
    """One model in which ``graph`` is written for each type; what it takes are all edges of the type."""
    g = Graphs(np.random.default_rng(0))
    with np.errstate(all="ignore"):
        for dtype in types:
            value = np.array([*edges(dtype), 21, 22, 29, 99, *edges(dtype)[::-1]], dtype)
            g.inputs[f"x_{dtype}"] = value
            graph(g, Tensor(f"x_{dtype}", value, "x"), lambda c, d=dtype: g.constant(d, (), np.array(c).astype(d)))
    run(g, exact)


@pytest.mark.parametrize("exact", [False, True])
def test_what_unbounded_integers_would_simplify(exact: bool) -> None:
    def graph(g: Graphs, x: Tensor, c: Callable[[int], Tensor]) -> None:
        v = x.value
        less = g.node("Sub", [x, c(1)], v - c(1).value)
        g.output(less)
        g.output(g.node("Greater", [x, less], v > less.value))
        shifted = g.node("Sub", [x, c(22)], v - c(22).value)
        g.output(g.node("Equal", [shifted, c(0)], shifted.value == 0))
        more = g.node("Add", [x, c(1)], v + c(1).value)
        g.output(g.node("Greater", [more, x], more.value > v))
        g.output(g.node("Max", [more, x], np.maximum(more.value, v)))
        eight = g.node("Mul", [x, c(8)], v * c(8).value)
        g.output(g.node("Div", [eight, c(8)], quotient(eight.value, c(8).value)))
        g.output(g.node("Mod", [eight, c(5)], np.mod(eight.value, c(5).value), fmod=0))
        g.output(g.node("Cast", [eight], eight.value.astype("int64"), to=7))
        g.output(g.node("LessOrEqual", [eight, x], eight.value <= v))

    every_type(graph, exact)


@pytest.mark.parametrize("exact", [False, True])
def test_the_least_number_has_no_opposite(exact: bool) -> None:
    def graph(g: Graphs, x: Tensor, c: Callable[[int], Tensor]) -> None:
        size = g.node("Abs", [x], np.abs(x.value))
        g.output(size)
        g.output(g.node("Relu", [size], np.maximum(size.value, 0)))  # no relu of what is never negative
        g.output(g.node("Less", [size, c(0)], size.value < 0))
        opposite = g.node("Neg", [x], -x.value)
        g.output(g.node("Greater", [opposite, c(0)], opposite.value > 0))
        g.output(g.node("Div", [x, c(-1)], quotient(x.value, c(-1).value)))
        g.output(g.node("Div", [x, x], quotient(x.value, x.value)))
        g.output(g.node("Mod", [x, c(-1)], np.zeros_like(x.value), fmod=1))

    every_type(graph, exact, SIGNED)


def test_casts_keep_the_low_bits() -> None:
    def graph(g: Graphs, x: Tensor, c: Callable[[int], Tensor]) -> None:
        for target in INTEGERS:
            y = g.node("Cast", [x], x.value.astype(target), to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
            zero = g.constant(target, (), 0)
            g.output(g.node("Less", [y, zero], y.value < zero.value))
            g.output(y)

    every_type(graph, False)


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("constant", [False, True])
def test_floats_that_no_integer_holds(source: str, constant: bool) -> None:
    with np.errstate(all="ignore"):
        value = FLOATS.astype(source)  # left open: uint64 beyond 2**64, and infinities of float16
        value = value[np.isfinite(value)] if source == "float16" else value
    g = Graphs(np.random.default_rng(0))
    g.inputs["x"] = value
    x = g.constant(source, value.shape, value) if constant else Tensor("x", value, "x")
    for dtype in INTEGERS:
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        if dtype == "uint64":
            kept = np.flatnonzero(value.astype("float64") < 2.0**64)
            x = g.node("Gather", [x, g.constant("int64", kept.shape, kept)], value[kept])
        g.output(g.node("Cast", [x], truncated(x.value, dtype), to=to))
    run(g, False)


def test_a_float_between_integers_is_no_detour() -> None:
    """uint32 -> float64 -> int32 gives the least number for what is too large; uint32 -> int32 wraps."""
    g = Graphs(np.random.default_rng(0))
    value = np.array([0, 5, 2**31 - 1, 2**31, 2**32 - 1], "uint32")
    g.inputs["x"] = value
    wide = g.node("Cast", [Tensor("x", value, "x")], value.astype("float64"), to=11)
    for dtype in INTEGERS:
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        g.output(g.node("Cast", [wide], truncated(wide.value, dtype), to=to))
    run(g, False)


@pytest.mark.parametrize("exact", [False, True])
def test_powers_by_exponents_of_any_size(exact: bool) -> None:
    def graph(g: Graphs, x: Tensor, c: Callable[[int], Tensor]) -> None:
        for kind in ("int64", "uint8"):
            exponent = np.resize(np.array([*edges(kind), 31, 32, 33, 63, 64, 65, 87]).astype(kind), x.value.shape)
            g.inputs.setdefault(f"e_{kind}_{x.dtype}", exponent)
            e = Tensor(f"e_{kind}_{x.dtype}", exponent, "e")
            g.output(g.node("Pow", [x, e], powers(x.value, exponent)))
        for number in (0, 2, 63, 65):
            e = g.constant("int32", (), number)
            g.output(g.node("Pow", [x, e], powers(x.value, e.value)))

    every_type(graph, exact, ("int32", "int64"))


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8"])
def test_the_yardstick_wraps_as_kernels_do(dtype: str) -> None:
    x, y = np.array(edges(dtype), dtype), np.array(edges(dtype)[::-1], dtype)
    with np.errstate(all="ignore"):
        wanted = {"Add": x + y, "Sub": x - y, "Mul": x * y, "Div": quotient(x, y), "Less": x < y}
    for operator, value in wanted.items():
        model, feeds = one_node(operator, [x, y], run_time=(0, 1), opset=OPSET)
        np.testing.assert_array_equal(evaluate(model, feeds)["o0"], value, operator)


@pytest.mark.parametrize("dtype,depth", [("int8", 200), ("uint8", 300), ("int16", 40)])
def test_columns_that_the_type_of_the_indices_does_not_count(dtype: str, depth: int) -> None:
    at = np.array([0, 1, 39, 127, -1, -40, -128]).astype(dtype)
    values = np.array([5, 7], "int32")
    model, feeds = one_node("OneHot", [at, np.array(depth), values], opset=OPSET)
    wide = at.astype("int64")
    wide = np.where(wide < 0, wide + depth, wide)
    wanted = np.where(wide[:, None] == np.arange(depth), 7, 5)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], wanted)


def test_deep_expressions_for_callers_that_are_deep_themselves() -> None:
    """A kernel whose expression is more than a thousand frames deep, compiled 700 frames deep; Python's limit
    is what it was then."""
    limit = sys.getrecursionlimit()
    g = Graphs(np.random.default_rng(0))
    value = np.array([2, 3, -3, 1, 0, 7, -1], "int64")
    exponent = np.array([63, 40, 2, 9, 0, 22, 65], "int64")
    g.inputs.update(x=value, e=exponent)
    x, e = Tensor("x", value, "x"), Tensor("e", exponent, "e")
    with np.errstate(all="ignore"):
        g.output(g.node("Pow", [g.node("Pow", [x, e], once := powers(value, exponent)), e], powers(once, exponent)))

    def beneath(frames: int) -> None:
        if frames:
            beneath(frames - 1)
        else:
            run(g, exact=False)

    beneath(700)
    assert sys.getrecursionlimit() == limit
