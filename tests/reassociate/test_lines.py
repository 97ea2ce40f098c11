"""Networks of lines of open length are computed as images of one row, by Winograd's algorithm where it pays."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

from ..support.open_runs import run_in

CLOSE = 3e-5  # of the largest number of an output


class Line:
    """Writes a network of a line [n, channels, l], operator by operator."""

    def __init__(self, channels: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.x, self.channels = "x", channels
        self.first = channels

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def whole(self, number: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.int64([number]), name))
        return name

    def do(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [*inputs], [name], **attributes))
        return name

    def conv(self, outputs: int, taps: int, x: str = "", **attributes: Any) -> str:
        groups = attributes.get("group", 1)
        own = self.channels // groups
        weight = self.constant(self.random.standard_normal((outputs, own, taps)) / np.sqrt(own * taps))
        self.channels = outputs
        return self.do("Conv", x or self.x, weight, self.constant(self.random.standard_normal(outputs)), **attributes)

    def model(self, output: str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", self.first, "l"])
        made = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "line", [given], [made], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plain() -> onnx.ModelProto:
    g = Line(16, 0)
    g.x = g.do("Relu", g.conv(32, 3, pads=[1, 1]))
    g.x = g.do("Relu", g.conv(24, 3, pads=[1, 1]))
    return g.model(g.conv(16, 1))


def everything() -> onnx.ModelProto:
    """Dilation, groups, strides, uneven pads, pools, residuals, gates, slices and joins of channels, constants."""
    g = Line(24, 1)
    g.x = g.do("LeakyRelu", g.conv(32, 5, pads=[2, 2]), alpha=0.25)
    kept = g.x
    g.x = g.do("Sigmoid", g.conv(32, 3, pads=[2, 2], dilations=[2], group=32))
    g.x = g.do("Add", g.conv(32, 3, pads=[0, 2]), kept)
    g.x = g.do("Mul", g.x, g.constant(np.linspace(0.5, 1, 32).reshape(1, 32, 1)))
    g.x = g.do("Add", g.x, g.constant(np.linspace(-1, 1, 32).reshape(32, 1)))
    g.x = g.do("Clip", g.do("Sub", g.x, g.constant(0.125)), g.constant(-2), g.constant(2))
    mean = g.do("ReduceMean", g.x, axes=[2], keepdims=1)
    g.x = g.do("Mul", g.x, g.do("Sigmoid", g.conv(32, 1, mean)))
    half = [g.do("Slice", g.x, *map(g.whole, (at, at + 16, 1))) for at in (0, 16)]
    g.channels = 16
    g.x, g.channels = g.do("Concat", half[0], g.conv(16, 3, half[1], pads=[1, 1]), axis=1), 32
    pooled = g.do("MaxPool", g.x, kernel_shape=[3], strides=[1], pads=[1, 1])
    mean = g.do("AveragePool", g.x, kernel_shape=[3], strides=[1], pads=[1, 1], count_include_pad=1)
    g.x, g.channels = g.do("Concat", pooled, mean, axis=1), 64
    g.x = g.do("Relu", g.conv(40, 3, pads=[1, 0], strides=[2], group=2))
    g.x = g.do("MaxPool", g.x, kernel_shape=[2], strides=[2], ceil_mode=1)
    return g.model(g.do("Tanh", g.conv(17, 3, pads=[1, 1])))


@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
@pytest.mark.parametrize("network", [plain, everything])
def test_lines_agree_at_every_length(network: Any, target: str, tmp_path: Any) -> None:
    proto = network()
    options = Options(resolve(target), threads=2, open=True, formats=("so",), typical={"n": 2, "l": 700})
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    assert build.details["reassociate"]["applied"]["line-as-image"] >= 5
    assert any("winograd" in k.schedule for k in build.kernels), "lines have no transforms any more"
    assert not any("conv1d" in str(k.schedule) for k in build.kernels)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    shortest = 1 if network is plain else 3
    with load(tmp_path / "out") as library:
        names = [s.name for s in build.imported.symbols]
        for number, length in enumerate([shortest, 4, 5, 6, 7, 8, 9, 15, 17, 31, 64, 127, 700, 1009]):
            shape = (1 + number % 3, proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value, length)
            x = np.random.default_rng(number).standard_normal(shape).astype("f")
            (wanted,) = session.run(None, {"x": x})
            sizes = {name: {"n": shape[0], "l": length}[name] for name in names}
            found = [run_in(library, sizes, x, threads, 0xFF) for threads in (1, 2)]
            assert np.abs(found[0] - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max()), sizes
            assert np.array_equal(*found), sizes


def test_lines_without_transforms_and_fixed_ones_stay(tmp_path: Any) -> None:
    g = Line(8, 2)
    g.x = g.do("Relu", g.conv(8, 3, pads=[1, 1]))
    asked = Options(resolve("x86-64-v3"), stop_after="reassociate", open=True)
    for proto, options in (
        (g.model(g.conv(8, 1)), asked),
        (plain(), Options(asked.target, stop_after="reassociate", shapes={"x": (2, 16, 700)})),
    ):
        build = run_pipeline(proto.SerializeToString(), options)
        assert "line-as-image" not in build.details.get("reassociate", {}).get("applied", {})


def test_exact_builds_leave_lines_alone() -> None:
    options = Options(resolve("x86-64-v3"), stop_after="reassociate", open=True, exact=True)
    build = run_pipeline(plain().SerializeToString(), options)
    assert "line-as-image" not in build.details.get("reassociate", {}).get("applied", {})


def test_convolutions_with_weights_of_run_time_stay() -> None:
    g = Line(16, 3)
    g.x = g.do("Conv", "x", "w")
    proto = g.model(g.conv(16, 3, pads=[1, 1]))
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [16, 16, 5]))
    build = run_pipeline(proto.SerializeToString(), Options(resolve("x86-64-v3"), stop_after="reassociate", open=True))
    assert build.details["reassociate"]["applied"]["line-as-image"] == 2  # the other one, and its bias
