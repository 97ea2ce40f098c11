"""The harness's models on boards: built here, run under an emulator of the board's CPU, compared with ONNX Runtime.

    python -m halotile.benchmarks.boards                          all boards, all models, one and four threads
    python -m halotile.benchmarks.boards -b raspberry-pi-5 -m espcn --small
    python -m halotile.benchmarks.boards --json cells.json        may be stopped, and goes on where it was

Each model runs twice: as the static program ``model_run``, and as the shared library inside a small C program.
Needs qemu-user-static and, for the shared library, the boards' C libraries: libc6-arm64-cross and libc6-armhf-cross.
An emulator is slow, so with --json a cell that agreed is not run again: not built either while no source has changed,
and not emulated if the same bytes come out of the build.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import onnx

from ..compiler.codegen.toolchain import find_toolchain, machine_of
from ..compiler.pipeline import run_pipeline
from ..compiler.remote.model import RemoteModel
from ..compiler.state import Options
from ..compiler.verify import Verification, verify
from ..errors import several
from ..targets.resolve import resolve
from ..targets.target import Target
from .models import MODELS, ModelEntry

if TYPE_CHECKING:
    from ..targets.plain import Json

BOARDS = ("raspberry-pi-4", "raspberry-pi-5", "raspberry-pi-3-32", "jetson-orin", "aarch64")
_LIGHT = tuple(name for name in MODELS if name.startswith("light_"))  # as shipped, with one value in all weights
NETWORKS = ("mobilenet_v2", "espcn", "bert", *(f"seeded_{n.removeprefix('light_')}" for n in _LIGHT), "resnet50",
            *_LIGHT)  # fmt: skip
# Sizes at which an emulator is done within a minute and the shape is still the network's own.
SIZES: dict[str, Json] = {
    "espcn": {"height": 90, "width": 160},
    "bert": {"tokens": 32, "layers": 2},
}
SLOW = ("resnet50",)  # under emulation on one board only
THREADS = (1, 4), (1, 4)  # of model_run, of the shared library
QUICK = (4,), (1,)
_PROGRAM = Path(__file__).parent / "board_program.c"
_SYSROOTS = {"aarch64": "/usr/aarch64-linux-gnu", "arm": "/usr/arm-linux-gnueabihf"}
# CPUs that qemu knows by LLVM's name; any other one is stood in for by its superset.
_EMULATED = {"cortex-a53", "cortex-a57", "cortex-a72", "cortex-a76", "neoverse-n1", "cortex-a7", "cortex-a15"}


@dataclass(frozen=True)
class BoardOutcome:
    """One model on one board. ``error`` is the largest over programs and threads, ``limit`` what was allowed.

    ``small``: at the tests' sizes. ``sources`` and ``built`` are digests of what it is made from and what came out.
    """

    board: str
    model: str
    build_seconds: float
    run_seconds: float
    error: float
    limit: float
    program: str
    library: str
    code_bytes: int
    sources: str = field(default="", compare=False)
    built: str = field(default="", compare=False)
    small: bool = False

    @property
    def ok(self) -> bool:
        return self.program == "ok" and self.library in ("ok", "not run")


# (board, model, small) -> the cell that agreed in an earlier run
Known = Callable[[str, str, bool], "BoardOutcome | None"]


def emulator(target: Target) -> list[str]:
    """The command that runs a program for ``target`` here, with the target's CPU where qemu has it."""
    machine = machine_of(target.triple)
    cpu = target.cpu if target.cpu in _EMULATED and not (machine == "arm" and target.cpu == "cortex-a53") else "max"
    return [f"qemu-{machine}-static", "-cpu", cpu]


