"""What seams and overlaps cost: an image in sliding windows, in exact tiles and as a stream, beside the whole.

    python -m halotile.benchmarks.seams [model.onnx] --image 1024 --window 256 --overlap 0.25 [--picture seams.png]

All of them run our kernels, on the same image from file to file, each in a process of its own. ``work`` is how many
pixels are computed for each of the image; ``memory`` the most that the process took of its own while it ran (anonymous
pages), beyond what it had before the library was loaded; errors are shares of the whole image's largest value: the
largest, and the root of the mean square where windows overlap and elsewhere. Without a model it is a U-Net with random
weights.
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..compiler.cli import parameters
from ..compiler.cli.console import columns, emit, emit_json, size
from ..compiler.model import load
from .limited import own_bytes
from .sliding import BLENDS, Windows, slide

if TYPE_CHECKING:
    import onnx

    from ..targets.plain import Json, JsonView

WAYS = ("sliding windows", "map_blocks", "stream")


def measure(source: object, side: int, windows: Windows, repeats: int, threads: int | None, keep: Path) -> Json:
    """Figures of each way, by name; ``keep`` is a folder where x.npy, whole.npy and the results stay."""
    scale = _built(source, side, windows.side, keep)
    x = picture_like(side)
    np.save(keep / "x.npy", x)
    with load(keep / "open", threads) as model:
        np.save(keep / "whole.npy", model(x))
    found: Json = {}
    for way in WAYS:
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:
            found[way] = alone.submit(_run, way, str(keep), windows, repeats, threads, scale).result()
    found["sliding windows"]["work"] = windows.work(side, side)
    found["stream"]["work"] = 1.0
    shared = windows.overlaps(side, scale)
    both = shared, shared
    whole = np.load(keep / "whole.npy", mmap_mode="r")
    for way, row in found.items():
        row |= errors(np.load(result_of(keep, way), mmap_mode="r"), whole, both)
    return found


def errors(found: np.ndarray, whole: np.ndarray, shared: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """The largest error, and the root of the mean square in the rows and columns that are ``shared`` and in all others,
    as shares of the largest value."""
    largest = float(np.abs(whole).max())
    apart = np.abs(found.astype(np.float64) - whole) / largest
    seams = shared[0][:, None] | shared[1][None, :]
    squares = (apart * apart).mean(axis=(0, 1))

    def root(where: np.ndarray) -> float:
        return float(np.sqrt(squares[where].mean())) if where.any() else 0.0

    return {"largest": float(apart.max()), "at_seams": root(seams), "elsewhere": root(~seams)}


def picture_like(side: int) -> np.ndarray:
    """An image (1, 3, side, side) in [0, 1]: waves of several lengths, discs with sharp borders, a little noise."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:side, 0:side].astype(np.float32)
    image = np.zeros((3, side, side), np.float32)
    for channel in image:
        for length in (side / 2, side / 7, 23, 9):
            angle, start = random.random(2) * 2 * np.pi
            channel += np.sin((x * np.cos(angle) + y * np.sin(angle)) * (2 * np.pi / length) + start)
        for _ in range(12):
            centre, radius = random.random(2) * side, side * (0.02 + 0.1 * random.random())
            channel[(x - centre[0]) ** 2 + (y - centre[1]) ** 2 < radius**2] += random.normal(0, 2)
    image += random.normal(0, 0.1, image.shape).astype(np.float32)
    low, high = image.min(), image.max()
    return ((image - low) / (high - low))[None]


def result_of(keep: Path, way: str) -> Path:
    return keep / f"{way.replace(' ', '_')}.npy"


def _built(source: Any, side: int, window: int, keep: Path) -> int:
    """Libraries of one window, of any size, and of a stream, in ``keep``; rows of the output for each of the input."""
    from ..compiler.api import compile as compile_model

    with compile_model(source, typical=None) as model:
        (spec,), (out,) = model.inputs, model.outputs
        symbols = {s.name: s for s in model.symbols}
        rows, across = (symbols.get(str(d)) for d in spec.shape[2:])
        if len(spec.shape) != 4 or rows is None or across is None or len(out.shape) != 4:
            raise click.UsageError(f"the model takes {spec} and gives {out}, where images of open sizes are needed")
        multiple = max(rows.multiple, across.multiple)
        if side % multiple or window % multiple or window > side:
            raise click.UsageError(f"--image {side}, --window {window}: multiples of {multiple}, the window no larger")
        shape = tuple(1 if i == 0 else int(n) if i == 1 else side for i, n in enumerate(spec.shape))
        scale = model.output_shapes({s: 1 if s == spec.shape[0] else side for s in symbols})[out.name][2] / side
        if scale < 1 or scale % 1:
            raise click.UsageError("outputs must be as large as the image, or a whole number of times")
        model.save(keep / "open")
    open_rows = f"{rows.name}:{multiple}..:{multiple}" if multiple > 1 else rows.name
    compile_model(source, shapes={spec.name: (*shape[:2], window, window)}).save(keep / "window")
    compile_model(source, shapes={spec.name: (*shape[:2], open_rows, side)}, stream=True).save(keep / "stream")
    return int(scale)


# ---------------------------------------------------------------------- in a process of its own


def _run(way: str, folder: str, windows: Windows, repeats: int, threads: int | None, scale: int) -> Json:
    """Seconds and bytes of one way through x.npy."""
    keep = Path(folder)
    made = {"sliding windows": _sliding, "map_blocks": _blocks, "stream": _stream}[way]
    before, seconds, extra = own_bytes(), [], {}
    with watched() as most:
        for _ in range(repeats + 1):  # the first one makes the instance
            start = time.perf_counter()
            extra = made(keep, windows, threads, scale)
            seconds.append(time.perf_counter() - start)
        memory = most() - before
    return {"seconds": min(seconds[1:] or seconds), "memory": memory, **extra}


