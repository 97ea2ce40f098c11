"""Dask arrays in, dask arrays out: every block of the result is a task that computes its tiles.

Blocks of the result begin and end where tiles do, nearest to where those of the input do. The model is one value of the
graph: it travels once to each worker, which keeps it by its digest.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import HalotileError
from .grid import CutLine, Grid, ImageTile, Slices

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView
    from ..given import ArraysGiven

_here: dict[str, Any] = {}  # models that have come to this process
_arriving = threading.Lock()


class Shipped:
    """A model on its way to workers."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __reduce__(self) -> tuple[Any, ...]:
        make, parts = self.model.__reduce__()
        files: Mapping[str, bytes] = parts[0]
        digest = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()
        return _arrived, (digest, make, parts)


def _arrived(digest: str, make: Callable[..., object], parts: tuple[object, ...]) -> Shipped:
    """The model of this process, made when it first comes."""
    with _arriving:
        if digest not in _here:
            _here[digest] = make(*parts)
        return Shipped(_here[digest])


def lazily(blocks: Any, arrays: JsonView, threads: int | None) -> Json:
    """The outputs of ``blocks`` (blocks.py) as dask arrays, of which nothing is computed yet."""
    try:
        import dask
        import dask.array as da
    except ImportError:
        raise HalotileError("dask arrays need dask: pip install 'dask[array]'") from None

    grid = blocks.grid
    model = dask.delayed(Shipped(blocks.model), name=f"halotile-{blocks.model.name}-{id(blocks):x}", traverse=False)
    ranges = [_ranges(grid, number, arrays) for number in range(len(grid.lines))]
    pieces: dict[str, dict[tuple[int, ...], ArraysGiven]] = {name: {} for name in blocks.names}
    for at in itertools.product(*(range(len(r)) for r in ranges)):
        tiles = [grid.tile(places) for places in itertools.product(*(range(*r[i]) for r, i in zip(ranges, at)))]
        region = {name: _hull([t.crops[name] for t in tiles]) for name in grid.given}
        crops = {name: arrays[name][region[name]] for name in grid.given}
        placed = {name: _hull([t.placed[name] for t in tiles]) for name in blocks.names}
        moved = [_moved(tile, region, placed) for tile in tiles]
        shapes = {name: tuple(s.stop - s.start for s in placed[name]) for name in blocks.names}
        block = dask.delayed(_block, pure=False)(model, crops, moved, shapes, blocks.dtypes, threads)
        for name in blocks.names:
            meta = np.empty((0,) * len(shapes[name]), blocks.dtypes[name])
            pieces[name][at] = da.from_delayed(block[name], shapes[name], meta=meta)
    return {name: _joined(da, grid, name, pieces[name], [len(r) for r in ranges]) for name in blocks.names}


def _block(
    shipped: Shipped, crops: Mapping[str, ArraysGiven], tiles: Sequence[ImageTile],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, np.dtype], threads: int | None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The results of one block: its tiles, one after the other."""
    results = {name: np.empty(shape, dtypes[name]) for name, shape in shapes.items()}
    for tile in tiles:
        given = {name: np.ascontiguousarray(crops[name][own]) for name, own in tile.crops.items()}
        found = shipped.model(given, threads)
        for name, result in results.items():
            result[tile.placed[name]] = found[name][tile.taken[name]]
    return results


def _ranges(grid: Grid, number: int, arrays: JsonView) -> list[tuple[int, int]]:
    """Which tiles along a line each block takes: those that begin nearest to where blocks of the input do."""
    line, count = grid.lines[number], grid.counts[number]
    (name, axis), rows = _first_in_chunks(line, arrays)
    chunks = arrays[name].chunks[axis] if hasattr(arrays[name], "chunks") else (grid.given[name][axis],)
    begins = [i * grid.steps[number] * rows for i in range(count)]
    ends = set()
    for edge in itertools.accumulate(chunks[:-1]):
        i = bisect.bisect_left(begins, edge)
        nearer = i if i < count and (i == 0 or begins[i] - edge <= edge - begins[i - 1]) else i - 1
        ends.add(nearer)
    bounds = [0, *sorted(ends - {0}), count]
    return list(itertools.pairwise(bounds))


def _first_in_chunks(line: CutLine, arrays: JsonView) -> tuple[tuple[str, int], int]:
    """The input whose blocks decide: the first one that has any."""
    for place, rows in line.inputs.items():
        if hasattr(arrays[place[0]], "chunks"):
            return place, rows
    return next(iter(line.inputs.items()))


def _hull(parts: Sequence[Slices]) -> Slices:
    return tuple(slice(min(s.start for s in axis), max(s.stop for s in axis)) for axis in zip(*parts))


def _moved(tile: ImageTile, region: Mapping[str, Slices], placed: Mapping[str, Slices]) -> ImageTile:
    """A tile seen from the region of inputs, and the part of outputs, that its block has."""
    return ImageTile(_seen(tile.crops, region), tile.taken, _seen(tile.placed, placed))


def _seen(parts: Mapping[str, Slices], origin: Mapping[str, Slices]) -> dict[str, Slices]:
    return {
        name: tuple(slice(s.start - o.start, s.stop - o.start) for s, o in zip(parts[name], base))
        for name, base in origin.items()
    }


def _joined(
    da: ModuleType, grid: Grid, name: str, pieces: Mapping[tuple[int, ...], ArraysGiven], counts: Sequence[int]
) -> ArraysGiven:
    """One array of the blocks of an output."""
    axes = [axis for line in grid.lines for (output, axis) in line.outputs if output == name]
    order = sorted(range(len(axes)), key=lambda i: axes[i])

    def nested(at: dict[int, int], left: list[int]) -> ArraysGiven:
        if not left:
            return pieces[tuple(at[i] for i in range(len(axes)))]
        line, *rest = left
        return da.concatenate([nested({**at, line: i}, rest) for i in range(counts[line])], axis=axes[line])

    return nested({}, order)
