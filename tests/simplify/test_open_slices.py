"""Slices, concatenations and constant tables of open lengths: few operators, and right results, at every size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from exports import END, Raw
from halotile.compiler.listing import operators
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper

SIZES = (1, 2, 3, 7, 8, 16, 17)
Make = Callable[[Raw, str], str]


def model_of(make: Make, *shape: int | str) -> onnx.ModelProto:
    g = Raw(17)
    info = helper.make_tensor_value_info(make(g, g.input("x", shape)), TensorProto.FLOAT, None)
    graph = helper.make_graph(g.nodes, "open", g.inputs, [info], g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


def simplified(tools, make: Make, *shape: int | str, sizes: tuple[int, ...] = SIZES) -> tuple[Counter, list[str]]:
    """The operators left, and what was declined; the result is compared with ONNX Runtime's at every size.
    Every rewrite is checked on numbers by itself, too."""
    model = model_of(make, *shape)
    build = run_pipeline(model, Options(resolve("x86-64-v3"), stop_after="simplify", check=True))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in sizes:
        dims = [size if isinstance(d, str) else d for d in shape]
        x = np.random.default_rng(size).standard_normal(dims).astype(np.float32)
        (expected,) = session.run(None, {"x": x})
        (got,) = tools.values(build.module, [x])
        assert got.shape == expected.shape, size
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    details = build.details["simplify"]
    assert details["checked"] or not details["applied"]
    left = Counter(o["operator"].removeprefix("relax.") for o in operators(build.module, composites=True))
    return left, [f"{d['rule']}: {d['reason']}" for d in details["declined"]]


def half(g: Raw, x: str) -> str:
    return g.unsqueeze(g("Div", g.size(x, 1), g.const(2)), 0)


def length(g: Raw, x: str, axis: int = 1) -> str:
    return g.unsqueeze(g.size(x, axis), 0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((0, -2, 2), (0, -2, 2)),
        ((0, END, 2), (0, END, 3)),
        ((2, END, 1), (3, END, 1)),
        ((1, END, 1), (0, -1, 1)),
        ((1, -1, 2), (2, END, 3)),
        ((1, 9, 1), (1, 4, 1)),
        ((-5, END, 1), (-2, END, 1)),
        ((-5, END, 1), (0, 2, 1)),
        ((-7, -1, 2), (-2, 9, 1)),
        ((3, -3, 1), (-4, -1, 2)),
    ],
)
def test_two_slices_of_an_axis_are_one(tools, first: tuple, second: tuple) -> None:
    left, _ = simplified(tools, lambda g, x: g.slice(g.slice(x, 1, *first), 1, *second), 2, "n", sizes=(8, 9, 13, 17))
    assert left == {"strided_slice": 1}


def test_the_closed_form_needs_no_length() -> None:
    model = model_of(lambda g, x: g.slice(g.slice(x, 1, 0, -2, 2), 1, 0, -2, 2), 2, "n")
    build = run_pipeline(model, Options(resolve("x86-64-v3"), stop_after="simplify"))
    (listed,) = operators(build.module, composites=True)
    (binding, *_) = build.module["main"].body.blocks[0].bindings
    assert listed["operator"] == "relax.strided_slice"
    assert [[int(f.value) for f in a.fields] for a in binding.value.args[1:]] == [[1], [0], [-6], [4]]


def test_slices_of_several_axes_are_one(tools) -> None:
    def make(g: Raw, x: str) -> str:
        return g.slice(g.slice(g.slice(g.slice(x, 0, 1, -1), 1, 0, -2, 2), 2, 1, 4), 1, 1, END)

    assert simplified(tools, make, "n", "n", 6)[0] == {"strided_slice": 1}


@pytest.mark.parametrize("second", [(1, END, 1), (0, -1, 2), (0, 3, 1)])
def test_bounds_that_are_computed_from_the_length_compose(tools, second: tuple) -> None:
    def make(g: Raw, x: str) -> str:
        return g.slice(g.slice(x, 1, half(g, x), END), 1, *second)

    assert simplified(tools, make, 2, "n")[0] == {"strided_slice": 1}


def test_pieces_that_touch_are_joined(tools) -> None:
    def make(g: Raw, x: str) -> str:
        return g("Relu", g("Concat", g.slice(x, 1, 0, half(g, x)), g.slice(x, 1, half(g, x), END), axis=1))

    assert simplified(tools, make, 2, "n")[0] == {"nn.relu": 1}


def test_pieces_that_do_not_touch_stay(tools) -> None:
    def make(g: Raw, x: str) -> str:
        return g("Concat", g.slice(x, 1, half(g, x), END), g.slice(x, 1, 0, half(g, x)), axis=1)

    assert simplified(tools, make, 2, "n")[0] == {"strided_slice": 2, "concat": 1}


def test_parts_of_open_pieces_are_found(tools) -> None:
    """The second of two maps of one length, and the first but its last element."""

    def make(g: Raw, x: str) -> str:
        both = g("Concat", g("Abs", x), g("Neg", x), axis=1)
        second = g.slice(g.slice(both, 1, length(g, x), END), 1, 1, END)
        return g("Add", second, g.slice(g.slice(both, 1, 0, length(g, x)), 1, 0, -1))

    left, _ = simplified(tools, make, 2, "n")
    assert left["concat"] == 0 and left["strided_slice"] == 2


def test_a_part_across_pieces_stays_and_says_why(tools) -> None:
    left, declined = simplified(tools, lambda g, x: g.slice(g("Concat", x, g("Neg", x), axis=1), 1, 3, -3), 2, "n")
    assert left["concat"] == 1 and "slice-of-concat: the length of a piece is open" in declined


def table(g: Raw, x: str, axis: int = 1) -> str:
    return g.slice(g.weight(1, 40, 4), 1, 0, length(g, x, axis))


AHEAD: dict[str, Make] = {
    "scaled": lambda g, x: g("Mul", g("Add", table(g, x), g.weight(4)), g.f(2)),
    "a product": lambda g, x: g("MatMul", table(g, x), g.weight(4, 4)),
    "a norm": lambda g, x: g("LayerNormalization", table(g, x), g.weight(4), g.weight(4)),
    "a softmax": lambda g, x: g("Softmax", table(g, x), axis=-1),
    "a sum": lambda g, x: g("ReduceSum", table(g, x), g.const([2]), keepdims=1),
    "joined": lambda g, x: (lambda t: g("Concat", g("Sin", t), g("Cos", t), axis=2))(
        g.slice(table(g, x), 2, 1, 3)
    ),
    "gathered": lambda g, x: g("Gather", g.weight(40, 4), g.slice(g.const(np.arange(40)[::-1]), 0, 0, length(g, x))),
    "counted": lambda g, x: g("MatMul", g("Gather", g.weight(40, 4), g("Range", g.const(0), g.size(x, 1), g.const(1))),
                              g.weight(4, 4)),
    "turned": lambda g, x: g("Transpose", g("Sin", g.slice(g.weight(4, 40), 1, 0, length(g, x))), perm=[1, 0]),
}  # fmt: skip


@pytest.mark.parametrize("what", AHEAD)
def test_tables_of_an_open_length_are_computed_ahead(tools, what: str) -> None:
    left, _ = simplified(tools, lambda g, x: g("Add", x, AHEAD[what](g, x)), 2, "n", 4)
    assert left == {"strided_slice": 1, "add": 1}


def test_a_table_across_and_along(tools) -> None:
    """A causal mask of the largest size, cut on both sides and scaled."""

    def make(g: Raw, x: str) -> str:
        mask = g.const(np.triu(np.full((1, 40, 40), -5.0), 1), "float32")
        part = g.slice(g.slice(mask, 1, 0, length(g, x)), 2, 0, length(g, x))
        return g("Add", x, g("Mul", part, g.f(3)))

    assert simplified(tools, make, 2, "n", "n")[0] == {"strided_slice": 1, "add": 1}


def test_what_mixes_the_positions_is_left(tools) -> None:
    """A softmax, a sum and a product along the open axis depend on how much of the table there is."""
    for operator, more, left in (("Softmax", {"axis": 1}, "nn.softmax"), ("ReduceMax", {"axes": [1]}, "max")):
        found, _ = simplified(tools, lambda g, x: g("Add", x, g(operator, table(g, x), **more)), 2, "n", 4)  # noqa: B023
        assert found[left] == 1
    inner = lambda g, x: g("MatMul", x, g.slice(g.weight(40, 4), 0, 0, length(g, x, 2)))  # noqa: E731
    assert simplified(tools, inner, 2, 3, "n")[0] == {"strided_slice": 1, "matmul": 1}


def test_a_table_that_would_be_too_large_is_left(tools) -> None:
    def make(g: Raw, x: str) -> str:
        wide = g("Add", g.slice(g.weight(2000, 1), 0, 0, length(g, x)), g.weight(1, 3000))
        return g("ReduceMax", wide, axes=[1])

    _, declined = simplified(tools, lambda g, x: g("Add", x, make(g, x)), 1, "n", 1)
    assert any(d == "table-ahead: the whole table would take 24000000 bytes" for d in declined)


def test_positions_that_may_reach_beyond_stay_a_gather(tools) -> None:
    def make(g: Raw, x: str) -> str:
        at = g("Range", g.const(3), g("Add", g.size(x, 1), g.const(3)), g.const(1))
        return g("Add", x, g("Gather", g.weight(40, 4), at))

    assert simplified(tools, make, 2, "n", 4)[0] == {"strided_slice": 1, "add": 1}  # n is at most 37


def test_shapes_of_what_has_one_shape_are_one(tools) -> None:
    def make(g: Raw, x: str) -> str:
        y = g("Relu", x)
        both = g("Add", y, g("Expand", g.weight(1, 1, 4), g("Shape", y)))
        return g("Add", both, g("Expand", g.weight(4), g("Shape", x)))

    assert simplified(tools, make, 2, "n", 4)[0] == {"nn.relu": 1, "add": 1}


def test_a_mask_of_ones_of_a_shape_goes(tools) -> None:
    def make(g: Raw, x: str) -> str:
        one = onnx.numpy_helper.from_array(np.ones(1, np.float32))
        ones = g("ConstantOfShape", g("Concat", g.const([2, 1, 1]), length(g, x, 3), axis=0), value=one)
        return g("Add", g("Relu", x), g("Mul", g("Sub", g.f(1), ones), g.f(-1e4)))

    assert simplified(tools, make, 2, 1, 3, "n")[0] == {"nn.relu": 1}
