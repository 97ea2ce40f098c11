"""Quantised convolutions become sums of products of bytes, and stay what ONNX Runtime computes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.benchmarks.check_models import compare, reference, tied
from halotile.compiler.page.peak import Peak
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.dots.operands import whole_steps
from halotile.schedules.conv import ConvFacts
from halotile.schedules.instructions.int8_dot import PAIRS, data_dtype, per_word
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper
from uncompiled import reported

needs_dots = pytest.mark.skipif(
    data_dtype(resolve("native")) is None, reason="NOT RUN: this machine multiplies no bytes"
)


class Net:
    """A model with QuantizeLinear and DequantizeLinear around its layers, as quantisers write them."""

    def __init__(self, seed: int, dtype: str = "uint8") -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def const(self, array: Any, dtype: str = "float32") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def do(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def bytes(self, x: str, scale: float, zero: int, again: int | None = None) -> str:
        """Quantised and back; ``again``: another zero point on the way back."""
        low = np.iinfo(self.dtype).min
        step = self.const(scale)
        q = self.do("QuantizeLinear", x, step, self.const(low + zero, self.dtype))
        return self.do(
            "DequantizeLinear", q, step, self.const(low + (zero if again is None else again), self.dtype)
        )

    def conv(self, x: str, channels: int, outputs: int, kernel: int, **attributes: Any) -> str:
        inner = channels // attributes.get("group", 1)
        numbers = self.const(self.rng.integers(-127, 128, (outputs, inner, kernel, kernel)), "int8")
        scale = self.rng.uniform(0.5, 2, outputs) / (127 * kernel * np.sqrt(inner))
        weights = self.do(
            "DequantizeLinear", numbers, self.const(scale), self.const(np.zeros(outputs), "int8"), axis=0
        )
        return self.do("Conv", x, weights, self.const(self.rng.standard_normal(outputs)), **attributes)

    def model(self, shape: list[int], *outputs: str) -> onnx.ModelProto:
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, "quantised", ends, results, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def residual(dtype: str) -> onnx.ModelProto:
    """A stem of three channels, strides, a depthwise layer, a residual, groups, a layer without padding."""
    net = Net(1, dtype)
    x = net.bytes(net.do("Relu", net.conv(net.bytes("x", 0.02, 117), 3, 24, 3, pads=[1] * 4)), 0.02, 0)
    y = net.bytes(net.do("Relu", net.conv(x, 24, 37, 3, pads=[1, 0, 0, 1], strides=[2, 2])), 0.02, 0)
    z = net.bytes(net.conv(y, 37, 37, 3, pads=[1] * 4, group=37), 0.02, 131)
    z = net.bytes(net.conv(z, 37, 37, 1), 0.02, 120)
    s = net.bytes(net.do("Add", y, z), 0.03, 99)
    s = net.bytes(net.conv(s, 37, 64, 3, pads=[2] * 4, dilations=[2, 2]), 0.02, 125)
    s = net.bytes(net.conv(s, 64, 32, 3, pads=[1] * 4, group=2), 0.02, 125)
    return net.model([2, 3, 23, 29], net.do("GlobalAveragePool", s), s)


def joined(dtype: str) -> onnx.ModelProto:
    """Concatenations, two readers that take another byte for zero, pools of bytes, a swish, several outputs."""
    net = Net(2, dtype)
    x = net.bytes(net.conv(net.bytes("x", 0.02, 100), 8, 32, 1), 0.02, 90)
    a = net.bytes(net.do("Mul", x, net.do("Sigmoid", x)), 0.02, 20)
    b = net.bytes(net.conv(a, 32, 48, 3, pads=[1] * 4), 0.02, 20)
    c = net.bytes(net.do("Concat", a, b, axis=1), 0.02, 20)
    d = net.bytes(net.conv(c, 80, 16, 3, pads=[1] * 4), 0.02, 128)
    q = net.do("QuantizeLinear", c, net.const(0.02), net.const(np.iinfo(dtype).min + 20, dtype))
    low = np.iinfo(dtype).min
    one, two = (net.do("DequantizeLinear", q, net.const(0.02), net.const(low + z, dtype)) for z in (20, 77))
    e, f = net.conv(one, 80, 16, 3, pads=[1] * 4), net.conv(two, 80, 16, 5, pads=[2] * 4)
    p = net.do("MaxPool", d, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    return net.model([1, 8, 19, 17], net.conv(p, 16, 5, 1), net.do("Add", e, f))


@pytest.mark.sampled
@needs_dots
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("made", "layers"), [(residual, 5), (joined, 5)])
@pytest.mark.parametrize("options", [{}, {"threads": 2}, {"optimize": "memory"}, {"tile": "off"}], ids=str)
def test_models(made: Any, layers: int, dtype: str, options: dict[str, Any]) -> None:
    built = halotile.compile(made(dtype), **options)
    check = built.verify()
    assert check.ok, check
    if options.get("tile") == "off":
        whole = Options(resolve("native"), tile="off", winograd=False, stop_after="schedule")  # faster than pairs
        text = [k.schedule for k in run_pipeline(made(dtype), whole).kernels]
        assert sum(s.startswith("dot products of bytes") for s in text) == layers, text


@needs_dots
def test_exact_leaves_scales_where_they_are() -> None:
    built = halotile.compile(residual("uint8"), exact=True)
    assert built.verify().ok
    assert not any("bytes" in k["schedule"] for k in built.report["kernels"])


@pytest.mark.parametrize(
    ("target", "found"),
    [("raspberry-pi-5", True), ("raspberry-pi-4", False), ("x86-64-v3", True), ("x86-64-v4", False)],
)
def test_where_there_is_an_instruction(target: str, found: bool) -> None:
    build = run_pipeline(residual("int8"), Options(resolve(target), tile="off", stop_after="schedule"))
    assert any("bytes" in k.schedule for k in build.kernels) == found
    without = replace(Options(resolve(target), tile="off", stop_after="schedule"), dots=False)
    assert not any("bytes" in k.schedule for k in run_pipeline(residual("int8"), without).kernels)


def test_steps_are_found_whatever_was_folded_into_them() -> None:
    rng = np.random.default_rng(5)
    numbers = rng.integers(-127, 128, (33, 257)).astype("int8")
    numbers[3] = 0
    numbers[4] //= 40
    scale = rng.uniform(1e-6, 1e3, 33)
    weights = (numbers * scale[:, None].astype("f4")).astype("f4")
    for factor in (0.37, 11.3, 1 / 3):
        weights = weights * np.float32(factor)
    found = whole_steps(weights)
    assert found is not None
    np.testing.assert_allclose(found[0] * found[1][:, None], weights, rtol=1e-5, atol=1e-30)
    assert whole_steps(weights, exact=True) is None


def test_other_weights_have_no_steps() -> None:
    rng = np.random.default_rng(6)
    weights = rng.standard_normal((16, 64)).astype("f4")
    assert whole_steps(weights) is None
    almost = rng.integers(-127, 128, (16, 640)).astype("f4")
    almost[7, 99] += 0.01
    assert whole_steps(almost) is None
    assert whole_steps(np.full((2, 3), np.inf, "f4")) is None
    wide = rng.integers(-255, 256, (4, 64)).astype("f4")
    wide[:, 0], wide[:, 1] = 255, 254
    assert whole_steps(wide) is None


@needs_dots
def test_reports_and_comparisons_know_bytes() -> None:
    """The products of a word are one multiply-add, and an engine that rounds ties otherwise is not wrong."""
    model = residual("uint8")
    kernels = reported(model)["kernels"]
    found = [k for k in kernels if "bytes" in k["schedule"]]
    assert found and all(k["at_once"] == per_word(str(data_dtype(resolve("native")))) and k["flops"] > 0 for k in found)
    assert not any("at_once" in k for k in kernels if k not in found)
    peak = Peak(1, 1e9, ((1 << 30, 1e12),))
    assert peak.limit_of({"flops": 4e9, "bytes": 1, "at_once": 4}) == peak.limit_of({"flops": 1e9, "bytes": 1}) == 1
    feeds = {"x": np.random.default_rng(3).standard_normal((2, 3, 23, 29)).astype("f4")}
    theirs = reference(model, feeds)
    ties = tied(model, feeds, theirs)
    name = max(ties, key=ties.__getitem__)
    moved = {**theirs, name: theirs[name] + np.float32(0.9 * ties[name])}
    assert compare(moved, theirs, 1e-6) and not compare(moved, theirs, 1e-6, ties)
    assert compare({**theirs, name: theirs[name] + np.float32(2 * ties[name])}, theirs, 1e-6, ties)


@needs_dots
def test_less_memory_leaves_padding_with_other_bytes_to_float32() -> None:
    """No tile group has such a convolution, and whole layers are what memory is spent on."""

    def padded(**options: Any) -> int:
        build = run_pipeline(residual("uint8"), Options(resolve("native"), stop_after="schedule", **options))
        anchors = [n for g in build.groups for n in g.nodes if n.operator == "halotile.dot_conv"]
        facts = [ConvFacts.of(n) for n in anchors]
        assert facts
        return sum(f.fill > 0 and any(map(any, f.margins())) for f in facts)

    assert padded() == (0 if data_dtype(resolve("native")) == PAIRS else 3)  # pairs have their zero taken off
    assert padded(optimize="memory") == 0 and padded(memory_budget=1 << 20) == 0


def test_a_step_is_as_exact_as_floats_however_seldom_it_fits() -> None:
    """Weights that are all nearly the same are no whole multiples of one of them."""
    almost = np.tile(np.array([1, 1.0001, 0.99985, 0], "f4"), (3, 9))
    assert whole_steps(almost) is None
    same = np.tile(np.array([1, 1, -1, 0], "f4") / 3, (3, 9))
    found = whole_steps(same)
    assert found is not None and np.abs(found[0] * found[1][:, None] - same).max() < 1e-6


def test_a_step_is_the_models_not_an_odd_part_of_it() -> None:
    """Numbers up to 25 fit a fifth of their step as well, which float32 rounds; half of one is as exact."""
    numbers = np.array([[25, -7, 3, 0, 1, 2, 5, 8, 9], [1, 0, -1, 1, 1, 0, 0, 1, -1], [6, -3, 9, 0, 0, 0, 0, 0, 12]])
    found = whole_steps((numbers * 2.0**-7).astype("f4"))
    assert found is not None
    whole, steps = found
    assert (np.frexp(steps[:2])[0] == 0.5).all() and np.gcd.reduce(np.abs(whole[2].astype(int))) in (1, 2, 4, 8, 16)
    assert (whole * steps[:, None] == numbers * 2.0**-7).all()


@needs_dots
@pytest.mark.parametrize(("channels", "fits"), [(7367, True), (7368, False)])
def test_sums_that_32_bits_do_not_hold_stay_in_float32(channels: int, fits: bool) -> None:
    """Bytes of 255, weights of 127, nine taps; one of 126, or all would be 1 times another step."""
    assert (255 * (127 * 9 * channels - 1) < 1 << 31) == fits
    net = Net(9)
    weight = np.full((2, channels, 3, 3), 127)
    weight[:, 0, 0, 0] = 126
    numbers = net.const(weight, "int8")
    weights = net.do("DequantizeLinear", numbers, net.const(1e-6), net.const(0, "int8"))
    model = net.model([1, channels, 3, 3], net.do("Conv", net.bytes("x", 1.0, 0), weights))
    built = halotile.compile(model)
    x = np.full((1, channels, 3, 3), 255, "f4")
    (y,) = built({"x": x}).values()
    terms = 9 * channels  # float32 rounds once for each
    np.testing.assert_allclose(y, 255 * (127 * terms - 1) * 1e-6, rtol=1e-5 if fits else terms * 2.0**-24)
    assert any("bytes" in k["schedule"] for k in built.report["kernels"]) == fits
