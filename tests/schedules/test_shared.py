"""Taps of a row that share their data in tiles of one vector: when, in which order, and that all forms are right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import Compiled, narrow, native
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.direct.kernel import pack_weights
from halotile.schedules.conv.direct.reduction_steps import ChannelSegment
from halotile.schedules.conv.direct.shared_taps import shared_window
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.register_tile import Space, TapWindow, Tile, choose_tile, step_cycles
from halotile.schedules.words.group import Value

F = "float32"
TWO = replace(native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4, in_order=False)
X86 = replace(TWO, triple="x86_64-linux-gnu")


def facts_of(kernel: tuple[int, ...], stride: int = 1, dilation: int = 1, outputs: int = 16) -> ConvFacts:
    x, y = Value("x", (1, 32, 40, 40), F), Value("y", (1, outputs, 40, 40), F)
    w = np.arange(1, outputs * 32 * kernel[0] * kernel[1] + 1, dtype=F).reshape(outputs, 32, *kernel)
    return ConvFacts(
        x, Value("w", w.shape, F, w), y, kernel, (stride,) * 2, (dilation,) * 2, (1, 1), (1, 1), 1
    )


@pytest.mark.parametrize(
    ("facts", "blocks", "limit", "taps"),
    [
        (facts_of((3, 3)), 1, 1, 3),
        (facts_of((3, 3)), 4, 1, 3),  # groups of a vector each
        (facts_of((3, 3)), 4, 4, 0),  # two vectors share a broadcast already
        (facts_of((3, 3), stride=2), 1, 1, 3),
        (facts_of((3, 3), stride=3), 1, 1, 0),  # no column is read twice
        (facts_of((1, 1)), 1, 1, 0),
        (facts_of((3, 1)), 1, 1, 0),
        (facts_of((1, 7)), 1, 1, 7),
        (facts_of((9, 9)), 1, 1, 0),
        (facts_of((3, 3), dilation=2), 1, 1, 3),
        (facts_of((3, 3), dilation=12), 1, 1, 0),
    ],
)
def test_only_where_loads_are_the_limit(facts: ConvFacts, blocks: int, limit: int, taps: int) -> None:
    window = shared_window(X86, facts, blocks, limit)
    assert (window.taps if window is not None else 0) == taps
    assert shared_window(replace(X86, fma_ports=1), facts, blocks, limit) is None


def test_tiles_leave_registers_to_the_taps_and_cost_less() -> None:
    window = TapWindow(3, 1, 1)
    tile = choose_tile(X86, Space(56, 56, 4, 1, window=window))
    assert tile.window == window and tile.positions + window.taps + 1 <= 32
    assert step_cycles(X86, tile) < step_cycles(X86, replace(tile, window=None))
    assert str(tile).endswith("x1 for 3 taps")


def test_packed_in_the_order_of_reading() -> None:
    facts = facts_of((2, 3))
    packed = pack_weights(facts, 1, 16, [ChannelSegment(0, 2, 16)], 3).reshape(2, 2, 16, 3, 16)
    w = np.asarray(facts.weight.constant)
    np.testing.assert_array_equal(packed[1, 1, 5, 2], w[:, 16 + 5, 1, 2])


# inputs, outputs, groups, (height, width), kernel, strides, dilation
SHAPES = {
    "one_vector": (20, 16, 1, (13, 17), (3, 3), (1, 1), (1, 1)),
    "groups": (64, 64, 4, (9, 31), (3, 3), (1, 1), (1, 1)),
    "five": (7, 16, 1, (11, 40), (5, 5), (1, 2), (1, 1)),
    "strided": (33, 10, 1, (14, 15), (3, 3), (2, 2), (1, 1)),
    "dilated": (16, 16, 1, (20, 21), (3, 3), (1, 1), (2, 2)),
    "far": (16, 16, 1, (5, 40), (3, 3), (1, 1), (4, 1)),  # most taps of the first axis lie in the padding
    "wide": (40, 33, 1, (6, 30), (1, 7), (1, 1), (1, 1)),  # the last of three vectors
    "half": (37, 24, 1, (10, 29), (3, 3), (1, 1), (1, 1)),
    "narrow": (16, 16, 1, (12, 2), (3, 3), (1, 1), (1, 1)),
}


def model(name: str) -> onnx.ModelProto:
    """A convolution before it (channels in blocks), then this one with a bias and an activation."""
    inputs, outputs, groups, size, kernel, strides, dilation = SHAPES[name]
    g = ModelGraph(name, ExportForm(opset=17))
    x = activation(g, conv(g, g.input("x", (2, 3, *size)), inputs, 1), "relu")
    rng = np.random.default_rng(5)
    w = g.const(
        rng.standard_normal((outputs, inputs // groups, *kernel)).astype(F) / np.sqrt(inputs // groups)
    )
    b = g.const(np.linspace(-1, 2, outputs).astype(F))
    pads = [d * (k // 2) for k, d in zip(kernel, dilation)] * 2
    y = g.op("Conv", x, w, b, group=groups, strides=list(strides), dilations=list(dilation), pads=pads)
    return g.finish(y=activation(g, y, "relu"))


@pytest.mark.parametrize("name", SHAPES)
def test_equals_the_reference(name: str) -> None:
    made, x = (
        model(name),
        np.random.default_rng(1).standard_normal((2, 3, *SHAPES[name][3])).astype(F),
    )
    target = replace(narrow(512), fma_ports=2, in_order=False)
    build = run_pipeline(made, Options(target, stop_after="plan", threads=2, tile="off", winograd=False))
    if not target.is_aarch64:
        assert any("taps" in k.schedule for k in build.kernels), [k.schedule for k in build.kernels]
    (wanted,) = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})
    (found,) = Compiled(build).run([x])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("shape", [(5, None), (7, 11)])
@pytest.mark.parametrize("cout", [16, 24])
def test_boxes_give_the_same_bits(shape: tuple[int, Any], cout: int) -> None:
    g = ModelGraph("boxes", ExportForm(opset=17))
    y = activation(g, conv(g, g.input("x", (2, 3, 23, 29)), 20, 3), "relu")
    made = g.finish(y=activation(g, conv(g, y, cout, 3), "sigmoid"))
    x = np.random.default_rng(3).standard_normal((2, 3, 23, 29)).astype(F)
    results = []
    for tile in ("off", {"shape": shape}):
        target = replace(narrow(512), fma_ports=2, in_order=False)
        build = run_pipeline(made, Options(target, stop_after="plan", threads=2, tile=tile, winograd=False))
        assert any("tiled" in k.schedule for k in build.kernels) is (tile != "off")
        results.append(Compiled(build).run([x])[0])
    np.testing.assert_array_equal(*results)


def test_tiles_without_a_window_are_as_before() -> None:
    assert choose_tile(X86, Space(56, 56, 4, 4)) == Tile(2, 7, 2)
