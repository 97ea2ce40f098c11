"""Streams beside libraries of whole images in memory: pixels a second, of one and of two threads, and bytes.

    python -m halotile.benchmarks.streams [NAME ...] [--width N] [--rows N] [-j THREADS]

Rows of float32 that lie in memory are pushed into a stream, and what it gives is thrown away; the library of the whole
image takes the same rows at once. Runs take turns, and the fastest of each counts, so that what else a machine does
weighs little.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from ..compiler.model import Model, load
from ..compiler.pipeline import run_pipeline
from ..compiler.state import Options
from ..targets.detect import native
from .models import MODELS
from .open_cases import with_dims

if TYPE_CHECKING:
    import onnx

    from ..targets.plain import Json

NETWORKS: dict[str, tuple[str, Json]] = {
    "espcn": ("espcn", {"factor": 2}),
    "unet": ("unet", {"base": 16, "levels": 2}),
    "edsr": ("edsr", {"blocks": 4, "features": 32, "upsampler": "conv"}),
}


@dataclass(frozen=True)
class StreamFigures:
    """Of one network and number of threads: seconds of ``pixels`` in a stream and whole, and the bytes of both."""

    name: str
    threads: int
    step: int
    pixels: int
    stream: float
    whole: float
    state: int
    arena: int
    whole_arena: int


def measure(name: str, width: int, rows: int, threads: Sequence[int], rounds: int = 5) -> list[StreamFigures]:
    """The figures of one network, for each number of threads."""
    source, given = opened_network(name)
    found = []
    with tempfile.TemporaryDirectory(prefix="halotile-streams-") as folder:
        for kind, height, stream in (("whole", rows, None), ("stream", "h:8..:4", 0)):
            asked = Options(native(), threads=max(threads), shapes={given: (1, 3, height, width)}, stream=stream)
            run_pipeline(source, asked, output=Path(folder, kind))
        with load(Path(folder, "whole")) as whole, load(Path(folder, "stream")) as streamed:
            x = np.random.default_rng(0).random((1, 3, rows, width), np.float32)
            assert streamed.plan is not None
            for count in threads:
                own, other = _pushed(streamed, x, count), at_once(whole, x, count)
                own(), other()
                seconds = [(own(), other()) for _ in range(rounds)]
                with streamed.open(threads=count) as kept:
                    state = kept.state_bytes
                found.append(
                    StreamFigures(name, count, streamed.plan.rows, rows * width, min(s for s, _ in seconds),
                            min(s for _, s in seconds), state, streamed.arena_bytes(count), whole.arena_bytes(count))
                )  # fmt: skip
    return found


def opened_network(name: str) -> tuple[onnx.ModelProto, str]:
    """One of the networks with its rows and columns open, and the name of its input."""
    model, options = NETWORKS[name]
    sized: Json = {"size": 128} if model == "unet" else {"height": 128, "width": 128}
    fixed = MODELS[model].model(**sized, **options)
    (port,) = fixed.graph.input
    given = {port.name: np.broadcast_to(np.float32(0), (1, 3, 128, 128))}
    return with_dims(fixed, given, {(port.name, 2): "h", (port.name, 3): "w"}), port.name


def _pushed(model: Model, x: np.ndarray, threads: int) -> Callable[[], float]:
    """Seconds of an image that is pushed, without those that bring out the last rows."""
    def run() -> float:
        with model.open(threads=threads) as stream:
            stream.sink = lambda port, made: None
            stream.push(x[:, :, : stream.plan.rows])  # memory is touched first here
            started = time.perf_counter()
            stream.push(x)
            return time.perf_counter() - started

    return run


def at_once(model: Model, x: np.ndarray, threads: int) -> Callable[[], float]:
    """Seconds of a whole image, into an array that is there."""
    (given,), (taken,) = model.inputs, model.outputs
    run_whole = model.bind({given.name: x}, {taken.name: np.zeros(taken.shape, np.float32)}, threads=threads)

    def run() -> float:
        started = time.perf_counter()
        run_whole()
        return time.perf_counter() - started

    return run


def table(figures: Sequence[StreamFigures]) -> str:
    """Markdown: rates, and what a stream's rate has of the whole image's."""
    lines = [
        "| network | threads | rows a step | million pixels/s | whole, in memory | of it | state | arena | its arena |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for f in figures:
        rates, sizes = [f.pixels / s / 1e6 for s in (f.stream, f.whole)], (f.state, f.arena, f.whole_arena)
        bytes_ = " | ".join(f"{size / 1e6:.0f} MB" for size in sizes)
        share = " | ".join(f"{n:.2f}" for n in (*rates, rates[0] / rates[1]))
        lines.append(f"| {f.name} | {f.threads} | {f.step} | {share} | {bytes_} |")
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(NETWORKS)))
@click.option("--width", default=2000, show_default=True, help="Of the image.")
@click.option("--rows", default=240, show_default=True, help="Of the image; a multiple of 48 fills steps.")
@click.option("--threads", "-j", default=2, show_default=True, help="Measure one thread, and so many.")
@click.option("--rounds", default=5, show_default=True, help="Runs of each, in turns.")
def main(names: Sequence[str], width: int, rows: int, threads: int, rounds: int) -> None:
    """Compare streams of NAMES (all) with whole images in memory; the table goes to stdout."""
    found: list[StreamFigures] = []
    for name in names or NETWORKS:
        click.echo(f"{name}: building", err=True)
        found += measure(name, width, rows, sorted({1, threads}), rounds)
    click.echo(table(found), nl=False)


if __name__ == "__main__":
    main()
