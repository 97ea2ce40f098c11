"""Statistics of all rows: what operators over the whole image need, gathered row by row in a pass before they are used.

    mean, sum, max, min over rows     a step gives its sums (or extremes) along the rows, the host adds up in float64
    standardise, centre               a step gives its mean and the squares around it for each column, which are merged
                                      as Chan, Golub and LeVeque do (1983): nothing cancels

A statistic of values that depend on no other has level 0 and is known behind the first pass; one of values that need it
has level 1, and so on. With k levels the outputs come in pass k + 1. Until they are known, statistics are zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .heights import Height


@dataclass(frozen=True)
class Statistic:
    """``kind`` over ``axes`` of a value of ``shape`` (rows along ``axis``: rows t * count - delay on, of ``height``).

    ``outputs`` are what a step gives, with one row; ``inputs`` what takes the numbers; ``result`` is the shape of each.
    """

    kind: str
    level: int
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    shape: tuple[int, ...]
    axis: int
    axes: tuple[int, ...]
    result: tuple[int, ...]
    count: int
    delay: int
    height: Height
    epsilon: float = 0.0

    def rows_in(self, step: int, rows: int) -> int:
        """How many rows of a step exist."""
        first = step * self.count - self.delay
        return max(0, min(first + self.count, self.height.at(rows)) - max(first, 0))

    def steps(self, rows: int) -> int:
        """Steps after which all rows have come."""
        return -(-(self.height.at(rows) + self.delay) // self.count)


class Gathered:
    """What of a statistic has come so far: float64, one row."""

    def __init__(self, about: Statistic) -> None:
        self.about, self.rows = about, 0
        shape = [1 if a == about.axis else n for a, n in enumerate(about.shape)]
        start = {"max": -np.inf, "min": np.inf}.get(about.kind, 0.0)
        self.first = np.full(shape, start)
        self.second = np.zeros(shape if len(about.outputs) > 1 else (0,))

    def add(self, outputs: Mapping[str, np.ndarray], count: int) -> None:
        """Takes a step of which ``count`` rows exist."""
        if not count:
            return
        found = [outputs[name].astype(np.float64) for name in self.about.outputs]
        if self.about.kind in ("max", "min"):
            np.copyto(self.first, (np.maximum if self.about.kind == "max" else np.minimum)(self.first, found[0]))
        elif len(found) == 1:
            self.first += found[0]
        else:
            total = self.rows + count
            away = found[0] - self.first
            self.first += away * (count / total)
            self.second += found[1] + away * away * (self.rows * count / total)
        self.rows += count

    def numbers(self) -> tuple[np.ndarray, ...]:
        """What the statistic's inputs take."""
        about = self.about
        if about.kind in ("max", "min"):
            ends = self.first.max(about.axes) if about.kind == "max" else self.first.min(about.axes)
            return (ends.reshape(about.result),)
        if len(about.outputs) == 1:
            total = self._sum(self.first)
            count = self.rows * self._columns()
            if about.kind != "sum":
                total /= count
            return (total.reshape(about.result),)
        mean = self._sum(self.first) / self._columns()
        squares = self._sum(self.second)
        squares += self.rows * self._sum((self.first - mean) ** 2)
        variance = squares / (self.rows * self._columns())
        near = mean.astype(np.float32)
        found: list[np.ndarray] = [near, mean - near]
        if about.kind == "standardise":
            found.append(1 / np.sqrt(variance + about.epsilon))
        return tuple(n.reshape(about.result) for n in found)

    def _sum(self, row: np.ndarray) -> np.ndarray:
        """Over the axes, which stay, one element after the other: in the order of the C functions (statistics.c)."""
        axes = self.about.axes
        kept = [1 if a in axes else n for a, n in enumerate(row.shape)]
        seen = np.moveaxis(row, axes, range(-len(axes), 0)).reshape(math.prod(kept), -1)
        return np.cumsum(seen, axis=1)[:, -1].reshape(kept)

    def _columns(self) -> int:
        return math.prod(n for a, n in enumerate(self.about.shape) if a in self.about.axes and a != self.about.axis)

    def kept(self) -> tuple[np.ndarray, ...]:
        """For a journal."""
        return self.first.copy(), self.second.copy(), np.int64(self.rows)  # type: ignore[return-value]

    def go_on(self, kept: tuple[np.ndarray, ...]) -> None:
        """Continues behind what was kept."""
        self.first[...], self.second[...], self.rows = kept[0], kept[1], int(kept[2])
