"""RoiAlign: channels in lanes, of images turned once where the regions read enough of them."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from evaluate import one_node, peer

# image; regions; bins and samples of each; image turned
CASES = [
    ((1, 37, 14, 11), 5, (7, 7, 2), True),
    ((2, 3, 9, 13), 9, (3, 5, 1), True),  # fewer channels than lanes
    ((3, 150, 6, 5), 4, (2, 3, 3), True),  # more vectors than are summed at once
    ((1, 35, 60, 61), 2, (3, 3, 1), False),
    ((1, 1, 8, 8), 3, (1, 1, 1), False),
    ((1, 37, 14, 11), 5, (7, 7, 0), True),  # as many samples as the region's bins are long
    ((2, 3, 60, 61), 1, (5, 2, 0), False),
]


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize(("shape", "count", "bins", "turned"), CASES)
def test_regions_anywhere(
    shape: tuple[int, ...], count: int, bins: tuple[int, int, int], turned: bool, corners: str, mode: str
) -> None:
    """Some of the regions end outside of the image, or before they begin."""
    rng = np.random.default_rng(5)
    side = 2 * max(shape[2:])
    first = rng.uniform(-5, side - 5, (count, 2))
    regions = np.concatenate([first, first + rng.uniform(-3, side, (count, 2))], 1).astype("float32")
    inputs = [rng.standard_normal(shape).astype("float32"), regions, rng.integers(0, shape[0], count)]
    model, feeds = one_node(
        "RoiAlign", inputs, 1, run_time=(0, 1, 2), opset=16, output_height=bins[0], output_width=bins[1],
        sampling_ratio=bins[2], spatial_scale=0.5, mode=mode, coordinate_transformation_mode=corners,
    )  # fmt: skip
    one, two = (halotile.compile(model, threads=n) for n in (1, 2))
    assert [k["schedule"] for k in one.report["kernels"]] == ["loops"]
    assert (one.report["arena_bytes"] >= inputs[0].nbytes) == (turned and inputs[0].size > 16)
    ours = one(feeds)["o0"]
    np.testing.assert_allclose(ours, peer(model, feeds)[0], rtol=1e-4, atol=2e-5)
    np.testing.assert_array_equal(ours, two(feeds)["o0"])
