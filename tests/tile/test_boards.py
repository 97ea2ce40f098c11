"""A board's caches and memory decide its plans, as facts of the target: MobileNetV2 and ESPCN for two boards.

A Raspberry Pi 3 (512 KiB of second level for four cores, slow memory, no third level) gains from tiles as small as its
cache. A Graviton3 (1 MiB a core, 32 MiB behind it, fast memory) finds MobileNetV2's values in its caches anyhow.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.targets.resolve import resolve
from halotile.targets.target import Target

THREADS = 4


def tiled(name: str, target: Target) -> Build:
    return run_pipeline(MODELS[name].model(), Options(target, threads=THREADS, stop_after="tile"))


@cache
def on(name: str, board: str) -> Build:
    return tiled(name, resolve(board))


def working_set(build: Build) -> int:
    """Bytes of windows that all threads together use, in the largest of the tile groups."""
    return max(THREADS * plan.task_bytes for plan in build.tiled.values())


def moved(build: Build) -> float:
    """Predicted cycles, as a share of those without tiles."""
    details = build.details["tile"]
    return float(details["chosen"]["cycles"] / details["untiled"]["cycles"])


@pytest.mark.parametrize("name, most", [("mobilenet_v2", 0.6), ("espcn", 0.92)])
def test_plans_of_a_small_board_and_of_a_large_one_differ(name: str, most: float) -> None:
    small, large = on(name, "raspberry-pi-3"), on(name, "graviton3")
    assert small.tiled and moved(small) < most
    assert len(small.tiled) > len(large.tiled)
    assert moved(small) < moved(large)


@pytest.mark.parametrize("name", ["mobilenet_v2", "espcn"])
def test_working_sets_are_those_of_the_cache(name: str) -> None:
    board = resolve("raspberry-pi-3")
    assert working_set(on(name, "raspberry-pi-3")) <= 2 * board.l2_bytes
    roomy = tiled(name, replace(board, l2_bytes=8 * board.l2_bytes))
    assert working_set(roomy) > working_set(on(name, "raspberry-pi-3"))


def test_with_faster_memory_less_is_tiled() -> None:
    board = resolve("raspberry-pi-3")
    fast = tiled("mobilenet_v2", replace(board, bandwidth=64 * board.bandwidth))
    members = [sum(len(p.members) for p in b.tiled.values()) for b in (fast, on("mobilenet_v2", "raspberry-pi-3"))]
    assert members[0] < members[1]
