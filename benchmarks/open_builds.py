"""What open dimensions cost a build: seconds, bytes of the library and of the arena, beside builds for one size.

    python -m halotile.benchmarks.open_builds [NAME ...] [--target T] [--kernels N]

Every model is built with its dimensions open and for its typical size, without a cache; arenas are compared with those
of builds for exactly that size, at a small, the typical and a large one. Seconds are the processor's, of all threads
and of the linker, so that what else a machine does counts little. ``--kernels`` lists those kernels of the open build
whose object code takes longest.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import onnx

from ..compiler.codegen import module as codegen
from ..compiler.model import load
from ..compiler.pipeline import run_pipeline
from ..compiler.sized import chosen_sizes, inputs_at
from ..compiler.state import Options
from ..targets.resolve import resolve
from .open_models import OPEN_MODELS, OpenEntry
from .summary import geometric_mean

if TYPE_CHECKING:
    from ..schedules.words.tvm_types import IRModule
    from ..targets.plain import Json


@dataclass
class OpenBuildFigures:
    """Of one model: seconds and bytes of the library as (open, fixed), arenas likewise for each size."""

    name: str
    seconds: tuple[float, float]
    library: tuple[int, int]
    arenas: list[tuple[Mapping[str, int], int, int]] = field(default_factory=list)
    kernels: list[tuple[str, float, int]] = field(default_factory=list)  # schedule, seconds, bytes of object code

    @property
    def slower(self) -> float:
        return self.seconds[0] / self.seconds[1]

    @property
    def larger(self) -> float:
        return self.library[0] / self.library[1]

    @property
    def roomier(self) -> float:
        """The worst of the arenas."""
        return max(own / max(1, fixed) for _, own, fixed in self.arenas)


def measure(entry: OpenEntry, target: str = "native", threads: int = 2, kernels: int = 0) -> OpenBuildFigures:
    """The figures of one model."""
    with tempfile.TemporaryDirectory(prefix="halotile-open-") as folder:
        path = Path(folder, f"{entry.name}.onnx")
        onnx.save(entry.model(), path)
        options: Json = {"threads": threads, "cache": None}
        library = Path(folder, "open")
        built(path, None, Options(resolve(target), typical=entry.typical, stop_after="plan", **options))  # warms up
        with _objects() as objects:
            spent, report = built(path, library, Options(resolve(target), typical=entry.typical, **options))
        with load(library) as model:
            every = [chosen_sizes(model, {}, sizes) for sizes in entry.sizes]
            specs = [inputs_at(model, sizes) for sizes in every]
            arenas = [model.arena_bytes(threads, sizes) for sizes in every]
        exact = []
        for number, at in enumerate(specs):
            last = None if every[number] == entry.typical else "plan"
            shapes = {spec.name: spec.shape for spec in at}
            fixed = Path(folder, f"fixed {number}")
            exact.append(
                built(path, fixed if last is None else None,
                       Options(resolve(target), shapes=shapes, open=False, tile="off", stop_after=last, **options))
            )  # fmt: skip
            if last is None:
                figures = OpenBuildFigures(entry.name, (spent, exact[-1][0]), (_bytes(library), _bytes(fixed)))
        figures.arenas = [(s, own, e[1]["arena_bytes"]) for s, own, e in zip(every, arenas, exact)]
        names = {k["function"]: f"{k['name']}: {k['schedule']}" for k in report["kernels"]}
        slowest = sorted(objects, key=lambda o: -o[1])[:kernels]
        figures.kernels = [(names.get(n, n), seconds, size) for n, seconds, size in slowest]
        return figures


def built(path: Path, output: Path | None, options: Options) -> tuple[float, Json]:
    """Seconds of the processor that a build took, and its report."""
    started = _spent()
    report = run_pipeline(path, options, output=output).report
    return _spent() - started, report


def _spent() -> float:
    """Seconds of the processor of this process, its threads and the children it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextmanager
def _objects() -> Iterator[list[tuple[str, float, int]]]:
    """Inside, names, seconds and bytes of the objects that are made come into the list."""
    found: list[tuple[str, float, int]] = []
    made = codegen.build_object

    def timed(module: IRModule, *given: Any) -> bytes:
        started = time.thread_time()
        code = made(module, *given)
        found.append((" ".join(v.name_hint for v in module.functions), time.thread_time() - started, len(code)))
        return code

    codegen.build_object = timed  # type: ignore[assignment]
    try:
        yield found
    finally:
        codegen.build_object = made


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("*.so"))


def table(figures: Sequence[OpenBuildFigures]) -> str:
    """Markdown: what an open build has for one of a fixed one."""
    lines = ["| model | seconds | of fixed | library | of fixed | arenas of fixed |", "|---|---:|---:|---:|---:|---|"]
    for f in figures:
        arenas = ", ".join(f"{own / max(1, fixed):.3f} ({_text(sizes)})" for sizes, own, fixed in f.arenas)
        library = f"{f.library[0] / 1e6:.2f} MB"
        lines.append(f"| {f.name} | {f.seconds[0]:.1f} | {f.slower:.2f} | {library} | {f.larger:.2f} | {arenas} |")
    if figures:
        means = [geometric_mean([getattr(f, what) for f in figures]) for what in ("slower", "larger", "roomier")]
        worst = [max(getattr(f, what) for f in figures) for what in ("slower", "larger", "roomier")]
        words = ("seconds", "bytes of libraries", "the largest arenas of each")
        parts = (f"{word} {mean:.2f}, at most {most:.2f}" for word, mean, most in zip(words, means, worst))
        lines.append(f"\nopen / fixed in geometric mean: {'; '.join(parts)}")
    for f in figures:
        if f.kernels:
            lines.append(f"\n{f.name}:\n")
            lines += [f"- {seconds:.2f} s, {size / 1e3:.0f} kB: {what}" for what, seconds, size in f.kernels]
    return "\n".join(lines) + "\n"


def _text(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(OPEN_MODELS)))
@click.option("--target", "-t", default="native", show_default=True, help="What to build for.")
@click.option("--threads", "-j", default=2, show_default=True)
@click.option("--kernels", default=0, help="List so many kernels of each open build: those that take longest.")
def main(names: Sequence[str], target: str, threads: int, kernels: int) -> None:
    """Compare open builds of NAMES (all) with fixed ones; the table goes to stdout."""
    found = []
    for name in names or OPEN_MODELS:
        click.echo(f"{name}: building", err=True)
        found.append(measure(OPEN_MODELS[name], target, threads, kernels))
    click.echo(table(found), nl=False)


if __name__ == "__main__":
    main()
