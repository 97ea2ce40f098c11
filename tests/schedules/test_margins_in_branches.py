"""Maps of open sizes that take one of two ways, by the image's width: margins are written whichever is taken.

Before each image runs one of NaN, so that what is not written is NaN.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile import compile as compile_model
from halotile.schedules.general.loop_interchange import NOTE
from halotile.schedules.general.pixel_shuffle import NOTE as TRANSPOSED
from onnx import TensorProto, helper, numpy_helper

NOTES = {"shuffle": TRANSPOSED, "turn": NOTE}


def model(kind: str, channels: int) -> onnx.ModelProto:
    """A shuffle of ``channels`` * 4 channels, or rows turned to columns, and a padded layer behind it."""
    rng = np.random.default_rng(channels)
    weights = {"v": rng.standard_normal((2, channels, 3, 3)).astype("f4")}
    nodes, given = [], channels
    if kind == "shuffle":
        given, weights["w"] = 3, rng.standard_normal((channels * 4, 3, 1, 1)).astype("f4")
        nodes = [helper.make_node("Conv", ["x", "w"], ["c"]),
                 helper.make_node("DepthToSpace", ["c"], ["d"], blocksize=2, mode="CRD")]  # fmt: skip
    else:
        nodes = [helper.make_node("Transpose", ["x"], ["d"], perm=[0, 1, 3, 2])]
    nodes.append(helper.make_node("Conv", ["d", "v"], ["y"], pads=[1, 2, 2, 1]))
    graph = helper.make_graph(
        nodes, "ways", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, given, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, n) for n, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("kind", "channels"), [("shuffle", 1), ("shuffle", 3), ("turn", 3)])
def test_margins_are_written_whichever_way_is_taken(kind: str, channels: int, threads: int) -> None:
    made = model(kind, channels)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    library = compile_model(made, threads=threads)
    assert any(NOTES[kind] in kernel["notes"] for kernel in library.report["kernels"])
    given = made.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    rng = np.random.default_rng(1)
    for height, width in ((1, 1), (5, 7), (3, 16), (16, 3), (31, 40), (64, 17), (127, 113)):
        library({"x": np.full((1, given, 130, 131), np.nan, np.float32)})
        x = rng.standard_normal((1, given, height, width)).astype("f4")
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(library({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4, err_msg=f"{height} x {width}")
