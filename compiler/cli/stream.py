"""``halotile stream``: an image of any height through a library that streams, from file to file or as plain rows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import OutputError, RunError
from ..stream.suffixes import SUFFIXES
from . import completers, parameters
from .arrays import STREAM, split_file
from .console import StageProgress, emit, emit_json
from .one_of import OneOf
from .verb import verb

if TYPE_CHECKING:
    import numpy as np

TYPES = ("float32", "uint8", "uint16")


@verb(
    groups={
        "Inputs and outputs": (
            "inputs", "outputs", "layout", "kind", "target_kind", "scale", "target_scale", "journal",
        ),
        "How": ("threads",),
    },
    examples=[
        ("halotile build model.onnx --shape x=1,3,h,4000 --stream -o out", "A library that streams:"),
        ("halotile stream out -i large.npy -o larger.npy", "From file to file, in little memory:"),
        ("halotile stream out -i slide.tif -o larger.zarr --scale 1/255", "From a TIFF into a zarr array:"),
        ("halotile stream out -i large.npy -o larger.npy --journal", "Stopped or killed, it goes on where it was:"),
        ("scan | halotile stream out -i - -o - --type uint8 --scale 1/255 | show", "Plain rows in, plain rows out:"),
    ],
)
@parameters.directory_argument()
@click.option(
    "-i", "--input", "inputs", multiple=True, required=True, metavar="NAME=FILE",
    shell_complete=completers.tensors("inputs", *SUFFIXES),
    help="An input as .npy, .zarr, .tif or .raw (plain rows, each pixel with all channels); - is standard input.",
)  # fmt: skip
@click.option(
    "-o", "--output", "outputs", multiple=True, required=True, metavar="NAME=FILE",
    shell_complete=completers.tensors("outputs", *SUFFIXES),
    help="Where an output goes, as .npy, .zarr, .tif or .raw; - is standard output, plain rows.",
)  # fmt: skip
@click.option(
    "--layout", type=OneOf(["NCHW", "NHWC", "CHW", "HWC", "HW"]),
    help="Of the files that are read.  [default: by their shape]",
)  # fmt: skip
@click.option("--type", "kind", type=OneOf(TYPES), default="float32", help="Of plain rows.")
@click.option(
    "--target-type", "target_kind", type=OneOf(TYPES), help="Of what is written.  [default: the network's own]"
)
@click.option("--scale", default="1", metavar="NUMBER", help="Multiply inputs, such as 1/255 for pixels in bytes.")
@click.option("--target-scale", default="1", metavar="NUMBER", help="Multiply outputs.")
@click.option("--journal", is_flag=True, help="Keep a journal beside the output, to go on from when stopped.")
@parameters.threads_option
@parameters.json_option
def stream(
    directory: str, inputs: Sequence[str], outputs: Sequence[str], layout: str | None, kind: str,
    target_kind: str | None, scale: str,
    target_scale: str, journal: bool, threads: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Compute an image of any height with the library in DIR, which was built with --stream.

    Rows come and go piece by piece: memory does not depend on the height. With one input or output its name may be left
    out: -i in.npy -o out.npy. An output file holds as much as there is when the command is stopped.
    """
    folder = parameters.check_library_path(directory)
    numbers = {"scale": _number(scale, "--scale"), "target_scale": _number(target_scale, "--target-scale")}
    from ..model import load

    with load(folder, threads) as model:
        sources = dict(_pair(text, [t.name for t in model.inputs], "input") for text in inputs)
        targets = dict(_pair(text, [t.name for t in model.outputs], "output") for text in outputs)
        if STREAM in targets.values() and as_json:
            raise click.UsageError("--json and an output on standard output would come out mixed; choose one")
        if STREAM in (*sources.values(), *targets.values()):
            rows = _plain_rows(model, sources, targets, kind, target_kind or "float32", **numbers)
        else:
            kinds = {"source_type": kind, "target_type": target_kind}
            rows = _files(model, sources, targets, layout, journal, as_json, **numbers, **kinds)
        if as_json:
            emit_json({"rows": rows, "outputs": targets, "arena_bytes": model.arena_bytes()})
            return
    for path in targets.values():
        if path != STREAM:
            emit(path)


