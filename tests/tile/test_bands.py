"""Bands of rows are as equal as they can be, whatever the height of stripes: no core has more to do than the others."""

from __future__ import annotations

import math

import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.plan.form import banded, largest
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 300), st.integers(1, 60), st.integers(1, 9), st.sampled_from([1, 2, 3]))
def test_bands_cover_all_rows_in_order(size: int, step: int, bands: int, unit: int) -> None:
    step *= unit
    cut = banded(size, step, bands, unit)
    pieces = [piece for band in cut for piece in band]
    assert pieces[0][0] == 0 and pieces[-1][1] == size
    assert all(a[1] == b[0] and 0 < a[1] - a[0] <= step for a, b in zip(pieces, pieces[1:]))
    assert all(band[0][0] % unit == 0 for band in cut)
    assert len(cut) <= max(1, min(bands, -(-size // step)))


@given(st.integers(1, 300), st.integers(1, 60), st.integers(1, 9))
def test_bands_take_no_more_stripes_than_equal_ones(size: int, step: int, bands: int) -> None:
    cut = banded(size, step, bands)
    assert max(map(len, cut)) == math.ceil(math.ceil(size / len(cut)) / step)
    assert max(band[-1][1] - band[0][0] for band in cut) <= largest(size, step, len(cut))


def test_stripes_that_do_not_divide_make_no_band_larger() -> None:
    """48, 48 and 32 rows were one stripe for the first core and two for the second: 80 of 128 rows."""
    assert banded(128, 48, 2) == [[(0, 48), (48, 64)], [(64, 112), (112, 128)]]
    assert banded(99, 33, 3) == [[(0, 33)], [(33, 66)], [(66, 99)]]  # not 32 and 34, which were a stripe more
    assert banded(28, 2, 2)[1][0] == (14, 16)


@pytest.mark.parametrize("rows", [48, 20])
def test_two_cores_share_a_tile_group_evenly(rows: int) -> None:
    model = MODELS["unet"].model(small=True, size=128, base=16)
    whole = run_pipeline(model, Options(native(), threads=2, stop_after="fuse"))
    pool = next(g.name for g in whole.groups if "max_pool" in g.name)
    wish = {"last": pool, "shape": (rows, None), "bands": 2}
    build = run_pipeline(model, Options(native(), threads=2, stop_after="tile", tile=wish))
    (plan,) = build.tiled.values()
    heights = [task.rows[1] - task.rows[0] for task in plan.tasks]
    assert len(heights) == 2 and max(heights) - min(heights) <= 4
