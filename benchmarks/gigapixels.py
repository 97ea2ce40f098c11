"""Images larger than memory: all rows of one through a stream in a process that may have little, and what comes out.

    python -m halotile.benchmarks.gigapixels NAME --columns 60000 --rows 40000 --limit 512MB [--budget 360MiB --frames]

The source is a mapped file of bytes in which every place has other neighbours. None of it is in the system's cache at
first, as pages count for the process that reads them first. The target is a file of bytes as well. Crops of what came
out, at corners, borders, cuts of strips and elsewhere, are compared with what the library of an image of `--crop` rows
and columns makes of as much of the source, where it sees what the crop reaches; their bytes in the target, with these
numbers rounded. The rate stands beside those of a library of 240 x 2000 pixels in memory, before and behind:

    in memory         the fastest run, from float32 to float32
    its mean          of all runs, as a stream's rate is of all its steps
    bytes in memory   the mean of runs that begin with bytes and end with bytes, converted as a stream's are

``CPU`` is pixels a second of processors, on which what else a machine does weighs less. Multiply-adds are those of the
steps that were taken, of each strip, for each of the whole image's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import click
import numpy as np
import onnx

from ..compiler.cli import parameters
from ..compiler.cli.console import emit, emit_json, size
from ..compiler.images import Image, Output, both
from ..compiler.model import Model, load
from ..compiler.pipeline import run_pipeline
from ..compiler.state import Options
from ..compiler.stream.pieces import Pieces
from ..compiler.stream.views import View
from ..targets.detect import native
from .limited import Crop, Ended, Job, as_bytes, run_limited
from .streams import NETWORKS, opened_network

BESIDE = 240, 2000  # rows and columns of the image in memory
SCALE = 1 / 255


Turn = tuple[float, float]  # seconds, and those of processors


@dataclass(frozen=True)
class InMemory:
    """Pixels a second of a library in memory, and of processors: of the fastest run, of all runs, and of all from bytes
    to bytes."""

    best: float
    best_busy: float
    mean: float
    mean_busy: float
    as_bytes: float
    as_bytes_busy: float


@dataclass(frozen=True)
class Figures:
    """Of one image: what the process did; pixels a second in memory; multiply-adds for each of the whole image's, in
    all, of one step for those of as many rows and columns, and the most that a group of tiles computes for each of its
    own; crops, those with the same bits, the largest error of any as a share of the largest value, and bytes of the
    target that are no rounded numbers of the stream."""

    name: str
    rows: int
    columns: int
    threads: int
    step: int
    strips: int
    done: Ended
    memory: InMemory
    work: float
    step_work: float
    tiles: float
    crops: int
    same: int
    error: float
    wrong_bytes: int

    @property
    def rate(self) -> float:
        """Pixels a second."""
        return self.rows * self.columns / self.done.seconds

    @property
    def busy(self) -> float:
        """Pixels a second of processors."""
        return self.rows * self.columns / self.done.busy


@dataclass(frozen=True)
class CropPlace:
    """``rows`` and ``columns`` of the source, and what of the target is compared there."""

    rows: slice
    columns: slice
    crop: Crop


def measure(
    name: str, rows: int, columns: int, limit: int, budget: int | None, threads: int, side: int, folder: Path, *,
    exact: bool = False, beside: tuple[int, int] = BESIDE, frames: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Figures:  # fmt: skip
    """The figures of one network, with libraries and files in ``folder``. ``frames``: steps take and give bytes."""
    source, given = opened_network(name)
    asked = Options(native(), threads=threads, exact=exact)
    every = {
        "crop": replace(asked, shapes={given: (1, 3, side, side)}),
        "beside": replace(asked, shapes={given: (1, 3, *beside)}),
        "stream": replace(asked, shapes={given: (1, 3, "h:8..:4", columns)}, stream=0, memory_budget=budget),
    }
    for kind, own in every.items():
        say(f"{name}: building {kind}")
        if kind == "stream" and frames:
            with load(folder / "crop", threads) as whole:
                source, own = _of_frames(source, own, given, 255 / float(np.abs(whole(_seen(side))).max()))
        run_pipeline(source, own, output=folder / kind)
    image, target = folder / "source.npy", folder / "target.npy"
    with load(folder / "crop", threads) as whole, load(folder / "stream", threads) as streamed:
        y = whole(_seen(side))
        factor, reach = y.shape[2] // side, _margins(whole)
        target_scale = 255 / float(np.abs(y).max())
        plan = streamed.plan
        assert plan is not None
        parts, out = () if plan.columns is None else plan.columns.strips, plan.outputs[0].name
        cuts = [s.placed[out][0] // factor for s in parts[1:]]
        places = list(_places(rows, columns, side, cuts, factor, reach))
        say(f"{name}: writing {size(rows * columns * 3)} of a source")
        _write(image, rows, columns)
        with load(folder / "beside", threads) as memory:
            runs = [_in_memory(memory, beside, threads, target_scale)]
            say(f"{name}: {rows} x {columns} in {size(limit)}")
            shape = (rows * factor, columns * factor, y.shape[1])
            scales = (1.0, 1.0) if frames else (SCALE, target_scale)
            job = Job(str(folder / "stream"), str(image), str(target), shape, *scales, threads,
                      () if frames else tuple(p.crop for p in places))  # fmt: skip
            done = run_limited(job, limit, _progress(say))
            runs.append(_in_memory(memory, beside, threads, target_scale))
            macs = memory.report["macs"] / (beside[0] * beside[1])
        kept = [None if frames else folder / f"crop-{i}.npy" for i in range(len(places))]
        compared = [_compared(whole, image, target, k, p, factor, target_scale) for k, p in zip(kept, places)]
        wide = int(np.diff(parts[0].crops[given])[0]) if parts else columns
        own_macs = streamed.report["macs"]
        groups = streamed.report.get("tile", {}).get("groups", ())
        again = max((float(g["extra_work"]) for g in groups), default=1.0)
    return Figures(
        name, rows, columns, threads, plan.rows, len(parts) or 1, done, _rates(runs, beside[0] * beside[1]),
        done.steps * own_macs / (macs * rows * columns), own_macs / (macs * plan.rows * wide), again, len(places),
        sum(same for same, _, _ in compared), max(e for _, e, _ in compared), sum(w for _, _, w in compared),
    )  # fmt: skip


def _seen(side: int) -> np.ndarray:
    """The image by which the numbers of the target are scaled."""
    return np.random.default_rng(1).integers(0, 256, (1, 3, side, side)).astype(np.float32) * np.float32(SCALE)


def _of_frames(
    source: onnx.ModelProto, own: Options, given: str, scale: float
) -> tuple[onnx.ModelProto, Options]:  # fmt: skip
    """The network and the options of a library that takes pixels in bytes, and gives such."""
    (output,) = source.graph.output
    output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, (1, 3, "rows", "columns")))
    result = Output(multiply=scale, dtype="uint8", layout="NHWC")
    inputs, outputs = both({given: Image(scale=1 / SCALE)}, {output.name: result}, None)
    return source, replace(own, inputs=inputs, outputs=outputs)


def _margins(whole: Model) -> int:
    """Rows and columns beside a cut of the source that what is kept reaches, a multiple of all that strides ask for."""
    depth = whole.reach().depth
    return max(-(-n // 4) * 4 for axis in (2, 3) for n in depth[axis])


def _places(rows: int, columns: int, side: int, cuts: Sequence[int], factor: int, reach: int) -> Iterator[CropPlace]:
    """Crops at corners, borders and the middle, across cuts at several heights, and anywhere."""
    random = np.random.default_rng(0)
    heights = [0, (rows - side) // 2, rows - side]
    pairs = [(top, left) for top in heights for left in (0, (columns - side) // 2, columns - side)]
    pairs += [(heights[i % 3], cut - side // 2) for i, cut in enumerate(cuts)]
    pairs += [(int(random.integers(rows - side + 1)), int(random.integers(columns - side + 1))) for _ in range(6)]
    for top, left in pairs:
        top, left = (max(0, min(n // 4 * 4, length - side)) for n, length in ((top, rows), (left, columns)))
        ends = [(first + (reach if first else 0), first + side - (reach if first + side < length else 0))
                for first, length in ((top, rows), (left, columns))]  # fmt: skip
        crop = tuple(n * factor for pair in ends for n in pair)
        yield CropPlace(slice(top, top + side), slice(left, left + side), crop)  # type: ignore[arg-type]


def _write(path: Path, rows: int, columns: int) -> None:
    """Noise, of which each row is another stretch; on the disk alone, not in the system's cache."""
    length = columns * 3
    noise = np.random.default_rng(0).integers(0, 256, (1 << 25) + length, np.uint8)
    file = np.lib.format.open_memmap(path, "w+", np.uint8, (rows, columns, 3))
    for row in range(rows):
        at = row * 7919 * 3 % (1 << 25)
        file[row] = noise[at : at + length].reshape(columns, 3)
    file.flush()
    del file
    with path.open("rb") as written:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(written.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _in_memory(
    model: Model, beside: tuple[int, int], threads: int, scale: float, rounds: int = 5
) -> tuple[list[Turn], list[Turn]]:
    """What runs take from float32 to float32, and what runs take from bytes to bytes, in turns."""
    random, (given,), (taken,) = np.random.default_rng(0), model.inputs, model.outputs
    x, y = random.random((1, 3, *beside), np.float32), np.zeros(taken.shape, np.float32)
    pixels, target = random.integers(0, 256, (*beside, 3), np.uint8), np.zeros((*y.shape[2:], y.shape[1]), np.uint8)
    run, pieces, kind = model.bind({given.name: x}, {taken.name: y}, threads=threads), Pieces(threads), x.dtype
    read = View(given.name, pixels, x.shape, 2, kind, "HWC", SCALE, pieces)
    write = View(taken.name, target, y.shape, 2, kind, "HWC", scale, pieces)

    def converted() -> None:
        read.read_into(0, x)
        run()
        write.write(0, y)

    turns = [(_turn(run), _turn(converted)) for _ in range(rounds + 1)][1:]
    pieces.close()
    return [plain for plain, _ in turns], [other for _, other in turns]


def _turn(run: Callable[[], object]) -> Turn:
    start, busy = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, max(1e-9, time.process_time() - busy)


def _rates(runs: Sequence[tuple[list[Turn], list[Turn]]], pixels: int) -> InMemory:
    """Pixels a second of all that was run."""
    plain, converted = ([turn for pair in runs for turn in pair[i]] for i in (0, 1))
    best, mean, other = map(min, zip(*plain)), map(fmean, zip(*plain)), map(fmean, zip(*converted))
    return InMemory(*(pixels / seconds for each in (best, mean, other) for seconds in each))


def _progress(say: Callable[[str], None]) -> Callable[[int, int], None]:
    start = time.monotonic()
    return lambda done, rows: say(f"{done} of {rows} rows, {time.monotonic() - start:.0f} s")


def _compared(
    whole: Model, image: Path, target: Path, kept: Path | None, place: CropPlace, factor: int, scale: float
) -> tuple[bool, float, int]:
    """Of a crop whether its bits are the whole image's, its largest error, and how many of its bytes are wrong: others
    than what was ``kept`` rounded, or without it farther from the crop's numbers than a half and a hundred
    thousandth of the largest byte."""
    pixels = np.load(image, mmap_mode="r")[place.rows, place.columns].transpose(2, 0, 1)[None]
    y = whole(np.multiply(pixels, np.float32(SCALE), dtype=np.float32))
    first, end, begin, stop = place.crop
    top, left = place.rows.start * factor, place.columns.start * factor
    wanted = y[0, :, first - top : end - top, begin - left : stop - left].transpose(1, 2, 0)
    bytes_ = np.load(target, mmap_mode="r")[first:end, begin:stop]
    if kept is None:
        exact = np.clip(wanted.astype(np.float64) * scale, 0, 255)
        apart = np.abs(bytes_ - exact)
        same = np.array_equal(bytes_, as_bytes(wanted.copy(), np.float32(scale)).astype(np.uint8))
        return same, max(0.0, float(apart.max()) - 0.5) / 255, int((apart > 0.5 + 255e-5).sum())
    found = np.load(kept)
    wrong = int((as_bytes(found.copy(), np.float32(scale)).astype(np.uint8) != bytes_).sum())
    return np.array_equal(found, wanted), float(np.abs(found - wanted).max() / np.abs(wanted).max()), wrong


def table(found: Sequence[Figures]) -> str:
    """Markdown: an image a line."""
    lines = [
        "| network | image | rows a step | strips | limit | own | seconds | million pixels/s | in memory | of it | CPU "
        "| of its mean | CPU | of bytes in memory | CPU | multiply-adds | a step's | of tiles | crops, same bits "
        "| largest error | wrong bytes |",
        "|---|---|" + "---:|" * 19,
    ]
    for f in found:
        every = iter(astuple(f.memory))
        shares = [f"{own / rate:.2f}" for pair in zip(every, every) for own, rate in zip((f.rate, f.busy), pair)]
        cells = (
            f.name, f"{f.columns} x {f.rows}", f.step, f.strips, f.done.kind, f"{f.done.own / 1e6:.0f} MB",
            f"{f.done.seconds:.0f}", f"{f.rate / 1e6:.2f}", f"{f.memory.best / 1e6:.2f}", *shares,
            f"{f.work:.6f}", f"{f.step_work:.9f}", f"{f.tiles:.3f}", f"{f.crops}, {f.same}", f"{f.error:.1e}",
            f.wrong_bytes,
        )  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(NETWORKS)))
