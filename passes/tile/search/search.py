"""Where tile groups begin and end, and in what shape: dynamic programming over the order of the program.

Which values lie whole in memory between two segments depends on where the cut is, not on how the parts before it are
computed. So the peak of a choice is the largest peak of its segments, its time the sum of theirs, and the best
choices for the first k groups are a curve of (bytes, cycles) pairs of which none beats another:

    curve[k] = best of curve[first] + segment(first .. k-1), over all segments and shapes
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from ....schedules.words.alignment import aligned
from ....schedules.words.group import Value
from .member_cost import value_bytes
from .model import SearchModel, Segment, shapes
from .segments import Grown, segments

T = TypeVar("T")
Rooms = dict[int, int]  # by index: the bytes beside that a group, computed whole, must do with
POINTS = 48  # of a curve that are kept
OPTIONS = 8  # shapes of one segment that are kept


@dataclass(frozen=True)
class CurvePoint:
    """A point of the curve: predicted peak bytes of the arena, predicted cycles, and the segments in order."""

    bytes: float
    cycles: float
    segments: tuple[Segment, ...]
    weighed: float = 0.0  # cycles, and what tile groups must save

    @property
    def tiled(self) -> tuple[Segment, ...]:
        """The segments that are tile groups."""
        return tuple(s for s in self.segments if s.shape is not None)

    @property
    def rooms(self) -> Rooms:
        """Scratch limits of groups that are computed whole: index of the group -> bytes a core."""
        return {s.first: s.room for s in self.segments if s.room is not None}


class _Point(NamedTuple):
    bytes: float
    weighed: float
    cycles: float
    segment: Segment | None
    before: _Point | None


@dataclass
class Search:
    """The search over one program. ``gain`` is the share of its time that a tile group must save to be worth its risk;
    ``forbidden`` are (first, last, shape) whose exact plan turned out to be impossible."""

    model: SearchModel
    gain: float = 0.0
    forbidden: set[tuple[int, int, object]] = field(default_factory=set)

    def curve(self) -> list[CurvePoint]:
        """The choices of which none beats another in bytes and cycles, from the smallest to the fastest."""
        count = len(self.model.program.groups)
        if self.model.options is None:
            self.model.options = self._options()
        points: list[list[_Point]] = [[] for _ in range(count + 1)]
        points[0] = [_Point(0.0, 0.0, 0.0, None, None)]
        for first in range(count):
            points[first] = _curve(points[first], POINTS)
            sizes = [p.bytes for p in points[first]]
            for peak, segment in self.model.options[first]:
                if (segment.first, segment.last, segment.shape) in self.forbidden:
                    continue
                weighed = segment.cycles
                if segment.shape is not None and self.gain:
                    settle = self.model.target.fitted.kernels.settle / self.model.threads  # which share the rest, too
                    weighed += self.gain * segment.cycles + settle * (1 + segment.shape.saves)
                below = max(0, bisect_right(sizes, peak) - 1)  # of those that peak no higher, the fastest
                for point in points[first][below:]:
                    new = _Point(
                        max(point.bytes, peak), point.weighed + weighed, point.cycles + segment.cycles, segment, point
                    )
                    points[segment.last + 1].append(new)
        return [_choice(p) for p in _curve(points[count], POINTS)]

    def _options(self) -> dict[int, list[tuple[float, Segment]]]:
        program = self.model.program
        count = len(program.groups)
        memory = Live(self.model)
        found: dict[tuple[int, int], list[tuple[float, Segment]]] = {}
        large = any(self.model.cost(i).unit[0] % 6 == 0 for i in range(count) if program.refusal(i) is None)
        for last in range(count):
            found[last, last] = [(memory.of(w), w) for w in self.model.wholes(last)]
            if program.refusal(last) is not None:
                continue
            height, width = program.groups[last].outputs[-1].shape[2:4]
            room = self.model.room if self.model.saving else 0
            able = shapes(height, width, self.model.threads, large, self.model.tight, room, self.model.period(last))
            if self.model.allows is not None and self.model.tight:  # else only rings that save rows hold little
                able += [replace(shape, room=self.model.room) for shape in able]
            for grown in segments(self.model, last, able):
                if self.model.refuses(program, grown.first, last) is not None:
                    continue  # no shape of it can be lowered
                if (allows := self.model.allows) is not None:
                    allowed = np.array(allows(program, grown.first, last, grown.shapes), bool)
                    grown = replace(grown, able=grown.able & allowed)
                between = memory.peak(grown.first, last, 0.0)
                found[grown.first, last] = [(between + s.beside, s) for s in _worth(grown)]
        result: dict[int, list[tuple[float, Segment]]] = {first: [] for first in range(count)}
        for (first, _), options in found.items():
            result[first] += options
        return result


def _worth(grown: Grown) -> list[Segment]:
    """The shapes that no other beats in bytes and cycles, from the smallest to the fastest, thinned to OPTIONS; those
    that save rows by themselves, so that they crowd out no other."""
    order = [int(at) for at in np.lexsort((grown.cycles, grown.scratch - grown.taken)) if grown.able[at]]
    kept = _thinned(_unbeaten(grown, [at for at in order if not grown.shapes[at].saves]), OPTIONS)
    kept += _thinned([at for at in _unbeaten(grown, order) if grown.shapes[at].saves], OPTIONS)
    return [grown.segment(at) for at in kept]


def _unbeaten(grown: Grown, order: Sequence[int]) -> list[int]:
    kept: list[int] = []
    for at in order:
        if not kept or grown.cycles[at] < 0.998 * grown.cycles[kept[-1]]:
            kept.append(at)
    return kept


class Live:
    """Arena bytes in use while a segment runs: values that lie whole, and its scratch. A group that is computed whole
    may overwrite an input that nobody reads afterwards, and so may a tile group."""

    def __init__(self, model: SearchModel) -> None:
        program = model.program
        self.model, self.program = model, program
        placed = {program.places.root(v) for v in program.outputs} | set(program.outputs)
        self.made: dict[Value, int] = {}
        self.read: dict[Value, int] = {}
        self.size: dict[Value, int] = {}
        for index, group in enumerate(program.groups):
            for value in group.outputs:
                root = program.places.root(value)
                self.made[root] = min(self.made.get(root, index), index)
                self.read.setdefault(root, index)
            for value in group.inputs:
                root = program.places.root(value)
                self.read[root] = max(self.read.get(root, index), index)
        for root in [r for r in self.made if r not in placed]:
            size = max(value_bytes(root, program.layouts), 1)
            self.size[root] = aligned(size)
        self.between: dict[tuple[int, int], float] = {}
        roots = list(self.size)
        self.spans = np.array([(self.made[r], self.read[r]) for r in roots], np.int64).reshape(-1, 2).T
        self.bytes = np.array([self.size[r] for r in roots], np.int64)
        self.whole = np.array([r in program.shared for r in roots], bool)

    def peak(self, first: int, last: int, scratch: float) -> float:
        """Arena bytes while groups ``first`` to ``last`` run as one with ``scratch`` bytes: values that cross one of
        its ends or lie whole inside of it."""
        key = (first, last)
        if key not in self.between:
            made, read = self.spans
            crossing = (made < first) | (read > last) | self.whole if first != last else True
            self.between[key] = float(self.bytes[(made <= last) & (read >= first) & crossing].sum())
        return self.between[key] + scratch

    def of(self, segment: Segment) -> float:
        """Arena bytes while ``segment`` runs."""
        if segment.shape is not None:
            return self.peak(segment.first, segment.last, segment.beside)
        taken = self._taken(segment.first, segment.room)
        return self.peak(segment.first, segment.last, segment.scratch) - taken

    def _taken(self, index: int, room: int | None) -> int:
        """Bytes of an input that group ``index``, computed whole, writes its result over."""
        place = self.program.places
        output = place.root(self.program.groups[index].outputs[0])
        for value in self.model.overwritten(index, room):
            root = place.root(value)
            alone = root not in place.parts() and output not in place.parts()
            if alone and self.read.get(root) == index and self.size.get(root, -1) == self.size.get(output):
                return self.size[root]
        return 0


def _curve(points: Iterable[_Point], most: int) -> list[_Point]:
    """The points that no other beats in both, thinned to ``most``."""
    kept: list[_Point] = []
    for point in sorted(points, key=lambda p: (p.bytes, p.weighed)):
        if not kept or point.weighed < kept[-1].weighed * (1 - 1e-6):
            kept.append(point)
    return _thinned(kept, most)


def _thinned(items: Sequence[T], most: int) -> list[T]:
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _choice(point: _Point) -> CurvePoint:
    chain: list[Segment] = []
    at: _Point | None = point
    while at is not None and at.segment is not None:
        chain.append(at.segment)
        at = at.before
    return CurvePoint(point.bytes, point.cycles, tuple(reversed(chain)), point.weighed)
