"""Tiles of the outputs, and the crops of the inputs that compute them.

A crop leaves whole steps out at both ends of an axis, nothing else. Every tensor of the network is then the whole
image's with whole rows left out: its size follows by the same formula, and padding, rounded sizes and the remainder of
a stride are those of the whole image. What differs are rows near a cut, for which a crop has padding where the image
goes on; a tile keeps ``front`` and ``back`` steps away from them. Where an end is the image's own, nothing is cut.

    image   |==============================================|      tiles do not depend on who asks for which of them,
    crop            |--front--|::::tile::::|--back--|             so that every chunking gives the same bits
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...errors import RunError
from .words import WHOLE, Reach

Slices = tuple[slice, ...]
Place = tuple[str, int]  # a tensor's name, and one of its axes


@dataclass(frozen=True)
class CutLine:
    """An axis that is cut, of all the tensors that have it: rows of each in one step, and steps to keep from a cut."""

    inputs: Mapping[Place, int]
    outputs: Mapping[Place, int]
    front: int
    back: int

    def times(self, factor: int) -> CutLine:
        """This line in steps of ``factor`` of its own."""
        return CutLine(
            {place: rows * factor for place, rows in self.inputs.items()},
            {place: rows * factor for place, rows in self.outputs.items()},
            -(-self.front // factor),
            -(-self.back // factor),
        )


@dataclass(frozen=True)
class ImageTile:
    """What computes a part of the outputs: slices of the inputs, what to take of the results, and where it belongs."""

    crops: Mapping[str, Slices]
    taken: Mapping[str, Slices]
    placed: Mapping[str, Slices]


def lines_of(reaches: Sequence[Reach]) -> tuple[CutLine, ...]:
    """The axes that can be cut for all of these outputs together."""
    found: list[CutLine] = []
    barred: set[Place] = set()
    for reach in reaches:
        for axis in range(len(reach.cuts)):
            cut = reach.cuts[axis]
            inputs = {
                (name, int(axes[axis].input_axis or 0)): axes[axis].multiple
                for name, axes in reach.inputs.items()
                if axes[axis].kind != WHOLE
            }
            if cut.problem or not inputs:
                barred |= inputs.keys()
                continue
            line = CutLine(inputs, {(reach.output, axis): cut.period}, cut.front, cut.back)
            known = next((k for k in found if k.inputs.keys() & inputs.keys()), None)
            if known is None:
                found.append(line)
                continue
            found.remove(known)
            joined = _joined(known, line)
            if joined is None:
                barred |= known.inputs.keys() | inputs.keys()
            else:
                found.append(joined)
    kept = [line for line in found if not barred & line.inputs.keys()]
    names = {reach.output for reach in reaches}
    return tuple(line for line in kept if {name for name, _ in line.outputs} == names)


def _joined(a: CutLine, b: CutLine) -> CutLine | None:
    """One line of two that share an input's axis; None where their steps do not go together."""
    if {name for name, _ in a.outputs} & {name for name, _ in b.outputs}:
        return None  # two axes of one output that follow one axis of an input
    place = next(iter(a.inputs.keys() & b.inputs.keys()))
    rows = math.lcm(a.inputs[place], b.inputs[place])
    a, b = a.times(rows // a.inputs[place]), b.times(rows // b.inputs[place])
    if any(a.inputs[p] != b.inputs[p] for p in a.inputs.keys() & b.inputs.keys()):
        return None
    return CutLine({**a.inputs, **b.inputs}, {**a.outputs, **b.outputs}, max(a.front, b.front), max(a.back, b.back))


@dataclass(frozen=True)
class Grid:
    """The tiles of outputs of ``made`` shapes, from inputs of ``given`` shapes. ``steps`` is how many steps of each
    line a tile has; ``most`` how many may be left out of a line, so that what is left is no smaller than the model
    takes; ``fixed``: as many are left out always, for a model of one size."""

    lines: tuple[CutLine, ...]
    given: Mapping[str, tuple[int, ...]]
    made: Mapping[str, tuple[int, ...]]
    steps: tuple[int, ...]
    most: tuple[int, ...]
    fixed: bool = False

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """How many tiles there are along each line."""
        return tuple(max(1, -(-self._whole_steps(i) // self.steps[i])) for i in range(len(self.lines)))

    def __len__(self) -> int:
        return math.prod(self.counts)

    def __iter__(self) -> Iterator[ImageTile]:
        return (self.tile(at) for at in _places(self.counts))

    def _whole_steps(self, number: int) -> int:
        line = self.lines[number]
        return max(1, *(self.made[name][axis] // rows for (name, axis), rows in line.outputs.items()))

    def rows(self, number: int, place: int) -> dict[Place, tuple[int, int]]:
        """Where a tile begins and ends along a line, in rows of each output."""
        last, steps = place == self.counts[number] - 1, self.steps[number]
        found = {}
        for (name, axis), rows in self.lines[number].outputs.items():
            length = self.made[name][axis]
            begin, end = (min(i * steps * rows, length) for i in (place, place + 1))
            found[name, axis] = begin, length if last else end
        return found

    def tile(self, at: Sequence[int]) -> ImageTile:
        """The tile at a place of the grid."""
        crops = {name: [slice(0, n) for n in shape] for name, shape in self.given.items()}
        taken = {name: [slice(0, n) for n in shape] for name, shape in self.made.items()}
        placed = {name: [slice(0, n) for n in shape] for name, shape in self.made.items()}
        for number, place in enumerate(at):
            line = self.lines[number]
            rows = self.rows(number, place)
            front, back = self._left_out(number, rows)
            for (name, axis), step in line.inputs.items():
                crops[name][axis] = slice(front * step, self.given[name][axis] - back * step)
            for (name, axis), step in line.outputs.items():
                first, end = rows[name, axis]
                placed[name][axis] = slice(first, end)
                taken[name][axis] = slice(first - front * step, end - front * step)
        return ImageTile(*({name: tuple(s) for name, s in part.items()} for part in (crops, taken, placed)))

    def _left_out(self, number: int, rows: Mapping[Place, tuple[int, int]]) -> tuple[int, int]:
        """How many steps of a line a tile's crop leaves out in front and at the back."""
        line = self.lines[number]
        front, back = 1 << 62, 1 << 62
        for (name, axis), step in line.outputs.items():
            length = self.made[name][axis]
            first, end = rows[name, axis]
            front = min(front, max(0, first // step - line.front))
            back = min(back, max(0, (length - end) // step - line.back) if end < length else 0)
        most = self.most[number]
        front = min(front, most)
        if self.fixed and most - front > back:
            raise RunError("its tiles are too large for the size that the model was built for; give smaller ones")
        return front, min(back, most - front)

    def spare(self, number: int) -> int:
        """The most steps that every tile can leave out of a line."""
        free = replace(self, most=tuple(1 << 62 for _ in self.lines), fixed=False)
        return min(sum(free._left_out(number, self.rows(number, place))) for place in range(self.counts[number]))

    def with_steps(self, steps: Sequence[int]) -> Grid:
        """The same with tiles of other sizes."""
        return replace(self, steps=tuple(max(1, s) for s in steps))


def _places(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The places of a grid, the last line fastest."""
    for number in range(math.prod(counts)):
        at: list[int] = []
        for count in reversed(counts):
            number, place = divmod(number, count)
            at.append(place)
        yield tuple(reversed(at))
