"""Weights of tile groups come around again stripe after stripe: from the last level, whatever the whole model's do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import module_of, staged, weight
from halotile.passes.tile.plan.lower import plan_group
from halotile.schedules.tiled import TiledKernel, build_tiled
from halotile.targets.resolve import resolve
from tile_forms import whole
from tvm import relax

R = relax.op
HINT = ", 0, 2, 1)"  # the end of a hint for the second level, in the text of a kernel
SERVER = replace(
    resolve("x86-64-v4"),
    fma_ports=2,
    fma_latency=4,
    cores=1,
    l1_bytes=48 << 10,
    l2_bytes=2 << 20,
    l3_bytes=256 << 20,
    far_bytes=10,
)


def tiled(channels: int, kernel: int, size: int, tile: tuple[int, int], l2: int, stay: bool = True) -> TiledKernel:
    """Two convolutions with so many channels, in boxes."""
    x, w = np.zeros((1, channels, size, size), "float32"), np.full((channels, channels, kernel, kernel), 0.1, "float32")

    def body(x: relax.Var) -> relax.Expr:
        inner = R.nn.relu(R.nn.conv2d(x, weight(w), padding=kernel // 2))
        return R.nn.relu(R.nn.conv2d(inner, weight(w), padding=kernel // 2))

    target = replace(SERVER, l2_bytes=l2, weights_stay=stay)
    build = staged(module_of([x], body), target, tiled=False)
    groups = [g for g in build.groups if g.anchor is not None and "conv" in g.anchor.operator]
    assert len(groups) == 2
    plan = plan_group(groups, build.layouts, target, *tile)
    return build_tiled(plan, whole(plan, build, target))


@pytest.mark.parametrize(
    "tile,l2,asked",
    [
        ((2, 7), 768 << 10, True),  # one register tile meets a panel: it is read as fast as it can come
        ((2, 7), 8 << 20, False),  # all weights stay near
        ((8, None), 768 << 10, False),  # eight tiles share a panel
    ],
)
def test_weights_that_a_box_reads_once_are_asked_for_ahead(tile: tuple[int, int], l2: int, asked: bool) -> None:
    parts = [p for p in tiled(256, 1, 14, tile, l2).parts if "direct conv" in p.schedule]
    assert parts
    assert {HINT in str(part.function) for part in parts} == {asked}


def test_a_box_takes_the_way_of_weights_that_were_there_a_stripe_before() -> None:
    """From memory, the transformed weights of a few tiles take longer than the arithmetic that they save."""
    stay, leave = (tiled(64, 3, 56, (4, 17), 2 << 20, stay) for stay in (True, False))
    ways = [[p.schedule for p in kernel.parts] for kernel in (stay, leave)]
    assert ways[0] == ways[1]
    assert any("winograd" in way for way in ways[0])
