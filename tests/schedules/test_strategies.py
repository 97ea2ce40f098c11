"""Which family, and which register tile or transform, common layers get on each processor: what is chosen today, so
that a change is seen. A line that changes should come with a measurement, or with llvm-mca's word for the boards."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from compiled import module_of, staged, weight
from halotile.passes.fuse import closing
from halotile.schedules.conv.register_tile import Space, choose_tile
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax

R = relax.op

# input channels, output channels, rows and columns of the input, kernel, stride, groups
LAYERS: dict[str, tuple[int, int, int, int, int, int]] = {
    "first 7x7/2": (3, 64, 224, 7, 2, 1),
    "first 3x3": (3, 64, 224, 3, 1, 1),
    "3x3 64 at 56": (64, 64, 56, 3, 1, 1),
    "3x3 256 at 14": (256, 256, 14, 3, 1, 1),
    "3x3 512 at 7": (512, 512, 7, 3, 1, 1),
    "3x3/2 128 at 56": (128, 128, 56, 3, 2, 1),
    "3x3/2 512 at 14": (512, 512, 14, 3, 2, 1),
    "1x1 64-256 at 56": (64, 256, 56, 1, 1, 1),
    "1x1 1024-256 at 14": (1024, 256, 14, 1, 1, 1),
    "1x1 2048-512 at 7": (2048, 512, 7, 1, 1, 1),
    "5x5 48-96 at 27": (48, 96, 27, 5, 1, 1),
    "grouped 3x3 64 at 56": (64, 64, 56, 3, 1, 4),
    "depthwise 3x3 96 at 56": (96, 96, 56, 3, 1, 96),
    "few outputs 32-3 at 256": (32, 3, 256, 3, 1, 1),
}


@cache
def target(name: str) -> Target:
    """``zen4``: a core with one 512-bit multiply-add a cycle; all others are boards."""
    if name != "zen4":
        return replace(resolve(name), cores=1)
    return replace(
        resolve("x86-64-v4"), fma_ports=1, fma_latency=4, cores=1, bandwidth=0,
        l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20,
    )  # fmt: skip


def chosen(layer: str, name: str) -> str:
    return schedule(target(name), *LAYERS[layer])


def schedule(machine: Target, cin: int, cout: int, size: int, kernel: int, stride: int, groups: int) -> str:
    x, w = np.zeros((1, cin, size, size), "float32"), np.zeros((cout, cin // groups, kernel, kernel), "float32")

    def body(x: relax.Expr) -> relax.Expr:
        return R.nn.relu(R.nn.conv2d(x, weight(w), strides=stride, padding=kernel // 2, groups=groups))

    kernels = staged(module_of([x], body), machine, tiled=False).kernels
    (found,) = [k.schedule for k in kernels if any(word in k.schedule for word in ("conv", "winograd", "depthwise"))]
    return found


@pytest.mark.parametrize("name", ["zen4", "x86-64-v3", "raspberry-pi-4", "raspberry-pi-5"])
def test_strategies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "closing_values", lambda *_: frozenset())  # layers in the middle of a network
    assert {layer: chosen(layer, name) for layer in LAYERS} == TABLE[name]


@pytest.mark.parametrize("size, vectors", [(14, 7), (7, 7), (28, 14), (17, 25), (56, 7)])
def test_two_ports_are_not_fed_from_the_second_level(size: int, vectors: int) -> None:
    """Seven vectors by two positions would need 64 bytes of weights a cycle: 672-112 at 14 runs 1.2 times as fast as
    2x14x1, ShuffleNet's 116-116 1.3 times (Emerald Rapids)."""
    tile = choose_tile(resolve("x86-64-v4"), Space(size, size, vectors, vectors))
    assert tile.positions >= 4
    assert choose_tile(resolve("x86-64-v4"), Space(1, 1, 72, 72)).blocks == 8  # nothing to share them with


@pytest.mark.parametrize("ports, kernel, columns", [(1, 5, 7), (2, 5, 14), (2, 3, 7)])
def test_long_chains_are_as_many_as_two_ports_take(ports: int, kernel: int, columns: int) -> None:
    """Seven chains of 25 multiply-adds keep two ports of four cycles busy for seven eighths of the time: 384 channels
    at 14 take 0.82 of it with fourteen (Emerald Rapids)."""
    machine = replace(target("zen4"), fma_ports=ports)
    assert schedule(machine, 384, 384, 14, kernel, 1, 384) == f"depthwise conv C16, tile 1x{columns}x1"


