"""Sliding windows: the usual way through an image that is larger than a network takes, as a reference to compare with.

Windows of one size step over the image, each computed as if it were an image of its own; where they overlap, results
are averaged with weights. Places and weights follow MONAI's ``sliding_window_inference`` (mode "gaussian", sigma_scale
0.125, overlap 0.25): steps of size * (1 - overlap), the last window moved back into the image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

BLENDS = ("gaussian", "constant")
_SIGMA = 0.125  # of a window's side
_LEAST = 1e-3  # weight: what one window alone covers is divided by it again


@dataclass(frozen=True)
class Windows:
    """Square windows of ``side`` rows of the input, that overlap by a share of it."""

    side: int
    overlap: float = 0.25
    blend: str = "gaussian"

    def starts(self, length: int) -> list[int]:
        """Where windows begin along an axis, the last one moved so that it ends with the image."""
        step = max(1, int(self.side * (1 - self.overlap)))
        count = max(0, math.ceil((length - self.side) / step)) + 1
        return [min(i * step, length - self.side) for i in range(count)]

    def weights(self, side: int) -> np.ndarray:
        """What results count, (side, side) of the output: largest in the middle of a window."""
        if self.blend == "constant":
            return np.ones((side, side), np.float32)
        away = (np.arange(side) - (side - 1) / 2) / (_SIGMA * side)
        bell = np.exp(-0.5 * away * away)
        return np.maximum(np.outer(bell, bell), _LEAST).astype(np.float32)

    def work(self, rows: int, columns: int) -> float:
        """Pixels of all windows for each of the image."""
        return len(self.starts(rows)) * len(self.starts(columns)) * self.side**2 / (rows * columns)

    def overlaps(self, length: int, scale: int = 1) -> np.ndarray:
        """Which rows of an output, ``scale`` times the input's, more than one window gives."""
        covered = np.zeros(length * scale, int)
        for start in self.starts(length):
            covered[start * scale : (start + self.side) * scale] += 1
        return covered > 1


def slide(run: Callable[[np.ndarray], np.ndarray], x: np.ndarray, windows: Windows) -> np.ndarray:
    """The blended result for an image ``x`` (1, C, H, W), an array or memmap, of which ``run`` computes one window.

    The sums and the weights are held in memory for all of the output, as there."""
    rows, columns = x.shape[2:]
    total = weight = share = None
    for top, left in itertools.product(windows.starts(rows), windows.starts(columns)):
        y = run(np.ascontiguousarray(x[:, :, top : top + windows.side, left : left + windows.side]))
        scale = y.shape[2] // windows.side
        if total is None or weight is None or share is None:
            total = np.zeros((*y.shape[:2], rows * scale, columns * scale), np.float32)
            weight, share = np.zeros(total.shape[2:], np.float32), windows.weights(y.shape[2])
        here = slice(top * scale, top * scale + y.shape[2]), slice(left * scale, left * scale + y.shape[3])
        total[:, :, here[0], here[1]] += y * share
        weight[here] += share
    assert total is not None and weight is not None
    total /= weight
    return total
