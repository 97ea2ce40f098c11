"""Error budgets hold: models at four limits, built and measured on the samples and on inputs that no build has seen.

    python -m halotile.benchmarks.error_budgets [NAME ...] [--samples 24] [--fresh 16] [--time] [--target native]

For each limit: what rounding is expected to do and what the library is off by on the samples (both halves), on fresh
inputs; predicted time, and with ``--time`` the measured one, as parts of float32's. Exit code 1 where the library is
off by more than the limit on its samples, the expectation is off by more than a factor of two, or the predicted time
does not fall with the limit. Fresh inputs beyond the limit are told, and counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.budget.keep import applied, keeping
from ..compiler.budget.wish import planner
from ..compiler.cache.library import library
from ..compiler.quantise.plan import error_of, outputs_of
from ..compiler.runtime.loader import opened
from ..compiler.state import Options
from ..errors import HalotileError
from ..targets.resolve import resolve
from .models import MODELS

if TYPE_CHECKING:
    import onnx

    from ..targets.plain import JsonView

LIMITS = (1e-3, 3e-3, 1e-2, 3e-2)
SIZES: Mapping[str, JsonView] = {  # of the models, between those of the tests and the full ones
    "resnet18": {"size": 64, "width": 32, "classes": 100},
    "mobilenet_v2": {"size": 96, "width": 0.5, "classes": 100},
    "efficientnet_b0": {"size": 64, "width": 0.5, "classes": 100},
    "unet": {"size": 64, "base": 16, "levels": 3},
    "espcn": {"height": 60, "width": 80, "features": 64},
    "convnext": {"size": 64, "width": 32, "depths": (1, 1, 2, 1), "classes": 100},
    "bert": {"tokens": 48, "width": 128, "layers": 2, "heads": 4, "vocabulary": 200},
    "vit": {"size": 64, "patch": 8, "width": 128, "layers": 2, "heads": 4, "classes": 100},
}


@dataclass(frozen=True)
class ErrorOutcome:
    """One build: errors expected by rounding, ``off`` on the samples, and on ``fresh`` inputs; predicted and measured
    time as parts of float32's."""

    limit: float
    expected: float
    off: float
    fresh: float
    predicted: float
    measured: float | None
    precisions: Mapping[str, int]

    def __str__(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.precisions.items())
        timed = "" if self.measured is None else f" {self.measured:.2f} |"
        numbers = f"{self.limit:g} | {self.expected:.1e} | {self.off:.1e} | {self.fresh:.1e}"
        return f"{numbers} | {self.predicted:.2f} |{timed} {kinds}"


def check(
    name: str, samples: int = 24, fresh: int = 16, target: str = "native", timed: bool = False,
    limits: Sequence[float] = LIMITS, **sizes: object,
) -> list[ErrorOutcome]:  # fmt: skip
    """One model at all limits, on one thread."""
    entry = MODELS[name]
    model = entry.model(small=True, **(sizes or SIZES.get(name, {})))
    options = Options(resolve(target), threads=1)
    given = [entry.inputs(model, seed) for seed in range(samples)]
    unseen = [entry.inputs(model, 1000 + seed) for seed in range(fresh)]
    made = planner(model, options, given)
    wanted = outputs_of(made.shares.model, unseen)
    names = [output.name for output in made.shares.model.graph.output]
    base = None
    if timed:
        with _built(model, options) as run:
            base = _seconds(run, unseen[0])
    found = []
    for limit in limits:
        record = keeping(model, options, made, limit, runs=True)
        counts: dict[str, int] = {}
        for kind in record["layers"].values():
            counts[kind] = counts.get(kind, 0) + 1
        with _built(model, applied(options, record)) as run:
            answers = [[np.asarray(run(dict(arrays))[n]) for n in names] for arrays in unseen]
            taken = None if base is None else _seconds(run, unseen[0]) / base
        counts["float32"] = record["of"] - len(record["layers"])
        found.append(
            ErrorOutcome(
                limit, record["expected"], max(record["error"], record["held"]), error_of(wanted, answers),
                record["cycles"] / record["cycles_float32"], taken, {k: n for k, n in counts.items() if n},
            )
        )  # fmt: skip
    return found


def problems(found: Sequence[ErrorOutcome]) -> list[str]:
    """What is broken, a line each."""
    lines = [f"limit {o.limit:g}: off by {o.off:.2e} on the samples" for o in found if o.off > o.limit]
    for o in found:
        if o.expected and not o.expected / 2 <= o.off <= 2 * o.expected:
            lines.append(f"limit {o.limit:g}: {o.expected:.2e} was expected, it is {o.off:.2e}")
    times = [o.predicted for o in found]
    if times != sorted(times, reverse=True):
        lines.append(f"predicted times don't fall: {times}")
    return lines


@contextmanager
def _built(model: onnx.ModelProto, options: Options) -> Iterator[Any]:
    with tempfile.TemporaryDirectory(prefix="halotile-") as folder:
        made = library(model, options, Path(folder) / "library")
        run = opened(Path(folder) / "library" / (made.recorded.library or ""), made.recorded)
        try:
            yield run
        finally:
            run.close()


def _seconds(run: Callable[..., object], arrays: Mapping[str, np.ndarray], runs: int = 60) -> float:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        run(dict(arrays))
        times.append(time.perf_counter() - started)
    return float(np.median(times))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m halotile.benchmarks.error_budgets", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SIZES), metavar="NAME")
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--fresh", type=int, default=16)
    parser.add_argument("--target", default="native")
    parser.add_argument("--time", action="store_true", dest="timed")
    asked = parser.parse_args(arguments)
    measured = " measured |" if asked.timed else ""
    print(f"| model | limit | expected | on samples | on fresh inputs | predicted time |{measured} layers |")
    print("|---" * (8 if asked.timed else 7) + "|")
    broken = beyond = 0
    for name in asked.names:
        try:
            found = check(name, asked.samples, asked.fresh, asked.target, asked.timed)
        except HalotileError as error:
            print(f"{name}: {error}", file=sys.stderr)
            broken += 1
            continue
        for outcome in found:
            print(f"| {name} | {outcome} |", flush=True)
        for line in (wrong := problems(found)):
            print(f"{name}: {line}", file=sys.stderr)
        broken += bool(wrong)
        beyond += sum(o.fresh > o.limit for o in found)
    print(f"{beyond} builds are off by more than their limit on inputs that are no samples", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
