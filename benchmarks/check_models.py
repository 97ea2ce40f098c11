"""Compiles models of the registry at full size and compares them with ONNX Runtime.

    python -m halotile.benchmarks.check_models [NAME ...] [--small] [--exact] [--tag bench]

One line a model: agreement, largest difference, compile seconds, arena and weight bytes. Exit code 1 if one
disagrees or fails.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import onnx

from ..compiler.distances import TIMES
from ..compiler.ties import spreads
from ..compiler.verify import session
from .models import MODELS, ModelEntry

TOLERANCE = 1e-3  # of the largest value of an output; plus ABSOLUTE, both ten times tighter under exact
ABSOLUTE = 1e-5


def reference(model: onnx.ModelProto | Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs, on one thread; a file may have its weights beside it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    runs = session(source, options)
    return dict(zip([o.name for o in runs.get_outputs()], runs.run(None, dict(feeds))))


def tied(
    model: onnx.ModelProto | Path, feeds: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Output -> what ties may do to it in a model that rounds to integers, and so another engine; empty for others."""
    whole = onnx.load(model) if isinstance(model, Path) else model
    found = spreads(whole, lambda other: reference(other, feeds), theirs)
    return {name: TIMES * spread.largest for name, spread in found.items()}


def compare(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    tolerance: float,
    ties: Mapping[str, float] | None = None,
) -> list[str]:
    """One line for each output that is missing, of another type or shape, or beyond max|a-b| <= t max|b| + t/100, or
    what ``ties`` allow."""
    lines = [f"{name}: missing" for name in theirs if name not in ours]
    lines += [f"{name}: not an output of the model" for name in ours if name not in theirs]
    for name in theirs.keys() & ours.keys():
        a, b = ours[name], theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            lines.append(f"{name}: {a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}")
            continue
        error, bound = largest_difference(a, b), tolerance * largest(b) + tolerance / TOLERANCE * ABSOLUTE
        bound = max(bound, (ties or {}).get(name, 0.0))
        if not error <= bound:
            lines.append(
                f"{name}: differs by {error:.3g}, allowed {bound:.3g} (largest value {largest(b):.3g})"
            )
    return lines


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """max|a-b|; infinite where one has a NaN or an infinity that the other does not."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    difference = np.abs(np.subtract(x, y, out=np.zeros_like(x), where=~same))
    return float(np.max(np.where(np.isnan(difference), np.inf, difference), initial=0.0))


def largest(values: np.ndarray) -> float:
    """The largest finite number, whatever its sign."""
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    return float(np.max(np.abs(finite.astype(np.float64)), initial=0.0))


def check(entry: ModelEntry, small: bool, exact: bool) -> tuple[bool, str]:
    """Compiles, runs and compares one model: whether it agrees, and the line that says so."""
    import halotile

    model = entry.model(small=small)
    feeds = entry.inputs(model, seed=7)
    started = time.perf_counter()
    compiled = halotile.compile(model, exact=exact)
    seconds = time.perf_counter() - started
    ours, theirs = compiled(feeds), reference(model, feeds)
    lines = compare(ours, theirs, TOLERANCE / 10 if exact else TOLERANCE)
    report = compiled.report
    if lines:
        return False, "; ".join(lines)
    relative = max(largest_difference(ours[n], theirs[n]) / max(largest(theirs[n]), 1e-30) for n in theirs)
    sizes = f"arena {report['arena_bytes'] / 1e6:.1f} MB, weights {report['weight_bytes'] / 1e6:.1f} MB"
    return (
        True,
        f"largest difference {relative:.1e} of the largest value, compiled in {seconds:.1f} s, {sizes}",
    )


def check_all(names: list[str], small: bool, exact: bool) -> Iterator[tuple[str, bool, str]]:
    """(name, whether it agrees, line) for each model. They run in a child process: one that crashes hides no other."""
    workers: ProcessPoolExecutor | None = None
    for name in names:
        workers = workers or ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        try:
            yield name, *workers.submit(_check_named, name, small, exact).result()
        except BrokenProcessPool:
            yield name, False, "crashed"
            workers = None
    if workers is not None:
        workers.shutdown()


def _check_named(name: str, small: bool, exact: bool) -> tuple[bool, str]:
    try:
        return check(MODELS[name], small, exact)
    except Exception as error:
        return False, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else error!r}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the registry (all unless given)")
    parser.add_argument("--tag", help="only models with this tag: bench, cnn, transformer, light or form")
    parser.add_argument("--small", action="store_true", help="the sizes that the tests use")
    parser.add_argument(
        "--exact", action="store_true", help="compile with exact=True; tolerances ten times tighter"
    )
    options = parser.parse_args(arguments)
    unknown = [n for n in options.names if n not in MODELS]
    if unknown:
        parser.error(f"unknown model {', '.join(unknown)}; known: {', '.join(MODELS)}")
    names = options.names or [n for n, e in MODELS.items() if not options.tag or options.tag in e.tags]
    wrong = 0
    for name, good, line in check_all(names, options.small, options.exact):
        wrong += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {line}", flush=True)
    print(f"{len(names) - wrong} of {len(names)} agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
