"""How a stream keeps within a memory budget: by fewer rows a step, by strips of columns, or by a smaller arena.

What counts is all that a stream takes: states, the rows that come and go, and the arena of a step. Candidates are built
up to their memory plan, and the first that fits is taken:

1. the whole width, with as many rows a step as fit, but no fewer than weigh little beside what is kept
2. strips of columns (:mod:`.columns`), where outputs reach a few of the columns: as wide as fit, or narrower where the
   last cache serves these so much better that it pays for the columns which are computed again (:mod:`.traffic`)
3. the whole width with fewer rows, strips that compute many columns again, the narrowest strips, and last the whole
   width with tiles in what is left for the arena
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import BudgetError, HalotileError
from ..reach.grid import CutLine, Grid, lines_of
from ..reach.words import Reach
from ..spec import TensorSpec
from .analysis import ROWS
from .columns import Columns, StreamFit, StreamStrip
from .traffic import Traffic

if TYPE_CHECKING:
    from ..options import Shapes
    from ..state import Build, Options

_FEW = 12  # rows from which on what is kept weighs little
_ALIGNED = 64  # bytes to which each tensor of a stream is rounded up
_BOOKS = 8192  # bytes of a stream's own records, about
_VECTOR = 16  # columns that vectors divide
_TRIES = 4  # widths of strips that are tried
_LITTLE, _MUCH = 1.1, 1.25  # times the image's columns that strips compute
_NARROWER = 0.85  # times the width, from one width to the next
_WORTH = 0.92  # times the time of the widest strips, above which what is predicted may be its own error
_SAME = 1.02  # times the shortest time, in which fewer readings of the source are better, then wider strips

Run = Callable[["Options"], "Build"]


@dataclass(frozen=True)
class StreamedNetwork:
    """The whole network: its inputs and outputs, and what these reach, as the manifest has it."""

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    reach: Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _Made:
    """A candidate's rows, and the bytes of its states, of the rows that come and go, and of its arena; and what its
    kernels move."""

    rows: int
    states: int
    moved: int
    arena: int
    traffic: Traffic

    @property
    def total(self) -> int:
        return self.shared + self.held

    @property
    def shared(self) -> int:
        """Bytes that serve all strips which advance together."""
        return self.moved + self.arena

    @property
    def held(self) -> int:
        """Bytes that each strip has of its own."""
        return self.states + _BOOKS

    def about(self, rows: int) -> float:
        """The total of other rows a step."""
        return self.held + self.shared * rows / self.rows


@dataclass(frozen=True)
class _Narrow:
    """Strips that leave out ``less`` steps of the line: predicted cycles, and how often the source is read for them."""

    columns: Columns
    less: int
    cycles: float
    readings: int

    @staticmethod
    def of(columns: Columns, less: int, share: float, widest: _Made, budget: int) -> _Narrow:
        """Strips of a ``share`` of the columns of the widest ones, which are made."""
        room, held = budget - int(share * widest.shared), int(share * widest.states) + _BOOKS
        readings = len(replace(columns, room=room, held=held).groups())
        aside = widest.states if readings < len(columns.strips) else 0
        return _Narrow(columns, less, columns.work * widest.traffic.cycles(share, aside), readings)


def fitted(options: Options, run: Run, network: Callable[[], StreamedNetwork]) -> StreamFit:
    """The first candidate within ``options.memory_budget``. ``run`` builds one as far as the options say. Raises
    HalotileError where none fits."""
    return _Search(options, run, network).found()


class _Search:
    def __init__(self, options: Options, run: Run, network: Callable[[], StreamedNetwork]) -> None:
        assert options.memory_budget is not None
        self.options, self.run, self.network, self.budget = options, run, network, options.memory_budget
        self.least = math.inf  # bytes that would do
        self.why = ""  # columns are not cut
        self.made: dict[tuple[int, int], _Made] = {}  # by rows, and the number of strips

    def found(self) -> StreamFit:
        asked = (self.options.stream,) if self.options.stream else ROWS
        most = [rows for rows in asked[1:] if rows >= _FEW]
        first = self._made(fit := self._wide(asked[0]))
        if first.total <= self.budget:
            return self._told(fit, first)
        if (whole := self._whole([rows for rows in most if first.about(rows) <= 1.1 * self.budget])) is not None:
            return whole
        strips = self._in_strips([asked[0], *most], first)
        if strips is not None and strips.columns is not None and strips.columns.work <= _MUCH:
            return strips
        last = asked[-1]
        fewest = self._whole([rows for rows in asked[1:] if rows < _FEW])
        return fewest or strips or self._narrowest(last) or self._in_tiles(last)

    def _wide(self, rows: int, arena: int | None = None) -> StreamFit:
        return StreamFit(rows, self.options.shapes, arena=arena)

    def _whole(self, asked: Sequence[int]) -> StreamFit | None:
        """The whole width, with the first of these rows that fits."""
        for rows in asked:
            if (made := self._made(fit := self._wide(rows))).total <= self.budget:
                return self._told(fit, made)
        return None

    def _made(self, fit: StreamFit) -> _Made:
        """What a candidate takes: of a library for several levels of processors, where it takes most."""
        wanted = replace(self.options, fit=fit, stop_after="plan", dump_ir=None, levels=None)
        levels = [self.options.target, *(self.options.levels or ())]
        made = [_made_of(self.run(replace(wanted, target=t)), len(levels) > 1) for t in levels]
        most = max(made, key=lambda m: m.total)
        if fit.columns is not None:
            self.made[fit.rows, len(fit.columns.strips)] = most
        return most

    def _told(self, fit: StreamFit, made: _Made) -> StreamFit:
        note = f"a stream takes {made.total} of the memory budget's {self.budget} bytes"
        if fit.columns is not None:
            fit = replace(fit, columns=replace(fit.columns, room=self.budget - made.shared, held=made.held))
            assert fit.columns is not None
            count, times = len(fit.columns.strips), fit.columns.work
            together = max(map(len, fit.columns.groups()))
            took = made.shared + together * made.held
            note = f"a stream takes {took} of the memory budget's {self.budget} bytes, {together} strips at a time"
            note = f"in {count} strips of columns, which compute {times:.3f} times the image's; {note}"
        return replace(fit, note=note)

    # ------------------------------------------------------------------ strips

    def _in_strips(self, asked: Sequence[int], first: _Made) -> StreamFit | None:
        if (found := self.lines) is None:
            return None
        network, line = found
        best: StreamFit | None = None
        for rows in asked:
            fit = self._strips_of(rows, network, line, 0.97 * self.budget / first.about(rows))
            if fit is None or fit.columns is None:
                continue
            if best is None or best.columns is None or fit.columns.work < best.columns.work:
                best = fit
            if fit.columns.work <= _LITTLE:
                break
        return None if best is None else self._narrowed(best, network, line)

    def _narrowed(self, fit: StreamFit, network: StreamedNetwork, line: CutLine) -> StreamFit:
        """The strips, or narrower ones that have the source read no more often and are predicted to be so much faster
        that this is more than a prediction's error: of those that are about as fast as these, or as the strips
        themselves, the ones with the fewest readings, and of these the widest."""
        assert fit.columns is not None
        widest, own = self.made[fit.rows, len(fit.columns.strips)], fit.columns
        found = [_Narrow.of(own, 0, 1.0, widest, self.budget)]
        share = _share(own)
        while (cut := _strips(network, line, share := _NARROWER * share)) is not None and cut[0].work <= _LITTLE:
            found.append(_Narrow.of(*cut, _share(cut[0]) / _share(own), widest, self.budget))
        found = [each for each in found if each.readings <= found[0].readings]
        fastest = min(each.cycles for each in found)
        limit = _SAME * (fastest if fastest <= _WORTH * found[0].cycles else found[0].cycles)
        best = min((each for each in found if each.cycles <= limit), key=lambda each: each.readings)
        if best.columns is own:
            return fit
        narrow = StreamFit(fit.rows, self._narrower(network, line, best.less), best.columns)
        try:
            made = self._made(narrow)
        except HalotileError:
            return fit
        if made.total > self.budget:
            return fit
        told = self._told(narrow, made)
        assert told.columns is not None
        return told if len(told.columns.groups()) <= len(own.groups()) else fit

    def _narrowest(self, rows: int) -> StreamFit | None:
        """Strips that compute twice the columns, which nothing smaller follows."""
        if (found := self.lines) is None or (cut := _strips(*found, 0, least=True)) is None:
            return None
        try:
            fit = StreamFit(rows, self._narrower(*found, cut[1]), cut[0])
            made = self._made(fit)
        except HalotileError as refused:
            self.why = f", and its columns can't be cut: {refused}"
            return None
        self.least = min(self.least, made.total)
        return self._told(fit, made) if made.total <= self.budget else None

    def _strips_of(self, rows: int, network: StreamedNetwork, line: CutLine, share: float) -> StreamFit | None:
        """The widest strips that fit, from a share of the columns on."""
        for _ in range(_TRIES):
            cut = _strips(network, line, share)
            if cut is None:
                return None
            columns, less = cut
            try:
                fit = StreamFit(rows, self._narrower(network, line, less), columns)
                made = self._made(fit)
            except HalotileError as refused:
                self.why = f", and its columns can't be cut: {refused}"
                return None
            if made.total <= self.budget:
                return self._told(fit, made)
            share *= min(0.9, 0.98 * self.budget / made.total)
        return None

    @cached_property
    def lines(self) -> tuple[StreamedNetwork, CutLine] | None:
        """The network, and the axis behind the rows that is cut: the longest, where there are more."""
        network = self.network()
        reaches = [Reach.of(plain) for plain in network.reach]
        shapes = {spec.name: spec.shape for spec in network.inputs}
        lines = []
        for line in lines_of(reaches) if len(reaches) == len(network.outputs) else ():
            places = [(shapes[name], axis) for name, axis in line.inputs]
            high = [axis > rows for shape, axis in places if (rows := _open_axis(shape)) is not None]
            if high and all(high) and all(isinstance(shape[axis], int) for shape, axis in places):
                lines.append((places[0][0][places[0][1]], line))
        if not lines:
            problems = [cut.problem for reach in reaches for cut in reach.cuts[-1:] if cut.problem]
            self.why = f", and its columns can't be cut: {problems[0] if problems else 'no axis behind the rows'}"
            return None
        return network, max(lines, key=lambda pair: pair[0])[1]

    def _narrower(self, network: StreamedNetwork, line: CutLine, less: int) -> Shapes:
        """The shapes that were asked for, with so many steps of the line left out."""
        shapes, gone, narrow = dict(self.options.shapes or {}), set[object](), dict[str, tuple[int | str, ...]]()
        for spec in network.inputs:
            for (name, axis), rows in line.inputs.items():
                if name == spec.name:
                    own, left = shapes.get(name, ()), spec.shape[axis] - less * rows
                    gone.add(spec.shape[axis])
                    if len(own) != len(spec.shape) and name in (self.options.inputs or {}):
                        narrow[self._named(name, spec.shape[axis])] = (left,)
                        continue
                    dims = list(own if len(own) == len(spec.shape) else _asked(spec.shape))
                    dims[self._own_axis(name, dims, spec.shape, axis)] = left
                    shapes[name] = tuple(dims)
        names = {spec.name for spec in network.inputs}
        kept = {k: dims for k, dims in shapes.items() if k in names or len(dims) != 1 or dims[0] not in gone}
        return {**kept, **narrow}

    def _named(self, frame: str, columns: int) -> str:
        """The dimension that was given so many columns by its name, where a frame stands for an input of another
        layout."""
        given = self.options.shapes or {}
        found = [name for name, dims in given.items() if len(dims) == 1 and str(dims[0]) == str(columns)]
        if len(found) != 1:
            raise HalotileError(f"no dimension of its own has the {columns} columns of '{frame}': give its whole shape")
        return found[0]

    def _own_axis(self, name: str, dims: Sequence[object], shape: Sequence[object], axis: int) -> int:
        """The axis of the shape that was asked for, which is the model's own, that is ``axis`` of the network's input.
        They are others where this is a frame in another layout (:mod:`..images`)."""
        if name not in (self.options.inputs or {}):
            return axis
        alike = [a for a, n in enumerate(dims) if n == shape[axis]]
        if len(alike) != 1:
            raise HalotileError(f"of '{name}' {len(alike)} dimensions are {shape[axis]}, as many as columns")
        return alike[0]

    # ------------------------------------------------------------------ tiles

    def _in_tiles(self, rows: int) -> StreamFit:
        """The whole width, in what is left for the arena."""
        made = self._made(self._wide(rows))
        self.least = min(self.least, made.total)
        left = self.budget - made.held - made.moved
        try:
            tiled = self._made(fit := self._wide(rows, max(left, 1)))
        except BudgetError as refused:
            self.least = min(self.least, made.held + made.moved + refused.least)
        else:
            self.least = min(self.least, tiled.total)
            if tiled.total <= self.budget:
                return self._told(fit, tiled)
        raise BudgetError(
            f"the memory budget of {self.budget} bytes can't be met by a stream of this model{self.why}: the least "
            f"that was found takes {self.least} bytes; raise the budget",
            int(self.least),
        )


def _open_axis(shape: Sequence[Any]) -> int | None:
    """The axis of the rows; None of an input that has none."""
    return next((axis for axis, n in enumerate(shape) if not isinstance(n, int)), None)


def _asked(shape: Sequence[object]) -> Sequence[int | str]:
    """A shape as one asks for it, open dimensions by their names."""
    return [n if isinstance(n, int) else str(n) for n in shape]


def _strips(network: StreamedNetwork, line: CutLine, share: float, least: bool = False) -> tuple[Columns, int] | None:
    """Strips of about that share of the columns, all alike, and how many steps of the line each leaves out; None where
    they would compute more than twice the columns. ``least``: strips that do so."""
    given = {spec.name: spec.shape for spec in network.inputs}
    made = {spec.name: spec.shape for spec in network.outputs}
    (name, axis), rows = next(iter(line.inputs.items()))
    whole = given[name][axis]
    halo = line.front + line.back
    room = max(1, halo) if least else int(whole * share) // rows - halo
    if room < max(1, halo):
        return None
    total = max(made[n][a] // r for (n, a), r in line.outputs.items())
    room = -(-total // -(-total // room))
    grid = Grid((line,), given, made, (room,), (0,), True)
    less = grid.spare(0)
    less -= next((n for n in range(_VECTOR) if (whole - (less - n) * rows) % _VECTOR == 0), 0)
    if less < 1:
        return None
    tiles = list(replace(grid, most=(less,)))
    axes = {n: a for n, a in (*line.inputs, *line.outputs)}
    strips = tuple(StreamStrip(*(_spans(part, axes) for part in (t.crops, t.taken, t.placed))) for t in tiles)
    sizes = {n: (given[n] if n in given else made[n])[a] for n, a in axes.items()}
    width = whole - less * rows
    return Columns(axes, sizes, strips, len(strips) * width / whole), less


def _spans(part: Mapping[str, tuple[slice, ...]], axes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (slices[axes[name]].start, slices[axes[name]].stop) for name, slices in part.items() if name in axes}


def _made_of(build: Build, twice: bool) -> _Made:
    """What a stream of a build takes, once its memory is planned; ``twice``: states can't take one memory."""
    from ..codegen.module import workspace_bytes

    assert build.stream is not None
    about = {name: s.single and not twice for s in build.stream.states for name in (s.input, s.output)}
    states, moved = 0, 0
    for specs, left in ((build.imported.inputs, False), (build.imported.outputs, True)):
        for spec in specs:
            size = -(-spec.nbytes // _ALIGNED) * _ALIGNED
            if spec.name not in about:
                moved += size
            elif not (left and about[spec.name]):
                states += size
    threads = build.options.policy.threads
    arena = build.memory.planned_bytes + threads * workspace_bytes(build.kernels)
    return _Made(build.stream.rows, states, moved, arena, Traffic.of(build))


def _share(columns: Columns) -> float:
    """Of the image's columns, what one strip computes."""
    return columns.work / len(columns.strips)
