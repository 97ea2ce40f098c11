"""What tiles cost: an image computed tile by tile beside the same one computed whole.

    python -m halotile.benchmarks.blocks model.onnx --image 2048 --tile 128,256,512,1024 [--shape n=1]

``work`` is how many pixels the crops have for each of the image: halos are computed again. Arenas are those of the
largest crop, times the best of a few runs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from ..compiler.api import compile as compile_model
from ..compiler.cli import parameters
from ..compiler.cli.console import columns, emit, emit_json, size
from ..compiler.cli.shapes import shape_options
from ..compiler.model import Model
from ..compiler.reach.blocks import Blocks
from ..compiler.runtime.readings import sizes_of

if TYPE_CHECKING:
    from ..compiler.options import Shapes
    from ..targets.plain import Json, JsonView


def measure(model: Model, x: np.ndarray, tiles: list[int], repeats: int, whole: bool = True) -> list[Json]:
    """A row of figures for the whole image, unless it is too large, and for each size of tiles."""
    (spec,) = model.inputs
    rows = []
    if whole:
        sizes = sizes_of(model.symbols, model.inputs, {spec.name: x.shape})
        seconds = _best(lambda: model({spec.name: x}), repeats)
        rows.append({"tile": "whole", "seconds": seconds, "work": 1.0, "arena_bytes": model.arena_bytes(shape=sizes)})
    for tile in tiles:
        blocks = Blocks(model, {spec.name: x.shape}, None, tile)
        crops = [tuple(s.stop - s.start for s in t.crops[spec.name]) for t in blocks.grid]
        largest = max(crops, key=math.prod)
        sizes = sizes_of(model.symbols, model.inputs, {spec.name: largest})
        rows.append(
            {
                "tile": tile,
                "seconds": _best(lambda: model.map_blocks({spec.name: x}, tile=tile), repeats),  # noqa: B023
                "work": sum(map(math.prod, crops)) / x.size,
                "arena_bytes": model.arena_bytes(shape=sizes),
            }
        )
    return rows


def _best(run: Callable[[], object], repeats: int) -> float:
    best = math.inf
    for _ in range(repeats + 1):  # the first one makes the instance
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


@click.command()
@parameters.model_argument()
@click.option("--image", default=1024, show_default=True, help="Rows and columns of the image.")
@click.option("--tile", "tiles", default="128,256,512", show_default=True, help="Rows and columns of tiles.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--tiles-only", is_flag=True, help="Not the whole image, which may be too large.")
@shape_options
@parameters.json_option
def main(
    model: str,
    image: int,
    tiles: str,
    repeats: int,
    tiles_only: bool,
    shapes: Shapes | None,
    typical: Mapping[str, int] | None,
    as_json: bool,
) -> None:
    """Measure MODEL, which has one input, an image with open height and width."""
    library = compile_model(Path(model), shapes=shapes, typical=typical)
    (spec,) = library.inputs
    open_: JsonView = {s.name: s for s in library.symbols}
    shape = [d if isinstance(d, int) else 1 if i == 0 else image // open_[d].multiple * open_[d].multiple
             for i, d in enumerate(spec.shape)]  # fmt: skip
    x = np.random.default_rng(0).random(shape, np.float32)
    rows = measure(library, x, [int(t) for t in tiles.split(",")], repeats, not tiles_only)
    if as_json:
        emit_json({"model": library.name, "image": shape, "rows": rows})
        return
    table = [("tile", "seconds", "work", "arena")]
    table += [(str(r["tile"]), f"{r['seconds']:.3f}", f"{r['work']:.3f}", size(r["arena_bytes"])) for r in rows]
    emit(columns(table))


if __name__ == "__main__":
    main()