@click.option("--columns", default=60_000, show_default=True, help="Of the image; a multiple of 4.")
@click.option("--rows", default=40_000, show_default=True, help="Of the image; a multiple of 4.")
@click.option("--limit", type=parameters.BytesType(), default="512MB", show_default=True, help="Of the process.")
@click.option("--budget", type=parameters.BytesType(), help="Memory budget of the build. [default: 0.7 of the limit]")
@click.option("--threads", "-j", default=2, show_default=True)
@click.option("--crop", default=256, show_default=True, help="Rows and columns of crops; a multiple of 4.")
@click.option("--exact", is_flag=True, help="Build without what rounds differently, so that bits are the same.")
@click.option("--frames", is_flag=True, help="The network takes pixels in bytes, and gives such.")
@click.option("--beside", type=(int, int), default=BESIDE, show_default=True, help="Rows and columns in memory.")
@click.option("--folder", type=click.Path(file_okay=False, exists=True), help="Where source and target lie.")
@parameters.json_option
def main(
    names: Sequence[str], columns: int, rows: int, limit: int, budget: int | None, threads: int, crop: int, exact: bool,
    frames: bool, beside: tuple[int, int], folder: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Stream an image larger than memory through NAMES (all); the table goes to stdout."""
    if columns % 4 or rows % 4 or crop % 4 or not 64 <= crop <= min(rows, columns):
        raise click.UsageError("--rows, --columns and --crop are multiples of 4, and crops of at least 64 in the image")
    found = []
    for name in names or NETWORKS:
        with TemporaryDirectory(prefix="halotile-gigapixels-", dir=folder) as here:
            own = budget or limit * 7 // 10
            found.append(measure(name, rows, columns, limit, own, threads, crop, Path(here), exact=exact, frames=frames,
                                 beside=beside, say=lambda line: click.echo(line, err=True)))  # fmt: skip
    if as_json:
        emit_json([asdict(f) for f in found])
        return
    emit(table(found))


if __name__ == "__main__":
    main()