TABLE: dict[str, dict[str, str]] = {
    "zen4": {
        "first 7x7/2": "winograd F(5x5,8x8/2), strip 10, tile 10x2, few channels C16",
        "first 3x3": "direct conv C16, tile 4x7x1",
        "3x3 64 at 56": "winograd F(4x4,3x3), strip 28, tile 14x2 C16",
        "3x3 256 at 14": "winograd F(4x4,3x3), strip 16, tile 4x4 C16",
        "3x3 512 at 7": "winograd F(2x2,3x3), strip 16, tile 4x4 C16",
        "3x3/2 128 at 56": "winograd F(4x4,3x3/2), strip 7, tile 7x2 C16",
        "3x3/2 512 at 14": "direct conv C16, tile 1x7x2",
        "1x1 64-256 at 56": "direct conv C16, tile 4x7x1",
        "1x1 1024-256 at 14": "conv by seven products of halves C16, tile 1x14x2",
        "1x1 2048-512 at 7": "conv by seven products of halves C16, tile 1x25x1",
        "5x5 48-96 at 27": "winograd F(4x4,5x5), strip 25, tile 5x2 C16",
        "grouped 3x3 64 at 56": "direct conv C16, tile 4x7x1",
        "depthwise 3x3 96 at 56": "depthwise conv C16, tile 1x8x1",
        "few outputs 32-3 at 256": "few outputs conv C16, tile 1x4x1, 3 plain outputs",
    },
    "x86-64-v3": {
        "first 7x7/2": "winograd F(5x5,8x8/2), strip 20, tile 5x2, few channels C8",
        "first 3x3": "direct conv C8, tile 3x2x2",
        "3x3 64 at 56": "winograd F(4x4,3x3), strip 10, tile 5x2 C8",
        "3x3 256 at 14": "winograd F(4x4,3x3), strip 16, tile 4x3 C8",
        "3x3 512 at 7": "winograd F(4x4,3x3), strip 4, tile 4x3 C8",
        "3x3/2 128 at 56": "winograd F(2x2,3x3/2), strip 6, tile 6x2 C8",
        "3x3/2 512 at 14": "winograd F(4x4,3x3/2), strip 4, tile 4x3 C8",
        "1x1 64-256 at 56": "direct conv C8, tile 3x2x2 and 2x2x2",
        "1x1 1024-256 at 14": "conv by seven products of halves C8, tile 1x5x2",
        "1x1 2048-512 at 7": "conv by seven products of halves C8, tile 1x5x2",
        "5x5 48-96 at 27": "winograd F(4x4,5x5), strip 5, tile 5x2 C8",
        "grouped 3x3 64 at 56": "direct conv C8, tile 3x2x2",
        "depthwise 3x3 96 at 56": "depthwise conv C8, tile 1x7x1",
        "few outputs 32-3 at 256": "few outputs conv C8, tile 1x3x1, 3 plain outputs",
    },
    "raspberry-pi-4": {
        "first 7x7/2": "winograd F(5x5,8x8/2), strip 10, tile 10x2, few channels C4",
        "first 3x3": "direct conv C4, tile 4x3x2",
        "3x3 64 at 56": "winograd F(4x4,3x3), strip 14, tile 14x2 C4",
        "3x3 256 at 14": "winograd F(4x4,3x3), strip 16, tile 2x8 C4",
        "3x3 512 at 7": "winograd F(4x4,3x3), strip 4, tile 4x4 C4",
        "3x3/2 128 at 56": "winograd F(4x4,3x3/2), strip 10, tile 10x2 C4",
        "3x3/2 512 at 14": "winograd F(4x4,3x3/2), strip 4, tile 2x8 C4",
        "1x1 64-256 at 56": "direct conv C4, tile 4x2x2",
        "1x1 1024-256 at 14": "conv by seven products of halves C4, tile 1x2x8",
        "1x1 2048-512 at 7": "conv by seven products of halves C4, tile 1x5x4",
        "5x5 48-96 at 27": "winograd F(4x4,5x5), strip 25, tile 5x4 C4",
        "grouped 3x3 64 at 56": "direct conv C4, tile 4x2x2",
        "depthwise 3x3 96 at 56": "depthwise conv C4, tile 1x8x1",
        "few outputs 32-3 at 256": "winograd F(4x4,3x3), strip 16, tile 16x1 C4",
    },
    "raspberry-pi-5": {
        "first 7x7/2": "winograd F(5x5,8x8/2), strip 10, tile 10x2, few channels C4",
        "first 3x3": "direct conv C4, tile 4x3x2",
        "3x3 64 at 56": "winograd F(4x4,3x3), strip 28, tile 14x2 C4",
        "3x3 256 at 14": "winograd F(4x4,3x3), strip 16, tile 2x8 C4",
        "3x3 512 at 7": "winograd F(4x4,3x3), strip 4, tile 2x8 C4",
        "3x3/2 128 at 56": "winograd F(4x4,3x3/2), strip 5, tile 5x4 C4",
        "3x3/2 512 at 14": "winograd F(4x4,3x3/2), strip 4, tile 2x8 C4",
        "1x1 64-256 at 56": "direct conv C4, tile 3x4x2 and 2x4x2",
        "1x1 1024-256 at 14": "conv by seven products of halves C4, tile 1x11x2",
        "1x1 2048-512 at 7": "conv by seven products of halves C4, tile 1x5x4",
        "5x5 48-96 at 27": "winograd F(4x4,5x5), strip 10, tile 10x2 C4",
        "grouped 3x3 64 at 56": "direct conv C4, tile 4x3x2",
        "depthwise 3x3 96 at 56": "depthwise conv C4, tile 1x8x1",
        "few outputs 32-3 at 256": "winograd F(6x6,3x3), strip 16, tile 16x1 C4",
    },
}
