"""Operators that read at computed places, of images with axes of one element: against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from evaluate import evaluate, one_node, peer
from onnx import helper, numpy_helper

RNG = np.random.default_rng(4)


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int64")


Case = tuple[
    str, list[Any], tuple[int, ...], dict[str, Any]
]  # operator, operands, those of run time, attributes


def sampled() -> list[Case]:
    """GridSample: every border and mode, one element along every axis or some, images of two and three axes."""
    found: list[Case] = []
    for padding in ("zeros", "border", "reflection"):
        for mode, align, size in (
            *(("nearest", 1, (1, 1)), ("nearest", 0, (3, 1)), ("nearest", 1, (3, 1, 2))),
            *(("linear", 1, (1, 1)), ("linear", 0, (1, 1)), ("linear", 1, (1, 4)), ("cubic", 1, (1, 1))),
        ):
            grid = RNG.uniform(-2.5, 2.5, (2, *((3, 5) if len(size) == 2 else (2, 3, 2)), len(size)))
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
            found.append(("GridSample", [noise(2, 2, *size), grid.astype("float32")], (0, 1), attributes))
    endless = np.array([[[[0, np.inf], [-0.6, -np.inf], [1, np.nan], [0.3, 9e30]]]], "float32")  # of the only row
    for mode in ("nearest", "linear", "cubic"):
        for padding in ("zeros", "border", "reflection"):
            attributes = {"mode": mode, "padding_mode": padding, "align_corners": 1}
            found.append(("GridSample", [noise(1, 3, 1, 4), endless], (0, 1), attributes))
            found.append(("GridSample", [noise(1, 3, 4, 1), endless[..., ::-1].copy()], (0, 1), attributes))
            found.append(("GridSample", [noise(1, 3, 1, 1), endless[..., 1:].repeat(2, -1)], (0, 1), attributes))
    return found


def read() -> list[Case]:
    found: list[Case] = []
    for shape in ((1,), (1, 1), (3, 1), (1, 4), (2, 1, 3)):
        x, rank = noise(*shape), len(shape)
        for axis in range(rank):
            longer = [5 if a == axis else n for a, n in enumerate(shape)]
            found += [
                ("Gather", [x, np.array(0)], (0, 1), {"axis": axis}),
                ("Gather", [x, whole(0, -1)], (0, 1), {"axis": axis}),
                ("GatherElements", [x, np.full(longer, -1)], (0, 1), {"axis": axis}),
            ]
        one = np.full((1,) * rank, -1)
        found += [
            ("GatherND", [x, np.full((2, rank), -1)], (0, 1), {}),
            ("ScatterElements", [x, one, noise(*one.shape)], (0, 1, 2), {"reduction": "add"}),
            ("ScatterND", [x, np.full((1, rank), -1), noise(1)], (0, 1, 2), {}),
            ("Slice", [x, whole(-1), whole(-9), whole(0), whole(-3)], (0,), {}),
        ]
    for mode in ("edge", "wrap"):
        for shape, pads in (((1,), (2, 3)), ((1, 3), (2, 1, 2, 2)), ((1, 1, 1), (0, 2, 1, 1, 0, 2))):
            found.append(("Pad", [noise(*shape), whole(*pads)], (0,), {"mode": mode}))
    for shape, pads in (((1, 3), (0, 1, 0, 2)), ((2, 1), (1, 0, 1, 0)), ((1,), (0, 0))):
        found.append(("Pad", [noise(*shape), whole(*pads)], (0,), {"mode": "reflect"}))
    found += [
        ("Compress", [noise(3, 1), np.array([True])], (0,), {"axis": 1}),
        ("CenterCropPad", [noise(1, 7, 1), whole(1, 1, 4)], (0,), {}),
        (
            "MaxUnpool",
            [noise(1, 1, 1, 1), np.full((1, 1, 1, 1), 3)],
            (0, 1),
            {"kernel_shape": [2, 2], "strides": [2, 2]},
        ),
        ("Col2Im", [noise(1, 2 * 3, 3), whole(1, 5), whole(1, 3)], (0,), {}),
    ]
    return found


def resized() -> list[Case]:
    found: list[Case] = []
    for mode in ("nearest", "linear", "cubic"):
        for coordinate in (
            "half_pixel",
            "align_corners",
            "asymmetric",
            "pytorch_half_pixel",
            "tf_crop_and_resize",
        ):
            for shape, size in (
                ((1, 1, 1, 1), (1, 1, 3, 4)),
                ((1, 2, 5, 1), (1, 2, 1, 3)),
                ((1, 1, 1, 6), (1, 1, 2, 1)),
            ):
                roi = np.array([0, 0, -0.3, 0.1, 1, 1, 1.4, 1.9], "float32")
                crop = roi if coordinate.startswith("tf") else None
                attributes = {
                    "mode": mode,
                    "coordinate_transformation_mode": coordinate,
                    "extrapolation_value": 7.5,
                }
                found.append(("Resize", [noise(*shape), crop, None, whole(*size)], (0,), attributes))
    return found


def aligned() -> list[Case]:
    """Regions of images of one row or column."""
    found: list[Case] = []
    for shape in ((1, 2, 1, 1), (1, 1, 1, 5), (1, 1, 4, 1)):
        for mode in ("avg", "max"):
            boxes = np.array([[0, 0, 1, 1], [0, 0, 0, 0], [-1, -1, 3, 3]], "float32")
            attributes = {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": 2}
            found.append(("RoiAlign", [noise(*shape), boxes, np.zeros(3, "int64")], (0, 1, 2), attributes))
    for shape, kernel in (((1, 2, 1, 1), (3, 3)), ((1, 2, 1, 6), (1, 3)), ((1, 2, 5, 1), (3, 1))):
        taps, pads = kernel[0] * kernel[1], [(k - 1) // 2 for k in kernel] * 2
        moved, mask = noise(1, 2 * taps, *shape[2:]) * 2, noise(1, taps, *shape[2:])
        found.append(("DeformConv", [noise(*shape), noise(3, 2, *kernel), moved, noise(3), mask], (0, 2, 4),
                      {"kernel_shape": list(kernel), "pads": pads}))  # fmt: skip
    return found


FAMILIES = {
    "GridSample": sampled(), "reading": read(), "Resize": resized(), "regions": aligned(),
}  # fmt: skip


def model_of(cases: list[Case]) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """One model of all of them, case i giving ``y{i}``."""
    nodes, feeds, weights = [], {}, []
    for i, (operator, operands, run_time, attributes) in enumerate(cases):
        names = [f"x{i}_{n}" if a is not None else "" for n, a in enumerate(operands)]
        nodes.append(helper.make_node(operator, names, [f"y{i}"], **attributes))
        for n, (name, array) in enumerate(zip(names, operands)):
            if name and n in run_time:
                feeds[name] = array
            elif name:
                weights.append(numpy_helper.from_array(array, name))
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", 1, None) for i in range(len(cases))]
    graph = helper.make_graph(nodes, "ones", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), feeds


def test_the_grid_of_one_element_begins_where_all_do() -> None:
    """At -1, as in ONNX's reference; ONNX Runtime has 1 there, and PyTorch 0."""
    theta = noise(2, 2, 3)
    model, feeds = one_node("AffineGrid", [theta, whole(2, 3, 1, 2)], align_corners=1, opset=20)
    (grid,) = evaluate(model, feeds).values()
    for column, x in enumerate((-1, 1)):
        np.testing.assert_allclose(grid[:, 0, column], theta @ np.array([x, -1, 1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_axes_of_one_element(family: str) -> None:
    model, feeds = model_of(FAMILIES[family])
    results = halotile.compile(model)(feeds)
    for i, wanted in enumerate(peer(model, feeds)):
        np.testing.assert_allclose(
            results[f"y{i}"], wanted, rtol=1e-4, atol=1e-4, err_msg=str(FAMILIES[family][i][0::3])
        )
