"""``halotile run``: a built library on arrays from files, or on random ones."""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path
from typing import Any

import click

from ...errors import OutputError, RunError
from . import parameters
from .console import columns, emit, emit_json, note
from .sizes import size_option, sizes_of


@click.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "-i", "--input", "inputs", multiple=True, metavar="NAME=FILE", help="An input as .npy, or all as .npz."
)
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    metavar="NAME=FILE",
    help="Where an output goes, as .npy; or .npz.",
)
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
    given = parameters.read_arrays(inputs, names, unused)
    unknown = sorted(set(given) - set(names) - set(unused))
    if unknown:
        raise RunError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(names)}")
    targets = _destinations(outputs, [t.name for t in model.outputs])
    sizes = chosen_sizes(model, given, wanted)
    specs = inputs_at(model, sizes)
    missing = [t for t in specs if t.name not in given]
    if missing:
        note(f"note: random values for {', '.join(map(str, missing))} (seed {seed})")
    arrays = {**random_inputs(specs, None, seed), **given}
    results, median = _timed(model, arrays, threads, repeat)
    for path, chosen in targets.items():
        _write(Path(path), {n: results[n] for n in chosen})
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
        name, path = parameters.split_file(text, names, "output")
        found[path] = [name] if name else names
        parameters.check_file_destination(Path(path))
    return found


def _write(path: Path, arrays: dict[str, Any]) -> None:
    """One .npy or an .npz, under its name only when whole. A device or a pipe is written to, not replaced."""
    import numpy as np

    special = path.exists() and not path.is_file()
    partial = path if special else path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as end:
            file = io.BytesIO() if special else end  # numpy asks a file where it is, which a pipe can't say
            if path.suffix == ".npz":
                np.savez(file, **arrays)
            else:
                np.save(file, next(iter(arrays.values())))
            if isinstance(file, io.BytesIO):
                end.write(file.getbuffer())
        if not special:
            os.replace(partial, path)
    except OSError as error:
        raise OutputError(f"output {path} can't be written: {error.strerror or error}") from None
    finally:
        if not special:
            partial.unlink(missing_ok=True)


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
