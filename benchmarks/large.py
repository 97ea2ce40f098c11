"""A large image in little memory: a network at 4096 x 4096 under a budget, against the whole-image result of crops.

    python -m halotile.benchmarks.large [NAME] [--size 4096] [--budget 400MB] [--threads 2] [--crop 160] [--exact]

Each crop (corners, edges and the middle) is computed by a build without tiles; what lies further from the crop's inner
edges than the network reaches must be the same. Takes a few minutes and, with input and output, some GB.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import halotile
import numpy as np

from ..compiler.options import checked_budget
from ..errors import several
from .models import MODELS

TOLERANCE = 1e-4  # of the largest value: transforms begin elsewhere in a crop


@dataclass(frozen=True)
class CropOutcome:
    """``error`` is the largest difference over all crops, as a share of the largest value; ``compared`` outputs."""

    arena: int
    untiled: int
    compile_seconds: float
    run_seconds: float
    error: float
    compared: int
    peak_rss: int


def places(size: int, crop: int) -> Iterator[tuple[int, int]]:
    """Where crops begin: corners, edges, the middle and a place off any grid."""
    middle, far = (size - crop) // 2, size - crop
    yield from ((y, x) for y in (0, middle, far) for x in (0, middle, far))
    yield min(far, size // 3 + 1), min(far, size // 5 + 3)


def inner(start: int, crop: int, size: int, reach: int) -> slice:
    """The part of a crop that its own borders don't touch; the image's border may."""
    low = 0 if start == 0 else reach
    return slice(low, crop if start + crop == size else crop - reach)


def measure(
    name: str, size: int, budget: int, threads: int, crop: int, reach: int, exact: bool, runs: int = 1
) -> CropOutcome:
    """Compiles ``name`` for ``size x size``, runs it and compares crops; ``reach`` in pixels of the input."""
    entry = MODELS[name]
    model = entry.model(height=size, width=size)
    started = time.perf_counter()
    large = halotile.compile(model, threads=threads, memory_budget=budget, exact=exact)
    compiled = time.perf_counter() - started
    info = model.graph.input[0]
    rng = np.random.default_rng(11)
    image = rng.random((1, info.type.tensor_type.shape.dim[1].dim_value, size, size), np.float32)
    seconds = float("inf")
    for _ in range(runs):
        started = time.perf_counter()
        (whole,) = large({info.name: image}).values()
        seconds = min(seconds, time.perf_counter() - started)
    small = halotile.compile(entry.model(height=crop, width=crop), threads=threads, tile="off", exact=exact)
    factor = whole.shape[2] // size
    worst, compared, scale = 0.0, 0, float(np.abs(whole).max())
    for y, x in places(size, crop):
        part: np.ndarray = np.ascontiguousarray(image[:, :, y : y + crop, x : x + crop])
        (wanted,) = small({info.name: part}).values()
        given = whole[:, :, y * factor : (y + crop) * factor, x * factor : (x + crop) * factor]
        rows, columns = (_scaled(inner(at, crop, size, reach), factor) for at in (y, x))
        difference = np.abs(given[:, :, rows, columns] - wanted[:, :, rows, columns])
        worst, compared = max(worst, float(difference.max())), compared + difference.size
        if np.isnan(difference).any():
            worst = float("inf")
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    untiled = int(small.report["arena_bytes"] * (size / crop) ** 2)
    return CropOutcome(int(large.report["arena_bytes"]), untiled, compiled, seconds, worst / scale, compared, rss)


def _scaled(part: slice, factor: int) -> slice:
    return slice(part.start * factor, part.stop * factor)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="edsr", help="a model with height and width (edsr, espcn)")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--budget", default="400MB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--crop", type=int, default=160)
    parser.add_argument("--reach", type=int, default=24, help="pixels that the network reaches to each side")
    parser.add_argument("--exact", action="store_true")
    o = parser.parse_args(arguments)
    budget = checked_budget(o.budget)
    assert budget is not None
    found = measure(o.name, o.size, budget, o.threads, o.crop, o.reach, o.exact)
    print(
        f"{o.name} at {o.size} x {o.size}, {several(o.threads, 'thread')}: arena {found.arena / 1e6:.1f} MB "
        f"(budget {budget / 1e6:.1f}; whole about {found.untiled / 1e6:.0f}), compiled in "
        f"{found.compile_seconds:.1f} s, {found.run_seconds:.1f} s a run, largest difference "
        f"{found.error:.1e} of the largest value over {found.compared} outputs of "
        f"{len(list(places(o.size, o.crop)))} crops, peak RSS {found.peak_rss / 1e6:.0f} MB"
    )
    return 0 if found.error <= (0.0 if o.exact else TOLERANCE) and found.arena <= budget else 1


if __name__ == "__main__":
    sys.exit(main())
