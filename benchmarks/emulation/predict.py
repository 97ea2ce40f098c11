"""Milliseconds of a board, from what ran under an emulator: the longer of a function's cycles and of its memory's time.

    seconds of a function = max(cycles / clock, bytes beyond the second level / bandwidth)

Cycles are those of llvm-mca with all data near; bytes are those of lines that the simulated second level missed, read
as fast as the board's memory gives at best, ahead of their use. A third level, misses of the first one and the system
are left out, so that a board takes longer than this: it is a bound, to compare builds and engines by.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...targets.target import Target

# Clocks of the boards' fast cores under load, cycles a second, as their makers state them.
CLOCKS = {
    "raspberry-pi-zero-2": 1.0e9,
    "raspberry-pi-3": 1.2e9,  # 1.4 of the 3B+
    "raspberry-pi-4": 1.8e9,  # 1.5 of the first ones
    "raspberry-pi-5": 2.4e9,
    "jetson-nano": 1.43e9,
    "rk3399": 1.8e9,
    "rk3588": 2.4e9,
    "graviton2": 2.5e9,
    "graviton3": 2.6e9,
    "ampere-altra": 3.0e9,
}


@dataclass(frozen=True)
class FunctionWork:
    """What one function took in all its calls: cycles, and bytes from beyond the second level."""

    cycles: float
    far_bytes: int


@dataclass(frozen=True)
class Prediction:
    """Seconds on one core, and the part of them in functions that wait for memory."""

    seconds: float
    waiting: float


def predict(work: Iterable[FunctionWork], target: Target, hertz: float) -> Prediction:
    """The time of all functions, one after the other, at a clock of ``hertz``. A target that doesn't say how fast its
    memory is has one that is never waited for."""
    total = waiting = 0.0
    for part in work:
        near = part.cycles / hertz
        far = part.far_bytes / target.bandwidth if target.bandwidth else 0.0
        total += max(near, far)
        waiting += far if far > near else 0.0
    return Prediction(total, waiting / total if total else 0.0)
