"""A server's last-level cache keeps weights of small models only; kernels are chosen for where theirs come from."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.residence import KEPT
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from onnx import TensorProto as T
from onnx import helper

SERVER = replace(resolve("x86_64-linux-gnu+emeraldrapids"), l2_bytes=2 << 20, l3_bytes=300 << 20, cores=2)


def _model(table: int) -> onnx.ModelProto:
    """A 3x3 convolution of 256 channels at 14 x 14, beside a table of ``table`` bytes that is gathered from."""
    r = np.random.default_rng(0)
    weight = r.standard_normal((256, 256, 3, 3), np.float32)
    rows = r.standard_normal((table // 4096, 1024), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]),
        helper.make_node("Gather", ["rows", "i"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", T.FLOAT, [1, 256, 14, 14]),
            helper.make_tensor_value_info("i", T.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("y", T.FLOAT, [1, 256, 14, 14]),
            helper.make_tensor_value_info("z", T.FLOAT, [2, 1024]),
        ],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(rows, "rows")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(("table", "target", "stays"), [
    (1 << 20, SERVER, True),
    (KEPT, SERVER, False),
    (KEPT, replace(SERVER, l3_bytes=32 << 20), True),  # smaller caches are left to single layers' shares
])  # fmt: skip
def test_all_weights_count(table, target, stays):
    build = run_pipeline(_model(table), Options(target, stop_after="schedule", matrix=False))
    assert build.target.weights_stay is stays
    assert build.options.target == target  # what is recorded is the machine
    transform = "winograd F(4x4,3x3)" if stays else "winograd F(2x2,3x3)"
    schedules = [k["schedule"] for k in build.report["kernels"]]
    if target is SERVER:  # sixteen numbers of each tap's nine instead of 36 come from memory
        assert any(transform in s for s in schedules), schedules
