"""``halotile run``: a built library on arrays from files, or on random ones."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from ...errors import RunError, did_you_mean
from . import completers, parameters
from .arrays import STREAM, SUFFIXES, read_arrays, split_file, write_arrays
from .console import columns, emit, emit_json, note
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
        _run(model, inputs, outputs, sizes_of(sizes), threads, seed, repeat, as_json)


def _run(
    model: Any, inputs: Any, outputs: Any, wanted: dict[str, int], threads: int | None, seed: int, repeat: int,
    as_json: bool,
) -> None:  # fmt: skip
    from ..sample import random_inputs
    from ..sized import chosen_sizes, inputs_at

    names = [t.name for t in model.inputs]
    unused = model.recorded.report.dropped_inputs
    # plain bytes have the shape that the sizes asked for say; other files say their own
    given = read_arrays(inputs, inputs_at(model, chosen_sizes(model, {}, wanted)) if wanted else model.inputs, unused)
    unknown = sorted(set(given) - set(names) - set(unused))
    if unknown:
        near = did_you_mean(unknown[0], names)
        raise RunError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(names)}{near}")
    targets = _destinations(outputs, [t.name for t in model.outputs])
    sizes = chosen_sizes(model, given, wanted)
    specs = inputs_at(model, sizes)
    missing = [t for t in specs if t.name not in given]
    if missing:
        note(f"note: random values for {', '.join(map(str, missing))} (seed {seed})")
    arrays = {**random_inputs(specs, None, seed), **given}
    results, median = _timed(model, arrays, threads, repeat)
    for path, chosen in targets.items():
        write_arrays(path, {n: results[n] for n in chosen})
    described = [_describe(name, array) for name, array in results.items()]
    if as_json:
        emit_json(
            {
                "outputs": described,
                "random_inputs": [t.name for t in missing],
                **({"sizes": sizes} if sizes else {}),
                "seconds": median,
                "runs": repeat,
            }
        )
        return
    note(f"{median * 1e3:.3f} ms" + (f", median of {repeat} runs" if repeat > 1 else ""))
    if not targets:
        emit(columns((d["name"], f"{d['dtype']}{d['shape']}", _range(d)) for d in described))
    for path in targets:
        if path != STREAM:
            emit(path)


def _timed(
    model: Any, arrays: dict[str, Any], threads: int | None, repeat: int
) -> tuple[dict[str, Any], float]:
    """(outputs, median of the runs in seconds); elsewhere the program over there holds the watch."""
    if hasattr(model, "place"):
        results = model(arrays, threads, repeat)
        return results, model.details["milliseconds"]["p50"] / 1e3
    times, results = [], {}
    for _ in range(repeat):
        start = time.perf_counter()
        results = model(arrays)
        times.append(time.perf_counter() - start)
    return results, sorted(times)[len(times) // 2]


def _destinations(texts: Any, names: list[str]) -> dict[str, list[str]]:
    """File -> names of the outputs that go into it; refuses a folder that isn't there before anything runs."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, path = split_file(text, names, "output")
        found[path] = [name] if name else names
        if path != STREAM:
            parameters.check_file_destination(Path(path))
    return found


def _describe(name: str, array: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size:
        wide = array.astype("float64")
        described |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
    return described


def _range(described: dict[str, Any]) -> str:
    if "min" not in described:
        return "empty"
    return f"min {described['min']:.6g}  mean {described['mean']:.6g}  max {described['max']:.6g}"
