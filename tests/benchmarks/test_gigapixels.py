"""Small images in a process with little memory: strips without a seam, all rows, and a limit that holds."""

from __future__ import annotations

import json
import os
import sys

import halotile
import numpy as np
import pytest
from click.testing import CliRunner
from halotile.benchmarks import limited
from halotile.benchmarks.gigapixels import InMemory, _rates, main, measure, table
from halotile.benchmarks.limited import Job, as_bytes, crops_kept, memory_group, run_limited
from halotile.benchmarks.streams import opened_network
from halotile.errors import RunError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="NOT RUN: limits of memory are Linux's")


def test_all_rows_of_an_image_in_strips_are_those_of_the_whole(tmp_path):
    """The bits are the same, as nothing may round differently; only cuts and the last steps take more multiply-adds."""
    said = []
    found = measure("espcn", 148, 1200, 1 << 30, 9 << 20, 1, 64, tmp_path, exact=True, beside=(48, 64), say=said.append)
    assert found.strips > 1 and found.crops == 9 + found.strips - 1 + 6 == found.same and found.error == 0
    assert found.wrong_bytes == 0 and found.step_work == 1
    assert 1 < found.work < 1.5 and found.done.steps % found.strips == 0
    assert found.done.steps // found.strips * found.step >= 148
    assert said[-1].startswith("148 of 148 rows")
    line = table([found]).splitlines()[-1]
    assert line.startswith(f"| espcn | 1200 x 148 | {found.step} | {found.strips} | {found.done.kind} |")
    target = np.load(tmp_path / "target.npy", mmap_mode="r")
    assert target.shape == (296, 2400, 3) and target.max() > 100


def test_steps_that_take_and_give_bytes_are_compared_with_numbers(tmp_path):
    """In strips; bytes are the rounded numbers of the crop's library, whose own are no bytes."""
    found = measure("espcn", 148, 1200, 1 << 30, 9 << 20, 1, 64, tmp_path, exact=True, beside=(48, 64), frames=True)
    assert found.strips > 1 and found.crops == 9 + found.strips - 1 + 6 and found.error < 1e-6
    assert found.wrong_bytes == 0 and found.step_work == 1
    manifest = json.loads((tmp_path / "stream/manifest.json").read_text())
    assert [manifest[key][0]["dtype"] for key in ("inputs", "outputs")] == ["uint8", "uint8"]
    target = np.load(tmp_path / "target.npy", mmap_mode="r")
    assert target.shape == (296, 2400, 3) and target.max() > 100


def test_a_process_that_takes_too_much_is_an_error(tmp_path):
    """The limit is one: Python alone takes more than 5 MB."""
    job = Job("none", "none", str(tmp_path / "y.npy"), (4, 4, 3), 1.0, 1.0, 1, ())
    with pytest.raises(RunError, match="before the image did"):
        run_limited(job, 5_000_000)


def test_groups_are_gone_afterwards():
    with memory_group(1 << 30) as group:
        if group is None:
            pytest.skip("NOT RUN: this process may make no control groups")
        assert group.is_dir() and str(os.getpid()) in group.name
    assert not group.exists()


@pytest.mark.parametrize("budget", [None, 9 << 20])
def test_crops_are_kept_as_they_came_before_they_become_bytes(tmp_path, budget):
    """Of strips and of the whole width, across cuts and the last rows; bytes are theirs, and the next stream's crops
    are its own."""
    source, given = opened_network("espcn")
    shapes = {given: (1, 3, "h:8..:4", 1200)}
    with halotile.compile(source, shapes=shapes, stream=True, memory_budget=budget, threads=1) as model:
        assert model.plan is not None and (model.plan.columns is None) == (budget is None)
        x = np.random.default_rng(0).integers(0, 256, (60, 1200, 3), np.uint8)
        whole = np.zeros((120, 2400, 3), np.float32)
        model.stream(x, whole, scale=1 / 255)
        crops = [(0, 120, 0, 2400), (90, 120, 700, 1900), (1, 3, 2399, 2400)]
        kept = [np.full((b - a, d - c, 3), np.nan, np.float32) for a, b, c, d in crops]
        found = np.zeros(whole.shape, np.uint8)
        with crops_kept(crops, kept):
            model.stream(x, found, scale=1 / 255, target_scale=100.0)
        model.stream(x[::-1], np.zeros_like(found), scale=1 / 255, target_scale=100.0)
    for (a, b, c, d), own in zip(crops, kept):
        assert np.array_equal(own, whole[a:b, c:d])
    assert np.array_equal(found, as_bytes(whole.copy(), np.float32(100)).astype(np.uint8))


def test_rates_are_of_the_fastest_run_and_of_all():
    """Pixels a second, and of processors."""
    plain, converted = [(1.0, 2.0), (3.0, 6.0)], [(4.0, 8.0), (4.0, 8.0)]
    assert _rates([(plain, converted), ([(2.0, 1.0)] * 2, converted)], 8) == InMemory(8, 8, 4, 8 / 2.5, 2, 1)


@pytest.mark.parametrize("groups", [True, False])
def test_the_command_line(tmp_path, monkeypatch, groups):
    """In a control group if there may be one, and without."""
    if not groups:
        monkeypatch.setattr(limited, "_own_groups", list)
    words = ["unet", "--columns", "96", "--rows", "64", "--crop", "64", "-j", "1", "--limit", "1GB", "--json"]
    done = CliRunner().invoke(main, [*words, "--folder", str(tmp_path)])
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert found["rows"] == 64 and found["wrong_bytes"] == 0 and found["error"] < 1e-4 and not os.listdir(tmp_path)
    assert groups or found["done"]["kind"] == "ulimit -v"


def test_sizes_that_do_not_fit_are_refused():
    done = CliRunner().invoke(main, ["unet", "--rows", "66"])
    assert done.exit_code == 2 and "multiples of 4" in done.output
