"""Convolutions with few outputs: when lanes run over input channels, and that boxes of them give the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from compiled import Compiled, module_of, narrow, native, staged, weight
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.direct import few_outputs
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.words.group import Value
from halotile.targets.target import Target
from tvm import relax

R = relax.op
F = "float32"


def schedule(cin: int, cout: int, groups: int = 1, bits: int = 512) -> str:
    x, k = np.zeros((1, cin, 17, 19), F), np.zeros((cout, cin // groups, 3, 3), F)
    module = module_of([x], lambda x: R.nn.relu(R.nn.conv2d(x, weight(k), padding=1, groups=groups)))
    target = replace(native(), vector_bits=bits, vector_registers=32)
    (found,) = [k.schedule for k in staged(module, target, tiled=False).kernels if "conv" in k.schedule]
    return found


@pytest.mark.parametrize(
    "cin,cout,groups,bits,expected",
    [
        (32, 3, 1, 512, True),
        (32, 4, 1, 512, True),
        (32, 5, 1, 512, False),  # a third of a vector: other families do as well
        (3, 3, 1, 512, False),  # too few inputs to fill the lanes
        (32, 4, 4, 512, False),
        (32, 2, 1, 256, True),
        (32, 3, 1, 256, True),  # parts would leave a quarter of the lanes empty
        (4, 3, 1, 256, False),  # a short sum
        (32, 1, 1, 128, True),
    ],
)
def test_chosen_where_outputs_fill_a_fraction(cin: int, cout: int, groups: int, bits: int, expected: bool) -> None:
    assert ("few outputs" in schedule(cin, cout, groups, bits)) is expected


@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
def test_tiles_hide_the_latency_in_the_registers(outputs: int) -> None:
    target = replace(native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4)
    x, y = Value("x", (1, 32, 40, 40), F), Value("y", (1, outputs, 40, 40), F)
    one = (1, 1)
    facts = ConvFacts(x, Value("w", (outputs, 32, 3, 3), F), y, (3, 3), one, one, one, one, 1)
    tile = few_outputs.choose_few_tile(target, facts, 16)
    assert tile.positions * outputs >= 8
    assert tile.positions * outputs + outputs + 1 <= 32


BLOCKED = narrow(512)


def kernels(body: Any, *arrays: np.ndarray, target: Target = BLOCKED) -> tuple[list[str], list[str]]:
    """Schedules of convolutions, and the names of conversions to and from channel blocks."""
    build = staged(module_of(list(arrays), body), target)
    results = Compiled(build).run(list(arrays))
    plain = staged(module_of(list(arrays), body), target, layout=False)
    for got, expected in zip(results, Compiled(plain).run(list(arrays)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)
    found = [g.name for g in build.groups if g.name.startswith("convert_")]
    return [k.schedule for k in build.kernels if "conv" in k.schedule], found


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F)


def head(x: Any, cout: int, kernel: int = 3, cin: int = 24) -> Any:
    y = R.nn.conv2d(x, weight(normal(cout, cin, kernel, kernel)), padding=kernel // 2)
    return R.add(y, weight(normal(1, cout, 1, 1)))


@pytest.mark.sampled
@pytest.mark.parametrize("cout,bits", [(1, 512), (2, 512), (3, 512), (4, 512), (1, 256), (2, 256), (3, 256), (1, 128)])
@pytest.mark.parametrize("width", [2, 7, 21])  # narrower than a tile, no multiple of one
def test_model_outputs_are_written_as_they_lie(cout: int, bits: int, width: int) -> None:
    x = normal(2, 24, 5, width)
    schedules, found = kernels(lambda x: R.sigmoid(head(x, cout)), x, target=narrow(bits))
    assert "plain outputs" in schedules[-1]
    assert found == [f"convert_p0_{bits // 32}"]


def test_of_plain_neighbours() -> None:
    """A skip from the model's input, and a reader that takes the largest channel, leave the outputs plain."""
    images = normal(1, 24, 6, 18), normal(1, 3, 6, 18)
    schedules, found = kernels(lambda x, y: R.add(head(x, 3), y), *images)
    assert "plain outputs" in schedules[-1] and found == ["convert_p0_16"]
    schedules, found = kernels(lambda x: R.max(head(x, 3), axis=1), images[0])
    assert "plain outputs" in schedules[-1] and found == ["convert_p0_16"]


def test_beside_blocks_they_stay_blocks() -> None:
    """What lies in channel blocks is read a vector of channels at a time."""
    x = normal(1, 24, 6, 18)
    schedules, _ = kernels(lambda x: R.nn.relu(head(R.nn.relu(head(x, 3)), 24, cin=3)), x)
    assert any("few outputs" in s for s in schedules) and not any("plain outputs" in s for s in schedules)
    schedules, _ = kernels(lambda x: R.multiply(R.sigmoid(head(x, 1)), head(x, 24)), x)
    assert not any("plain outputs" in s for s in schedules)


def model(cout: int) -> onnx.ModelProto:
    g = ModelGraph("few", ExportForm(opset=17))
    x = activation(g, conv(g, g.input("x", (2, 3, 23, 29)), 20, 3), "relu")
    return g.finish(y=activation(g, conv(g, x, cout, 5), "sigmoid"))


@pytest.mark.parametrize("shape", [(5, None), (7, 11)])
def test_boxes_give_the_same_bits(shape: tuple[int, Any]) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 23, 29)).astype(F)
    results = []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(model(2), Options(native(), stop_after="plan", threads=2, tile=tile))
        assert any("tiled" in k.schedule for k in build.kernels) is (tile != "off")
        results.append(Compiled(build).run([x])[0])
    np.testing.assert_array_equal(*results)
