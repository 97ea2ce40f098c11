"""``halotile run --tile``: images in .npy files that are larger than memory, computed tile by tile.

Inputs are mapped, not read, and outputs are mapped files that get their names when they are whole.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import OutputError, RunError, several
from .arrays import split_file
from .console import columns, emit, emit_json, note
from .running import destinations

if TYPE_CHECKING:
    import numpy as np

    from ...targets.plain import Json
    from ..reach.blocks import Blocks


def run_tiled(
    folder: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    tile: int | tuple[int, ...] | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Computes the outputs that have files with the library in ``folder``, and tells how long it took."""
    from ..model import load

    with load(folder, threads) as model:
        _run(model, inputs, outputs, tile, as_json)


def _run(model: Any, inputs: Sequence[str], outputs: Sequence[str], tile: Any, as_json: bool) -> None:
    from ..reach.blocks import Blocks

    arrays = _mapped(inputs, model)
    targets = destinations(outputs, [t.name for t in model.outputs])
    files = {_only(names, path): path for path, names in targets.items()}
    if not files:
        raise RunError("--tile writes the outputs into .npy files as they come: say where with -o")
    shapes = {name: array.shape for name, array in arrays.items()}
    blocks = Blocks(model, shapes, [*files], tile)
    start = time.perf_counter()
    with contextlib.ExitStack() as stack:
        out = {name: stack.enter_context(_target(path, blocks, name)) for name, path in files.items()}
        model.map_blocks(arrays, out, tile=tile, outputs=[*files])
    seconds = time.perf_counter() - start
    made: list[Json] = [
        {"name": name, "dtype": str(blocks.dtypes[name]), "shape": list(blocks.grid.made[name])} for name in files
    ]
    if as_json:
        emit_json({"outputs": made, "tiles": len(blocks.grid), "seconds": seconds})
        return
    note(f"{seconds:.3f} s, {several(len(blocks.grid), 'tile')}")
    emit(columns((files[d["name"]], f"{d['dtype']}{d['shape']}") for d in made))


def _mapped(inputs: Sequence[str], model: Any) -> Json:
    """The inputs' files as arrays that are read where they are cut."""
    import numpy as np

    names, unused = [t.name for t in model.inputs], model.recorded.report.dropped_inputs
    found: Json = {}
    for text in inputs:
        name, path = split_file(text, names, "input", unused)
        if not path.endswith(".npy"):
            raise RunError(f"--tile maps .npy files, and {path!r} is none")
        try:
            found[name or names[0]] = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no array of plain numbers"
            raise RunError(f"input file {path!r} can't be mapped: {why}") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise RunError(f"input {missing[0]!r} is missing; --tile takes all inputs from .npy files")
    return {name: array for name, array in found.items() if name in names}


def _only(names: list[str], path: str) -> str:
    if len(names) != 1 or not path.endswith(".npy"):
        raise RunError(f"--tile writes one output into one .npy file, and not {', '.join(names)} into {path!r}")
    return names[0]


@contextlib.contextmanager
def _target(path: str, blocks: Blocks, name: str) -> Iterator[np.ndarray]:
    """A mapped file for an output, which gets its name when all is well, and is removed otherwise."""
    import numpy as np

    part = Path(f"{path}.part")
    try:
        out = np.lib.format.open_memmap(part, "w+", blocks.dtypes[name], blocks.grid.made[name])
        yield out
        out.flush()
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"{path} can't be written: {error.strerror or error}") from None
    except BaseException:
        part.unlink(missing_ok=True)
        raise
