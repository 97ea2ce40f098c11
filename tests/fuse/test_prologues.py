"""Maps before a convolution, computed in its loads: where it pays, exact at the padding, apart where it doesn't."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import halotile.schedules.operators  # noqa: F401
import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.compiler import pipeline
from halotile.passes.fuse.fuse import Fuse, Fusion
from halotile.passes.fuse.graph import build_graph
from halotile.schedules.conv import ConvFacts
from halotile.schedules.conv.direct.kernel import own_tile
from halotile.schedules.operators.registry import call
from halotile.schedules.words.choice import Choice
from halotile.schedules.words.group import Request
from halotile.schedules.words.policy import Policy
from halotile.targets.target import Target
from tvm import relax

R = relax.op
F = "float32"
X = np.random.default_rng(5).standard_normal((1, 32, 22, 19)).astype(F)
LARGE = np.zeros((1, 64, 56, 56), F)


def server() -> Target:
    """A server core's facts, so that choices do not depend on where the tests run."""
    return replace(
        native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4,
        l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=32 << 20, cores=2,
    )  # fmt: skip


def conv(x: Any, channels: int, kernel: int = 3, groups: int = 1) -> Any:
    values = np.sin(np.arange(channels * (channels // groups) * kernel**2)).astype(F) / (3 * kernel)
    w = weight(values.reshape(channels, channels // groups, kernel, kernel))
    return R.nn.conv2d(x, w, padding=kernel // 2, groups=groups)


def scaled(x: Any) -> Any:
    """A batch norm and a ReLU whose value at zero is not zero."""
    shape = (1, 32, 1, 1)
    scale, shift = np.linspace(0.5, 2, 32, dtype=F).reshape(shape), np.linspace(1, 3, 32, dtype=F).reshape(shape)
    return R.nn.relu(R.add(R.multiply(x, weight(scale)), weight(shift)))


def reflected(x: Any) -> Any:
    return R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_mode="reflect")


PROLOGUES: dict[str, Callable[[Any], Any]] = {
    "scale and relu": scaled,
    "upsample": lambda x: call("halotile.upsample", x, factors=[1, 1, 2, 2]),
    "upsample and scale": lambda x: scaled(call("halotile.upsample", x, factors=[1, 1, 2, 2])),
    "transpose": lambda x: R.permute_dims(x, [0, 1, 3, 2]),
}


def fused(body: Callable[..., Any], x: np.ndarray, target: Target | None, **options: Any) -> Fusion:
    return Fuse(target=target, **options).apply(build_graph(module_of([x], body)))


@pytest.mark.parametrize("name", PROLOGUES)
def test_winograd_computes_cheap_maps_in_its_loads(name: str) -> None:
    """After another convolution's result was read by a view, so that it can't take them as an epilogue."""
    fusion = fused(lambda x: conv(PROLOGUES[name](x), 32), X, server())
    assert len(fusion.groups) == 1
    assert fusion.groups[0].anchor is fusion.groups[0].nodes[-1]


@pytest.mark.sampled
@pytest.mark.parametrize("name", PROLOGUES)
@pytest.mark.parametrize("family", ["winograd", "direct"])
def test_prologues_are_exact_at_the_padding(name: str, family: str) -> None:
    """Read in blocks out of a larger tensor; the padding is zero, not what the map makes of zero."""

    def body(x: Any) -> Any:
        parts = R.split(conv(R.concat([x, x], 1), 64, 1), 2, axis=1)
        return conv(PROLOGUES[name](relax.TupleGetItem(parts, 0)), 32)

    module = module_of([X], body)
    build = staged(module, server(), tiled=False)
    if family == "direct":  # chosen by nobody, but what a kernel is asked for it must do
        group = build.groups[-2]
        request = Request(group, build.layouts, build.target)
        tile = own_tile(request, ConvFacts.of(group.anchor))
        build.choices[group] = Choice("direct", tile, f"direct {tile}")
        build.ready.clear()
        pipeline.schedule(build)
        pipeline.plan(build)
    kernel = build.kernels[-2]  # the last one copies the output out of its blocks
    assert family in kernel.schedule and len(kernel.outputs) == 1
    assert build.groups[-2].anchor is not None and build.groups[-2].nodes[0] is not build.groups[-2].anchor
    apart = Compiled(staged(module, fuse=False, layout=False))
    for a, b in zip(Compiled(build).run([X]), apart.run([X]), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)


def test_a_depthwise_row_of_few_taps_does_too() -> None:
    fusion = fused(lambda x: R.nn.conv2d(scaled(x), weight(np.ones((32, 1, 2, 2), F)), groups=32), X, server())
    assert len(fusion.groups) == 1


DIRECT = Policy.of(winograd=False)
CASES: dict[str, tuple[Callable[[Any], Any], np.ndarray, dict[str, Any], str]] = {
    "costly": (lambda x: conv(R.exp(x), 64), LARGE, {}, "costs too much"),
    "direct": (lambda x: conv(R.negative(x), 64, 1), LARGE, {}, "single elements"),
    "without winograd": (lambda x: conv(R.negative(x), 64), LARGE, {"policy": DIRECT}, "single elements"),
    "seven taps": (lambda x: conv(R.negative(x), 64, 7, 64), LARGE, {}, "49 times"),
}


@pytest.mark.parametrize("name", CASES)
def test_others_are_written_first_and_say_why(name: str) -> None:
    body, x, options, why = CASES[name]
    fusion = fused(body, x, server(), **options)
    assert len(fusion.groups) == 2
    assert any(why in note for group in fusion.groups for note in group.notes)
