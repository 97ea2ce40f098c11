"""Norms over channels in channel blocks: numbers, maps before and behind, margins, boxes of tile groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from compiled import Compiled
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve


def norm(g: ModelGraph, x: str, epsilon: float = 1e-5) -> str:
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[1], keepdims=1))
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=[1], keepdims=1)
    return g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, g.const(epsilon))))


def resized(g: ModelGraph, x: str) -> str:
    """What it reads is computed in its kernel, and is one half in lanes past the last channel."""
    scales = g.const([1.0, 1.0, 1.5, 2.0])
    return norm(g, activation(g, g.op("Resize", x, "", scales, mode="linear"), "sigmoid"))


def weights(g: ModelGraph, x: str) -> str:
    c = g.dim(x, 1)
    x = g.op("Mul", x, g.weight("gamma", g.uniform((c, 1, 1), 0.5, 1.5)))
    return g.op("Add", x, g.weight("beta", g.normal((c, 1, 1), 0.3)))


def alone(g: ModelGraph, x: str) -> str:
    return norm(g, x)


def of_a_sum(g: ModelGraph, x: str) -> str:
    """Of what a map makes, which others read as well."""
    total = g.op("Add", activation(g, x, "relu"), activation(g, x, "sigmoid"))
    return g.op("Add", norm(g, total), total)


def with_maps(g: ModelGraph, x: str) -> str:
    return activation(g, weights(g, norm(g, x)), "gelu")


def model(layers: Callable[[ModelGraph, str], str], shape: tuple[int, ...], channels: int) -> onnx.ModelProto:
    g = ModelGraph("norms")
    x = conv(g, g.input("x", shape), channels, 3, name="first")
    return g.finish(y=conv(g, layers(g, x), 5, 3, name="last"))  # reads margins


def numbers(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}


def planned(proto: onnx.ModelProto, target: str = "native", **options: Any) -> Build:
    return run_pipeline(proto, Options(resolve(target), stop_after="plan", **options))


def has_norm(build: Build) -> bool:
    return any("norm over channels" in k["schedule"] for k in build.report["kernels"])


def result(build: Build, feeds: dict[str, np.ndarray]) -> np.ndarray:
    return Compiled(build).run([feeds["x"]])[0]


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("layers", [alone, of_a_sum, resized, with_maps])
@pytest.mark.parametrize(
    ("shape", "channels"), [((1, 3, 12, 16), 32), ((2, 5, 17, 23), 37), ((1, 6, 9, 5), 7), ((3, 16, 1, 1), 96)]
)
def test_numbers(layers: Callable[..., str], shape: tuple[int, ...], channels: int, threads: int) -> None:
    proto = model(layers, shape, channels)
    build, feeds = planned(proto, threads=threads, tile="off"), numbers(proto)
    assert has_norm(build)
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    found = result(build, feeds)
    assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()


def test_what_is_normalised_is_computed_in_the_kernel() -> None:
    build = planned(model(resized, (1, 3, 9, 11), 21), tile="off")
    (own,) = (g for g in build.groups if "halotile.standardise" in g.operators)
    assert len(own.nodes) > 1 and has_norm(build)


def test_places_that_are_equal_in_all_channels_are_zero() -> None:
    """Lanes past the last channel are not counted in the variance."""
    g = ModelGraph("equal")
    x = g.input("x", (1, 3, 6, 7))
    same = g.op("Conv", x, g.weight("w", np.ones((21, 3, 1, 1), np.float32)), kernel_shape=[1, 1])
    proto = g.finish(y=conv(g, norm(g, same), 21, 1, bias=False))
    build = planned(proto, tile="off")
    assert has_norm(build) and np.abs(result(build, numbers(proto))).max() < 1e-2


@pytest.mark.parametrize("target", ["raspberry-pi-3", "raspberry-pi-5", "x86-64-v3"])
def test_other_targets_have_them(target: str) -> None:
    assert has_norm(planned(model(with_maps, (1, 3, 12, 16), 40), target))


@pytest.mark.sampled
@pytest.mark.parametrize("layers", [alone, of_a_sum, resized, with_maps])
@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (3, 7), (5, 13)])
def test_boxes_give_the_same_bits(layers: Callable[..., str], rows: int, columns: int) -> None:
    proto = model(layers, (2, 3, 13, 29), 21)
    last = next(n.name for n in proto.graph.node if n.name.endswith("last/Conv"))
    tile = {"last": last, "shape": (rows, columns)}
    whole, tiled = (planned(proto, winograd=False, tile=t) for t in ("off", tile))
    (plan,) = tiled.tiled.values()
    assert any(n.operator == "halotile.standardise" for g in plan.members for n in g.nodes)
    np.testing.assert_array_equal(result(tiled, numbers(proto)), result(whole, numbers(proto)))


def neighbours(g: ModelGraph, x: str) -> str:
    """Adds the norms of two places."""
    y = norm(g, x)
    turned = g.op("Slice", y, *(g.const([v], "int64") for v in (-1, -(1 << 31), 3, -1)))
    return g.op("Add", y, turned)


def by_rows(g: ModelGraph, x: str) -> str:
    """The same over channels and columns."""
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[1, 3], keepdims=1))
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=[1, 3], keepdims=1)
    return g.op("Div", centred, g.op("Sqrt", g.op("Add", variance, g.const(1e-5))))


@pytest.mark.parametrize("layers", [neighbours, by_rows])
def test_others_are_right_too(layers: Callable[..., str]) -> None:
    proto = model(layers, (1, 3, 11, 14), 24)
    feeds = numbers(proto)
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    found = result(planned(proto, tile="off"), feeds)
    assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()