def _pair(text: str, names: list[str], what: str) -> tuple[str, str]:
    name, path = split_file(text, names, what, ())
    return name or names[0], path


def _number(text: str, option: str) -> float:
    """A number, or a fraction such as 1/255."""
    above, _, below = text.partition("/")
    try:
        found = float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise click.UsageError(f"{option} {text} is not a number such as 0.5 or 1/255") from None
    return found


def _files(
    model: Any, sources: dict[str, str], targets: dict[str, str], layout: str | None, journal: bool, quiet: bool,
    **options: Any,
) -> int:  # fmt: skip
    from ..stream.paths import suffix_of

    for path in (*sources.values(), *targets.values()):
        suffix_of(path)
    for path in targets.values():
        if not Path(path).parent.is_dir():
            raise OutputError(f"{path!r} can't be written: the folder {str(Path(path).parent)!r} does not exist")
    lacking = [t.name for t in model.outputs if t.name not in targets]
    if lacking:
        raise RunError(f"output {lacking[0]!r} has no file; say where it goes: -o {lacking[0]}=FILE.npy")
    total = 0

    def count(done: int, rows: int) -> None:
        nonlocal total
        total = rows
        progress("stream", done, rows)

    with StageProgress(quiet=quiet) as progress:
        model.stream(
            {name: Path(path) for name, path in sources.items()}, {name: Path(path) for name, path in targets.items()},
            layout=layout, progress=count, journal=journal or None, **options,
        )  # fmt: skip
    return total


def _plain_rows(
    model: Any, sources: dict[str, str], targets: dict[str, str], kind: str, target_kind: str, scale: float,
    target_scale: float,
) -> int:  # fmt: skip
    """From standard input to standard output, both plain rows of (width, channels)."""
    import numpy as np

    if set(sources.values()) != {STREAM} or set(targets.values()) != {STREAM} or len(sources) + len(targets) > 2:
        raise RunError("plain rows go from standard input to standard output, of one input and one output: -i - -o -")
    given = model.inputs[0].shape
    if len(given) != 4 or given[0] != 1:
        raise RunError(f"plain rows are those of one image, and the network takes {list(given)}")
    total = 0
    with model.open() as run:
        for rows in _read_rows(given[3], given[1], np.dtype(kind)):
            total += len(rows)
            image = rows.transpose(2, 0, 1)[None].astype(np.float32)
            run.push(image * np.float32(scale) if scale != 1 else image)
            _write_rows(run.pull(), target_scale, target_kind)
        run.finish()
        _write_rows(run.pull(), target_scale, target_kind)
    return total


def _read_rows(width: int, channels: int, dtype: np.dtype) -> Iterator[np.ndarray]:
    import numpy as np

    size = width * channels * dtype.itemsize
    while data := sys.stdin.buffer.read(16 * size):
        if len(data) % size:
            raise RunError(f"standard input ends within a row: rows have {size} bytes ({width} x {channels} {dtype})")
        yield np.frombuffer(data, dtype).reshape(-1, width, channels)


def _write_rows(rows: np.ndarray, scale: float, kind: str) -> None:
    import numpy as np

    plain = rows[0].transpose(1, 2, 0) if rows.ndim == 4 else rows
    plain = plain * np.float32(scale) if scale != 1 else plain
    if kind != "float32":
        plain = np.clip(np.rint(plain), 0, np.iinfo(kind).max).astype(kind)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.buffer.write(np.ascontiguousarray(plain).tobytes())
        sys.stdout.buffer.flush()
        return
    from .failure import give_up_stdout

    give_up_stdout()
    sys.exit(141)
