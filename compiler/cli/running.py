"""What ``halotile run`` does, however its command line was read: with the compiler (run.py), or without (alone.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RunError, did_you_mean
from .arrays import STREAM, check_kind, read_arrays, split_file, write_arrays
from .console import columns, emit, emit_json, note
from .places import check_file_destination

if TYPE_CHECKING:
    import numpy as np

    from ...targets.plain import Json


def sizes_in(text: str) -> dict[str, int]:
    """``h=720`` or ``h=720,w=1280`` -> {"h": 720, "w": 1280}; nothing where it is not of that form. A name alone may
    hold commas and equals signs."""
    return _sizes(text.split(",")) or _sizes([text])


def _sizes(parts: Sequence[str]) -> dict[str, int]:
    pairs = [part.rpartition("=") for part in parts]
    if not all(name and number.strip().isdecimal() for name, _, number in pairs):
        return {}
    return {name.strip(): int(number) for name, _, number in pairs}


def run_once(
    model: Any, inputs: Sequence[str], outputs: Sequence[str], wanted: dict[str, int], threads: int | None, seed: int,
    repeat: int,
    as_json: bool,
) -> None:  # fmt: skip
    """Runs ``model`` on arrays from files, or random ones, and writes or describes its outputs (``halotile run``)."""
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
    targets = destinations(outputs, [t.name for t in model.outputs])
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
    model: Any, arrays: dict[str, np.ndarray], threads: int | None, repeat: int
) -> tuple[Json, float]:
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


def destinations(texts: Sequence[str], names: list[str]) -> dict[str, list[str]]:
    """File -> names of the outputs that go into it; refuses a folder that isn't there before anything runs."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, path = split_file(text, names, "output")
        found[path] = [name] if name else names
        if path != STREAM:
            check_kind(Path(path))
            check_file_destination(Path(path))
    return found


def _describe(name: str, array: np.ndarray) -> Json:
    described: Json = {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size:
        wide = array.astype("float64")
        described |= {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}
    return described


def _range(described: Json) -> str:
    if "min" not in described:
        return "empty"
    return f"min {described['min']:.6g}  mean {described['mean']:.6g}  max {described['max']:.6g}"
