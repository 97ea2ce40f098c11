"""Memory against time, predicted and measured: builds of one model along the planner's curve, timed in turns.

    halotile bench --pareto -m mobilenet_v2 -j 2

The planner predicts cycles. What one takes on this machine is read off the untiled build, so the prediction of every
other point is a real one: predicted cycles * (measured untiled time / predicted untiled cycles).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import halotile
import numpy as np
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.errors import HalotileError
from halotile.targets.resolve import resolve

from .models import ModelEntry, ModelFile

if TYPE_CHECKING:
    from ..targets.plain import Json


@dataclass(frozen=True)
class ParetoPoint:
    """One build: ``arena`` bytes, ``predicted`` and ``measured`` seconds of a run, ``tiled`` groups in it."""

    arena: int
    tiled: int
    predicted: float
    measured: float

    def data(self) -> Json:
        return asdict(self)


def curve(
    entry: ModelEntry | ModelFile, threads: int, seconds: float, small: bool, points: int, say: Callable[[str], None]
) -> list[ParetoPoint]:
    """The untiled build first, then the others from the largest arena to the smallest."""
    model = entry.model(small=small)
    feeds = entry.inputs(model, 1)
    with tempfile.TemporaryDirectory(prefix="halotile-pareto-") as folder:
        asked = {"shapes": entry.shapes, "typical": entry.typical}
        builds = _builds(entry.path or model, asked, threads, Path(folder), points, say)
        best = _timed([Path(folder) / str(i) for i in range(len(builds))], feeds, threads, seconds)
    base, cycles = best[0], _cycles(builds[0])
    return [
        ParetoPoint(b.report["arena_bytes"], len(b.tiled), base * _cycles(b) / cycles, t) for b, t in zip(builds, best)
    ]


def _cycles(build: Build) -> float:
    details = build.details["tile"]
    return float(details["chosen" if build.tiled else "untiled"]["cycles"])


def _builds(
    model: object, asked: Json, threads: int, folder: Path, points: int, say: Callable[[str], None]
) -> list[Build]:
    """One build for each of ``points`` budgets between the untiled arena and the smallest; no arena twice."""
    target = resolve("native")
    plain = Options(target=target, threads=threads, **asked)
    probe = run_pipeline(model, replace(plain, tile="auto", stop_after="tile"))
    sizes = [p["bytes"] for p in probe.details["tile"]["curve"]]
    whole = run_pipeline(model, replace(plain, tile="off"), output=folder / "0")
    whole.details["tile"] = probe.details["tile"]
    builds = [whole]
    low, high = min(sizes), max(whole.report["arena_bytes"], max(sizes))
    for step in range(points - 1):
        budget = int(high * (1.02 * low / high) ** (step / max(1, points - 2)) * 1.05)
        try:
            build = run_pipeline(model, replace(plain, memory_budget=budget), output=folder / str(len(builds)))
        except HalotileError as error:
            say(str(error))
            break
        say(f"budget {budget}: arena {build.report['arena_bytes']}")
        if all(b.report["arena_bytes"] != build.report["arena_bytes"] for b in builds):
            builds.append(build)
    return builds


def _timed(folders: list[Path], feeds: dict[str, np.ndarray], threads: int, seconds: float) -> list[float]:
    """The least seconds of a run of each build, all of them in turns."""
    models = [halotile.load(f, threads=threads) for f in folders]
    best = [float("inf")] * len(models)
    end = time.perf_counter() + seconds * len(models)
    while time.perf_counter() < end or best[-1] == float("inf"):
        for i, model in enumerate(models):
            for _ in range(3):
                start = time.perf_counter()
                model(feeds)
                best[i] = min(best[i], time.perf_counter() - start)
    return best


def render(name: str, threads: int, points: list[ParetoPoint]) -> str:
    """The curve as a Markdown table, with the mean error of the predictions."""
    lines = [
        f"### {name}, {threads} thread{'s' if threads > 1 else ''}: memory against time",
        "",
        "| arena MB | tile groups | predicted ms | measured ms | error |",
        "|---:|---:|---:|---:|---:|",
    ]
    errors = []
    for point in points:
        error = point.predicted / point.measured - 1
        errors.append(abs(error))
        lines.append(
            f"| {point.arena / 1e6:.2f} | {point.tiled} | {point.predicted * 1e3:.2f} | {point.measured * 1e3:.2f} | "
            f"{error:+.0%} |"
        )
    others = errors[1:] or errors
    lines += ["", f"Mean error of the predictions: {sum(others) / len(others):.0%}."]
    return "\n".join(lines) + "\n"
