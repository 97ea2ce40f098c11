"""An open tile plan at one size: the steps that its driver takes there, as a plan of fixed size.

What people are shown, and what :func:`~..plan.checker.check_plan` goes through, with the exact regions of the members
at that size. The arithmetic is that of schedules/tiled/open_tiles.py, on numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....schedules.words.group import Value
from ....schedules.words.open_tile_plan import Link, OpenTilePlan, ReaderLine
from ....schedules.words.tile_plan import Compute, Fill, Shift, Span, Step, Task, TilePlan, Window
from ..plan.form import RING
from .twin import Twins

FAR = 1 << 30


def plan_at(plan: OpenTilePlan, sizes: Mapping[str, int]) -> TilePlan:
    """The plan at ``sizes`` of the symbols."""
    return _AtSize(plan, Twins(sizes)).plan()


@dataclass
class _AtSize:
    open: OpenTilePlan
    twins: Twins
    done: list[int] = field(default_factory=list)  # of each member: the row behind those that it has
    base: list[int] = field(default_factory=list)  # the first row of its window

    def __post_init__(self) -> None:
        self.members = tuple(map(self.twins.group, self.open.members))
        self.sizes = [g.outputs[0].shape[2:4] for g in self.members]
        self.producer = {v: i for i, g in enumerate(self.members) for v in g.outputs}
        self.last = len(self.members) - 1
        self.small = not self.twins.number(self.open.in_tiles)

    def plan(self) -> TilePlan:
        """Its windows and tasks as numbers."""
        plan, twins = self.open, self.twins
        windows = {}
        for value, window in plan.windows.items():
            layout, offset = twins.layout(window.layout), twins.number(window.offset)
            windows[twins.value(value)] = Window(twins.value(value), layout, offset)
        height, width = self.sizes[-1]
        blocks = 1 if plan.columns is None else -(-width // plan.columns)
        bands = plan.bands if blocks >= plan.workers else plan.most_bands
        if self.small:
            blocks = bands = 1
        across = _parts(width, blocks, plan.column_step)
        tasks = [self._task(rows, columns) for rows in _parts(height, bands, plan.units[-1]) for columns in across]
        return TilePlan(
            self.members, windows, tuple(tasks), twins.number(plan.task_bytes), dict.fromkeys(windows, RING),
            plan.extra_work, plan.notes,
        )  # fmt: skip

    def _task(self, rows: Span, columns: Span) -> Task:
        plan = self.open
        across = [columns] * len(self.members)
        self.done = [rows[0]] * len(self.members)
        for member in reversed(range(self.last)):
            (height, width), (step, column) = self.sizes[member], plan.alignments[member]
            if member in plan.whole:
                self.done[member], across[member] = 0, (0, width)
                continue
            links = plan.links[member]
            self.done[member] = min(_start(n, n.rows, self.done[n.reader], height) for n in links) // step * step
            left = min(_start(n, n.columns, across[n.reader][0], width) for n in links) // column * column
            right = max(_end(n, n.columns, min(across[n.reader][1], self.sizes[n.reader][1]), width) for n in links)
            across[member] = left, _up(right, column, width)
        self.base = list(self.done)
        stripes = []
        height = self.sizes[-1][0] if self.small else plan.rows
        warm = 0 if self.small or plan.at_once and self.sizes[-1][0] <= plan.rows else plan.warm
        count = warm - (rows[0] - rows[1]) // height
        for s in range(count):
            ends = [0] * len(self.members)
            ends[-1] = min(rows[0] + (s + 1 - warm) * height, rows[1])
            for member in reversed(range(self.last)):
                links, own = plan.links[member], self.sizes[member][0]
                end = max(_end(n, n.rows, min(ends[n.reader], self.sizes[n.reader][0]), own) for n in links)
                ends[member] = _up(end, plan.units[member], own)
                if member in plan.whole:
                    ends[member] = own if s + 1 == count else min(ends[member], own)
            steps: list[Step] = []
            for member in range(len(self.members)):
                steps += self._member(member, ends[member], across)
            stripes.append(tuple(steps))
        return Task(rows, columns, tuple(stripes))

    def _member(self, member: int, end: int, across: list[Span]) -> list[Step]:
        steps: list[Step] = []
        (height, width), columns = self.sizes[member], across[member]
        done, end = self.done[member], max(end, self.done[member])
        links = () if member in self.open.whole else self.open.links[member]
        if links:
            pending = [n for n in links if self.done[n.reader] < self.sizes[n.reader][0]]
            needed = min((_start(n, n.rows, self.done[n.reader], height) for n in pending), default=FAR)
            step = self.open.alignments[member][0]
            new, old = min(needed // step * step, done), self.base[member]
            self.base[member] = new
            if old < new < done and self.open.keeps(member):
                steps += [Shift(v, (new, done), (old, columns[0])) for v in self.members[member].outputs]
        self.done[member] = end
        inside, beside = _clip((done, end), height), _clip(columns, width)
        if any(link.outside for link in links):
            for value in self.members[member].outputs:
                base = self.base[member], columns[0]
                for rows, part in (
                    ((done, min(end, 0)), columns),
                    ((max(done, height), end), columns),
                    (inside, (columns[0], min(columns[1], 0))),
                    (inside, (max(columns[0], width), columns[1])),
                ):
                    if rows[0] < rows[1] and part[0] < part[1]:
                        steps.append(Fill(value, rows, part, base))
        if inside[0] < inside[1] and beside[0] < beside[1]:
            steps.append(Compute(member, inside, beside, self._bases(member, across)))
        return steps

    def _bases(self, member: int, across: list[Span]) -> dict[Value, tuple[int, int]]:
        group = self.members[member]
        found = {}
        for value in dict.fromkeys((*group.inputs, *group.outputs)):
            owner = self.producer.get(value, self.last)
            if owner != self.last and owner not in self.open.whole:
                found[value] = self.base[owner], across[owner][0]
        return found


def _parts(size: int, parts: int, unit: int) -> list[Span]:
    units = -(-size // unit)
    cuts = [min(i * units // parts * unit, size) for i in range(parts + 1)]
    return [(a, b) for a, b in zip(cuts, cuts[1:]) if a < b]


def _start(link: Link, line: ReaderLine, at: int, size: int) -> int:
    first = line.start(max(at, 0))
    return first if link.outside else max(min(first, size - 1), 0)


def _end(link: Link, line: ReaderLine, at: int, size: int) -> int:
    end = line.end(at)
    return end if link.outside else min(end, size)


def _up(number: int, unit: int, size: int) -> int:
    return min(-(-number // unit) * unit, size) if number < size else number


def _clip(span: Span, size: int) -> Span:
    low, high = (min(max(n, 0), size) for n in span)
    return low, max(low, high)
