"""``halotile run``: a built library on arrays from files, or on random ones."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from . import completers, parameters
from .arrays import STREAM, SUFFIXES
from .running import run_once
from .sizes import size_option, sizes_of
from .verb import verb


@verb(
    groups={"Inputs and outputs": ("inputs", "outputs", "sizes", "seed"), "How": ("on", "threads", "repeat")},
    examples=[
        ("halotile run out", "On random inputs; prints what came out:"),
        ("halotile run out -i x=in.npy -o y=out.npy", "From file to file:"),
        ("halotile run out -i x=frame.bin -o y=- | python show.py", "Plain bytes in, .npy to the next program:"),
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
@parameters.on_option
@parameters.threads_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of random inputs.")
@click.option(
    "--repeat", type=click.IntRange(1), default=1, show_default=True, help="Runs; the median time is told."
)
@parameters.json_option
def run(
    directory: str, inputs: Any, outputs: Any, sizes: Any, on: str | None, threads: int | None, seed: int,
    repeat: int, as_json: bool,
) -> None:  # fmt: skip
    """Run the library in DIR once and write or describe its outputs.

    Inputs that are not given are random. Open dimensions are as large as in those that are given. With one input or
    output its name may be left out: -i in.npy -o out.npy.
    """
    folder = parameters.check_library_path(directory)
    if as_json and any(text.rpartition("=")[2] == STREAM for text in outputs):
        raise click.UsageError("--json and an output on standard output would come out mixed; choose one")
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(parameters.open_model(folder, on, threads))
        run_once(model, inputs, outputs, sizes_of(sizes), threads, seed, repeat, as_json)
