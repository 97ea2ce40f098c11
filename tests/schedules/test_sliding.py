"""Windows over images in channel blocks, neighbours side by side: the numbers, and where it is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halotile
import numpy as np
import onnxruntime
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.general import sliding_windows
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

R = relax.op
F = "float32"


def _pools(x: Any, kind: str, taps: int, stride: int, pad: int) -> Any:
    pool = R.nn.max_pool2d if kind == "max" else R.nn.avg_pool2d
    return pool(x, (taps, taps), strides=(stride, stride), padding=(pad, pad, pad, pad))


@pytest.mark.sampled
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("kind", ["max", "mean"])
@pytest.mark.parametrize(
    ("height", "width", "taps", "stride", "pad"),
    [(13, 17, 3, 2, 1), (12, 15, 3, 2, 0), (9, 8, 2, 2, 0), (11, 7, 3, 1, 1), (13, 13, 5, 1, 2), (5, 30, 3, 3, 1)],
)
def test_equals_one_by_one(
    height: int, width: int, taps: int, stride: int, pad: int, kind: str, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; NaN and infinities pass."""
    random = np.random.default_rng(taps)
    x = random.standard_normal((2, 24, height, width)).astype(F)
    x[0, 3, 2, 2], x[1, 5, :, 1] = np.nan, -np.inf
    w = np.eye(24, dtype=F).reshape(24, 24, 1, 1)

    def body(x: Any) -> Any:
        # convolutions around it, so that it works in channel blocks
        return R.nn.conv2d(_pools(R.nn.conv2d(x, weight(w)), kind, taps, stride, pad), weight(w))

    results, target = [], replace(native(), cores=cores)
    for side in (True, False):
        if not side:
            monkeypatch.setattr("halotile.schedules.general.sliding_windows.slides", lambda _: False)
        build = staged(module_of([x], body), target, tiled=False)
        assert any(sliding_windows.NOTE in k.notes for k in build.kernels) is side
        results.append(Compiled(build).run([x], tasks=cores)[0])
    np.testing.assert_array_equal(*results)


def test_not_for_sums_of_images() -> None:
    x, w = np.zeros((1, 16, 5, 5), F), np.zeros((16, 16, 1, 1), F)

    def body(x: Any) -> Any:
        return R.nn.conv2d(R.mean(R.nn.conv2d(x, weight(w)), [2, 3], keepdims=True), weight(w))

    build = staged(module_of([x], body), native(), tiled=False)
    assert not any(sliding_windows.NOTE in k.notes for k in build.kernels)


def test_a_window_that_is_a_row_by_itself() -> None:
    """Where all axes are rows, as between a resize and a sigmoid, one output is all that a nest has."""
    random = np.random.default_rng(3)
    weights = random.standard_normal((20, 1, 3, 3)).astype(F)
    nodes = [
        helper.make_node("Resize", ["x", "", "", "sizes"], ["wide"], mode="linear"),
        helper.make_node("MaxPool", ["wide"], ["pooled"], kernel_shape=[3, 2], strides=[2, 3]),
        helper.make_node("Sigmoid", ["pooled"], ["given"]),
        helper.make_node("Conv", ["given", "w"], ["y"], group=20, pads=[1, 1, 1, 1]),
    ]
    held = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.array([1, 20, 21, 51]), "sizes")]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 20, 21, 17]), ("y", None))]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model = halotile.compile(proto, threads=1, tile="off")
    assert any("prefix 4" in k["schedule"] for k in model.report["kernels"])
    x = random.standard_normal((1, 20, 21, 17)).astype(F)
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(next(iter(model({"x": x}).values())), wanted, atol=1e-5)