def _sliding(keep: Path, windows: Windows, threads: int | None, scale: int) -> Json:
    with load(keep / "window", threads) as model:
        np.save(result_of(keep, "sliding windows"), slide(model, np.load(keep / "x.npy", mmap_mode="r"), windows))
    return {}


def _blocks(keep: Path, windows: Windows, threads: int | None, scale: int) -> Json:
    from ..compiler.reach.blocks import Blocks

    x = np.load(keep / "x.npy", mmap_mode="r")
    with load(keep / "open", threads) as model:
        blocks = Blocks(model, {model.inputs[0].name: x.shape}, None, windows.side * scale)
        made = blocks.grid.made[blocks.names[0]]
        out = np.lib.format.open_memmap(result_of(keep, "map_blocks"), "w+", np.float32, made)
        model.map_blocks(x, out, tile=windows.side * scale)
    crops = [t.crops[model.inputs[0].name] for t in blocks.grid]
    area = sum((c[2].stop - c[2].start) * (c[3].stop - c[3].start) for c in crops)
    return {"work": area / (x.shape[2] * x.shape[3])}


def _stream(keep: Path, windows: Windows, threads: int | None, scale: int) -> Json:
    with load(keep / "stream", threads) as model:
        model.stream(keep / "x.npy", result_of(keep, "stream"))
    return {}


class watched:
    """While it is entered, looks at the process's memory every few milliseconds; gives a function: the most so far."""

    def __enter__(self) -> Callable[[], int]:
        self._most, self._ended = own_bytes(), threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return lambda: max(self._most, own_bytes())

    def _watch(self) -> None:
        while not self._ended.wait(0.002):
            self._most = max(self._most, own_bytes())

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


# ---------------------------------------------------------------------- the picture


def panels(keep: Path, largest: float, panel: int) -> np.ndarray:
    """Gray pixels of three panels side by side: the result, and the errors of sliding windows and of a stream, white
    from ``largest`` on, each pixel the largest error of those that it stands for."""
    whole = np.load(keep / "whole.npy", mmap_mode="r")[0]
    step = max(1, min(whole.shape[1:]) // panel)
    rows, across = (n // step * step for n in whole.shape[1:])
    shown = whole[0, :rows, :across].reshape(rows // step, step, across // step, step).mean(axis=(1, 3))[:panel, :panel]
    low, high = np.percentile(shown, (1, 99))
    drawn = [np.clip((shown - low) / (high - low), 0, 1)]
    for way in ("sliding windows", "stream"):
        found = np.load(result_of(keep, way), mmap_mode="r")[0]
        apart = np.abs(found - whole).max(axis=0) / np.abs(whole).max()
        cells = apart[:rows, :across].reshape(rows // step, step, across // step, step).max(axis=(1, 3))
        drawn.append(np.clip(cells[:panel, :panel] / largest, 0, 1) ** 0.5)
    gap = np.ones((drawn[0].shape[0], 6))
    joined = np.concatenate([p for d in drawn for p in (d, gap)][:-1], axis=1)
    return (np.rint(joined * 31) * 8).clip(0, 255).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    """A gray picture as the bytes of a PNG file."""
    rows, across = pixels.shape

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + row.tobytes() for row in pixels)  # each behind the number of its filter, none
    head = struct.pack(">IIBBBBB", across, rows, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(lines, 9)) + part(b"IEND", b"")


def table(found: Mapping[str, JsonView]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("", "seconds", "work", "memory", "largest error", "at seams", "elsewhere")]
    for way, r in found.items():
        apart = (f"{r[k]:.1e}" for k in ("largest", "at_seams", "elsewhere"))
        rows.append((way, f"{r['seconds']:.3f}", f"{r['work']:.2f}", size(r["memory"]), *apart))
    return rows


def default_model() -> onnx.ModelProto:
    """A U-Net of two levels and 16 features."""
    from .open_models import images

    return images("unet", small=True, size=64, base=16, levels=2)


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False), required=False)
@click.option("--image", default=1024, show_default=True, help="Rows and columns of the image.")
@click.option("--window", default=256, show_default=True, help="Rows and columns of a window, and of a tile.")
@click.option("--overlap", default=0.25, show_default=True, help="Share of a window that the next one covers again.")
@click.option("--blend", type=click.Choice(BLENDS), default=BLENDS[0], show_default=True, help="Weights in overlaps.")
@click.option("--repeats", default=2, show_default=True)
@click.option("--picture", type=click.Path(dir_okay=False, writable=True), help="Draw result and errors, as PNG.")
@parameters.threads_option
@parameters.json_option
def main(
    model: str | None, image: int, window: int, overlap: float, blend: str, repeats: int, picture: str | None,
    threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare sliding windows with tiles of exact halos and with a stream, on MODEL or on a U-Net."""
    if not 0 <= overlap < 1:
        raise click.UsageError(f"--overlap {overlap}: at least 0 and less than 1")
    windows = Windows(window, overlap, blend)
    with TemporaryDirectory(prefix="halotile-seams-") as folder:
        source = default_model() if model is None else Path(model)
        found = measure(source, image, windows, repeats, threads, Path(folder))
        if picture:
            Path(picture).write_bytes(png(panels(Path(folder), found["sliding windows"]["largest"], 256)))
    if as_json:
        emit_json({"image": image, "window": window, "overlap": overlap, "blend": blend, "ways": found})
        return
    emit(columns(table(found)))


if __name__ == "__main__":
    main()
