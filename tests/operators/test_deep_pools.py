"""Maxima over three axes: images first, then along the depth, where that takes fewer taps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, staged
from tvm import relax


@pytest.mark.sampled
@pytest.mark.parametrize("pads", [(0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1), (0, 1, 2, 1, 0, 1)])
@pytest.mark.parametrize(
    ("kernel", "strides", "apart"),
    [((3, 3, 3), (1, 1, 1), True), ((3, 3, 3), (2, 2, 2), True), ((2, 3, 3), (1, 2, 1), True),
     ((2, 2, 2), (2, 2, 2), False), ((1, 3, 3), (1, 2, 2), False), ((3, 1, 1), (1, 1, 1), False)],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(2, 3, 7, 9, 35), (1, 8, 5, 12, 17)])
def test_windows_of_odd_sizes(shape: tuple, kernel: tuple, strides: tuple, apart: bool, pads: tuple) -> None:
    if any(p >= k for p, k in zip(pads, kernel * 2)):
        pads = (0,) * 6
    x = np.random.default_rng(sum(kernel)).standard_normal(shape).astype("float32")
    x[0, 0, :4, :5] = -np.inf
    x[0, 1, 2, 3, 4] = np.inf
    sides = [(0, 0), (0, 0), *zip(pads[:3], pads[3:])]
    padded = np.pad(x, sides, constant_values=-np.inf)
    view = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3, 4))
    wanted = view[:, :, :: strides[0], :: strides[1], :: strides[2]].max((-1, -2, -3))

    def body(x: Any) -> Any:
        return relax.op.nn.max_pool3d(x, kernel, strides=strides, padding=pads)

    build = staged(module_of([x], body))
    assert ("2 phases" in build.kernels[0].schedule) == apart, build.kernels[0].schedule
    np.testing.assert_array_equal(Compiled(build).run([x])[0], wanted)
