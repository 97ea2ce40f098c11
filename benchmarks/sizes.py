"""One library for all sizes, size by size: beside a build for exactly that size, and beside peers that take any.

    python -m halotile.benchmarks.sizes model.onnx --size h=64,w=64 --size h=720,w=1280 [--shape ...] [--typical ...]

Every engine has been at a size before it is timed there. ``first`` is an ordinary call at a size that the engine sees
for the first time, in a process that has run the sizes before it in the list.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click
import onnx

from ..compiler.cli import parameters
from ..compiler.cli.shapes import shape_options
from ..compiler.cli.sizes import size_option
from ..compiler.model import load
from ..compiler.sample import random_inputs
from ..compiler.sized import chosen_sizes, inputs_at
from ..errors import several
from .bench import Contender, Settings, compiled, measure_engines
from .check_models import reference, tied
from .peers.environment import OURS, PEERS, Peer, python_of
from .peers.process import EngineProcess
from .summary import geometric_mean

if TYPE_CHECKING:
    import numpy as np

    from ..compiler.options import Shapes
    from ..targets.plain import JsonView

FIXED = f"{OURS.name} (fixed)"


@dataclass
class SizeFigures:
    """Figures at one size and thread count: medians in seconds, arenas in bytes, by engine; ``errors`` likewise."""

    sizes: Mapping[str, int]
    threads: int
    seconds: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    arena: dict[str, int] = field(default_factory=dict)
    library: dict[str, int] = field(default_factory=dict)
    compile: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def ratio(self, other: str) -> float | None:
        """Seconds of another engine for one of ours."""
        ours, theirs = self.seconds.get(OURS.name), self.seconds.get(other)
        return None if ours is None or theirs is None else theirs / ours


def measure_sizes(
    path: Path, wanted: Sequence[Mapping[str, int]], options: JsonView, settings: Settings,
    say: Callable[[str], None] = lambda line: None,
) -> list[SizeFigures]:  # fmt: skip
    """A point for each of the sizes that are ``wanted`` (none: the typical ones) and each number of threads.
    ``options`` are those of the builds: shapes and typical sizes."""
    proto, points = onnx.load(path, load_external_data=False), []
    with tempfile.TemporaryDirectory(prefix="halotile-sizes-") as folder:
        for threads in settings.threads:
            say(f"compiling for all sizes and {several(threads, 'thread')}")
            library = Path(folder, f"open {threads}")
            built = compiled(path, library, threads, {**options, "open": True})
            with load(library) as model:
                every = [chosen_sizes(model, {}, sizes) for sizes in wanted or [{}]]
                specs = [inputs_at(model, sizes) for sizes in every]
                arenas = [model.arena_bytes(threads, sizes) for sizes in every]
            feeds = [random_inputs(at, proto, 7) for at in specs]
            first = _first_calls([(OURS.name, OURS, library), *_peers(settings, path)], feeds, threads, settings)
            for i, sizes in enumerate(every):
                point = SizeFigures(sizes, threads, first={name: calls[i] for name, calls in first.items()})
                point.arena[OURS.name], point.compile[OURS.name] = arenas[i], built.seconds
                point.library[OURS.name] = library_bytes(library)
                fixed = Path(folder, f"fixed {threads} {i}")
                say(f"{_text(sizes)}: compiling for this size")
                shapes = {spec.name: spec.shape for spec in specs[i]}
                try:
                    exact = compiled(path, fixed, threads, {"shapes": shapes, "open": False})
                    point.arena[FIXED], point.compile[FIXED] = exact.arena_bytes, exact.seconds
                    point.library[FIXED] = library_bytes(fixed)
                except Exception as error:  # the figures of the others must not be lost
                    point.errors[FIXED] = f"{type(error).__name__}: {error}"
                say(f"{_text(sizes)}: measuring on {several(threads, 'thread')}")
                _measure(point, path, library, None if FIXED in point.errors else fixed, feeds[i], settings)
                points.append(point)
    return points


def _measure(
    point: SizeFigures, path: Path, library: Path, fixed: Path | None, feeds: dict[str, np.ndarray], settings: Settings
) -> None:
    contenders = [Contender(OURS.name, OURS, library), *([Contender(FIXED, OURS, fixed)] if fixed else [])]
    contenders += [Contender(*peer) for peer in _peers(settings, path)]
    expected = reference(path, feeds)
    pair = expected, tied(path, feeds, expected)
    interpreters = {name: python_of(PEERS[name], settings.peers_folder) for name in settings.peers}
    found, _ = measure_engines(contenders, feeds, pair, point.threads, settings, interpreters)
    for result in found:
        if result.times is not None and result.counts:
            point.seconds[result.engine] = result.times.median
        else:
            point.errors[result.engine] = result.error or result.wrong or "no figure"


def _first_calls(
    engines: Sequence[tuple[str, Peer, Path]], feeds: Sequence[dict[str, np.ndarray]], threads: int, settings: Settings
) -> dict[str, list[float]]:
    """Seconds of a call at each size, one after the other, of the engines that can be called so."""
    found: dict[str, list[float]] = {}
    for name, peer, model in engines:
        with ExitStack() as stack:
            python = python_of(peer, settings.peers_folder)
            process = stack.enter_context(EngineProcess(name, python, peer.engine_file))
            process.load(model, threads)
            found[name] = [process.call(at) for at in feeds]
    return found


def _peers(settings: Settings, path: Path) -> list[tuple[str, Peer, Path]]:
    return [(name, PEERS[name], path) for name in settings.peers]


def library_bytes(folder: Path) -> int:
    """Of the shared libraries in a built folder."""
    return sum(file.stat().st_size for file in folder.glob("*.so"))


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def table(points: Sequence[SizeFigures], peers: Sequence[str]) -> str:
    """Markdown: milliseconds, what a fixed build and the peers take for one of ours, and first calls."""
    others = [FIXED, *peers]
    head = ["threads", "sizes", OURS.name, *(f"{name} / ours" for name in others), "arena / fixed"]
    head += [f"first: {name}" for name in (OURS.name, *peers)]
    lines = ["| " + " | ".join(head) + " |", "|---:|---|" + "---:|" * (len(head) - 2)]
    for point in points:
        arena = point.arena[OURS.name] / max(1, point.arena.get(FIXED, 0)) if FIXED in point.arena else None
        cells = [str(point.threads), _text(point.sizes), _ms(point.seconds.get(OURS.name))]
        cells += [_number(point.ratio(name)) for name in others] + [_number(arena)]
        cells += [_ms(point.first.get(name)) for name in (OURS.name, *peers)]
        lines.append("| " + " | ".join(cells) + " |")
    for name in others:
        ratios = [ratio for point in points if (ratio := point.ratio(name)) is not None]
        if ratios:
            mean = f"{geometric_mean(ratios):.3f} in geometric mean, {min(ratios):.3f} to {max(ratios):.3f}"
            lines.append(f"\n{name} / ours: {mean}, of {len(ratios)} points")
    both = next((p for p in points if FIXED in p.library), None)
    if both is not None:
        size = both.library[OURS.name] / both.library[FIXED]
        spent = both.compile[OURS.name] / both.compile[FIXED]
        lines.append(f"\nours / fixed: library {size:.2f} times the bytes, compiling {spent:.2f} times as long")
    wrong = {
        f"{_text(p.sizes)}, {several(p.threads, 'thread')}: {name}: {e}" for p in points for name, e in p.errors.items()
    }
    return "\n".join([*lines, *(f"\n- {line}" for line in sorted(wrong))]) + "\n"


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e3:.3f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shape_options
@size_option
@click.option("--threads", "-j", default="1,2", show_default=True, help="Thread counts, separated by commas.")
@click.option("--peers", default="onnxruntime,openvino", show_default=True, help="Engines beside ours; '' for none.")
@click.option("--seconds", "-s", default=4.0, show_default=True, help="For each point, all engines together.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write all figures here.")
def main(
    model: Path,
    shapes: Shapes | None,
    typical: Mapping[str, int] | None,
    sizes: Sequence[Mapping[str, int]],
    threads: str,
    peers: str,
    seconds: float,
    json_path: Path | None,
) -> None:
    """Measure one library of MODEL for all sizes at each --size; tables go to stdout."""
    counts = tuple(int(part) for part in threads.split(","))
    settings = Settings((), counts, tuple(filter(None, peers.split(","))), seconds=seconds)
    if json_path is not None:
        parameters.check_file_destination(json_path)
    options = {"shapes": shapes, "typical": typical}
    points = measure_sizes(model, sizes, options, settings, lambda line: click.echo(line, err=True))
    click.echo(table(points, settings.peers), nl=False)
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")


if __name__ == "__main__":
    main()
