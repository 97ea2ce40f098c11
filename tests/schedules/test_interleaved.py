"""Pixel shuffles out of channel blocks: squares are transposed in registers, and their columns interleaved."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile import compile as compile_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.general.pixel_shuffle import MOST, NOTE
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

from .test_periodic import model

SIZES = ((1, 1, 1), (2, 3, 3), (3, 2, 4), (1, 5, 7), (2, 1, 8), (1, 2, 15), (2, 3, 16), (3, 5, 17), (1, 7, 67))


def run(made: onnx.ModelProto, feeds: dict[str, np.ndarray], **options: Any) -> tuple[np.ndarray, np.ndarray, bool]:
    """What the library gives, what ONNX Runtime gives, and whether squares were transposed."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    library = compile_model(made, **options)
    notes = [note for kernel in library.report["kernels"] for note in kernel["notes"]]
    return library(feeds)["y"], wanted, NOTE in notes


def added(made: onnx.ModelProto, after: str) -> onnx.ModelProto:
    """``made`` with an image that is added to what it shuffles."""
    node = next(n for n in made.graph.node if n.op_type == "DepthToSpace")
    node.output[0] = "d"
    made.graph.node.append(helper.make_node("Add", ["d", "z"], ["s"]))
    made.graph.node.append(helper.make_node(after, ["s"], ["y"]))
    dims = [d.dim_value for d in made.graph.output[0].type.tensor_type.shape.dim]
    made.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, dims))
    return made


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(
    ("block", "outputs", "size"),
    [
        (2, 3, (1, 16, 5, 16)),  # a square a row
        (2, 4, (2, 16, 5, 17)),  # the last one overlaps
        (3, 3, (1, 5, 7, 67)),  # 27 channels: two squares beside each other, the second first read within (DCR)
        (4, 3, (2, 16, 3, 48)),
        (5, 2, (1, 16, 3, 33)),
        (6, 1, (1, 16, 3, 40)),
        (7, 1, (1, 16, 2, 39)),
    ],
)
def test_shuffles(mode: str, block: int, outputs: int, size: tuple[int, int, int, int]) -> None:
    x = np.random.default_rng(block).standard_normal(size).astype("f4")
    for after in (False, True):
        found, wanted, fired = run(model(mode, block, outputs, size, after), {"x": x}, threads=2)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        assert fired


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(
    ("block", "outputs", "dims", "kind"),
    [
        (2, 3, (1, 5, "h", "w"), TensorProto.FLOAT),
        (3, 3, ("n", 16, 5, "w"), TensorProto.FLOAT),
        (2, 4, (2, 16, "h", 17), TensorProto.FLOAT),  # the width is known
        (4, 3, ("n", 5, "h", "w"), TensorProto.FLOAT),
        (5, 2, (1, 16, "h", "w"), TensorProto.INT8),
    ],
)
def test_shuffles_of_open_sizes(mode: str, block: int, outputs: int, dims: tuple[int | str, ...], kind: int) -> None:
    """Rows that are too short for a square are as of any map."""
    made = model(mode, block, outputs, (1, int(dims[1]), 1, 1), False)
    made.graph.node[1].output[0] = "d"
    made.graph.node.append(helper.make_node("Relu", ["d"], ["r"]))
    made.graph.node.append(helper.make_node("Cast", ["r"], ["y"], to=kind))
    del made.graph.input[:], made.graph.output[:]
    made.graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, dims))
    made.graph.output.append(helper.make_tensor_value_info("y", kind, [None] * 4))
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(
        np.random.default_rng(block).integers(-2, 3, (outputs * block * block, dims[1], 1, 1)).astype("f4"), "w"
    ))  # fmt: skip
    made.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(outputs * block * block, 2, "f4"), "b"))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    wide = Options(resolve("x86_64-linux-gnu+icelake-server"), threads=2, stop_after="plan")
    assert any(NOTE in kernel.notes for kernel in run_pipeline(made, wide).kernels)
    library = compile_model(made, threads=2)
    rng = np.random.default_rng(block)
    for n, h, w in SIZES:
        x = rng.integers(-2, 3, [{"n": n, "h": h, "w": w}.get(d, d) for d in dims]).astype("f4")
        (wanted,) = session.run(None, {"x": x})
        for threads in (1, 2):
            assert np.array_equal(library({"x": x}, threads=threads)["y"], wanted), (x.shape, threads)


@pytest.mark.parametrize(
    ("block", "outputs", "size"),
    [
        (3, 8, (1, 16, 3, 40)),  # 72 elements of a period are too many
        (3, 2, (1, 16, 3, 3)),  # rows shorter than a square
    ],
)
def test_shuffles_one_by_one(block: int, outputs: int, size: tuple[int, int, int, int]) -> None:
    assert block * block * outputs > MOST or size[3] < 4
    x = np.random.default_rng(5).standard_normal(size).astype("f4")
    found, wanted, fired = run(model("CRD", block, outputs, size, False), {"x": x}, threads=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert not fired


@pytest.mark.parametrize(("width", "fires"), [(48, True), (49, False)])
@pytest.mark.parametrize("after", ["Relu", "Tanh"])
def test_images_that_are_added(width: int, fires: bool, after: str) -> None:
    """Squares that overlap write twice, which must not be where an image may change in place."""
    size = (2, 16, 5, width)
    made = added(model("DCR", 3, 3, size, False), after)
    rng = np.random.default_rng(width)
    feeds = {"x": rng.standard_normal(size), "z": rng.standard_normal((2, 3, 15, 3 * width))}
    found, wanted, fired = run(made, {n: v.astype("f4") for n, v in feeds.items()}, threads=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert fired == fires


@pytest.mark.parametrize(("columns", "fires"), [(66, True), (96, True), (6, False)])
def test_boxes(columns: int, fires: bool) -> None:
    size = (1, 16, 11, 70)
    x = np.random.default_rng(4).standard_normal(size).astype("f4")
    tile = {"last": "y", "shape": (6, columns), "bands": 1}
    found, wanted, fired = run(model("DCR", 3, 2, size, False), {"x": x}, threads=2, tile=tile)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert fired == fires


def test_lines_of_a_large_result_are_asked_for() -> None:
    """Each vector of it, one period of rows before."""
    target = resolve("x86_64-linux-gnu+icelake-server")
    counts = {}
    for size in ((1, 16, 8, 32), (1, 16, 512, 512)):
        build = run_pipeline(model("DCR", 3, 1, size, False), Options(target, threads=1, tile="off", stop_after="plan"))
        kernel = next(k for k in build.kernels if NOTE in k.notes)
        counts[size[2]] = str(kernel.function).count("T.prefetch(")
    assert counts == {8: 0, 512: 3 * 3}


@pytest.mark.parametrize("to", [TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT64])
def test_results_of_other_types(to: int) -> None:
    made = model("DCR", 3, 1, (1, 16, 5, 40), False)
    made.graph.node[1].output[0] = "d"
    made.graph.node.append(helper.make_node("Relu", ["d"], ["r"]))
    made.graph.node.append(helper.make_node("Cast", ["r"], ["y"], to=to))
    made.graph.output[0].type.tensor_type.elem_type = to
    x = np.random.default_rng(6).standard_normal((1, 16, 5, 40)).astype("f4")
    found, wanted, fired = run(made, {"x": x}, threads=2)
    assert found.dtype == wanted.dtype and fired
    np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=1e-3, atol=1e-5)
