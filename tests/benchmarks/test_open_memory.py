"""Thousands of sizes in one process: what is counted, what is seen where a guard breaks, and the table."""

from __future__ import annotations

import dataclasses
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest
from halotile.benchmarks.open_memory import GUARD, PATTERN, Kept, guarded, measured, sizes_at_random, table
from halotile.benchmarks.open_models import OPEN_MODELS
from halotile.compiler.spec import Symbol
from halotile.errors import ShapeError

STEP = dataclasses.replace(OPEN_MODELS["step"], large={"batch": 2, "past": 12})


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc" or shutil.which("cc") is None, reason="needs glibc and cc")
def test_no_run_allocates_and_arenas_are_the_formula(tmp_path: Path) -> None:
    found = measured(STEP, tmp_path / "step", 40, 10)
    assert (found.ran, found.compared) == (41, 5)
    assert (found.allocations, found.broken_guards, found.wrong) == (0, 0, [])
    assert 0 < found.smallest_arena < found.largest_arena
    assert len(found.resident) == 12 and min(found.resident) > 1000


def test_a_byte_beyond_an_arena_is_seen() -> None:
    memory = np.full(2 * GUARD + 100, PATTERN, np.uint8)
    memory[GUARD : GUARD + 100] = 0
    assert guarded(memory, GUARD, 100)
    for place in (0, GUARD - 1, GUARD + 100, 2 * GUARD + 99):
        memory[place] ^= 1
        assert not guarded(memory, GUARD, 100)
        memory[place] ^= 1


class Squares:
    """Takes squares alone, of multiples of four up to 40."""

    symbols = (Symbol("n", 0, None, 1, 1), Symbol("h", 0, 40, 4, 8), Symbol("w", 0, None, 1, 8))
    inputs = ()

    def input_shapes(self, shape: dict[str, int]) -> dict[str, tuple[int, ...]]:
        if shape["h"] != shape["w"]:
            raise ShapeError("no square")
        return {}


def test_sizes_begin_with_the_largest_and_go_together() -> None:
    entry = dataclasses.replace(OPEN_MODELS["unet"], large={"n": 1, "h": 64, "w": 40})
    found = sizes_at_random(entry, Squares(), 30)
    assert found[0] == {"n": 5, "h": 40, "w": 40} and len(found) == 30
    assert {at["h"] for at in found} <= set(range(4, 41, 4)) and min(at["h"] for at in found) < 12
    assert all(at["h"] == at["w"] and 1 <= at["n"] <= 5 for at in found)


def test_the_table_tells_growth_from_the_first_tenth_on_and_what_is_wrong() -> None:
    told = table([Kept("step", 10, 2, 0, 1, 1024, 4096, [900, 1000, 1007, 1003], ["past=3: logits: differs"])])
    assert "| step | 10 | 0 | 1 | 1 to 4 | 1 | 7 | 2 | 1 |" in told
    assert "- step: past=3: logits: differs" in told
