"""What groups and their values take, each found once; the shapes that tile groups may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from ....schedules.conv import Beside, MemberCost, besides, chosen, overwritten_in_boxes
from ....schedules.conv.box_cost import Known, Numbers
from ....schedules.conv.weight_bandwidth import kept_bytes
from ....schedules.instructions.prefetch import can_stream
from ....schedules.tiled.box_support import box_alignment
from ....schedules.tiled.core_sharing import by_rows, column_unit
from ....schedules.tiled.kernel import box_target
from ....schedules.words.group import Box, Group, Limits, Request, Value
from ....schedules.words.policy import Policy
from ....schedules.words.tile_plan import TilePlan
from ....targets.target import Target
from ..plan.form import RECOMPUTE, RING, Needs
from ..plan.needs import group_needs_of
from ..plan.overwrite_inputs import alike
from ..plan.windows import JOINT
from .bandwidth import Rates
from .linear_reach import LinearReach, reach
from .member_cost import joined, member_cost, position_bytes, value_bytes
from .program import Program

FOURS = (1, 2, 4, 8, 16, 24, 48, 96)  # rows of stripes
ROOMS = 32  # parts of the second-level cache, of which a member may hold one
PERIODS = 8  # columns of a period, of which blocks are multiples
LEAST_SHARED = 14  # columns for each core, where cores share steps
SIXES = (12, 18, 36, 72)  # those for tiles of six rows, also at a half or a third of the size


@dataclass(frozen=True)
class Shape:
    """A candidate: stripes of ``rows``, blocks of ``columns`` (of the segment's last output); one mode for all inner
    values, and the other one of the two for ``others``. ``units``: rings take in rows in multiples of what their
    member computes at a time (a transform's tiles), even if a stripe wants fewer. ``sharing`` cores compute each step
    together, and have one set of windows; ``saves``: rings save the rows they keep; members hold at most ``room`` bytes
    a core beside (None: any number)."""

    rows: int
    columns: int
    bands: int
    mode: str
    others: frozenset[Value] = frozenset()
    units: bool = False
    sharing: int = 1
    saves: bool = False
    room: int | None = None

    def mode_of(self, group: Group) -> str:
        if not self.others or self.others.isdisjoint(group.outputs):
            return self.mode
        return RECOMPUTE if self.mode == RING else RING


@dataclass(frozen=True)
class Segment:
    """Groups ``first`` to ``last`` in one piece. ``shape`` None: a single group, computed whole, in ``room`` bytes a
    core beside what it reads and writes (None: any number). ``scratch`` bytes of all workers; ``cycles`` predicted;
    ``taken`` bytes of inputs that a tile group's results lie over."""

    first: int
    last: int
    shape: Shape | None
    scratch: float
    cycles: float
    room: int | None = None
    taken: float = 0.0

    @property
    def beside(self) -> float:
        """Bytes in use beside all that crosses its ends."""
        return self.scratch - self.taken


@dataclass
class SearchModel:
    """Costs and reaches of all groups, each found once."""

    program: Program
    target: Target
    threads: int
    policy: Policy = Policy()
    closing: frozenset[Value] = frozenset()  # what the last sums of products before the outputs write
    tight: bool = False  # memory counts: layers may take less scratch, and more time
    saving: bool = False  # rings may save rows
    needs: Needs = group_needs_of
    costs: dict[tuple[Group, int | None], MemberCost] = field(default_factory=dict)
    whole_costs: dict[Group, MemberCost] = field(default_factory=dict)
    reaches: dict[tuple[Group, Value], tuple[LinearReach, LinearReach] | None] = field(default_factory=dict)
    sizes: dict[Value, tuple[int, int]] = field(default_factory=dict)
    local: dict[Group, bool] = field(default_factory=dict)
    held: dict[Group, tuple[Beside, ...]] = field(default_factory=dict)
    over: dict[tuple[Group, int | None], tuple[Value, ...]] = field(default_factory=dict)
    fits: Known = field(default_factory=dict)
    plans: dict[tuple[tuple[Group, ...], Shape, frozenset[Value]], TilePlan] = field(default_factory=dict)
    planner: Callable[[Program, int, int, Shape, Mapping[Value, int]], Any] | None = None  # where sizes are open
    refuses: Callable[[Program, int, int], str | None] = Program.joined  # why a run of groups can't be planned
    allows: Callable[[Program, int, int, Sequence[Shape]], list[bool]] | None = None  # in which shapes; None: in all
    options: dict[int, list[tuple[float, Segment]]] | None = None  # what search found worth a look, by first group

    def __post_init__(self) -> None:
        self.rates = Rates.of(self.target, self.threads)

    def of(self, program: Program) -> SearchModel:
        """This model for another program of the same groups, or most of them."""
        return replace(self, program=program, options=None)

    def streaming(self, arithmetic: Numbers, traffic: Numbers, weights: Numbers) -> tuple[Numbers, Numbers]:
        """Arithmetic and traffic with the cycles that ``weights`` take on their way: kernels ask for them ahead, but a
        core in order waits for them as for everything else."""
        if self.target.in_order:
            return arithmetic, traffic + weights
        return joined(arithmetic, weights, self.target.fitted.kernels.streamed), traffic

    def cost(self, index: int, room: int | None = None) -> MemberCost:
        """What boxes of group ``index`` take, in kernels that hold at most ``room`` bytes beside."""
        group = self.program.groups[index]
        if (group, room) not in self.costs:
            self.costs[group, room] = member_cost(self.box_request(group, room), self.fits)
        return self.costs[group, room]

    def whole_cost(self, index: int) -> MemberCost:
        """What group ``index`` takes where it is computed whole, which other algorithms may do than boxes of it."""
        group = self.program.groups[index]
        if group not in self.whole_costs:
            whole, box = (chosen(r) for r in (self.request(group), self.box_request(group)))
            alike = whole is None or box is not None and whole.algorithm == box.algorithm
            self.whole_costs[group] = self.cost(index) if alike else member_cost(self.request(group), self.fits)
        return self.whole_costs[group]

    @property
    def room(self) -> int:
        """What members hold that may hold little: a small part of the second-level cache."""
        return self.target.l2_bytes // ROOMS

    def besides(self, index: int) -> tuple[Beside, ...]:
        """What group ``index`` holds where it is computed whole, with as much room as it likes, and with less."""
        group = self.program.groups[index]
        if group not in self.held:
            self.held[group] = besides(self.request(group), self.tight)
        return self.held[group]

    def overwritten(self, index: int, room: int | None) -> tuple[Value, ...]:
        """The inputs whose memory group ``index`` may take for its output, computed whole."""
        return next(b.overwritten for b in self.besides(index) if b.room == room)

    def taken(self, index: int, width: int = 0, sharing: int = 1) -> Value | None:
        """The input whose window the output of group ``index`` may have in a tile group whose last output is ``width``
        wide, and whose steps ``sharing`` cores share."""
        group, unit = self.program.groups[index], None
        if sharing > 1 and not by_rows(width, sharing):
            unit = column_unit(group, sharing)
        if (group, unit) not in self.over:
            alone = replace(self.request(group), target=replace(self.target, cores=1))
            self.over[group, unit] = overwritten_in_boxes(alone, unit)
        return next(iter(self.over[group, unit]), None)

    def request(self, group: Group) -> Request:
        """What asks for the kernel of ``group`` as a whole."""
        limits = Limits(closing=not self.closing.isdisjoint(group.outputs))
        policy = replace(self.policy, threads=self.threads).narrowed(group.weighed)
        return Request(group, self.program.layouts, self.target, policy, limits)

    def box_request(self, group: Group, room: int | None = None) -> Request:
        """What asks for the kernel of boxes of ``group`` that are as large as it is, on one core."""
        request = self.request(group)
        shape = group.outputs[0].shape
        limits = replace(request.limits, room=room)
        box = Box(*shape[2:]) if len(shape) == 4 else None
        return replace(request, target=box_target(self.target), limits=limits, box=box)

    def rows(self, index: int, cost: MemberCost) -> int:
        """Rows that the kernel of group ``index`` computes at a time, where boxes must begin anyhow included."""
        return math.lcm(cost.unit[0], box_alignment(self.program.groups[index])[0])

    def reach(self, reader: int, value: Value) -> tuple[LinearReach, LinearReach] | None:
        group = self.program.groups[reader]
        key = (group, value)
        if key not in self.reaches:
            rows, columns = (reach(self.needs, group, value, axis) for axis in (2, 3))
            self.reaches[key] = (rows, columns) if rows is not None and columns is not None else None
        return self.reaches[key]

    def period(self, index: int) -> int:
        """Columns after which group ``index`` reads alike where it enlarges by a whole factor (a pixel shuffle, say):
        blocks of whole periods are computed faster. 1 where it doesn't."""
        group, found = self.program.groups[index], 1
        for value in group.inputs:
            both = self.reach(index, value) if value.constant is None and len(value.shape) == 4 else None
            if both is not None and 0 < both[1].slope < 1:
                factor = Fraction(1 / both[1].slope).limit_denominator(PERIODS)
                found = math.lcm(found, factor.numerator if factor.denominator == 1 else 1)
        return found if found <= PERIODS else 1

    def joint(self, index: int) -> int:
        """The first of the groups up to ``index`` that cores compute without waiting for each other in between."""
        first = index
        while first > 0 and self._in_place(first):
            first -= 1
        return index - (index - first) % JOINT

    def _in_place(self, index: int) -> bool:
        """True if group ``index`` reads at the place that it computes alone."""
        group = self.program.groups[index]
        if group not in self.local:
            self.local[group] = self.program.refusal(index) is None and all(
                v.shape[2:] == group.outputs[0].shape[2:] and self.reach(index, v) == (LinearReach(1, 0, 1),) * 2
                for v in group.inputs
                if v.constant is None and len(v.shape) == 4
            )
        return self.local[group]

    def size(self, value: Value) -> tuple[int, int]:
        """Bytes of ``value`` in memory, and of one of its positions."""
        if value not in self.sizes:
            unit = position_bytes(value, self.program.layouts) if len(value.shape) == 4 else 0
            self.sizes[value] = value_bytes(value, self.program.layouts), unit
        return self.sizes[value]

    def whole(self, index: int) -> Segment:
        """Group ``index`` computed whole by a kernel of its own."""
        return self.wholes(index)[0]

    def wholes(self, index: int) -> list[Segment]:
        """The segments that compute group ``index`` whole: the fastest, then with less and less scratch where that
        matters."""
        group, cores, fitted = self.program.groups[index], self.threads, self.target.fitted.kernels
        cost = self.whole_cost(index)
        height, width = (*group.outputs[0].shape[2:4], 1, 1)[:2] if len(group.outputs[0].shape) == 4 else (1, 1)
        if len(group.outputs[0].shape) == 4:
            own = cost.box(height, width)
        else:
            own = cost.cycles * cost.positions
        read = sum(value_bytes(v, self.program.layouts) for v in group.inputs if v.constant is None)
        written = sum(value_bytes(v, self.program.layouts) for v in group.outputs)
        footprint = read + written + cost.weights
        again = 1 if self._passes(index) else self.rates.writes(footprint, cores)
        if cost.moves:
            cold = sum(self.size(v)[0] for v in group.inputs if v in self.program.given)
            traffic = cold / self.rates.cold
            footprint -= written if self._overwrites(index) else 0  # the same lines
            traffic += (read - cold + written * again) / self.rates.moves(footprint)
        else:
            traffic = read / self.rates.at(footprint, cores, cost.gathers)
            traffic += written * again / self.rates.at(footprint, cores)
        exposed = 0.0 if cost.asks and self._from_memory(index) else cost.exposed(fitted)
        weights = cost.read(height, width) / self.rates.streamed(4 * cost.weights, cores, cost.weights)
        found = []
        for way in self.besides(index):
            both = self.streaming(own * way.share, traffic, weights)
            cycles = float(joined(*both, exposed)) / cores + fitted.launch
            found.append(Segment(index, index, None, float(way.bytes), cycles, way.room))
        return found

    def _overwrites(self, index: int) -> bool:
        """True if group ``index``, computed whole, reads at its own place what nobody reads afterwards: a map's result
        goes there."""
        group, place = self.program.groups[index], (LinearReach(1, 0, 1), LinearReach(1, 0, 1))
        if self.program.refusal(index) is not None:
            return False
        output, layouts = group.outputs[0], self.program.layouts
        able = (v for v in self.program.dying(index, index) if alike(output, v, layouts))
        return group.anchor is None and any(self.reach(index, v) == place for v in able)

    def _from_memory(self, index: int) -> bool:
        """True if the anchor of group ``index`` reads more than the last level keeps."""
        anchor = self.program.groups[index].anchor
        return anchor is not None and self.size(anchor.operands[0])[0] > kept_bytes(self.target)

    def _passes(self, index: int) -> bool:
        """True if the results of group ``index``, computed whole, are large enough to be written past the caches."""
        outputs = self.program.groups[index].outputs
        return can_stream(self.target) and all(v.bytes > self.target.fitted.memory.past for v in outputs)


def shapes(
    height: int, width: int, cores: int, large: bool = False, sharing: bool = False, saving: int = 0, period: int = 1
) -> list[Shape]:
    """The candidates for an output of ``height x width``. Wide blocks are of equal width, or of multiples of 24, which
    is whole tiles of Winograd's also where members before work at a half or a third of the size, but leaves a narrower
    block behind; ``large``: there are stripes of whole tiles of six rows, which rings need not round; ``sharing``: all
    cores may compute each step together; ``saving``: rings may save rows, and members hold at most so many bytes;
    blocks are of whole ``period`` columns."""
    found = []
    widths = [width]
    for parts in (2, 4, 8, 16):
        block = -(-width // parts)
        units = (4, 24) if block > 64 else (4,) if block >= 16 else (1,)
        if block >= 7:
            widths += [min(width, -(-block // unit) * unit) for unit in (math.lcm(u, period) for u in units)]
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
                tried = found[-len(units) :]
                if sharing and cores > 1 and columns == width >= LEAST_SHARED * cores:
                    tried += [Shape(rows, columns, 1, RING, units=u, sharing=cores) for u in units]
                    found += tried[len(units) :]
                if saving and rows > 1:
                    found += [replace(s, saves=True, room=room) for room in (None, saving) for s in tried]
            if rows in (16, 48) and columns < width:
                found.append(Shape(rows, columns, -(-height // rows), RECOMPUTE))
    return found
