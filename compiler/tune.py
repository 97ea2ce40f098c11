"""Measures what the families of kernels leave open, on this machine: ``halotile tune``.

A model is built once for every rank of candidate, each kernel in its r-th one, with a timer in every kernel; the
builds then run in turns. So each candidate is timed where it will stand, with its neighbours' data in the caches. What
beats a kernel's own choice by a margin is kept, and the model built from all that is kept must be faster as a whole.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TargetError
from ..schedules.words.candidates import MOST
from .frontend.typical import at_typical
from .given import ModelGiven
from .pipeline import run_pipeline
from .runtime.loader import LoadedModel, load
from .runtime.private import PrivateFolder
from .sample import random_inputs
from .state import Build, Options
from .tuning_file import Measured

if TYPE_CHECKING:
    import numpy as np

    from ..targets.plain import Json

MARGIN = 0.97  # of the own choice's time, which a candidate must beat
BURST = 3  # runs in a row, after one that brings the build's own data near

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Tuned:
    """``kernels`` are what is worth taking, by key; ``considered`` how many there were to choose for. Seconds are those
    of a whole run, lower quartiles of runs in turns: with every kernel's own choice, and with ``kernels``."""

    kernels: Mapping[str, Measured]
    considered: int
    own_seconds: float
    seconds: float

    def data(self) -> Json:
        return {
            "considered": self.considered,
            "own_seconds": self.own_seconds,
            "seconds": self.seconds,
            "kernels": {
                k: {"own": m.own, "chosen": m.chosen, "own_seconds": m.own_seconds, "seconds": m.seconds}
                for k, m in self.kernels.items()
            },
        }


def tune(
    model: ModelGiven, options: Options, seconds: float = 10.0, candidates: int = MOST, progress: Progress | None = None
) -> Tuned:
    """The choices for ``model`` that are measured to be faster than the estimates'; ``seconds`` of measuring in all.

    ``options`` are those of the build that is to profit. Layers that it computes in tiles keep their own choices:
    only whole kernels are measured. Raises TargetError unless this machine runs the target's code.
    """
    from ..targets.detect import runs_here

    if not runs_here(options.target):
        raise TargetError(f"tuning measures on this machine, which can't run code for {options.target.id}")
    tell = progress or (lambda *_: None)
    plain = replace(options, tuning={}, tile="off", memory_budget=None, optimize="speed", timers=True, formats=("so",))
    with PrivateFolder() as folder, ExitStack() as stack:

        def built(name: str, **changed: Any) -> tuple[Build, LoadedModel]:
            build = run_pipeline(model, replace(plain, **changed), output=Path(folder, name))
            return build, stack.enter_context(load(Path(folder, name), threads=options.threads))

        tell("compile", 0, candidates)
        first, own = built("0")
        decisions = [k.decision for k in first.kernels]
        offered = max((d.offered for d in decisions if d is not None), default=1)
        builds, models = [first], [own]
        for rank in range(1, min(candidates, offered)):
            tell("compile", rank, min(candidates, offered))
            build, loaded = built(str(rank), candidate=rank)
            builds.append(build)
            models.append(loaded)
        feeds = random_inputs(at_typical(first.imported.inputs, first.imported.symbols))
        times = _kernel_times(models, feeds, seconds * 0.8, tell)
        found = _winners(builds, times)
        considered = len({d.key for d in decisions if d is not None})
        if not found:
            whole = _typical(_run_times([own], feeds, seconds * 0.2)[0])
            return Tuned({}, considered, whole, whole)
        tell("compare", 0, 1)
        _, tuned = built("tuned", tuning={key: m.chosen for key, m in found.items()})
        before, after = (_typical(t) for t in _run_times([own, tuned], feeds, seconds * 0.2))
        if after >= before:  # what each kernel gained was lost between them
            return Tuned({}, considered, before, before)
        return Tuned(found, considered, before, after)


def _kernel_times(
    models: Sequence[LoadedModel], feeds: Mapping[str, np.ndarray], seconds: float, tell: Progress
) -> list[list[float]]:
    """Seconds of each kernel in each build, in rounds of short bursts until the time is over, three at least."""
    runs: list[list[Sequence[float]]] = [[] for _ in models]
    begun, rounds = time.perf_counter(), 0
    while rounds < 3 or time.perf_counter() - begun < seconds:
        for model, seen in zip(models, runs, strict=True):
            for i in range(1 + BURST):
                model(feeds)
                if i:
                    seen.append(model.kernel_seconds() or ())
        rounds += 1
        tell("measure", min(int(time.perf_counter() - begun), int(seconds)), int(seconds) or 1)
    return [[_typical(column) for column in zip(*seen, strict=True)] for seen in runs]


def _typical(times: Sequence[float]) -> float:
    """The lower quartile: what else the machine does only adds."""
    return statistics.quantiles(times, n=4)[0]


def _run_times(models: Sequence[LoadedModel], feeds: Mapping[str, np.ndarray], seconds: float) -> list[list[float]]:
    found: list[list[float]] = [[] for _ in models]
    begun = time.perf_counter()
    while len(found[0]) < 3 * BURST or time.perf_counter() - begun < seconds:
        for model, times in zip(models, found, strict=True):
            for i in range(1 + BURST):
                start = time.perf_counter()
                model(feeds)
                if i:
                    times.append(time.perf_counter() - start)
    return found


def _winners(builds: Sequence[Build], times: Sequence[Sequence[float]]) -> dict[str, Measured]:
    """Key -> the candidate whose kernels took the least time together, where that beats the own one clearly."""
    totals: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    own: dict[str, str] = {}
    for rank, (build, seconds) in enumerate(zip(builds, times, strict=True)):
        for kernel, taken in zip(build.kernels, seconds, strict=True):
            decision = kernel.decision
            if decision is None or (rank and decision.chosen == decision.own):
                continue
            own[decision.key] = decision.own
            totals[decision.key][decision.chosen] += taken
    found = {}
    for key, by_name in totals.items():
        best = min(by_name, key=lambda name: by_name[name])
        mine = by_name[own[key]]
        if best != own[key] and by_name[best] < MARGIN * mine:
            found[key] = Measured(best, own[key], by_name[best], mine)
    return found
