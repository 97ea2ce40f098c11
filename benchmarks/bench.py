"""Measures Halotile beside its peers: outputs compared first, then short bursts in turn, with pauses between them.

Each engine runs in its own process, and plans for the number of threads it is measured with: ours is built for each, as
peers load for each. A peer's threads spin on for a while after its run, so every burst is preceded by a pause, begins
with an uncounted run, and the order of the engines turns from round to round.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx

from ..compiler.page.peak import Meter, Peak
from ..compiler.verify import PRECISION_RTOL
from ..errors import HalotileError, RunError
from ..targets.detect import native
from .check_models import TOLERANCE, compare, reference, tied
from .models import MODELS, ModelEntry, ModelFile
from .peers.environment import OURS, PEERS, Peer, python_of
from .peers.process import EngineProcess
from .profile import derive
from .results import BuildResult, EngineResult, ModelResult
from .summary import summarise, warnings

if TYPE_CHECKING:
    from ..targets.plain import Json

# What can be switched off to see what it is worth, as options of the pipeline. Tiles chain what is not fused, box by
# box: what fusion is worth shows without them, beside a build of ours without tiles ("tile").
ABLATIONS: dict[str, Json] = {
    "simplify": {"simplify": False},
    "fuse": {"fuse": False, "tile": "off"},
    "layout": {"layout": False},
    "winograd": {"winograd": False},
    "matrix": {"matrix": False},
    "dots": {"dots": False},
    "tile": {"tile": "off"},
    "exact": {"exact": True},
}


@dataclass(frozen=True)
class Settings:
    """``models`` by name, or files. ``seconds`` is for each at each thread count, all engines together; at least
    ``rounds`` rounds run. ``budgets`` of builds of ours beside the plain one: sizes, or shares of the arena without
    tiles. ``precision``: of builds of ours; with another than float32 peers take their own default."""

    models: tuple[str | ModelFile, ...]
    threads: tuple[int, ...] = (1, 2)
    peers: tuple[str, ...] = tuple(PEERS)
    ablate: tuple[str, ...] = ()
    budgets: tuple[str | Fraction, ...] = ()
    seconds: float = 8.0
    burst: float = 0.25
    pause: float = 0.2
    rounds: int = 3
    small: bool = False
    profile: bool = False
    precision: str = "float32"
    peers_folder: Path | None = None


@dataclass(frozen=True)
class Contender:
    """An engine and what it loads: the ONNX file, or a library of ours."""

    name: str
    peer: Peer
    model: Path


Say = Callable[[str], None]


def measure(
    settings: Settings, meter: Meter | None = None, say: Say = lambda line: None
) -> Iterator[ModelResult]:
    """One result for each model and thread count, as they come."""
    interpreters = {name: python_of(PEERS[name], settings.peers_folder) for name in settings.peers}
    for model in settings.models:
        entry = MODELS[model] if isinstance(model, str) else model
        with tempfile.TemporaryDirectory(prefix="halotile-bench-") as folder:
            yield from _measure_model(entry, Path(folder), settings, interpreters, meter, say)


def _measure_model(
    entry: ModelEntry | ModelFile,
    folder: Path,
    settings: Settings,
    interpreters: dict[str, Path],
    meter: Meter | None,
    say: Say,
) -> Iterator[ModelResult]:
    model = entry.model(small=settings.small)
    try:
        feeds = entry.inputs(model, seed=7)
    except HalotileError as error:  # of a file; the figures of the other models must not be lost
        failed = [EngineResult(OURS.name, error=str(error))]
        yield from (ModelResult(entry.name, threads, failed, None, []) for threads in settings.threads)
        return
    path = entry.path or folder / f"{entry.name}.onnx"
    if entry.path is None:
        onnx.save(model, path)
    expected = reference(path, feeds)
    ties = tied(path, feeds, expected)
    for threads in settings.threads:
        count = f"{threads} thread{'s' if threads > 1 else ''}"
        contenders = [Contender(name, PEERS[name], path) for name in settings.peers]
        failed = []
        build: BuildResult | None = None
        variants = [*_variants(settings.ablate), *((_within(b), {"memory_budget": b}) for b in settings.budgets)]
        arenas: dict[str, int] = {}
        for label, options in variants:
            say(f"{entry.name}: compiling{label.removeprefix(OURS.name)} for {count}")
            output = folder / f"{label} {threads}"
            try:
                asked = {"shapes": entry.shapes, "typical": entry.typical, "precision": settings.precision, **options}
                built = compiled(path, output, threads, _with_bytes(path, threads, asked))
            except Exception as error:  # whatever it is, the figures of the other models must not be lost
                text = str(error).strip().splitlines() or [""]
                failed.append(EngineResult(label, error=f"{type(error).__name__}: {text[-1]}"))
                continue
            build = built if label == OURS.name else build
            arenas[label] = built.arena_bytes
            contenders.append(Contender(label, OURS, output))
        timed = folder / f"timed {threads}"
        if settings.profile and build is not None:
            say(f"{entry.name}: compiling with timers for {count}")
            asked = {"shapes": entry.shapes, "typical": entry.typical, "precision": settings.precision}
            compiled(path, timed, threads, {**asked, "timers": True})
        say(f"{entry.name}: measuring at {count}")
        before = meter.now(threads) if meter else None
        engines, notes = measure_engines(contenders, feeds, (expected, ties), threads, settings, interpreters)
        for engine in engines:
            engine.arena_bytes = arenas.get(engine.engine, 0)
        result = ModelResult(entry.name, threads, [*engines, *failed], build, notes)
        if timed.exists() and build is not None:
            result.build = _profiled(build, timed, feeds, threads, settings.seconds / 4)
        _place(result, before, meter.now(threads) if meter else None)
        yield result


def _variants(ablate: Sequence[str]) -> list[tuple[str, Json]]:
    return [
        (OURS.name, {}),
        *(
            (f"{OURS.name} (no {name})" if name != "exact" else f"{OURS.name} (exact)", ABLATIONS[name])
            for name in ablate
        ),
    ]


def _within(budget: str | Fraction) -> str:
    return f"{OURS.name} (in {budget})"


def _with_bytes(path: Path, threads: int, options: Json) -> Json:
    """``options`` with a budget that is a share of the arena without tiles in bytes."""
    from ..compiler.options import checked_budget
    from ..compiler.pipeline import run_pipeline
    from ..compiler.state import Options

    budget = options.get("memory_budget")
    if isinstance(budget, Fraction):
        plain = Options(native(), threads=threads, shapes=options["shapes"], tile="off", stop_after="plan")
        return {**options, "memory_budget": int(budget * run_pipeline(path, plain).report["arena_bytes"])}
    return {**options, "memory_budget": checked_budget(budget)} if budget is not None else options


def compiled(path: Path, output: Path, threads: int, options: Json) -> BuildResult:
    """Builds a library in ``output``, in this process: as ``halotile.compile`` does on an empty cache, with the
    ablations' options."""
    from ..compiler.pipeline import run_pipeline
    from ..compiler.state import Options

    started = time.perf_counter()
    report = run_pipeline(path, Options(native(), threads=threads, cache=None, **options), output=output).report
    seconds = time.perf_counter() - started
    kernels = list(report["kernels"])
    return BuildResult(
        seconds=seconds,
        stages=dict(report["seconds"]),
        flops=2.0 * report["macs"] - sum(k["flops"] * (1 - 1 / k.get("at_once", 1)) for k in kernels),
        moved=float(sum(k["bytes"] for k in kernels)),
        arena_bytes=report["arena_bytes"],
        weight_bytes=report["weight_bytes"],
        kernels=kernels,
    )


