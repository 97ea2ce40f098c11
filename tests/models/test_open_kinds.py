"""What exporters write of open dims beyond whole networks: each a small graph, at sizes around every corner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.errors import RunError
from onnx import TensorProto, helper

from ..support.open_models import Drawing, Sizes, feeds

CLOSE = 2e-5  # of the largest number of an output


class Graph(Drawing):
    """A drawing of any opset, with operators of ONNX Runtime and outputs of any type."""

    def __init__(self, opset: int) -> None:
        super().__init__(7)
        self.opset = opset

    def several(self, operator: str, count: int, *operands: str, **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{k}" for k in range(count)]
        self.nodes.append(helper.make_node(operator, operands, names, name=f"{operator}_{names[0]}", **attributes))
        return names

    def out(self, *values: str, kind: int = TensorProto.FLOAT) -> None:
        for value in values:
            self.output(value, 0)
            self.outputs[-1].type.tensor_type.ClearField("shape")
            self.outputs[-1].type.tensor_type.elem_type = kind

    def size(self, x: str, axis: int) -> str:
        return self("Gather", self("Shape", x), self.whole_scalar(axis))

    def model(self) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "open", self.inputs, self.outputs, self.weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


Draw = Callable[[Graph], None]
CASES: list[Any] = []


def case(opset: int, *sizes: Sizes) -> Callable[[Draw], Draw]:
    def enter(draw: Draw) -> Draw:
        CASES.append(pytest.param(opset, draw, sizes, id=draw.__name__))
        return draw

    return enter


def images(*sizes: tuple[int, int]) -> list[Sizes]:
    return [{"h": h, "w": w} for h, w in sizes]


@case(18, *images((1, 1), (2, 3), (3, 7), (5, 4), (17, 22)))
def scales_that_are_no_whole_numbers(g: Graph) -> None:
    x = g.input("x", 1, 2, "h", "w")
    for scale, mode, coordinates, more in (
        (1.5, "nearest", "asymmetric", {"nearest_mode": "floor"}),
        (1.5, "nearest", "half_pixel", {"nearest_mode": "round_prefer_floor"}),
        (0.5, "nearest", "half_pixel", {"nearest_mode": "round_prefer_ceil"}),
        (0.75, "nearest", "half_pixel", {"nearest_mode": "ceil"}),
        (0.5, "linear", "half_pixel", {}),
        (0.75, "linear", "half_pixel", {}),
        (1.5, "cubic", "half_pixel", {"cubic_coeff_a": -0.5}),
        (2.0, "linear", "align_corners", {}),
        (0.5, "linear", "align_corners", {}),
    ):
        scales = g.constant([1, 1, scale, scale])
        g.out(g("Resize", x, "", scales, mode=mode, coordinate_transformation_mode=coordinates, **more))


@case(10, *images((1, 1), (2, 3), (5, 4)))
def resizing_of_older_models(g: Graph) -> None:
    x = g.input("x", 1, 2, "h", "w")
    for mode in ("nearest", "linear"):
        g.out(*(g("Resize", x, g.constant([1, 1, s, s]), mode=mode) for s in (0.5, 1.5, 2)))


@case(18, {"n": 1}, {"n": 2}, {"n": 7}, {"n": 8}, {"n": 23})
def parts_of_what_is_sorted(g: Graph) -> None:
    x = g.input("x", 2, "n", 3)
    few = g("Unsqueeze", g("Min", g.whole_scalar(7), g.size(x, 1)), g.whole(0))
    for k, largest in ((few, 1), (g("Div", g.size(x, 1), g.whole_scalar(2)), 0)):
        values, places = g.several("TopK", 2, x, g("Reshape", k, g.whole(1)), axis=1, largest=largest)
        g.out(values)
        g.out(places, kind=TensorProto.INT64)
    empty, rest = g.several("Split", 2, x, g.whole(0, 3), axis=2)
    g.out(g("Concat", rest, empty, axis=2))
    found = g.several("Unique", 4, g("Round", g("Reshape", g("Mul", x, g.constant(2)), g.whole(-1))))
    g.out(found[0])
    g.out(*found[1:], kind=TensorProto.INT64)


@case(18, {"b": 1, "n": 1}, {"b": 2, "n": 5}, {"b": 3, "n": 12})
def windows_that_turn_round(g: Graph) -> None:
    """torch.roll of images in windows, and relative positions cut from a table or a padded one, skewed by a view."""
    x = g.input("x", "b", "n", 4)
    n = g.size(x, 1)
    turned = g("Mod", g("Neg", g.whole_scalar(2)), g("Mul", n, g.whole_scalar(4)))
    wide = g("Concat", *[x] * 4, axis=1)
    at = g("Unsqueeze", turned, g.whole(0))
    end = g.whole(2**62)
    g.out(g("Concat", g("Slice", wide, at, end, g.whole(1)), g("Slice", wide, g.whole(0), at, g.whole(1)), axis=1))
    zero, five = g.whole_scalar(0), g.whole_scalar(5)
    start = g("Unsqueeze", g("Max", g("Sub", five, n), zero), g.whole(0))
    pads = g("Unsqueeze", g("Max", g("Sub", n, five), zero), g.whole(0))
    table = g("Pad", g.drawn(9, 4), g("Concat", pads, g.whole(0), pads, g.whole(0), axis=0))
    twice = g("Unsqueeze", g("Sub", g("Mul", n, g.whole_scalar(2)), g.whole_scalar(1)), g.whole(0))
    near = g("Slice", table, start, g("Add", start, twice), g.whole(0))
    scores = g("MatMul", x, g("Transpose", near, perm=[1, 0]))
    padded = g("Pad", scores, g.whole(0, 0, 1, 0, 0, 0))
    batch, length = g.dims(x, 0, 1)
    skewed = g("Reshape", padded, g("Concat", batch, g("Mul", length, g.whole(2)), length, axis=0))
    skewed = g("Reshape", g("Slice", skewed, g.whole(1), end, g.whole(1)), g("Concat", batch, length, twice, axis=0))
    g.out(g("MatMul", g("Slice", skewed, g.whole(0), length, g.whole(2)), x))


@case(18, {"b": 1, "n": 1}, {"b": 2, "n": 3}, {"b": 3, "n": 17})
def one_element_beside_all(g: Graph) -> None:
    """The first, the last, one from the end: of an input, of a sum, behind a transpose, of one axis and of both."""
    x = g.input("x", "b", "n", 5)
    bounds = [g.whole(-1), g.whole(2**62), g.whole(1)]
    totals = g("CumSum", g("Abs", x), g.whole_scalar(1))
    g.out(g("Div", totals, g("Add", g("Slice", totals, *bounds), g.constant(1e-3))))
    g.out(g("Sub", x, g("Slice", x, g.whole(0), g.whole(1), g.whole(1))))
    turned = g("Transpose", x, perm=[0, 2, 1])
    g.out(g("Mul", turned, g("Slice", turned, g.whole(-1), g.whole(2**62), g.whole(2))))
    g.out(g("Sub", x, g("Slice", x, g.whole(-1, 0), g.whole(2**62, 1), g.whole(1, 2))))
    g.out(g("Concat", x, g("Expand", g("Slice", x, *bounds), g("Shape", x)), axis=1))


@case(17, {"b": 1, "n": 1}, {"b": 2, "n": 7}, {"b": 1, "n": 20})
def what_an_optimiser_fused(g: Graph) -> None:
    ids, mask = (g.input(n, "b", "n", kind=TensorProto.INT32) for n in ("ids", "mask"))
    tables = [g.drawn(50, 16), g.drawn(20, 16), ""]
    microsoft = {"domain": "com.microsoft"}
    norm = [g.constant(np.ones(16)), g.drawn(16)]
    x, count = g.several("EmbedLayerNormalization", 2, ids, "", *tables, *norm, mask, epsilon=1e-5, **microsoft)
    g.out(count, kind=TensorProto.INT32)
    for one_way in (0, 1):
        x = g("Attention", x, g.drawn(16, 48), g.drawn(48), mask, num_heads=2, unidirectional=one_way, **microsoft)
        g.out(x)


@case(18, {"b": 1, "t": 16}, {"b": 3, "t": 17}, {"b": 2, "t": 45})
def frames_of_a_signal(g: Graph) -> None:
    x = g.input("x", "b", "t", 1)
    g.out(g("STFT", x, g.whole_scalar(4), g.constant(np.hanning(16)), g.whole_scalar(16)))


def halves(g: Graph) -> tuple[str, str]:
    """Keys behind a past, and a causal mask cut from a table of 12, as GPT-2 has it."""
    x, past = g.input("x", "b", 2, "n", 4), g.input("past", "b", 2, "p", 4)
    keys = g("Concat", past, x, axis=2)
    new, all_of_them = g.dims(x, 2)[0], g.dims(keys, 2)[0]
    seen = g.constant(np.tril(np.ones((1, 1, 12, 12), bool)), bool)
    seen = g("Slice", seen, g("Sub", all_of_them, new), all_of_them, g.whole(2))
    seen = g("Slice", seen, g.whole(0), all_of_them, g.whole(3))
    scores = g("MatMul", x, g("Transpose", keys, perm=[0, 1, 3, 2]))
    g.out(g("MatMul", g("Softmax", g("Where", seen, scores, g.constant(-1e4)), axis=-1), keys))
    return x, past


@case(17, {"b": 1, "n": 1, "p": 0}, {"b": 2, "n": 1, "p": 11}, {"b": 1, "n": 5, "p": 3}, {"b": 1, "n": 12, "p": 0})
def a_past_and_a_table(g: Graph) -> None:
    halves(g)


@case(18, {"b": 1, "n": 1}, {"b": 2, "n": 999}, {"b": 1, "n": 1000}, {"b": 1, "n": 1001}, {"b": 2, "n": 2577})
def a_length_that_is_cut_or_padded(g: Graph) -> None:
    """To a thousand elements, whatever came, as Whisper's sounds are to thirty seconds, and seen in windows."""
    x = g.input("x", "b", "n")
    missing = g("Unsqueeze", g("Sub", g.whole_scalar(1000), g.size(x, 1)), g.whole(0))
    whole = g("Pad", x, g("Concat", g.whole(0, 0, 0), missing, axis=0))
    row = g("Unsqueeze", g("Pad", whole, g.whole(0, 200, 0, 200), mode="reflect"), g.whole(1))
    g.out(g("Conv", row, g.drawn(5, 1, 400), strides=[160]), g("Add", whole, g.drawn(1000)))


@pytest.mark.parametrize(("opset", "draw", "sizes"), CASES)
def test_numbers(opset: int, draw: Draw, sizes: tuple[Sizes, ...]) -> None:
    g = Graph(opset)
    draw(g)
    model = g.model()
    library = halotile.compile(model, threads=2)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in sizes:
        given = feeds(model, size)
        got, one = library(given), library(given, threads=1)
        for output, wanted in zip(session.get_outputs(), session.run(None, given), strict=True):
            found = got[output.name]
            assert found.shape == wanted.shape and np.array_equal(found, one[output.name]), (size, output.name)
            error = np.abs(found.astype(np.float64) - wanted).max(initial=0)
            assert error <= CLOSE * np.abs(wanted).max(initial=0), (size, output.name, error)


def test_lengths_that_a_table_bounds_together() -> None:
    g = Graph(17)
    halves(g)
    library = halotile.compile(g.model())
    arrays = {n: np.zeros((1, 2, k, 4), np.float32) for n, k in (("x", 5), ("past", 8))}
    with pytest.raises(RunError, match=r"n \+ p is 13, and must be at most 12"):
        library(arrays)
