"""Register tiles leave room for loads on their way: on cores in order, and beside operands loaded in pairs."""

from __future__ import annotations

import pytest
from halotile.schedules.conv.register_tile import Space
from halotile.schedules.conv.register_tile import choose_tile as conv_tile
from halotile.schedules.conv.weight_prefetch import prefetch
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.kernel.register_budget import PAIRED, free_registers
from halotile.schedules.math.float16 import Widened
from halotile.schedules.matmul.register_tile import choose_tile as matmul_tile
from halotile.targets.boards import boards
from halotile.targets.resolve import resolve

SHAPES = ((56, 56, 16, 16), (14, 14, 64, 64), (7, 7, 128, 128), (112, 112, 8, 8), (13, 13, 3, 3), (1, 5, 1, 1))


@pytest.mark.parametrize("name", [n for n, b in boards().items() if b.target.in_order])
def test_in_order_cores_keep_registers_free(name: str) -> None:
    target = resolve(name)
    for shape in SHAPES:
        tile = conv_tile(target, Space(*shape))
        spare = target.vector_registers - (tile.positions + 1) * tile.blocks
        assert spare >= free_registers(target, tile.blocks) >= target.vector_registers // 8
    for rows, vectors in ((128, 96), (512, 128), (49, 192), (1, 250), (3, 1)):
        height, width = matmul_tile(target, rows, vectors)
        assert height == 1 or target.vector_registers - (height + 1) * width >= free_registers(target, width)


@pytest.mark.parametrize("name", ["raspberry-pi-4", "raspberry-pi-5", "graviton3", "jetson-orin"])
def test_pairs_of_operands_fit_beside_the_accumulators(name: str) -> None:
    target = resolve(name)
    tiles = [conv_tile(target, Space(*shape)) for shape in SHAPES]
    assert max(tile.positions * tile.blocks for tile in tiles) <= PAIRED
    assert tiles[0].positions * tiles[0].blocks >= 4 * target.fma_ports, "the latency is still hidden"


def test_other_machines_use_their_registers() -> None:
    target = resolve("x86-64-v4")
    assert free_registers(target, 2) == free_registers(target, 2, unrolled=True) == 1
    tile = conv_tile(target, Space(56, 56, 4, 4))
    assert tile.positions * tile.blocks == 28


def test_one_load_a_cycle_wants_several_vectors() -> None:
    """Cortex-A72: as many broadcasts as multiply-adds would need all of its loads."""
    for shape in SHAPES[:4]:
        assert conv_tile(resolve("raspberry-pi-4"), Space(*shape)).blocks > 1


@pytest.mark.parametrize(("vectors", "lanes", "hints"), [(4, 4, 1), (5, 4, 2), (2, 8, 1), (3, 16, 3), (1, 4, 1)])
def test_hints_come_a_line_at_a_time(vectors: int, lanes: int, hints: int) -> None:
    k = KernelBuilder("k")
    weights = k.pointer("w", "float32", 1 << 16)
    prefetch(k, weights, 0, vectors, lanes)
    assert str(k.finish()).count("prefetch") == hints
    half = KernelBuilder("k")
    prefetch(half, Widened(half.pointer("w", "float16", 1 << 16)), 0, vectors, lanes)
    assert str(half.finish()).count("prefetch") == -(-hints // 2)
