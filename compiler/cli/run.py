"""``halotile run``: a built library on arrays from files, or on random ones."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

from . import completers, parameters
from .arrays import STREAM, SUFFIXES
from .running import run_once
from .sizes import size_option, sizes_of
from .verb import verb


@verb(
    groups={"Inputs and outputs": ("inputs", "outputs", "sizes", "seed"), "How": ("tile", "on", "threads", "repeat")},
    examples=[
        ("halotile run out", "On random inputs; prints what came out:"),
        ("halotile run out -i x=in.npy -o y=out.npy", "From file to file:"),
        ("halotile run out -i x=frame.bin -o y=- | python show.py", "Plain bytes in, .npy to the next program:"),
        ("halotile run out -i big.npy -o result.npy --tile auto", "An image larger than memory, tile by tile:"),
        ("halotile run out --on ssh://pi@raspberrypi.local --repeat 20", "On a board, with the median time:"),
    ],
)
@parameters.directory_argument()
@parameters.input_option
@click.option(
    "-o", "--output", "outputs", multiple=True, metavar="NAME=FILE",
    shell_complete=completers.tensors("outputs", *SUFFIXES),
    help="Where an output goes, as .npy or plain bytes (.bin); or all as .npz; - is standard output.",
)  # fmt: skip
@size_option
@click.option(
    "--tile", metavar="N[,N]|auto",
    help="Compute images of any size tile by tile, from .npy to .npy: rows and columns of a tile.",
)  # fmt: skip
@parameters.on_option
@parameters.threads_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random inputs.")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Runs; the median time is told."
)
@parameters.json_option
def run(
    directory: str, inputs: Sequence[str], outputs: Sequence[str], sizes: Sequence[dict[str, int]],
    on: str | None, threads: int | None, seed: int,
    repeat: int, as_json: bool, tile: str | None,
) -> None:  # fmt: skip
    """Run the library in DIR once and write or describe its outputs.

    Inputs that are not given are random. Open dimensions are as large as in those that are given. With one input or
    output its name may be left out: -i in.npy -o out.npy.
    """
    folder = parameters.check_library_path(directory)
    if as_json and any(text.rpartition("=")[2] == STREAM for text in outputs):
        raise click.UsageError("--json and an output on standard output would come out mixed; choose one")
    if tile is not None:
        parameters.refuse_given({"on", "repeat", "sizes", "seed"}, "can't go with --tile")
        sides = _sides(tile)
        from .tiles import run_tiled

        return run_tiled(folder, inputs, outputs, sides, threads, as_json)
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(parameters.open_model(folder, on, threads))
        run_once(model, inputs, outputs, sizes_of(sizes), threads, seed, repeat, as_json)


def _sides(text: str) -> int | tuple[int, ...] | None:
    """What ``--tile`` says: one number, one for each axis, or None for auto."""
    if text == "auto":
        return None
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise click.UsageError(f"--tile {text}: give rows of a tile such as 512, rows and columns as 512,256, or auto")
    sides = tuple(map(int, parts))
    return sides[0] if len(sides) == 1 else sides
