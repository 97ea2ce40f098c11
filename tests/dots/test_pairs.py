"""Bytes on x86-64 without VNNI: pairs of int16, less what stands for zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.facts import BYTES, ConvFacts
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

V3 = "x86-64-v3"


def layer(channels: int, outputs: int, kernel: int, size: int, readers: int = 1, zero: int = 117) -> onnx.ModelProto:
    """Convolutions of the same quantised input, with padding."""
    rng = np.random.default_rng(channels + outputs)
    constants: list[onnx.TensorProto] = []

    def const(array: Any, dtype: str = "float32") -> str:
        constants.append(numpy_helper.from_array(np.asarray(array, dtype), f"c{len(constants)}"))
        return constants[-1].name

    step, byte = const(0.02), const(zero, "uint8")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", step, byte], ["q"]),
        helper.make_node("DequantizeLinear", ["q", step, byte], ["d"]),
    ]
    for i in range(readers):
        numbers = const(rng.integers(-127, 128, (outputs, channels, kernel, kernel)), "int8")
        scale, zeros = const(rng.uniform(0.001, 0.002, outputs)), const(np.zeros(outputs), "int8")
        nodes.append(helper.make_node("DequantizeLinear", [numbers, scale, zeros], [f"w{i}"], axis=0))
        nodes.append(helper.make_node("Conv", ["d", f"w{i}"], [f"y{i}"], pads=[kernel // 2] * 4))
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, size, size])]
    results = [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, None) for i in range(readers)]
    graph = helper.make_graph(nodes, "layer", ends, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def built(model: onnx.ModelProto, target: str = V3, **options: Any) -> Any:
    return run_pipeline(model, Options(resolve(target), tile="off", stop_after="schedule", **options))


def of_bytes(build: Any) -> list[Any]:
    return [n for g in build.groups for n in g.nodes if n.operator == BYTES]


@pytest.mark.parametrize("target", [V3, "x86_64-linux-gnu+x86-64-v2"])
def test_the_zero_is_taken_off_and_margins_hold_none(target: str) -> None:
    build = built(layer(19, 23, 5, 13), target, winograd=False)
    (node,) = of_bytes(build)
    facts = ConvFacts.of(node)
    assert facts.data.dtype == "int16" and facts.fill == 0
    (kernel,) = (k for k in build.kernels if k.schedule.startswith("dot products of bytes"))
    assert kernel.schedule.endswith(", in pairs")
    beside = [n.operator for g in build.groups if node in g.nodes for n in g.nodes]
    assert "relax.add" not in beside  # nothing is left to add for the zero


def test_readers_share_what_is_made_of_bytes() -> None:
    build = built(layer(16, 24, 1, 9, readers=3))
    assert len({n.inputs[0] for n in of_bytes(build)}) == 1 and len(of_bytes(build)) == 3


def test_winograd_takes_what_it_computes_faster() -> None:
    """In whole numbers, with the bits of the direct form."""

    def kinds(model: onnx.ModelProto, **options: Any) -> tuple[bool, bool, bool]:
        text = [k.schedule for k in built(model, **options).kernels if k.flops > 100_000]
        whole = [t.startswith("winograd") and ", int16" in t for t in text]
        floats = [t.startswith("winograd") and ", int16" not in t for t in text]
        return any(whole), any(floats), any("of bytes" in t for t in text)

    model = layer(64, 64, 3, 56)
    assert kinds(model) == (True, False, False)
    assert kinds(model, winograd=False) == kinds(model, target="x86_64-linux-gnu+alderlake") == (False, False, True)
    assert kinds(layer(64, 64, 1, 56)) == (False, False, True)
    assert kinds(layer(8, 64, 3, 56)) == (False, False, True)  # transforms would take longer than they save
