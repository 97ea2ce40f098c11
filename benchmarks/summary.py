"""What a list of run times says, and whether it may be trusted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import several


@dataclass(frozen=True)
class Summary:
    """Median and median absolute deviation of ``runs`` run times in seconds; ``rounds``: the bursts' medians."""

    median: float
    mad: float
    best: float
    runs: int
    rounds: tuple[float, ...]

    @property
    def noise(self) -> float:
        """MAD over median."""
        return self.mad / self.median

    @property
    def drift(self) -> float:
        """How far the bursts' medians lie apart, over the median."""
        return (max(self.rounds) - min(self.rounds)) / self.median


def summarise(bursts: Sequence[Sequence[float]]) -> Summary:
    """Of all runs of all bursts together; raises ValueError when there is none."""
    times = [t for burst in bursts for t in burst]
    if not times:
        raise ValueError("no run was timed")
    median = statistics.median(times)
    mad = statistics.median(abs(t - median) for t in times)
    return Summary(median, mad, min(times), len(times), tuple(statistics.median(b) for b in bursts if b))


def warnings(name: str, summary: Summary, foreign: float, cores: int) -> list[str]:
    """Why the figure of ``name`` is doubtful. ``foreign``: cores that other processes kept busy during its bursts."""
    found = []
    if summary.noise > 0.05:
        found.append(f"{name}: runs scatter by {summary.noise:.0%} of the median")
    if summary.drift > 0.15:
        found.append(f"{name}: bursts differ by {summary.drift:.0%} of the median")
    if foreign > 0.1:
        found.append(f"{name}: other processes kept {foreign:.1f} of {cores} cores busy")
    if summary.runs < 5:
        found.append(f"{name}: only {several(summary.runs, 'run')}")
    return found


def paired_ratio(peer: Sequence[float], ours: Sequence[float]) -> tuple[float, float, float]:
    """Median, lowest and highest of peer / ours over rounds that ran one after the other."""
    ratios = [a / b for a, b in zip(peer, ours)]
    return statistics.median(ratios), min(ratios), max(ratios)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(statistics.fmean(math.log(v) for v in values)) if values else math.nan
