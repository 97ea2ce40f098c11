"""What every segment of the program would take as one tile group: bytes and cycles, without making its plan.

For one last group and one shape, members are added from the last one back, and each costs a handful of operations:
rows are straight lines (see reach.py), so that a steady stripe stands for all of them.

    end      the rows that a member has made lie this far beyond its share of the stripes so far
    start    where the rows that it makes in a stripe begin, relative to the stripe's end
    held     what its window holds: from the first row that a reader needs to the last one made
    first    where a band's first row lies, relative to the band's own
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...schedules.conv import overwritten, share_by_halves, supports_conv
from ...schedules.group import Group, Request, Value
from ...schedules.tiled.support import box_alignment
from ...targets.target import Target
from .candidates import Program
from .cost import (
    CALL,
    LAUNCH,
    STREAMED,
    Known,
    MemberCost,
    joined,
    member_cost,
    position_bytes,
    value_bytes,
)
from .form import RECOMPUTE, RING, Needs
from .rates import Rates
from .reach import Reach, reach
from .regions import group_needs_of

LONGEST = 32  # members of a tile group
FOURS = (1, 2, 4, 8, 16, 24, 48, 96)  # rows of stripes
SIXES = (12, 36, 72)  # those for tiles of six rows, also at a half or a third of the size


@dataclass(frozen=True)
class Shape:
    """A candidate: stripes of ``rows``, blocks of ``columns`` (of the segment's last output); one mode for all inner
    values, and the other one of the two for ``others``. ``units``: rings take in rows in multiples of what their
    member computes at a time (a transform's tiles), even if a stripe wants fewer."""

    rows: int
    columns: int
    bands: int
    mode: str
    others: frozenset[Value] = frozenset()
    units: bool = False

    def mode_of(self, group: Group) -> str:
        if not self.others or self.others.isdisjoint(group.outputs):
            return self.mode
        return RECOMPUTE if self.mode == RING else RING


@dataclass(frozen=True)
class Segment:
    """Groups ``first`` to ``last`` in one piece. ``shape`` None: a single group, computed whole. ``scratch`` bytes of
    all workers; ``cycles`` predicted."""

    first: int
    last: int
    shape: Shape | None
    scratch: float
    cycles: float


@dataclass(frozen=True)
class Halves:
    """Whether layers computed whole may be seven products of halves; those that write ``closing`` may not."""

    allowed: bool = True
    closing: frozenset[Value] = frozenset()


@dataclass
class Model:
    """Costs and reaches of all groups, each found once."""

    program: Program
    target: Target
    threads: int
    exact: bool = False
    halves: Halves = Halves()
    needs: Needs = group_needs_of
    costs: dict[Group, MemberCost] = field(default_factory=dict)
    reaches: dict[tuple[Group, Value], tuple[Reach, Reach] | None] = field(default_factory=dict)
    sizes: dict[Value, tuple[int, int]] = field(default_factory=dict)
    residuals: dict[Group, tuple[Value, ...]] = field(default_factory=dict)
    fits: Known = field(default_factory=dict)
    options: dict[int, list[tuple[float, Segment]]] | None = None  # what search found worth a look, by first group

    def __post_init__(self) -> None:
        self.rates = Rates.of(self.target, self.threads)

    def of(self, program: Program) -> Model:
        """The same for another program of the same groups, or most of them."""
        return replace(self, program=program, options=None)

    def streaming(self, arithmetic: float, traffic: float, weights: float) -> tuple[float, float]:
        """Arithmetic and traffic with the cycles that ``weights`` take on their way: kernels ask for them ahead, but a
        core in order waits for them as for everything else."""
        if self.target.in_order:
            return arithmetic, traffic + weights
        return joined(arithmetic, weights, STREAMED), traffic

    def cost(self, index: int) -> MemberCost:
        group = self.program.groups[index]
        if group not in self.costs:
            self.costs[group] = member_cost(group, self.program.layouts, self.target, self.exact, self.fits)
        return self.costs[group]

    def overwritten(self, index: int) -> tuple[Value, ...]:
        """The inputs whose memory group ``index`` may take for its output, computed whole."""
        group = self.program.groups[index]
        if group not in self.residuals:
            conv = group.anchor is not None and supports_conv(group.anchor) and len(group.outputs[0].shape) == 4
            self.residuals[group] = overwritten(self.request(group)) if conv else ()
        return self.residuals[group]

    def request(self, group: Group) -> Request:
        closing = not self.halves.closing.isdisjoint(group.outputs)
        choices = {"threads": self.threads, "strassen": self.halves.allowed, "closing": closing}
        return Request(group, self.program.layouts, self.target, self.exact, choices)

    def unit(self, index: int) -> int:
        """Rows that the kernel of group ``index`` computes at a time, where boxes must begin anyhow included."""
        return math.lcm(self.cost(index).unit[0], box_alignment(self.program.groups[index])[0])

    def reach(self, reader: int, value: Value) -> tuple[Reach, Reach] | None:
        group = self.program.groups[reader]
        key = (group, value)
        if key not in self.reaches:
            rows, columns = (reach(self.needs, group, value, axis) for axis in (2, 3))
            self.reaches[key] = (rows, columns) if rows is not None and columns is not None else None
        return self.reaches[key]

    def size(self, value: Value) -> tuple[int, int]:
        """Bytes of ``value`` in memory, and of one of its positions."""
        if value not in self.sizes:
            unit = position_bytes(value, self.program.layouts) if len(value.shape) == 4 else 0
            self.sizes[value] = value_bytes(value, self.program.layouts), unit
        return self.sizes[value]

    def whole(self, index: int) -> Segment:
        """Group ``index`` computed whole by a kernel of its own."""
        group, cores = self.program.groups[index], self.threads
        cost = self.cost(index)
        height, width = (*group.outputs[0].shape[2:4], 1, 1)[:2] if len(group.outputs[0].shape) == 4 else (1, 1)
        if len(group.outputs[0].shape) == 4:
            arithmetic = cost.box(height, width) * share_by_halves(self.request(group))
        else:
            arithmetic = cost.cycles * cost.positions
        read = sum(value_bytes(v, self.program.layouts) for v in group.inputs if v.constant is None)
        written = sum(value_bytes(v, self.program.layouts) for v in group.outputs)
        footprint = read + written + cost.weights
        traffic = read / self.rates.at(footprint, cores, cost.gathers)
        traffic += written * self.rates.writes(footprint, cores) / self.rates.at(footprint, cores)
        weights = cost.read(height, width) / self.rates.streamed(4 * cost.weights, cores, cost.weights)
        arithmetic, traffic = self.streaming(arithmetic, traffic, weights)
        beside = cost.beside(height, width) * cores
        return Segment(index, index, None, beside, joined(arithmetic, traffic, cost.exposed) / cores + LAUNCH)


@dataclass
class _Member:
    """Numbers of one member, in rows and columns of its own output; see the module's words."""

    row_scale: float
    column_scale: float
    end: float
    start: float
    first: float
    left: float
    right: float
    window: float  # bytes, 0 if whole
    fresh: float = 0.0  # rows that a call computes


def segments(model: Model, last: int, shape: Shape) -> Iterator[Segment]:
    """All segments that end with group ``last``, as far back as they go."""
    grown = _Growing(model, last, shape)
    for first in range(last, max(-1, last - LONGEST), -1):
        if model.program.refusal(first) is not None or not grown.add(first):
            return
        if first < last:
            yield grown.segment(first)


def segment_of(model: Model, first: int, last: int, shape: Shape) -> Segment | None:
    """Groups ``first`` to ``last`` in this shape; None if it is impossible."""
    grown = _Growing(model, last, shape)
    for index in range(last, first - 1, -1):
        if not grown.add(index):
            return None
    return grown.segment(first)


class _Growing:
    def __init__(self, model: Model, last: int, shape: Shape) -> None:
        self.model, self.last, self.shape = model, last, shape
        self.program = model.program
        output = self.program.groups[last].outputs[-1]
        self.height, self.width = output.shape[2:4]
        self.bands = max(1, min(shape.bands, -(-self.height // shape.rows)))
        self.blocks = -(-self.width // shape.columns)
        self.stripes = -(-self.height // shape.rows)
        self.workers = min(model.threads, self.bands * self.blocks)
        self.members: dict[int, _Member] = {}
        self.arithmetic = self.calls = self.exposed = 0.0
        self.passing: dict[int, float] = {}  # bytes of the windows that keep nothing from stripe to stripe
        self.most = 0.0  # bytes of the largest scratch of a member's own
        self.kept = self.shared = 0.0  # bytes of windows that keep rows, and the most of others at a time
        self.near = self.far = 0.0  # bytes of rows that move up in their rings; of reads by later members
        self.moved = 0.0  # cycles of what neighbours read
        self.anew = self.stored = 0.0  # bytes written to windows, and cycles where their lines are near
        self.weights = self.streamed = 0.0  # bytes of weights, and of their reads
        self.outside: dict[Value, float] = {}  # bytes read of each value from outside, and written of whole ones
        self.written = 0.0
        self.roots: set[Value] = set()
        self.inside: set[Value] = set()

    def add(self, index: int) -> bool:
        """Adds the group before the first member; False if it can't be one, or not in this shape."""
        group = self.program.groups[index]
        if index != self.last and not self.program.reads(index, self.last):
            return False
        if any(self.program.places.root(v) in self.roots for v in group.outputs if v in self.program.shared):
            return False
        member = self._member(index)
        if member is None:
            return False
        self.members[index] = member
        self.inside.update(group.outputs)
        for value in group.inputs:
            if value in self.program.shared and value not in self.inside:
                self.roots.add(self.program.places.root(value))
        self._count(index, member)
        return True

    def _member(self, index: int) -> _Member | None:
        group, shape = self.program.groups[index], self.shape
        if index == self.last:
            rows, wide = float(shape.rows), float(min(shape.columns, self.width))
            return _Member(1.0, 1.0, 0.0, -rows, 0.0, 0.0, wide, 0.0, rows)
        found: _Member | None = None
        whole = False
        for value in group.outputs:
            readers = self.program.readers.get(value, [])
            whole = whole or value in self.program.outputs or value in self.program.shared
            whole = whole or any(r > self.last for r in readers) or not readers
            for reader in readers:
                if reader > self.last:
                    continue
                both = self.model.reach(reader, value)
                if both is None:
                    return None
                found = _merged(found, self.members[reader], *both)
                if found is None:
                    return None
        if found is None:
            return None
        rows, columns = float(group.outputs[0].shape[2]), float(group.outputs[0].shape[3])
        found.right = min(found.right, found.left + columns + 4)
        if whole:
            # bands and blocks must not read each other's parts
            if self.bands > 1 and found.first < found.end:
                return None
            block = min(self.shape.columns, self.width) * found.column_scale
            if self.blocks > 1 and (found.left < 0 or found.right > block + 1e-6):
                return None
            found.fresh = found.row_scale * shape.rows
            found.start = found.end - found.fresh
            return found
        ring = shape.mode_of(group) == RING
        step = found.row_scale * shape.rows
        needed = found.end
        found.fresh = min(found.end - found.start, rows)
        if ring:
            unit = self.model.unit(index) if shape.units else box_alignment(group)[0]
            found.fresh = min(rows, unit * max(1, round(step / unit)) if unit > 1 else step)
            least = math.gcd(unit, round(step)) if abs(step - round(step)) < 1e-6 else 1
            needed = -(-math.floor(found.end + 1e-6) // least) * least  # rows appear up to multiples of ``least`` ...
            found.end = float(needed + unit - least)  # ... or of ``unit``, in the worst of stripes
        held = min(found.end - found.start, rows + 4)
        position = sum(self.model.size(v)[1] for v in group.outputs)
        found.window = held * (found.right - found.left) * position
        if ring:
            if held > step + 1e-6:
                self.kept += found.window
                moved = max(0.0, held - found.fresh) * (found.right - found.left) * position
                self.near += 2 * moved * self.stripes * self.blocks
            else:
                self.passing[index] = found.window
            found.start = needed - step
        else:
            self.passing[index] = found.window
        return found

    def _count(self, index: int, member: _Member) -> None:
        """Work, traffic and bytes of one member, over all tasks."""
        group, cost, rates = self.program.groups[index], self.model.cost(index), self.model.rates
        rows, columns = group.outputs[0].shape[2:4]
        wide = min(member.right - member.left, columns)
        fresh = min(member.fresh, rows)
        again = index != self.last and bool(member.window) and self.shape.mode_of(group) == RECOMPUTE
        if again:
            times = float(self.stripes)
        else:
            total = rows + (self.bands - 1) * max(0.0, member.end - member.first)
            times = max(1.0, total / max(1e-9, fresh))
        times *= self.blocks
        work = times * cost.box(max(1.0, fresh), max(1.0, wide))
        self.arithmetic += work
        self.exposed += work * cost.exposed
        self.calls += times * CALL * 2
        unit = sum(self.model.size(v)[1] for v in group.outputs)
        made = times * fresh * wide * unit
        footprint = member.window + cost.weights
        for value in dict.fromkeys(group.inputs):
            if value.constant is None and len(value.shape) == 4:
                self._read(index, value, times, fresh, wide, again)
        if not member.window:
            self.written += made
        else:
            for value in group.outputs:
                for reader in self.program.readers.get(value, ()):
                    if reader <= self.last:
                        near = reader - index <= 2
                        pair = footprint + self.members[reader].window
                        gathers = self.model.cost(reader).gathers
                        self.moved += made / rates.at(pair * self.workers, self.workers, gathers) if near else 0.0
                        self.far += 0.0 if near else made
            together = footprint * self.workers
            self.stored += made * rates.writes(together, self.workers) / rates.at(together, self.workers)
            self.anew += made
            if index in self.passing:
                after = [r for v in group.outputs for r in self.program.readers.get(v, ()) if r <= self.last]
                self.shared = max(self.shared, member.window + max(self.passing.get(r, 0.0) for r in after))
        self.most = max(self.most, cost.beside(max(1.0, fresh), max(1.0, wide)))
        self.weights += cost.weights
        self.streamed += times * cost.read(fresh, wide)

    def _read(self, index: int, value: Value, times: float, fresh: float, wide: float, again: bool) -> None:
        """Counts a read as one from outside until its producer joins. ``again``: nothing stays of the stripe before."""
        both = self.model.reach(index, value)
        if both is None:
            return
        rows = both[0].slope * (fresh - 1) + both[0].after - both[0].before
        columns = both[1].slope * (wide - 1) + both[1].after - both[1].before
        rows, columns = min(rows, value.shape[2]), min(columns, value.shape[3])
        if not again:
            rows = min(rows, both[0].slope * fresh)  # the rest was read in the stripe before
        self.outside[value] = self.outside.get(value, 0.0) + times * rows * columns * self.model.size(value)[1]

    def segment(self, first: int) -> Segment:
        rates, threads = self.model.rates, self.model.threads
        tasks = self.bands * self.blocks
        workers = self.workers
        scratch = self.kept + self.shared + self.most
        busy = workers * scratch + (workers if rates.private else 1) * self.weights
        inner = rates.at(busy, workers)
        traffic = self.moved + self.far / inner
        if rates.hides:
            traffic += self.stored + self.near / rates.near
        else:  # these lines were last touched a stripe before; those that rows move to come and go
            traffic += (self.anew + 1.5 * self.near) / inner
        weights = self.streamed / rates.streamed(busy, workers) if busy > rates.inner(workers) else 0.0
        for value, amount in self.outside.items():
            if value not in self.inside:
                size = self.model.size(value)[0]
                traffic += amount / rates.at(2 * size)
        traffic += self.written * rates.writes(2 * self.written) / rates.at(2 * self.written)
        rounds = math.ceil(tasks / threads) * threads / tasks
        exposed = self.exposed / max(1.0, self.arithmetic)
        arithmetic, traffic = self.model.streaming(self.arithmetic, traffic, weights)
        cycles = (joined(arithmetic, traffic, exposed) + self.calls) / threads * rounds + LAUNCH
        return Segment(first, self.last, self.shape, workers * scratch, cycles)


def _merged(found: _Member | None, reader: _Member, rows: Reach, columns: Reach) -> _Member | None:
    """What a member must do for ``reader`` as well; None if their scales differ."""
    slope, before, after = rows.slope, rows.before, rows.after
    wide, left, right = columns.slope, columns.before, columns.after
    new = _Member(
        slope * reader.row_scale,
        wide * reader.column_scale,
        slope * (reader.end - 1) + after,
        slope * reader.start + before,
        slope * reader.first + before,
        wide * reader.left + left,
        wide * (reader.right - 1) + right,
        0.0,
    )
    if found is None:
        return new
    if abs(found.row_scale - new.row_scale) > 0.1 * new.row_scale:
        return None
    return _Member(
        new.row_scale,
        new.column_scale,
        max(found.end, new.end),
        min(found.start, new.start),
        min(found.first, new.first),
        min(found.left, new.left),
        max(found.right, new.right),
        0.0,
    )


def shapes(height: int, width: int, cores: int, large: bool = False) -> list[Shape]:
    """The candidates for an output of ``height x width``. Wide blocks are multiples of 24, which is whole tiles of
    Winograd's also where members before work at a half or a third of the size; ``large``: there are stripes of whole
    tiles of six rows, which rings need not round."""
    found = []
    widths = [width]
    for parts in (2, 4, 8, 16):
        block = -(-width // parts)
        unit = 24 if block > 64 else 4 if block >= 16 else 1
        if block >= 7:
            widths.append(min(width, -(-block // unit) * unit))
    for rows in (*FOURS, *(SIXES if large else ())):
        if rows > max(1, height // 2) and rows > 2:
            continue
        for columns in dict.fromkeys(widths):
            if columns != width and (rows < 2 or (rows < 4 and width > 64)):
                continue
            every = columns < width or rows <= 8  # one band at a time: half the scratch where blocks keep cores busy
            for bands in sorted({1, cores} if every else {cores}):
                units = (False, True) if rows <= 8 else (rows not in SIXES,)
                found += [Shape(rows, columns, bands, RING, units=u) for u in units]
            if rows in (16, 48) and columns < width:
                found.append(Shape(rows, columns, -(-height // rows), RECOMPUTE))
    return found
