"""Images and sequences of open size: pads, positions and resizes that follow from a size known at run time only."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from exports import Raw
from halotile.compiler.frontend import import_model
from halotile.compiler.frontend.implied import at
from halotile.errors import UnsupportedError
from halotile.passes.simplify import Simplify
from halotile.schedules.words.dims import Dim, bounds, floor_div, minimum
from onnx import TensorProto, helper


def finished(g: Raw, *outputs: str) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    graph = helper.make_graph(g.nodes, "open", g.inputs, infos, g.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", g.opset)], ir_version=8)


def assert_right(tools, model: onnx.ModelProto, *shapes: tuple[int, ...]) -> tuple[list[str], tuple[str, ...]]:
    """Imported once with open dims, run at every shape beside ONNX Runtime; the outputs' shapes and the notes."""
    imported = import_model(model, symbolic=True)
    module = Simplify().apply(imported.module).module
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for shape in shapes:
        x = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
        for expected, got in zip(session.run(None, {"x": x}), tools.values(module, [x]), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return [", ".join(map(str, o.shape)) for o in imported.outputs], imported.notes


@pytest.mark.parametrize("levels", [1, 2])
def test_padded_to_the_parity_of_the_map_beside_it(tools, levels: int) -> None:
    """As U-Nets do: halved, doubled, and padded by what was lost, on both sides; below another such level or not."""
    g = Raw(17)
    image = x = g.input("x", (1, 2, "h", "w"))
    if levels == 2:
        x = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    half = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    twice = g("Resize", half, "", g.f([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="align_corners")
    pads = []
    for axis in (3, 2):
        rest = g("Sub", g.size(x, axis), g.size(twice, axis))
        first = g("Div", rest, g.const(2))
        pads += [g.unsqueeze(first, 0), g.unsqueeze(g("Sub", rest, first), 0)]
    width = g("Concat", g.const([0, 0]), pads[2], pads[0], g.const([0, 0]), pads[3], pads[1], axis=0)
    model = finished(g, g("Concat", x, g("Pad", twice, width, g.f(0)), axis=1), g("Relu", image))
    shapes, _ = assert_right(tools, model, (1, 2, 7, 8), (1, 2, 6, 9), (1, 2, 13, 14))
    assert shapes[0] == ("1, 4, h, w" if levels == 1 else "1, 4, (h // 2), (w // 2)")


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_an_open_border_is_mirrored_and_repeated(tools, mode: str) -> None:
    g = Raw(17)
    x = g.input("x", (1, "n", 3, "w"))
    model = finished(g, g("Pad", x, g.const([0, 2, 1, 0, 0, 3, 1, 1]), mode=mode))
    shapes, _ = assert_right(tools, model, (1, 5, 3, 4), (1, 9, 3, 2))
    assert shapes == ["1, n + 5, 5, w + 1"]


def test_a_border_up_to_a_multiple(tools) -> None:
    """Reflected by (8 - n mod 8) mod 8, as models of windows pad their images."""
    g = Raw(17)
    x = g.input("x", (1, 2, "n"))
    rest = g("Mod", g("Sub", g.const(8), g("Mod", g.size(x, 2), g.const(8))), g.const(8))
    pads = g("Concat", g.const([0, 0, 0, 0, 0]), g.unsqueeze(rest, 0), axis=0)
    model = finished(g, g("Pad", x, pads, mode="reflect"))
    shapes, _ = assert_right(tools, model, (1, 2, 13), (1, 2, 16), (1, 2, 9))
    assert shapes == ["1, 2, 8*((n + 7) // 8)"]


@pytest.mark.parametrize(("mode", "rank"), [("linear", 3), ("linear", 4), ("cubic", 4)])
def test_interpolated_along_open_axes(tools, mode: str, rank: int) -> None:
    g = Raw(17)
    x = g.input("x", (1, 2, "h", "w")[:rank])
    scales = g.f([1, 1, 2, 3][:rank])
    y = g("Resize", x, "", scales, mode=mode, coordinate_transformation_mode="half_pixel")
    shapes, _ = assert_right(tools, finished(g, y), (1, 2, 5, 7)[:rank], (1, 2, 2, 3)[:rank])
    assert shapes == ["1, 2, 2*h, 3*w" if rank == 4 else "1, 2, 2*h"]


def test_positions_are_counted_in_floats(tools) -> None:
    """Range over a float of the shape, as grids of detection heads are made."""
    g = Raw(17)
    x = g.input("x", (1, 2, "w"))
    count = g("Cast", g.size(x, 2), to=TensorProto.FLOAT)
    model = finished(g, g("Add", x, g("Add", g("Range", g.f(0), count, g.f(1)), g.f(0.5))))
    assert_right(tools, model, (1, 2, 5), (1, 2, 1))


def test_a_fractional_step_over_an_open_length_is_refused() -> None:
    g = Raw(17)
    x = g.input("x", (1, 2, "w"))
    y = g("Range", g.f(0), g("Cast", g.size(x, 2), to=TensorProto.FLOAT), g.f(0.5))
    with pytest.raises(UnsupportedError, match="Range.* open ones need a whole step that is known"):
        import_model(finished(g, y), symbolic=True)


def test_tiled_by_the_batch(tools) -> None:
    g = Raw(17)
    x = g.input("x", ("b", 4))
    repeats = g("Concat", g.unsqueeze(g.size(x, 0), 0), g.const([1]), axis=0)
    shapes, _ = assert_right(tools, finished(g, g("Tile", g.weight(3, 4), repeats), g("Relu", x)), (2, 4), (5, 4))
    assert shapes == ["3*b, 4", "b, 4"]


def test_up_to_the_last_element(tools) -> None:
    """A convolution of even width with pads on both sides gives one element too many, which is dropped."""
    g = Raw(17)
    x = g.input("x", (1, 2, "n"))
    y = g("Conv", x, g.weight(2, 2, 4), kernel_shape=[4], pads=[2, 2])
    model = finished(g, g("Add", x, g.slice(y, 2, 0, -1)))
    shapes, _ = assert_right(tools, model, (1, 2, 6), (1, 2, 9))
    assert shapes == ["1, 2, n"]


def test_sizes_of_one_symbol_that_only_broadcast_where_they_are_equal(tools) -> None:
    g = Raw(17)
    x = g.input("x", (1, 2, "n", 3))
    half = g("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1])
    twice = g("Resize", half, "", g.f([1, 1, 2, 1]), mode="nearest", coordinate_transformation_mode="asymmetric",
              nearest_mode="floor")  # fmt: skip
    _, notes = assert_right(tools, finished(g, g("Add", twice, x)), (1, 2, 4, 3), (1, 2, 10, 3))
    assert any("dimension 'n' is a multiple of 2, since node '/Add_4' (Add) can't run otherwise" in n for n in notes)


def test_bounds_of_remainders() -> None:
    """Intervals hold whatever a size is, and a length less its doubled half is 0 or 1."""
    n = Dim.symbol("n")
    assert bounds(n - floor_div(n, 2) * 2) == (0, 1)
    assert bounds(floor_div(n, 2) - floor_div(n, 4) * 2) == (0, 1)
    assert bounds(floor_div(n + 31, 32) * 32 - n) == (0, 31)
    assert bounds(floor_div(n + 1, 2) - floor_div(n, 2)) == (0, 1)
    assert bounds(floor_div(floor_div(n + 2, 3) + n + 1, 2) + floor_div(n + 2, 3) - n + 1) == (1, 2)
    assert bounds(n - minimum(n, 2)) == (0, float("inf")) and floor_div(-n, 8) == -floor_div(n + 7, 8)
    rng = random.Random(0)
    for _ in range(500):
        whole = floor_div(n + rng.randint(0, 9), rng.choice([2, 3, 4, 6, 8]))
        value = whole * rng.randint(-6, 6) + floor_div(n, rng.choice([2, 3])) * rng.randint(-3, 3)
        value += floor_div(n * 2 + whole + 1, 3) * rng.randint(-2, 2)
        value += n * rng.randint(-3, 3) + minimum(n, rng.randint(1, 5)) * rng.randint(-2, 2)
        low, high = bounds(value)
        assert all(low <= at(value, {"n": size}) <= high for size in range(40))
