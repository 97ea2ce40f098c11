"""Maps in boxes of several sizes, which are known where they run: a pixel shuffle's places stay within the tensor, so
that it moves whole vectors, wherever the boxes begin. Arena and outputs are poisoned with NaN."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import Compiled, native
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.schedules.general.open_places import NOTE
from halotile.schedules.tiled import TiledKernel
from onnx import TensorProto, helper, numpy_helper

LANES = native().lanes()


def model(
    between: list[onnx.NodeProto], size: tuple[int, int, int, int], channels: int, outputs: int
) -> onnx.ModelProto:
    """Convolutions to ``channels``, and of ``outputs`` channels behind what lies ``between``, from "c" to "d"."""
    rng = np.random.default_rng(channels)
    weights = {
        "w": rng.standard_normal((channels, size[1], 3, 3)).astype("f4"),
        "b": rng.standard_normal(channels).astype("f4"),
        "v": rng.standard_normal((2 * LANES, outputs, 3, 3)).astype("f4"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        *between,
        helper.make_node("Conv", ["d", "v"], ["y"], pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes, "places", [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def checked(made: onnx.ModelProto, tile: dict[str, object]) -> Build:
    """A build in tiles, whose numbers are ONNX Runtime's, for any number of tasks."""
    asked = Options(native(), threads=3, winograd=False, tile={"last": "y", **tile}, stop_after="plan")
    build = run_pipeline(made, asked)
    size = tuple(d.dim_value for d in made.graph.input[0].type.tensor_type.shape.dim)
    x = np.random.default_rng(1).standard_normal(size).astype("f4")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    compiled = Compiled(build)
    layout = build.layouts.get(build.graph.outputs[0])
    for tasks in (1, 3):
        (got,) = compiled.run([x], tasks)
        assert layout is None or layout.is_plain
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-3)
    return build


def noted(build: Build) -> bool:
    (kernel,) = [k for k in build.kernels if isinstance(k, TiledKernel)]
    return NOTE in kernel.notes


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize(
    ("block", "size", "shape"),
    [
        (2, (1, 5, 13, 31), (5, 23)),
        (2, (2, 3, 11, 37), (6, 60)),
        (3, (1, 5, 7, 23), (7, 31)),
    ],
)
def test_pixel_shuffles_move_vectors(
    mode: str, block: int, size: tuple[int, int, int, int], shape: tuple[int, int]
) -> None:
    shuffle = helper.make_node("DepthToSpace", ["c"], ["d"], blocksize=block, mode=mode)
    build = checked(model([shuffle], size, LANES * block * block, LANES), {"shape": shape, "bands": 1})
    assert noted(build)
    kernels = [k for k in build.kernels if isinstance(k, TiledKernel)]
    parts = [str(p.function) for k in kernels for p in k.parts if p.schedule.startswith("map")]
    (shuffled,) = [text for text in parts if f"% {block}" in text and f"// {block}" in text]
    assert f"// {size[3] * block}" not in shuffled and f"% {size[3] * block}" not in shuffled


@pytest.mark.parametrize("between", ["Relu", "Resize"])
def test_what_does_not_divide_has_no_names(between: str) -> None:
    """Elements that are read where they are written; and a resizing, whose divisions are named as well."""
    node = helper.make_node("Relu", ["c"], ["d"])
    if between == "Resize":
        node = helper.make_node("Resize", ["c", "", "s"], ["d"], mode="nearest", nearest_mode="floor",
                                coordinate_transformation_mode="asymmetric")  # fmt: skip
    pool = helper.make_node("MaxPool", ["d0"], ["d"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    node.output[0] = "d0"
    made = model([node, pool], (1, 5, 13, 31), LANES, LANES)
    if between == "Resize":
        made.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, 2, 2], "f4"), "s"))
        made = onnx.shape_inference.infer_shapes(made)
    assert noted(checked(made, {"shape": (5, 23), "bands": 1})) == (between == "Resize")
