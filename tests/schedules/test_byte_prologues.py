"""Convolutions of bytes behind moved rows: in tiles, whose last boxes are too small for Winograd's, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import Compiled
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.schedules.tiled.kernel import TiledKernel
from halotile.targets.detect import read_machine
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

#  x86-64-v3 and v2 multiply pairs of int16, v4 bytes
TARGETS = {"x86-64-v2": set(), "x86-64-v3": {"avx2"}, "x86-64-v4": {"avx512f"}}  # what the machine needs for them


def moved(axis: int, step: int, size: tuple[int, int], seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A concatenation, turned or thinned out along an axis, quantised, then a 3x3 layer of 33 channels."""
    rng = np.random.default_rng(seed)
    first = -1 if step < 0 else 0
    constants = {
        "first": np.array([first]), "last": np.array([1000 * step]), "axis": np.array([axis]), "step": np.array([step]),
        "w": rng.integers(-127, 128, (21, 33, 3, 3)).astype(np.int8), "ws": rng.uniform(0.005, 0.01, 21).astype("f4"),
        "wz": np.zeros(21, np.int8), "s": np.array(0.03, "f4"), "z": np.array(100, np.uint8),
    }  # fmt: skip
    nodes = [
        helper.make_node("Concat", ["x", "y"], ["both"], axis=1),
        helper.make_node("Slice", ["both", "first", "last", "axis", "step"], ["rows"]),
        helper.make_node("QuantizeLinear", ["rows", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["dq"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        helper.make_node("Conv", ["dq", "dw"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["out"]),
    ]
    feeds = {n: rng.standard_normal((1, c, *size)).astype("f4") for n, c in (("x", 28), ("y", 5))}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in feeds.items()]
    graph = helper.make_graph(
        nodes, "moved", ends, [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), feeds


@pytest.mark.sampled
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("axis", "step"), [(2, -1), (3, -1), (2, -2), (2, 2)])
def test_small_boxes_behind_moved_rows_are_right(axis: int, step: int, target: str) -> None:
    model, feeds = moved(axis, step, (9, 19), seed=axis + step)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (wanted,) = session.run(None, feeds)
    least = {"optimize": "memory"}
    builds = [built(model, target, threads=1, **least), built(model, target, threads=2, **least)]
    assert any(isinstance(k, TiledKernel) for k in builds[0].kernels)
    for build in (*builds, built(model, target, threads=1), built(model, target, threads=2)):
        if TARGETS[target] <= set(read_machine().flags):
            (found,) = Compiled(build).run([feeds["x"], feeds["y"]])
            far = np.abs(found - wanted) > 0.5  # sums that round to another step differ by up to 127 * 0.01
            assert far.mean() < 0.01 and np.abs(found - wanted).max() < 2


def built(model: onnx.ModelProto, target: str, **options: Any) -> Build:
    return run_pipeline(model, Options(resolve(target), stop_after="plan", **options))
