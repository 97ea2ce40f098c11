"""Small images in a process with little memory: strips without a seam, all rows, and a limit that holds."""

from __future__ import annotations

import json
import os
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from halotile.benchmarks import limited
from halotile.benchmarks.gigapixels import main, measure, table
from halotile.benchmarks.limited import ByteTarget, Job, memory_group, run_limited
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


@pytest.mark.parametrize("mapped", [True, False])
def test_bytes_are_rounded_and_crops_stay_as_they_came(mapped):
    random = np.random.default_rng(0)
    rows, made = random.normal(0, 2, (8, 12, 3)).astype(np.float32), np.zeros((20, 30, 3), np.uint8)

    class Other:
        shape = made.shape

        def __setitem__(self, slices, values):
            made[slices] = values

    kept = [np.zeros((6, 7, 3), np.float32), np.zeros((4, 4, 3), np.float32)]
    target = ByteTarget(made if mapped else Other(), 100.0, [(6, 12, 10, 17), (15, 19, 0, 4)], kept, 1)
    whole = rows.copy()
    target[slice(4, 12), slice(14, 26), slice(None)] = rows
    target.close()
    assert np.array_equal(kept[0][:, 4:], whole[2:, :3]) and not kept[0][:, :4].any() and not kept[1].any()
    assert np.array_equal(made[4:12, 14:26], np.clip(np.rint(whole * np.float32(100)), 0, 255).astype(np.uint8))
    assert not made[:4].any() and not made[:, :14].any()


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
