"""Random networks in float16 on a board: as near as float16 can be, the same on any number of threads, whole and tiled.

    HALOTILE_RANDOM_NETS=0:500 pytest -s tests/halves/test_random_nets.py -k many       that many, from that seed on
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from board_tools import needs, needs_zig
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from random_nets import drawn, in_float16, of_outputs, random_nets

PI5 = "raspberry-pi-5"
MOST = 8  # times what a rounding of each value and of each sum makes; the largest of 500 networks was 6.6


def checked(seeds: range, tile: str, folder: Path) -> float:
    """The largest error of the networks' outputs, over that of rounding alone."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model = random_nets(seeds)
    inputs = drawn(model, seeds.start)
    target = resolve(PI5)
    options = Options(target, precision="float16", halves=largest_of(model, "float16"), formats=("exe",), tile=tile)
    build = run_pipeline(model, options, output=folder)
    if any("expected to be faster in float32" in note for note in build.notes["halves"]):
        build = run_pipeline(model, replace(options, optimize="memory"), output=folder)  # by which it is float16 anyway
    assert any(n.results[0].dtype == "float16" for n in build.graph.nodes)
    with RemoteModel(folder, " ".join(run)) as remote:
        found, again = (remote(inputs, threads=n) for n in (1, 2))
    assert all(np.array_equal(found[name], again[name]) for name in found)
    exact, near = of_outputs(model, inputs), in_float16(model, inputs)
    ratios = {}
    for name, wanted in exact.items():
        allowed = max(float(np.abs(near[name] - wanted).max()), 2**-11 * float(np.abs(wanted).max()))
        ratios[name] = float(np.abs(found[name] - wanted).max()) / max(allowed, 1e-9)
    assert max(ratios.values()) < MOST, (seeds, ratios)
    return max(ratios.values())


@pytest.mark.parametrize(("seeds", "tile"), [(range(6), "off"), (range(6, 12), "auto")])
def test_answers_are_as_near_as_float16_can_be(seeds: range, tile: str, tmp_path: Path) -> None:
    checked(seeds, tile, tmp_path / "out")


@pytest.mark.skipif("HALOTILE_RANDOM_NETS" not in os.environ, reason="HALOTILE_RANDOM_NETS=first:count asks for many")
def test_many(tmp_path: Path) -> None:
    first, count = (int(n) for n in os.environ["HALOTILE_RANDOM_NETS"].split(":"))
    for seed in range(first, first + count, 10):
        for tile in ("off", "auto"):
            ratio = checked(range(seed, min(seed + 10, first + count)), tile, tmp_path / f"{seed}{tile}")
            print(f"{seed} {tile}: {ratio:.2f}", flush=True)
