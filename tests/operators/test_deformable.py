"""Deformable convolution: what its taps read is computed once, and a product with the weights does the rest."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from evaluate import one_node, peer


@pytest.mark.parametrize("groups, offset_groups, masked", [(1, 1, False), (2, 1, True), (1, 3, True)])
def test_one_kernel_reads_and_a_product_sums(groups: int, offset_groups: int, masked: bool) -> None:
    rng = np.random.default_rng(7)
    n, channels, outputs, (kh, kw), (oh, ow) = 2, 6, 8, (3, 2), (5, 7)
    taps = offset_groups * kh * kw
    inputs = [
        rng.standard_normal((n, channels, 9, 7)).astype("float32"),
        rng.standard_normal((outputs, channels // groups, kh, kw)).astype("float32"),
        (2 * rng.standard_normal((n, 2 * taps, oh, ow))).astype("float32"),  # some far outside
        rng.standard_normal(outputs).astype("float32"),
        rng.random((n, taps, oh, ow)).astype("float32") if masked else None,
    ]
    model, feeds = one_node(
        "DeformConv", inputs, 1, run_time=(0, 2, 4) if masked else (0, 2), opset=19, group=groups,
        offset_group=offset_groups, kernel_shape=[kh, kw], strides=[2, 1], pads=[2, 1, 0, 1], dilations=[1, 2],
    )  # fmt: skip
    expected = peer(model, feeds)[0]
    for threads in (1, 2):
        built = halotile.compile(model, threads=threads)
        schedules = [k["schedule"] for k in built.report["kernels"]]
        assert schedules[0] == "loops" and schedules[1].startswith("matmul") and len(schedules) == 2
        (y,) = built(feeds).values()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
