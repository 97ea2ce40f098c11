"""Pixel shuffles behind blocked convolutions: rows and columns repeat, and periods of a row are written out."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile import compile as compile_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.general.depth_to_space import CHUNK, MOST, chunk_of, period
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx


def model(mode: str, block: int, outputs: int, size: tuple[int, int, int, int], after: bool) -> onnx.ModelProto:
    rng = np.random.default_rng(block)
    channels = outputs * block * block
    weights = {
        "w": rng.standard_normal((channels, size[1], 1, 1)).astype("f4"),
        "b": rng.standard_normal(channels).astype("f4"),
        "k": rng.standard_normal((outputs, 1, 1)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"]),
        helper.make_node("DepthToSpace", ["c"], ["d" if after else "y"], blocksize=block, mode=mode),
    ]
    if after:
        nodes.append(helper.make_node("Mul", ["d", "k"], ["y"]))
    shape = [size[0], outputs, size[2] * block, size[3] * block]
    graph = helper.make_graph(
        nodes,
        "shuffle",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(
    ("block", "outputs", "size", "after"),
    [
        (2, 3, (1, 16, 11, 67), False),
        (3, 3, (2, 5, 7, 130), True),
        (4, 1, (1, 16, 2, 3), False),
        (5, 2, (3, 16, 5, 13), True),
        (7, 5, (1, 16, 3, 2), False),
    ],
)
def test_shuffles_into_plain_memory(
    mode: str, block: int, outputs: int, size: tuple[int, int, int, int], after: bool
) -> None:
    made = model(mode, block, outputs, size, after)
    x = np.random.default_rng(1).standard_normal(size).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    library = compile_model(made, threads=2)
    for threads in (1, 2, 3):
        np.testing.assert_allclose(library({"x": x}, threads=threads)["y"], wanted, rtol=1e-4, atol=1e-5)
    notes = [note for kernel in library.report["kernels"] for note in kernel["notes"]]
    repeating = [note.split() for note in notes if note.startswith("reads repeat after")]
    assert any(block % int(rows) == 0 and int(columns) == block for _, _, _, rows, _, _, columns, _ in repeating), notes


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(
    ("block", "outputs", "size", "shape", "fires"),
    [
        (3, 1, (1, 16, 11, 67), (6, 60), True),
        (2, 3, (2, 5, 13, 37), (4, 74), True),
        (3, 2, (1, 16, 11, 67), (7, 60), False),  # stripes begin anywhere
        (3, 2, (1, 16, 11, 67), (6, 61), False),
    ],
)
def test_boxes_of_whole_periods(
    mode: str, block: int, outputs: int, size: tuple[int, int, int, int], shape: tuple[int, int], fires: bool
) -> None:
    made = model(mode, block, outputs, size, False)
    x = np.random.default_rng(2).standard_normal(size).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    library = compile_model(made, threads=2, tile={"last": "y", "shape": shape, "bands": 1})
    for threads in (1, 2):
        np.testing.assert_allclose(library({"x": x}, threads=threads)["y"], wanted, rtol=1e-4, atol=1e-5)
    (kernel,) = library.report["kernels"]
    assert kernel["schedule"].startswith("tiled, 3 members")  # with the input in blocks of channels
    assert (f"reads repeat after {block} rows and {block} columns" in kernel["notes"]) == fires


def test_rows_at_places_that_are_read_themselves() -> None:
    """An edge repeated behind a shuffle: which row is read is a number of memory, unknown before the loop over a chunk.
    """
    made = model("CRD", 2, 3, (1, 16, 11, 12), False)
    node = made.graph.node[1]
    node.output[0] = "d"
    made.graph.node.append(helper.make_node("Pad", ["d", "pads"], ["y"], mode="edge"))
    made.graph.initializer.append(numpy_helper.from_array(np.array([0, 0, 1, 0, 0, 0, 1, 0]), "pads"))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3, 24, 24)))
    x = np.random.default_rng(3).standard_normal((1, 16, 11, 12)).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    library = compile_model(made, threads=1, tile={"last": "y", "shape": (5, 24), "bands": 1})
    np.testing.assert_allclose(library({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    (kernel,) = library.report["kernels"]
    assert kernel["schedule"].startswith("tiled") and "reads repeat after 1 rows and 2 columns" in kernel["notes"]


def test_periods() -> None:
    w = tirx.Var("w", "int32")
    assert period([tirx.floordiv(w, 3) * 5 + tirx.floormod(w, 3)], w) == 3
    assert period([tirx.floordiv(tirx.floormod(w, 3) + 9, 16) + tirx.floordiv(w, 3)], w) == 3  # blocks of channels
    assert period([tirx.floordiv(w, 2)], w) == 0  # nearest resizing: neighbours read the same
    assert period([tirx.floordiv(w, 2) + tirx.floormod(w, 3)], w) == 0
    assert period([tirx.floormod(w, MOST + 1)], w) == 0
    assert period([w + 1, 7], w) == 0
    assert [chunk_of(n) for n in (1, 13, 67, 128, 130)] == [1, 13, 34, CHUNK, 44]


def test_chunks_that_do_not_divide_a_row() -> None:
    """Places stay known in the last one: with remainders of the whole row, every element was read by itself."""
    made = model("CRD", 3, 8, (1, 16, 3, 130), False)
    x = np.random.default_rng(5).standard_normal((1, 16, 3, 130)).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    np.testing.assert_allclose(compile_model(made, threads=1)({"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)
    build = run_pipeline(made, Options(resolve("native"), threads=1, tile="off", stop_after="plan"))
    (text,) = [str(k.function) for k in build.kernels if "reads repeat after 3 rows and 3 columns" in k.notes]
    assert chunk_of(130) == 44 and "% 130" not in text and "// 130" not in text