def measure_engines(
    contenders: Sequence[Contender],
    feeds: dict[str, np.ndarray],
    expected: tuple[dict[str, np.ndarray], dict[str, float]],
    threads: int,
    settings: Settings,
    interpreters: dict[str, Path],
) -> tuple[list[EngineResult], list[str]]:
    results = []
    with ExitStack() as stack:
        running: list[tuple[EngineResult, EngineProcess]] = []
        for contender in contenders:
            result = EngineResult(contender.name)
            results.append(result)
            python = interpreters.get(contender.name) or python_of(contender.peer)
            process = stack.enter_context(EngineProcess(contender.name, python, contender.peer.engine_file))
            try:
                asked = {"precision": settings.precision, "outputs": {n: list(v.shape) for n, v in expected[0].items()}}
                result.load_seconds, info = process.load(contender.model, threads, asked)
                result.version, result.precision = info["version"], info["precision"]
                allowed = TOLERANCE if result.precision == "f32" else PRECISION_RTOL["bfloat16"]
                differences = compare(process.compute(feeds), expected[0], allowed, expected[1])
                result.wrong = "; ".join(differences) or None
            except RunError as error:
                result.error = str(error)
                continue
            running.append((result, process))
        time_in_turn(running, settings)
        for result, process in running:
            if result.error is None:
                result.peak_rss = process.peak_rss()
    cores = os.cpu_count() or 1
    notes = [w for r in results if r.times for w in warnings(r.engine, r.times, r.foreign_cores, cores)]
    return results, notes


