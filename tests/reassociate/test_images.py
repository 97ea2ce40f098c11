"""Linear layers and norms of channels-last images, on the image as it lies, and in tile groups."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnxruntime
import pytest
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv, layer_norm, linear, transpose
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve

RULE = "reassociate: as-image"


def block(g: ModelGraph, x: str, hidden: int) -> str:
    """7x7 depthwise, then norm and two linear layers over channels, as ConvNeXt has them."""
    c = g.dim(x, 1)
    y = layer_norm(g, transpose(g, conv(g, x, c, 7, groups=c), 0, 2, 3, 1), epsilon=1e-6)
    y = linear(g, activation(g, linear(g, y, hidden, name="up"), "gelu"), c, name="down")
    return g.op("Add", x, transpose(g, g.op("Mul", y, g.weight("gamma", g.uniform((c,), 0.1, 0.5))), 0, 3, 1, 2))


def network(shape: tuple[int, ...], channels: int, hidden: int) -> Any:
    g = ModelGraph("blocks")
    x = conv(g, g.input("x", shape), channels, 3)
    for _ in range(2):
        x = block(g, x, hidden)
    return g.finish(y=conv(g, x, 5, 1))


def planned(model: Any, **options: Any) -> Build:
    return run_pipeline(model, Options(resolve("native"), threads=1, stop_after="plan", **options))


def operators(build: Build) -> set[str]:
    return {n.operator for g in build.groups for n in g.nodes}


def applied(build: Build) -> bool:
    return any(RULE in note for note in build.notes.get("reassociate", ()))


def close(model: Any, **options: Any) -> None:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {model.graph.input[0].name: x})
    (found,) = halotile.compile(model, **options)({model.graph.input[0].name: x}).values()
    assert np.abs(found - wanted).max() <= 2e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("shape", "channels", "hidden"), [((1, 3, 40, 36), 32, 128), ((2, 4, 23, 29), 13, 37), ((1, 1, 17, 31), 7, 48)]
)
def test_chains_of_them_are_tiled(shape: tuple[int, ...], channels: int, hidden: int) -> None:
    model = network(shape, channels, hidden)
    whole, tiled = planned(model, tile="off"), planned(model, optimize="memory")
    for build in (whole, tiled):
        assert applied(build) and not operators(build) & {"relax.matmul", "relax.permute_dims", "relax.nn.layer_norm"}
    assert max(len(p.members) for p in tiled.tiled.values()) >= 8
    assert tiled.report["arena_bytes"] <= 0.5 * whole.report["arena_bytes"]
    close(model, optimize="memory", threads=2)
    close(model, tile="off")


def test_a_budget_that_only_tiles_can_meet() -> None:
    model = MODELS["convnext"].model(depths=(1, 1, 1, 1))
    off = planned(model, tile="off").report["arena_bytes"]
    build = planned(model, memory_budget=off // 3)
    assert build.report["arena_bytes"] <= off // 3 and applied(build)
    close(model, memory_budget=off // 3)


def test_sums_keep_their_order_in_exact_mode() -> None:
    build = planned(network((1, 3, 20, 20), 16, 64), exact=True)
    assert not applied(build) and "relax.matmul" in operators(build)


def wide(g: ModelGraph, x: str) -> str:
    """Its norm is over columns and channels."""
    y = transpose(g, x, 0, 2, 3, 1)
    weights = (g.weight(n, g.uniform((g.dim(y, 2), g.dim(y, 3)), 0.5, 1.5)) for n in ("scale", "shift"))
    return transpose(g, g.op("LayerNormalization", y, *weights, axis=-2), 0, 3, 1, 2)


def computed(g: ModelGraph, x: str) -> str:
    """Its product is with what is computed."""
    y = transpose(g, x, 0, 2, 3, 1)
    return transpose(g, g.op("MatMul", y, g.op("Transpose", y, perm=[0, 1, 3, 2])), 0, 3, 1, 2)


def left(g: ModelGraph, x: str) -> str:
    """Nothing turns the image back."""
    return linear(g, transpose(g, x, 0, 2, 3, 1), 24)


@pytest.mark.parametrize("layers", [wide, computed, left])
def test_others_stay(layers: Any) -> None:
    g = ModelGraph("others")
    model = g.finish(y=layers(g, conv(g, g.input("x", (1, 3, 12, 14)), 16, 3)))
    assert not applied(planned(model, optimize="memory"))
    close(model, optimize="memory")