def check(
    board: str, name: str, model: onnx.ModelProto, entry: ModelEntry, small: bool, earlier: BoardOutcome | None = None,
    quick: bool = False,
) -> BoardOutcome:  # fmt: skip
    """Builds and runs one model; what goes wrong is told in the outcome. With an ``earlier`` one of the same bytes, it
    is not run again. ``quick``: half of the runs."""
    target = resolve(board)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        start = time.perf_counter()
        run_pipeline(model, Options(target, name=name, formats=("so", "exe")), output=out)
        seconds = time.perf_counter() - start
        built = _digest([out / "model_run", *out.glob("lib*.so"), _PROGRAM], " ".join(emulator(target)))
        if earlier is not None and earlier.built == built:
            return replace(earlier, sources=sources())
        found = _run(out, target, model, entry.inputs(model, seed=1), Path(scratch), QUICK if quick else THREADS)
    return replace(
        found, board=board, model=name, small=small, build_seconds=seconds, sources=sources(), built=built
    )  # fmt: skip


def _run(
    out: Path, target: Target, model: onnx.ModelProto, feeds: dict[str, np.ndarray], scratch: Path,
    counts: tuple[tuple[int, ...], tuple[int, ...]],
) -> BoardOutcome:  # fmt: skip
    """Both programs on their numbers of threads, compared with ONNX Runtime."""
    start = time.perf_counter()
    program, errors = "ok", [(0.0, 0.0)]
    with RemoteModel(out, " ".join(emulator(target))) as remote:
        for threads in counts[0]:
            found = verify(lambda a, n=threads: remote(a, n), model, remote.inputs, feeds)  # type: ignore[misc]
            program, errors = _join(program, errors, found, threads)
        ran = time.perf_counter()
        library = "not run"
        if Path(_SYSROOTS[machine_of(target.triple)], "lib").is_dir():
            library = "ok"
            for threads in counts[1]:
                run = _LibraryProgram(out, target, threads, scratch)
                library, errors = _join(library, errors, verify(run, model, remote.inputs, feeds), threads)
        size = (out / "model_run").stat().st_size - remote.recorded.weight_bytes
    worst = max(errors, key=lambda e: e[0] / (e[1] or 1))
    return BoardOutcome("", "", 0, ran - start, *worst, program, library, size)


def _digest(files: list[Path], text: str = "") -> str:
    found = hashlib.sha256(text.encode())
    for file in files:
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


@lru_cache(maxsize=1)
def sources() -> str:
    """A digest of everything that a build or a model is made from: the package's sources and the versions beneath."""
    root = Path(__file__).parents[1]
    kinds = (".py", ".c", ".h", ".toml")
    rooms = ("compiler", "passes", "schedules", "targets", "benchmarks")
    files = sorted(p for room in rooms for p in (root / room).rglob("*") if p.suffix in kinds)
    return _digest(files, " ".join(f"{name} {version(name)}" for name in ("apache-tvm", "numpy", "onnx")))


def _join(so_far: str, errors: list[tuple[float, float]], found: Verification, threads: int) -> Any:
    """The verdict and the errors with those of one more comparison."""
    errors = errors + [(o.max_error, o.limit) for o in found.outputs]
    return (so_far if found.ok else f"{several(threads, 'thread')}: {found.message()}"), errors


class _LibraryProgram:
    """The shared library in a small C program under the emulator; called like a loaded model."""

    def __init__(self, out: Path, target: Target, threads: int, scratch: Path) -> None:
        self.manifest = json.loads((out / "manifest.json").read_text())
        prefix = self.manifest["prefix"]
        self._folder, self._threads = scratch, threads
        find_toolchain(target).run(
            ["-O1", str(_PROGRAM), f"-I{out}", f'-DHEADER="{prefix}.h"', f"-DMODEL(what)={prefix}_##what",
             f"-L{out}", f"-l{prefix}", "-o", str(scratch / "program")], scratch, "linking the small C program",
        )  # fmt: skip
        sysroot = _SYSROOTS[machine_of(target.triple)]
        self._command = [*emulator(target), "-L", sysroot, "-E", f"LD_LIBRARY_PATH={out}", str(scratch / "program")]

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        for i, spec in enumerate(self.manifest["inputs"]):
            (self._folder / f"in{i}.bin").write_bytes(np.ascontiguousarray(arrays[spec["name"]]).tobytes())
        done = subprocess.run(
            [*self._command, str(self._threads)], cwd=self._folder, capture_output=True, text=True, errors="replace"
        )
        if done.returncode:
            raise RuntimeError(f"the C program ended with {done.returncode}: {done.stderr.strip()}")
        return {
            spec["name"]: np.fromfile(self._folder / f"out{i}.bin", spec["dtype"]).reshape(spec["shape"])
            for i, spec in enumerate(self.manifest["outputs"])
        }