def _profiled(
    build: BuildResult, library: Path, feeds: dict[str, np.ndarray], threads: int, seconds: float
) -> BuildResult:
    """``build`` with the ``seconds`` of its kernels, from a library of the same code with timers."""
    with EngineProcess("halotile with timers", python_of(OURS), OURS.engine_file) as process:
        process.load(library, threads)
        process.compute(feeds)
        one = max(1e-6, min(process.burst(2).times))
        times = process.profile(max(5, min(500, int(seconds / one))))
    return replace(build, kernels=[{**k, "seconds": t} for k, t in zip(build.kernels, times, strict=True)])


def time_in_turn(running: Sequence[tuple[EngineResult, EngineProcess]], settings: Settings) -> None:
    """Rounds of bursts until the time is up; fills in times and the load of others."""
    bursts: dict[str, list[tuple[float, ...]]] = {result.engine: [] for result, _ in running}
    wall: dict[str, float] = dict.fromkeys(bursts, 0.0)
    foreign: dict[str, float] = dict.fromkeys(bursts, 0.0)
    runs = {}
    for result, process in running:
        with _failures_in(result):
            runs[result.engine] = max(1, int(settings.burst / max(1e-6, min(process.burst(2).times))))
    started, turn = time.perf_counter(), 0
    while turn < settings.rounds or time.perf_counter() - started < settings.seconds:
        alive = [pair for pair in running if pair[0].error is None]
        if not alive:
            break
        for result, process in alive[turn % len(alive) :] + alive[: turn % len(alive)]:
            time.sleep(settings.pause)
            with _failures_in(result):
                before = _busy_seconds()
                burst = process.burst(runs[result.engine])
                foreign[result.engine] += max(0.0, _busy_seconds() - before - burst.cpu)
                wall[result.engine] += burst.wall
                bursts[result.engine].append(burst.times)
        turn += 1
    for result, _ in running:
        if result.error is None:
            result.times = summarise(bursts[result.engine])
            result.foreign_cores = foreign[result.engine] / wall[result.engine]


@contextmanager
def _failures_in(result: EngineResult) -> Iterator[None]:
    """An engine that fails while it is timed loses its figure; the others go on."""
    try:
        yield
    except RunError as error:
        result.error = str(error)


def _busy_seconds() -> float:
    """Processor seconds that this machine has worked since it started, over all cores."""
    words = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=8)[1:8]
    user, nice, system, _idle, _waiting, interrupts, soft = map(int, words)  # ticks (proc_stat(5))
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def _place(result: ModelResult, before: Peak | None, after: Peak | None) -> None:
    """How near our figure comes to the machine's limits: FMA peak, and the sum of the kernels' own rooflines."""
    ours = result.engine(OURS.name)
    if before is None or after is None:
        return
    flops, matrix = (before.flops + after.flops) / 2, max(before.matrix, after.matrix)
    peak = result.peak = replace(after, flops=flops, matrix=matrix)
    if abs(before.flops - after.flops) > 0.1 * peak.flops:
        result.warnings.append(
            f"the machine's own speed went from {before.flops / 1e9:.0f} to {after.flops / 1e9:.0f} GFLOP/s"
        )
    if result.build is None or ours is None or not ours.counts or ours.times is None:
        return
    result.fma_fraction = result.build.flops / ours.times.median / peak.flops
    limit = sum(peak.limit_of(k) for k in result.build.kernels)
    result.build = replace(result.build, kernels=[derive(kernel, peak) for kernel in result.build.kernels])
    result.limit_fraction = limit / ours.times.median


def machine() -> Json:
    """What was measured on: processor, cores, kernel, and how busy it was before."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }
