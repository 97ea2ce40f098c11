"""The whole of a calibration: limits, samples, the fit, and its errors on what it has not seen."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from ...errors import TargetError
from ...targets.detect import native, runs_here
from ...targets.target import Target
from .fit import fitted
from .layers import chains
from .limits import MachineLimits, measure_limits, with_limits
from .samples import KernelSample, Sample, measured_kernels

if TYPE_CHECKING:
    from ...targets.plain import Json

LARGEST = 512 << 20  # bytes that a stream of memory takes at most
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Errors:
    """How far predictions of a family's kernels are off, of ``kernels`` that nothing was fitted on: the median and the
    worst of |predicted / measured - 1|, by what was known ``before`` and by what was measured."""

    family: str
    kernels: int
    median: float
    worst: float
    median_before: float
    worst_before: float


@dataclass(frozen=True)
class Calibration:
    """``target`` is this machine with what was measured; ``errors`` are by family, the last one of all kernels."""

    target: Target
    limits: MachineLimits
    fitted_on: int
    errors: tuple[Errors, ...]

    def data(self) -> Json:
        """The calibration as JSON has it."""
        return {
            "target": {**asdict(self.target), "fitted": self.target.fitted.changed()},
            "limits": asdict(self.limits),
            "fitted_on": self.fitted_on,
            "errors": [asdict(e) for e in self.errors],
        }


def calibrate(
    seconds: float = 0.5, networks: Sequence[str] = (), progress: Progress | None = None
) -> Calibration:
    """Measures this machine. ``seconds`` are those of each limit and of each network's runs, besides compiling;
    ``networks`` names what is measured of layers.py (all, unless told); LARGEST bounds a stream's bytes. Raises
    TargetError for a machine that can't be detected, ToolchainError without a C compiler."""
    target = native()
    if not runs_here(target):  # pragma: no cover
        raise TargetError("this machine does not run what it is detected as")
    tell = progress or (lambda *_: None)
    on, held = chains(networks)
    tell("limits", 0, 1)
    limits = measure_limits(target, seconds, LARGEST)
    known = with_limits(target, limits)
    samples: list[list[KernelSample]] = [[], []]
    for part, (found, name) in enumerate(((on, "layers"), (held, "other layers"))):
        for i, chain in enumerate(found):
            tell(name, i, len(found))
            samples[part] += measured_kernels([chain], target, seconds)
    tell("fit", 0, 1)
    after = fitted(samples[0], known)
    before = replace(target, hertz=known.hertz)
    return Calibration(after, limits, len(samples[0]), errors_of(samples[1], before, after))


def errors_of(samples: Sequence[Sample], before: Target, after: Target) -> tuple[Errors, ...]:
    """Of each family of the samples, and of all of them."""
    families = sorted({s.family for s in samples})
    groups = [(f, [s for s in samples if s.family == f]) for f in families]
    if len(families) > 1:
        groups.append(("all", list(samples)))
    found = []
    for family, own in groups:
        new, old = ([_error(s, target) for s in own] for target in (after, before))
        found.append(Errors(family, len(own), statistics.median(new), max(new), statistics.median(old), max(old)))
    return tuple(found)


def _error(sample: Sample, target: Target) -> float:
    return abs(sample.cycles(target) / (sample.seconds * target.hertz) - 1)
