"""Images computed tile by tile: larger than memory, without a seam, the same bits for every chunking.

    model.map_blocks(x)                   arrays, memmaps, whatever takes slices; or a dask array, lazily
    model.map_blocks(x, out=target)       results written where they belong, tile by tile
    model.map_blocks(x, tile=1024)        rows and columns of the output in a tile

Which tiles there are depends on the model and on the image alone. A tile is computed from a crop with exactly the rows
that it reaches (:mod:`.grid`); memory is that of one crop, whatever the image.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError, ShapeError
from ..runtime.readings import given_text, sizes_of
from .grid import CutLine, Grid, ImageTile, lines_of

if TYPE_CHECKING:
    from ..given import ArraysGiven
    from ..spec import Symbol

MOST_ARENA = 256 << 20  # bytes of arena of a crop, for the tiles that are chosen
_SIDES = (4096, 2048, 1024, 512, 256, 128, 64, 32, 16)  # rows of a tile to choose from
_MANY = 1 << 40  # steps: no limit
_WORTH = 2  # times the rows of a tile that its crop may have, where a larger one fits nowhere

Progress = Callable[[int, int], None]


class Blocks:
    """A model, the shapes of whole images, and the tiles that compute them. ``names`` are the wanted outputs."""

    def __init__(
        self,
        model: Any,
        shapes: Mapping[str, tuple[int, ...]],
        names: Sequence[str] | None,
        tile: int | tuple[int, int] | None,
    ) -> None:
        self.model = model
        known = {spec.name: spec for spec in model.outputs}
        for name in names or ():
            if name not in known:
                raise RunError(f"{model.name} has no output {name!r}; it has {', '.join(map(repr, known))}")
        self.names = tuple(names or known)
        self.reaches = {name: model.reach(name) for name in self.names}
        self.dtypes = {name: np.dtype(_numpy_name(known[name].dtype)) for name in self.names}
        given = self._checked(shapes)
        lines = tuple(self._allowed(line) for line in lines_of([*self.reaches.values()]))
        if not lines:
            raise RunError(f"{model.name} can't be computed in tiles: {self._problems()}")
        lines = tuple(line for line in lines if self._cuts(line, given))
        fixed, made = self._made(lines, given)
        most = fixed if not model.symbols else tuple(self._spare(line, given) for line in lines)
        grid = Grid(lines, given, made, (1,) * len(lines), most, not model.symbols)
        self.grid = grid.with_steps(self._steps(grid, tile))

    def run(
        self, tile: ImageTile, arrays: Mapping[str, ArraysGiven], threads: int | None = None
    ) -> dict[str, np.ndarray]:
        """The results of a tile, from the crops of its inputs."""
        results = self.model(dict(arrays), threads)
        return {name: results[name][tile.taken[name]] for name in self.names}

    # ------------------------------------------------------------------ shapes

    def _checked(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The shapes of the model's inputs; RunError for an input that is missing, or of another rank."""
        given = {}
        for spec in self.model.inputs:
            if spec.name not in shapes:
                raise RunError(f"input {spec.name!r} is missing")
            shape = tuple(int(n) for n in shapes[spec.name])
            if len(shape) != len(spec.shape):
                raise RunError(f"{given_text(spec, shape)}, expected ({', '.join(map(str, spec.shape))})")
            given[spec.name] = shape
        return given

    def _allowed(self, line: CutLine) -> CutLine:
        """The same line in steps that leave a size a multiple of what the model takes."""
        factor = 1
        for (name, axis), rows in line.inputs.items():
            symbol = self._symbol(name, axis)
            if symbol is not None:
                factor = math.lcm(factor, symbol.multiple // math.gcd(symbol.multiple, rows))
        return line.times(factor)

    def _made(
        self, lines: Sequence[CutLine], given: Mapping[str, tuple[int, ...]]
    ) -> tuple[tuple[int, ...], dict[str, tuple[int, ...]]]:
        """How many steps of each line an image has more than one that the model takes at once, and the shapes of the
        outputs: those of the smaller one, and rows for these steps."""
        less = {name: list(shape) for name, shape in given.items()}
        steps = tuple(self._surplus(line, given) for line in lines)
        for line, left in zip(lines, steps):
            for (name, axis), rows in line.inputs.items():
                less[name][axis] -= left * rows
        shapes = {name: tuple(shape) for name, shape in less.items()}
        for spec in self.model.inputs:
            for axis, (n, dim) in enumerate(zip(shapes[spec.name], spec.shape)):
                if isinstance(dim, int) and n != dim:
                    raise RunError(
                        f"{given_text(spec, given[spec.name])}, expected ({', '.join(map(str, spec.shape))})"
                        f"{self._fixed_text(lines, spec.name, axis, dim)}"
                    )
        sizes = sizes_of(self.model.symbols, self.model.inputs, shapes)
        made = {name: list(shape) for name, shape in self.model.output_shapes(sizes).items() if name in self.names}
        for line, left in zip(lines, steps):
            for (name, axis), rows in line.outputs.items():
                made[name][axis] += left * rows
        return steps, {name: tuple(shape) for name, shape in made.items()}

    def _fixed_text(self, lines: Sequence[CutLine], name: str, axis: int, dim: int) -> str:
        """What else an axis of a fixed size may be."""
        line = next((line for line in lines if (name, axis) in line.inputs), None)
        if line is None:
            return ""
        rows = line.inputs[name, axis]
        return f", or along axis {axis} {dim} and a multiple of {rows} more; build with open sizes for others"

    def _surplus(self, line: CutLine, given: Mapping[str, tuple[int, ...]]) -> int:
        """Steps of a line that an image has more than the model's typical size, or than its only one."""
        (name, axis), rows = next(iter(line.inputs.items()))
        spec = next(s for s in self.model.inputs if s.name == name)
        dim, size = spec.shape[axis], given[name][axis]
        if isinstance(dim, int):
            return max(0, (size - dim) // rows)
        symbol = self._symbol(name, axis)
        if symbol is None:
            return 0
        if size % symbol.multiple:
            raise RunError(f"{given_text(spec, given[name])}: {symbol.refusal(size) or symbol.must_be}")
        wanted = max(symbol.typical, symbol.least, (line.front + line.back + 1) * rows)
        if symbol.bounded:
            wanted = min(wanted, symbol.most)
        return max(0, -(-(size - wanted) // rows) if size > symbol.most else (size - wanted) // rows)

    def _cuts(self, line: CutLine, given: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether a line is worth a cut: axes that have the model's own fixed length are computed whole."""
        shapes = {spec.name: spec.shape for spec in self.model.inputs}
        return any(shapes[name][axis] != given[name][axis] for name, axis in line.inputs)

    def _spare(self, line: CutLine, given: Mapping[str, tuple[int, ...]]) -> int:
        """Steps that a crop may leave out, so that it is no smaller than the model takes."""
        found = []
        for (name, axis), rows in line.inputs.items():
            symbol = self._symbol(name, axis)
            found.append((given[name][axis] - (1 if symbol is None else max(1, symbol.least))) // rows)
        return max(0, min(found))

    def _symbol(self, name: str, axis: int) -> Symbol | None:
        """The symbol that an axis of an input is; None where it is a number, or follows from others."""
        dim = next(s for s in self.model.inputs if s.name == name).shape[axis]
        return next((s for s in self.model.symbols if s.name == dim), None)

    def _problems(self) -> str:
        """Why nothing is cut: of axes whose rows reach a bounded way, if there are such, else of any."""
        given = [spec.name for spec in self.model.inputs]
        found = [
            (any(reach[name][axis].kind == "rows" for name in given), cut.problem)
            for reach in self.reaches.values() for axis, cut in enumerate(reach.cuts) if cut.problem
        ]  # fmt: skip
        told = [problem for bounded, problem in found if bounded] or [problem for _, problem in found]
        return told[-1] if told else "its outputs share no axis with its inputs"

    # ------------------------------------------------------------------ tiles

    def _steps(self, grid: Grid, tile: int | tuple[int, int] | None) -> list[int]:
        """Steps of each line in a tile: as the caller wants, or the largest whose arena is modest."""
        if not grid.lines:
            return []
        if not self.model.symbols:
            most = self._fixed_steps(grid)
            wanted = most if tile is None else self._wanted(grid, tile)
        else:
            most = [self._largest(line) for line in grid.lines]
            wanted = self._modest(grid) if tile is None else self._wanted(grid, tile)
        return [min(m, w) for m, w in zip(most, wanted)]

    def _largest(self, line: CutLine) -> int:
        """The most steps of a tile whose crop is no larger than the model takes."""
        found = [_MANY]
        for (name, axis), rows in line.inputs.items():
            symbol = self._symbol(name, axis)
            if symbol is not None and symbol.bounded:
                found.append(symbol.most // rows - line.front - line.back - 1)
        if min(found) < 1:
            raise RunError(f"{self.model.name} takes no image that is large enough for what a row reaches")
        return min(found)

    def _wanted(self, grid: Grid, tile: int | tuple[int, int]) -> list[int]:
        """Steps for rows and columns of the first output: one number for all, or one for each axis that is cut."""
        lines = [i for i, line in enumerate(grid.lines) if not _is_batch(line)]
        sides = list(tile) if isinstance(tile, Sequence) and not isinstance(tile, str) else [tile] * len(lines)
        try:
            sides = [operator.index(side) for side in sides]
        except TypeError:
            raise RunError(f"tile={tile!r}: give a whole number of rows, or one for each axis") from None
        if len(sides) != len(lines) or any(side < 1 for side in sides):
            raise RunError(f"tile={tile!r}: give one whole number, or {len(lines)}, one for each axis that is cut")
        steps = [1] * len(grid.lines)
        for i, side in zip(lines, sides):
            steps[i] = max(1, side // next(iter(grid.lines[i].outputs.values())))
        return steps

    def _fixed_steps(self, grid: Grid) -> list[int]:
        """The most steps of a tile in a crop of the model's only size."""
        shapes = self.model.output_shapes()
        found = []
        for line in grid.lines:
            (name, axis), rows = next(iter(line.outputs.items()))
            size = shapes[name][axis] // rows
            room = size - line.front - line.back
            if grid.made[name][axis] // rows > size and room < 1:
                raise RunError(
                    f"{self.model.name} was built for {shapes[name][axis]} rows, and a row reaches more than that; "
                    "build it with open sizes"
                )
            found.append(max(1, room) if grid.made[name][axis] // rows > size else _MANY)
        return found

    def _modest(self, grid: Grid) -> list[int]:
        """The largest tiles whose crop takes a modest arena, or the smallest that are worth their borders."""
        for side in _SIDES:
            steps = self._wanted(grid, side)
            crop = self._crop(grid, steps)
            if self._arena(crop) <= MOST_ARENA:
                return steps
            smaller = self._wanted(grid, max(1, side // 2))
            halos = [line.front + line.back for line in grid.lines]
            if any(h > s * (_WORTH - 1) for h, s, line in zip(halos, smaller, grid.lines) if not _is_batch(line)):
                return steps
        return steps

    def _crop(self, grid: Grid, steps: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the largest crop of tiles."""
        shapes = {name: list(shape) for name, shape in grid.given.items()}
        for line, count in zip(grid.lines, steps):
            for (name, axis), rows in line.inputs.items():
                most = (count + line.front + line.back) * rows
                shapes[name][axis] -= max(0, (shapes[name][axis] - most) // rows) * rows
        return {name: tuple(shape) for name, shape in shapes.items()}

    def _arena(self, shapes: Mapping[str, tuple[int, ...]]) -> float:
        """Bytes of the arena for inputs of these shapes; infinite for shapes that the model does not take."""
        try:
            sizes = sizes_of(self.model.symbols, self.model.inputs, shapes)
            return self.model.arena_bytes(shape=sizes)
        except (RunError, ShapeError):
            return math.inf


def _is_batch(line: CutLine) -> bool:
    """Whether a line is of independent images, which tiles take one by one."""
    first = all(axis == 0 for _, axis in line.outputs)
    return first and line.front == line.back == 0 and set(line.outputs.values()) == {1}


def _numpy_name(dtype: str) -> str:
    if dtype.startswith(("bfloat", "float8")):
        import ml_dtypes

        return getattr(ml_dtypes, dtype)
    return dtype


def map_blocks(
    model: Any,
    x: ArraysGiven,
    out: ArraysGiven = None,
    tile: Any = None,
    outputs: Sequence[str] | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ArraysGiven:
    """What :meth:`halotile.compiler.model.Model.map_blocks` returns."""
    bare = not isinstance(x, Mapping)
    if bare and len(model.inputs) != 1:
        raise RunError(f"{model.name} has {len(model.inputs)} inputs: give a dict of names to arrays")
    arrays = {model.inputs[0].name: x} if bare else dict(x)
    for name, array in arrays.items():
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise RunError(f"input {name!r} is a {type(array).__name__}, which has no shape and dtype to cut")
    names = [outputs] if isinstance(outputs, str) else outputs
    blocks = Blocks(model, {name: a.shape for name, a in arrays.items()}, names, tile)
    _check_dtypes(model, arrays)
    if any(type(a).__module__.partition(".")[0] == "dask" for a in arrays.values()):
        from .dask_arrays import lazily

        if out is not None:
            raise RunError("out= is for arrays; store a dask array with its own store() or to_zarr()")
        results = lazily(blocks, arrays, threads)
    else:
        results = _computed(blocks, arrays, out, threads, progress)
    single = bare and len(blocks.names) == 1 or isinstance(outputs, str)
    return results[blocks.names[0]] if single else results


def _check_dtypes(model: Any, arrays: Mapping[str, ArraysGiven]) -> None:
    for spec in model.inputs:
        if np.dtype(arrays[spec.name].dtype) != np.dtype(_numpy_name(spec.dtype)):
            raise RunError(f"input {spec.name!r} has dtype {arrays[spec.name].dtype}, expected {spec.dtype}")


def _computed(
    blocks: Blocks, arrays: Mapping[str, ArraysGiven], out: ArraysGiven, threads: int | None, progress: Progress | None
) -> dict[str, ArraysGiven]:
    """All tiles, one after the other, into ``out`` or fresh arrays."""
    targets = _targets(blocks, out)
    for number, tile in enumerate(blocks.grid):
        crops = {name: np.ascontiguousarray(arrays[name][tile.crops[name]]) for name in blocks.grid.given}
        for name, result in blocks.run(tile, crops, threads).items():
            targets[name][tile.placed[name]] = result
        if progress is not None:
            progress(number + 1, len(blocks.grid))
    return targets


def _targets(blocks: Blocks, out: ArraysGiven) -> dict[str, ArraysGiven]:
    if out is None:
        return {name: np.empty(blocks.grid.made[name], blocks.dtypes[name]) for name in blocks.names}
    targets = dict(out) if isinstance(out, Mapping) else {blocks.names[0]: out}
    for name in blocks.names:
        if name not in targets:
            raise RunError(f"out has no array for output {name!r}")
        shape, dtype = tuple(targets[name].shape), np.dtype(targets[name].dtype)
        if (shape, dtype) != (blocks.grid.made[name], blocks.dtypes[name]):
            wanted = f"{blocks.dtypes[name]}{list(blocks.grid.made[name])}"
            raise RunError(f"out for {name!r} is {dtype}{list(shape)}, expected {wanted}")
    return targets