def outcomes(
    boards: tuple[str, ...], models: tuple[str, ...], small: bool, known: Known = lambda *cell: None,
    quick: bool = False,
) -> Iterator[BoardOutcome]:  # fmt: skip
    """Every model on every board; slow ones on the first board only, unless they are all that was asked for."""
    for name in models:
        entry = MODELS[name]
        model = None
        for board in boards if len(models) == 1 or name not in SLOW or small else boards[:1]:
            earlier = known(board, name, small)
            if earlier is not None and earlier.sources == sources():
                yield earlier
                continue
            try:
                model = model or entry.model(small=small, **({} if small else SIZES.get(name, {})))
                yield check(board, name, model, entry, small, earlier, quick)
            except Exception as error:  # the others are still worth knowing
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
                yield BoardOutcome(board, name, 0, 0, 0, 0, reason, "", 0, small=small)


class Cells:
    """The cells of a file, kept as they are finished; each replaces the one that was there."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._cells: dict[tuple[str, str, bool], BoardOutcome] = {}
        names = {f.name for f in fields(BoardOutcome)}
        try:
            for cell in json.loads(path.read_text()) if path and path.is_file() else ():
                self._add(BoardOutcome(**{key: value for key, value in cell.items() if key in names}))
        except (OSError, ValueError, TypeError, AttributeError):
            raise click.ClickException(f"{path} is not a file that this program wrote; name another") from None

    def _add(self, outcome: BoardOutcome) -> None:
        self._cells[outcome.board, outcome.model, outcome.small] = outcome

    def agreed(self, board: str, model: str, small: bool) -> BoardOutcome | None:
        found = self._cells.get((board, model, small))
        return found if found is not None and found.ok else None

    def keep(self, outcome: BoardOutcome) -> None:
        self._add(outcome)
        if self._path is not None:
            cells = [{**asdict(o), "ok": o.ok} for o in self._cells.values()]
            partial = self._path.with_name(f".{self._path.name}.partial")
            partial.write_text(json.dumps(cells, indent=1) + "\n")
            os.replace(partial, self._path)


def row(o: BoardOutcome) -> str:
    """One line of the table."""
    share = f"{o.error:.2e} of {o.limit:.2e}"
    times = f"{o.build_seconds:.1f} | {o.run_seconds:.1f}"
    return f"| {o.board} | {o.model} | {o.program} | {o.library} | {share} | {times} | {o.code_bytes // 1024} |"


HEAD = (
    "| board | model | model_run | .so in C | largest error of allowed | build s | emulated s | code, KiB |"
    "\n|---|---|---|---|---|---:|---:|---:|"
)


@click.command()
@click.option("-b", "--boards", default=",".join(BOARDS), show_default=True)
@click.option("-m", "--models", default=",".join(NETWORKS), show_default=True)
@click.option("--small", is_flag=True, help="The tests' sizes.")
@click.option("--quick", is_flag=True, help="model_run on four threads and the library on one, not both on both.")
@click.option(
    "--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Keep all figures here, and go on from it."
)
def main(boards: str, models: str, small: bool, quick: bool, path: Path | None) -> None:
    """Runs the matrix and prints a table; exit code 1 when anything differs or fails."""
    if not shutil.which("qemu-aarch64-static"):
        raise click.ClickException("needs qemu-user-static (Debian), which is not installed")
    click.echo(HEAD)
    cells, found = Cells(path), []
    for outcome in outcomes(tuple(boards.split(",")), tuple(models.split(",")), small, cells.agreed, quick):
        click.echo(row(outcome))
        found.append(outcome)
        cells.keep(outcome)
    bad = [o for o in found if not o.ok]
    click.echo(f"{len(found) - len(bad)} of {len(found)} agree with ONNX Runtime", err=True)
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
