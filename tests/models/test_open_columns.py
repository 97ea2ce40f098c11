"""Products whose columns or depth are open, at sizes around their vectors and tiles, beside NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

Sizes = dict[str, int]
AROUND = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 63, 95, 97, 131)  # vectors of 4, 8 and 16; panels
FIRED = "matmul of open columns"
DTYPES = {"float32": 1, "float64": 11, "float16": 10}
CLOSE = {"float32": 2e-5, "float64": 1e-12, "float16": 1e-2}


@dataclass(frozen=True)
class Case:
    """``a @ b``, through what ``nodes`` says; ``shapes`` of the inputs, in order."""

    nodes: str
    shapes: dict[str, list[Any]]
    typical: Sizes
    sizes: list[Sizes]
    dtype: str = "float32"

    def model(self) -> onnx.ModelProto:
        kind = DTYPES[self.dtype]
        nodes = []
        for line in self.nodes.split("; "):
            result, call = line.split(" = ")
            operator, rest = call.split("(")
            arguments, _, attributes = rest.rstrip(")").partition(" | ")
            named = {n: [int(i) for i in v.split(",")] for n, v in (p.split(":") for p in attributes.split()) if n}
            nodes.append(helper.make_node(operator, arguments.split(", "), [result], **named))
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(n, kind, s) for n, s in self.shapes.items() if n != "w"],
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(self.weights(), "w")] if "w" in self.shapes else [],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def weights(self) -> np.ndarray:
        return np.random.default_rng(9).standard_normal(self.shapes["w"]).astype(self.dtype)

    def inputs(self, sizes: Sizes) -> dict[str, np.ndarray]:
        random = np.random.default_rng(5)
        shapes = {n: [sizes.get(d, d) for d in s] for n, s in self.shapes.items() if n != "w"}
        return {n: random.standard_normal(s).astype(self.dtype) for n, s in shapes.items()}

    def wanted(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """In float64 (float64 itself as NumPy does it)."""
        values = {n: v.astype("float64") for n, v in inputs.items()}
        if "w" in self.shapes:
            values["w"] = self.weights().astype("float64")
        for node in self.model().graph.node:
            x, *more = (values[n] for n in node.input)
            named = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            values[node.output[0]] = {
                "MatMul": lambda x, y: x @ y,
                "Add": lambda x, y: x + y,
                "Mul": lambda x, y: x * y,
                "Relu": lambda x: np.maximum(x, 0),
                "Transpose": lambda x: x.transpose(named["perm"]),  # noqa: B023
            }[node.op_type](x, *more)
        return values["y"]


CASES = {
    "weights by pixels": Case(
        "c = MatMul(w, x); d = Add(c, b); y = Relu(d)",
        {"w": [37, 53], "x": [2, 53, "n"], "b": [37, 1]},
        {"n": 200}, [{"n": n} for n in AROUND],
    ),
    "a bias for each column, a residual": Case(
        "c = MatMul(a, x); d = Add(c, b); y = Mul(d, r)",
        {"a": [5, 19], "x": [19, "n"], "b": ["n"], "r": [5, "n"]},
        {"n": 64}, [{"n": n} for n in AROUND],
    ),
    "many rows of shallow data": Case(
        "y = MatMul(a, x)",
        {"a": [150, 7], "x": [3, 7, "n"]},
        {"n": 64}, [{"n": n} for n in (1, 3, 15, 16, 48, 50, 101)],
    ),
    "open rows and columns": Case(
        "t = Transpose(b | perm:0,1,3,2); c = MatMul(a, t); y = Relu(c)",
        {"a": ["k", 3, "m", 16], "b": ["k", 3, "n", 16]},
        {"k": 1, "m": 64, "n": 64},
        [{"k": 2, "m": m, "n": n} for m in (1, 6, 13, 29) for n in (1, 5, 17, 49, 97)] + [{"k": 1, "m": 300, "n": 7}],
    ),
    "batches broadcast": Case(
        "y = MatMul(a, b)",
        {"a": ["k", 1, 11, 10], "b": [3, 10, "n"]},
        {"k": 2, "n": 40}, [{"k": 3, "n": n} for n in (1, 2, 6, 20, 48, 51)],
    ),
    "an open depth": Case(
        "c = MatMul(a, b); y = Add(c, r)",
        {"a": [2, 31, "n"], "b": [2, "n", 45], "r": [45]},
        {"n": 100}, [{"n": n} for n in (0, 1, 2, 3, 4, 5, 16, 130, 601)],
    ),
    "a deep open depth of many rows": Case(
        "y = MatMul(a, b)",
        {"a": ["m", "n"], "b": ["n", 50]},
        {"m": 400, "n": 700}, [{"m": m, "n": n} for m, n in ((400, 700), (129, 3000), (5, 1), (1, 77), (700, 13))],
    ),
    "everything open": Case(
        "y = MatMul(a, b)",
        {"a": ["m", "k"], "b": ["k", "n"]},
        {"m": 64, "k": 64, "n": 64},
        [{"m": m, "k": k, "n": n} for m, k, n in ((1, 1, 1), (3, 0, 5), (13, 64, 49), (200, 300, 100), (2, 5, 500))],
    ),
    "moved before and behind": Case(
        "t = Transpose(a | perm:0,2,1,3); c = MatMul(t, b); y = Transpose(c | perm:0,2,1,3)",
        {"a": [2, 9, 3, "k"], "b": [2, 3, "k", "n"]},
        {"k": 40, "n": 40}, [{"k": 5, "n": n} for n in (1, 4, 15, 50)] + [{"k": 61, "n": 33}],
    ),
    "float64": Case(
        "y = MatMul(w, x)", {"w": [21, 53], "x": [53, "n"]},
        {"n": 100}, [{"n": n} for n in (1, 2, 3, 4, 5, 8, 9, 24, 25, 60)], "float64",
    ),
    "float16, in runs": Case(
        "y = MatMul(a, x)", {"a": [3, 21, "k"], "x": [3, "k", "n"]},
        {"n": 100, "k": 300}, [{"n": n, "k": k} for n, k in ((1, 300), (9, 127), (33, 128), (70, 129), (65, 600))],
        "float16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_products_of_open_columns_are_right_at_every_size(name):
    case = CASES[name]
    built = halotile.compile(case.model(), typical=case.typical, threads=2)
    assert any(FIRED in kernel["schedule"] for kernel in built.report["kernels"])
    for sizes in case.sizes:
        inputs = case.inputs(sizes)
        wanted = case.wanted(inputs)
        found = np.full(wanted.shape, np.nan, case.dtype)
        built.bind(inputs, {"y": found})()
        scale = max(1.0, float(np.abs(wanted).max(initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=CLOSE[case.dtype] * scale, err_msg=str(sizes))


def test_nothing_outside_is_read_or_written():
    """The neighbours of operands are NaN, those of the result stay as they are."""
    case = CASES["weights by pixels"]
    built = halotile.compile(case.model(), typical=case.typical, threads=2)
    for n in AROUND:
        inputs = case.inputs({"n": n})
        held = {k: _within(v, np.nan) for k, v in inputs.items()}
        y, room = _room((2, 37, n))
        built.bind(held, {"y": y})()
        np.testing.assert_allclose(y, case.wanted(inputs), rtol=0, atol=1e-3)
        assert (room[:64] == 7).all() and (room[64 + y.size:] == 7).all()


def test_bits_are_those_of_one_thread():
    case = CASES["open rows and columns"]
    one, two = (halotile.compile(case.model(), typical=case.typical, threads=t) for t in (1, 2))
    for sizes in ({"k": 2, "m": 29, "n": 97}, {"k": 1, "m": 300, "n": 301}, {"k": 1, "m": 2, "n": 3}):
        inputs = case.inputs(sizes)
        assert one(inputs)["y"].tobytes() == two(inputs)["y"].tobytes(), sizes


def test_the_fixed_build_makes_the_same_bits():
    """The order of sums is that of a build for one size, where that has them in one part."""
    case = CASES["many rows of shallow data"]
    built = halotile.compile(case.model(), typical=case.typical, threads=1)
    inputs = case.inputs({"n": 101})
    fixed = halotile.compile(case.model(), shapes={n: v.shape for n, v in inputs.items()}, threads=1)
    assert built(inputs)["y"].tobytes() == fixed(inputs)["y"].tobytes()


def _within(array: np.ndarray, around: float) -> np.ndarray:
    whole = np.full(array.size + 128, around, array.dtype)
    held = whole[64: 64 + array.size].reshape(array.shape)
    held[...] = array
    return held


def _room(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    size = int(np.prod(shape))
    whole = np.full(size + 128, 7, np.float32)
    return whole[64: 64 + size].reshape(shape), whole
