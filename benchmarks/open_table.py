"""Models of every kind with all their dimensions open, in three tables: right at every size, beside builds for one
size, beside peers that take any.

    python -m halotile.benchmarks.open_table FOLDER [NAME ...] --step agree --step build --step time --step tell

agree   40 sizes of each against ONNX Runtime, on one and on two threads: smallest, largest, primes, around tiles
build   libraries for all sizes and for each of 8, without a cache: the processor's seconds, bytes, arenas
time    the same libraries and the peers in turn, all warm at the size; and the first call at each size
tell    the tables of all that FOLDER has

What a step finds stays in FOLDER, so that models are compiled beside other work, and timed without.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import onnx

from ..compiler.api import compile as compile_model
from ..compiler.model import load
from ..compiler.sized import inputs_at
from ..compiler.state import Options
from ..errors import several
from ..targets.resolve import resolve
from .bench import Contender, Settings, time_in_turn
from .check_models import TOLERANCE, compare
from .open_builds import built
from .open_models import OPEN_MODELS, OpenEntry
from .open_shapes import Agreement, agree, as_there, between, feeds_at
from .peers.environment import OURS, PEERS, python_of
from .peers.process import EngineProcess
from .results import EngineResult
from .sizes import FIXED, SizeFigures, library_bytes
from .summary import geometric_mean

if TYPE_CHECKING:
    from ..targets.plain import JsonView

STEPS = ("agree", "build", "time", "tell")
Say = Callable[[str], None]


# ---------------------------------------------------------------------- the steps


def agreement(entry: OpenEntry, folder: Path, count: int) -> None:
    """Leaves ``agree.json``."""
    proto = _model(entry, folder)
    found = agree(entry, compile_model(proto, typical=entry.typical, threads=2), proto, count)
    _write(folder / "agree.json", asdict(found))


def builds(entry: OpenEntry, folder: Path, count: int, threads: int) -> None:
    """Leaves libraries and ``build THREADS.json``: a point for each size, without seconds of runs."""
    _model(entry, folder)
    path, options = folder / "model.onnx", _options(entry, threads)
    built(path, None, replace(options, stop_after="plan"))  # warms up
    library = folder / f"open {threads}"
    spent, _ = built(path, library, options)
    points = []
    with load(library) as model:
        for index, sizes in enumerate(between(entry, model, count)):
            point = SizeFigures(sizes, threads, arena={OURS.name: model.arena_bytes(threads, sizes)})
            point.compile[OURS.name], point.library[OURS.name] = spent, library_bytes(library)
            shapes = {spec.name: spec.shape for spec in inputs_at(model, sizes)}
            fixed = folder / f"fixed {threads} {index}"
            point.compile[FIXED], report = built(path, fixed, replace(options, shapes=shapes, typical=None, open=False))
            point.arena[FIXED], point.library[FIXED] = report["arena_bytes"], library_bytes(fixed)
            points.append(point)
    _write(folder / f"build {threads}.json", [asdict(point) for point in points])


def times(entry: OpenEntry, folder: Path, threads: int, settings: Settings) -> None:
    """Leaves ``time THREADS.json``: the points of the builds with seconds of first calls and of warm runs."""
    proto, path = _model(entry, folder), folder / "model.onnx"
    points = [SizeFigures(**point) for point in json.loads((folder / f"build {threads}.json").read_text())]
    contenders = [Contender(OURS.name, OURS, folder / f"open {threads}")]
    contenders += [Contender(name, PEERS[name], path) for name in settings.peers]
    with ExitStack() as stack:
        model = stack.enter_context(load(folder / f"open {threads}"))
        processes = {}
        for c in [*contenders, Contender(FIXED, OURS, path)]:
            python = python_of(c.peer, settings.peers_folder)
            processes[c.name] = stack.enter_context(EngineProcess(c.name, python, c.peer.engine_file))
        for contender in contenders:
            processes[contender.name].load(contender.model, threads)
        for index, point in enumerate(points):
            feeds, running = feeds_at(model, entry, proto, point.sizes, index), []
            for name in (OURS.name, *settings.peers):
                point.first[name] = processes[name].call(feeds)
            processes[FIXED].load(folder / f"fixed {threads} {index}", threads)
            expected: JsonView | None = None
            for name in ("onnxruntime", OURS.name, FIXED, *(p for p in settings.peers if p != "onnxruntime")):
                if name not in processes:
                    continue
                found = processes[name].compute(feeds)
                expected = found if expected is None else expected
                if differs := compare(as_there(found, expected), expected, TOLERANCE):
                    point.errors[name] = "; ".join(differs)
                running.append((EngineResult(name), processes[name]))
            time_in_turn(running, settings)
            for result, _ in running:
                if result.error is not None or result.times is None:
                    point.errors[result.engine] = result.error or "no figure"
                elif result.engine not in point.errors:
                    point.seconds[result.engine] = result.times.median
    _write(folder / f"time {threads}.json", [asdict(point) for point in points])


def _model(entry: OpenEntry, folder: Path) -> onnx.ModelProto:
    folder.mkdir(parents=True, exist_ok=True)
    proto = entry.model()
    onnx.save(proto, folder / "model.onnx")
    return proto


def _options(entry: OpenEntry, threads: int) -> Options:
    return Options(resolve("native"), typical=entry.typical, threads=threads, cache=None)


def _write(path: Path, found: object) -> None:
    path.write_text(json.dumps(found, indent=1) + "\n")


# ---------------------------------------------------------------------- the tables


def told(folder: Path, peers: Sequence[str]) -> str:
    """Markdown: the three tables of what ``folder`` has."""
    names = [name for name in OPEN_MODELS if (folder / name).is_dir()]
    agreed = [Agreement(**json.loads(f.read_text())) for n in names if (f := folder / n / "agree.json").exists()]
    points = _points(folder, names)
    return "\n".join([agree_table(agreed), build_table(points), peer_table(points, peers)])


def _points(folder: Path, names: Sequence[str]) -> dict[str, list[SizeFigures]]:
    """Of each model the points of all thread counts: timed ones, else those of the builds."""
    found: dict[str, list[SizeFigures]] = {}
    for name in names:
        for file in sorted((folder / name).glob("build *.json")):
            timed = file.with_name(file.name.replace("build", "time"))
            points = json.loads((timed if timed.exists() else file).read_text())
            found.setdefault(name, []).extend(SizeFigures(**point) for point in points)
    return found


def agree_table(found: Sequence[Agreement]) -> str:
    """What agrees with ONNX Runtime at how many sizes."""
    lines = ["| model | sizes | from | to | largest error | wrong | refused |", "|---|---:|---|---|---:|---:|---:|"]
    for a in found:
        ends = f"{_text(a.smallest)} | {_text(a.largest)}"
        lines.append(f"| {a.name} | {a.ran} | {ends} | {a.error:.1e} | {len(a.wrong)} | {len(a.refused)} |")
    lines += [f"- {a.name}: {line}" for a in found for line in [*a.wrong[:3], *a.refused[:3]]]
    return "\n".join(lines) + "\n"


def build_table(found: Mapping[str, Sequence[SizeFigures]]) -> str:
    """What an open build has for one of a build for exactly that size."""
    head = ("model", "points", "time", "worst", "arena", "worst", "library", "compiling")
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    every: list[list[list[float]]] = []
    for name, points in found.items():
        time = [1 / ratio for p in points if (ratio := p.ratio(FIXED)) is not None]
        arena = [p.arena[OURS.name] / max(1, p.arena[FIXED]) for p in points]
        library = [p.library[OURS.name] / p.library[FIXED] for p in points]
        spent = [p.compile[OURS.name] / p.compile[FIXED] for p in points]
        every.append([time, arena, library, spent])
        cells = [name, str(len(points)), _mean(time), _most(time), _mean(arena), _most(arena)]
        lines.append(f"| {' | '.join([*cells, _mean(library), _mean(spent)])} |")
    columns = [[v for own in column for v in own] for column in zip(*every)]
    for what, column in zip(("time", "arena", "library", "compiling"), columns):
        lines.append(f"- open / fixed, {what}: {_mean(column)} in geometric mean, at most {_most(column)}")
    return "\n".join(lines) + "\n"


def peer_table(found: Mapping[str, Sequence[SizeFigures]], peers: Sequence[str]) -> str:
    """What peers take for one of ours, all warm, and the medians of first calls in milliseconds."""
    head = ["model", *(f"{p} {what}" for p in peers for what in ("/ ours", "least"))]
    head += [f"first: {name}" for name in (OURS.name, *peers)]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    whole: dict[str, list[float]] = {peer: [] for peer in peers}
    for name, points in found.items():
        cells = [name]
        for peer in peers:
            ratios = [ratio for p in points if (ratio := p.ratio(peer)) is not None]
            whole[peer] += ratios
            cells += [_mean(ratios), f"{min(ratios):.2f}" if ratios else ""]
        firsts = [[p.first[n] for p in points if n in p.first] for n in (OURS.name, *peers)]
        cells += [f"{statistics.median(f) * 1e3:.2f}" if f else "" for f in firsts]
        lines.append(f"| {' | '.join(cells)} |")
    for peer, ratios in whole.items():
        if ratios:
            below = sum(ratio < 1 for ratio in ratios)
            ends = f"{min(ratios):.2f} to {max(ratios):.2f}, {below} of {len(ratios)} points below 1"
            lines.append(f"- {peer} / ours: {_mean(ratios)} in geometric mean, {ends}")
    for name, points in found.items():
        for p in points:
            where = f"{name}: {_text(p.sizes)}, {several(p.threads, 'thread')}"
            lines += [f"- {where}: {who}: {e}" for who, e in p.errors.items()]
            slow = {peer: ratio for peer in peers if (ratio := p.ratio(peer)) is not None and ratio < 1}
            if slow:
                parts = ", ".join(f"{peer} {ratio:.2f}" for peer, ratio in slow.items())
                lines.append(f"- below 1: {where}: {parts}")
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float]) -> str:
    return f"{geometric_mean(values):.2f}" if values else ""


def _most(values: Sequence[float]) -> str:
    return f"{max(values):.2f}" if values else ""


def _text(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, type=click.Choice(sorted(OPEN_MODELS)))
@click.option("--step", "steps", multiple=True, type=click.Choice(STEPS), help="All unless given.")
@click.option("--threads", "-j", default="1,2", show_default=True, help="Thread counts, separated by commas.")
@click.option("--agree", "agreeing", default=40, show_default=True, help="Sizes to compare at.")
@click.option("--points", default=8, show_default=True, help="Sizes to build and to time at.")
@click.option("--peers", default="onnxruntime,openvino", show_default=True, help="Engines beside ours; '' for none.")
@click.option("--seconds", "-s", default=1.0, show_default=True, help="For each point, all engines together.")
def main(
    folder: Path, names: Sequence[str], steps: Sequence[str], threads: str, agreeing: int, points: int, peers: str,
    seconds: float,
) -> None:  # fmt: skip
    """Measure open models NAMES (all); what is found stays in FOLDER, tables go to stdout."""
    counts, beside = [int(part) for part in threads.split(",")], tuple(filter(None, peers.split(",")))
    settings = Settings((), tuple(counts), beside, seconds=seconds, burst=0.05, pause=0.05)
    wanted = steps or STEPS
    for name in names or OPEN_MODELS:
        entry, own = OPEN_MODELS[name], folder / name
        if "agree" in wanted:
            click.echo(f"{name}: comparing", err=True)
            agreement(entry, own, agreeing)
        for count in counts:
            if "build" in wanted:
                click.echo(f"{name}: building for {several(count, 'thread')}", err=True)
                builds(entry, own, points, count)
            if "time" in wanted:
                click.echo(f"{name}: timing on {several(count, 'thread')}", err=True)
                times(entry, own, count, settings)
    if "tell" in wanted:
        click.echo(told(folder, beside), nl=False)


if __name__ == "__main__":
    main()
