"""What a member costs on one core, in cycles, from the target's facts and the choices that its generator makes.

    arithmetic   register tiles of the convolution families, their waste at a box's edges included
    weights      bytes that a box reads of them (transformed ones for Winograd)
    bytes        of inputs and outputs, a position; how fast they move depends on where they lie (bandwidth.py)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....schedules.conv import ConvFacts, supports_conv
from ....schedules.conv.amx.choose import MARGIN, PARTS, SPLIT_CYCLES, float_cycles, register_cycles, suits
from ....schedules.conv.amx.choose import best_plan as best_strip
from ....schedules.conv.amx.choose import held_bytes as strip_bytes
from ....schedules.conv.amx.strips import Strip
from ....schedules.conv.direct.few_outputs import choose_few_tile, few_step, has_few
from ....schedules.conv.direct.small_groups import choose_grouped_tile, grouped_step, has_small_groups
from ....schedules.conv.register_tile import Space, Tile, choose_tile
from ....schedules.conv.winograd.choose import choose_plan, least_plans
from ....schedules.conv.winograd.cost import FILL, warm_cycles
from ....schedules.conv.winograd.plan import STACK_BYTES, Plan, scratch_bytes, weight_bytes
from ....schedules.conv.winograd.prefetch import asks_next
from ....schedules.conv.winograd.transform import F2
from ....schedules.instructions.amx import COLUMNS, DEPTH, PAIRS, ROWS, SUMS, has_matrix_unit
from ....schedules.instructions.int8_dot import multiplier, per_word
from ....schedules.matmul.facts import MatmulFacts
from ....schedules.operators.kind import Facts
from ....schedules.words.group import Group, Value, dtype_bytes
from ....schedules.words.layout import Layout
from ....schedules.words.policy import Policy
from ....targets.target import Target

EXPOSED = 0.4  # of the shorter of arithmetic and traffic, the part that the longer one doesn't hide
PHASED = 1.0  # the same where a kernel first moves data and then computes (Winograd's transforms and products)
STREAMED = 0.3  # the same of arithmetic and weights, which kernels ask for ahead
LAUNCH = 2000.0  # cycles to start a kernel on all cores and wait for the last
CALL = 250.0  # cycles to call a part of a tile group
SMALL = 4  # tiles of the whole that a box is wide, beyond which its own are no others
LAST_PLACES = SUMS * ROWS  # that the last registers may read beyond a box's
LOOP = 1.0  # cycles that a step of a reduction spends beside its arithmetic
MATMUL = "relax.matmul"
ANY = Policy()  # whatever a family likes
SHORT, LONG = 0.5, 12.0  # cycles of a vector in an epilogue; of exponentials and the like (EfficientNet's silu)

Numbers = Any  # a number, or an array of them
Known = dict[tuple[int, int, int, int], tuple[float, int]]


@dataclass(frozen=True)
class Fit:
    """What direct convolutions take whose register tile is chosen for a box: ``blocks`` vectors of outputs, of which
    ``limit`` may share a tile; ``depth`` steps of a reduction, and ``extra`` cycles an output position. ``known`` has
    the cycles of a step of all tiles that cover a box, and belongs to a target."""

    target: Target
    blocks: int
    limit: int
    depth: float
    extra: float
    known: Known

    def box(self, rows: int, columns: int) -> float:
        key = (self.blocks, self.limit, rows, columns)
        if key not in self.known:
            tile = choose_tile(self.target, Space(rows, columns, self.blocks, self.limit))
            tiles = -(-rows // tile.rows) * -(-columns // tile.columns)
            self.known[key] = tiles * self.blocks / tile.blocks * _step(tile, self.target), tiles * tile.positions
        steps, positions = self.known[key]
        return self.depth * steps + self.extra * positions


@dataclass(frozen=True)
class Places:
    """What boxes take on a matrix unit: sixteen places of rows ``beyond`` columns longer than the box's take
    ``register`` cycles, and each place of the input that their taps read ``split``, and ``place_bytes`` of scratch,
    which kernels hold for all of a box, ``room`` at the most."""

    beyond: tuple[int, int]
    register: float
    split: float
    place_bytes: int
    room: int | None

    def held(self, rows: Numbers, columns: Numbers) -> Numbers:
        down, across = self.beyond
        size = ((rows + down) * (columns + across) + LAST_PLACES) * float(self.place_bytes)
        return size if self.room is None else np.minimum(size, self.room)

    def box(self, rows: Numbers, columns: Numbers) -> Numbers:
        down, across = self.beyond
        places = np.ceil(((rows - 1) * (columns + across) + columns) / ROWS)
        return places * self.register + (rows + down) * (columns + across) * self.split


@dataclass(frozen=True)
class MemberCost:
    """What boxes take: of one size, or of many at once (arrays of rows and of columns).

    ``unit`` output positions are computed at a time, in ``cycles``. The weights pass once for every ``strip`` units
    (0: once a call); ``lost`` is the share of them that the second-level cache forgets in between. ``fit`` has unit and
    cycles for small boxes, where they are others than for the whole; ``others`` are ways that a kernel takes for boxes
    which they fit better: a transform of smaller tiles, or none, where a large one's would be half empty; ``places``
    counts what has no unit; ``moves``: it computes little of what it reads; ``asks``: the kernel of the whole asks for
    what it reads from memory beside its arithmetic."""

    unit: tuple[int, int]
    cycles: float
    weights: int
    positions: int
    parts: tuple[int, ...] = ()  # bytes that the kernel takes beside what it reads and writes, for a whole strip
    exposed: float = EXPOSED
    strip: int = 0
    lost: float = 0.0
    fit: Fit | None = None
    others: tuple[MemberCost, ...] = ()
    places: Places | None = None
    moves: bool = False
    asks: bool = False

    @property
    def scratch(self) -> int:
        """All of ``parts``."""
        return sum(self.parts)

    @property
    def gathers(self) -> bool:
        """True if tiles of the input are gathered, rather than rows read in order."""
        return self.exposed == PHASED

    def units(self, rows: Numbers, columns: Numbers) -> Numbers:
        return np.ceil(rows / self.unit[0]) * np.ceil(columns / self.unit[1])

    def box(self, rows: Numbers, columns: Numbers) -> Numbers:
        """Cycles of boxes of ``rows x columns``."""
        cycles = np.min(self._ways(rows, columns), axis=0)
        small = np.less(columns, SMALL * self.unit[1])
        if self.fit is None or not np.any(small):
            return cycles
        given = np.broadcast_arrays(rows, columns, small)
        fitting = [self.fit.box(math.ceil(r), math.ceil(c)) if s else 0.0 for r, c, s in zip(*(g.flat for g in given))]
        return np.where(given[2], np.reshape(fitting, given[2].shape), cycles)

    def _ways(self, rows: Numbers, columns: Numbers) -> list[Numbers]:
        if self.places is not None:
            return [self.places.box(rows, columns)]
        return [w.cycles * w.units(rows, columns) for w in (self, *self.others)]

    def way(self, rows: Numbers, columns: Numbers) -> Numbers:
        """Which of its ways a kernel for boxes of ``rows x columns`` takes: 0 is its own, then ``others``."""
        return np.argmin(self._ways(rows, columns), axis=0)

    def beside(self, rows: Numbers, columns: Numbers) -> Numbers:
        """Bytes that the kernel of a box takes beside what it reads and writes, and beside its stack."""
        if self.places is not None:
            return self.places.held(rows, columns)
        if self.others:
            each = [w.beside(rows, columns) for w in (replace(self, others=()), *self.others)]
            return np.choose(self.way(rows, columns), each)
        share = np.minimum(1.0, self.units(rows, columns) / self.strip) if self.strip else 1.0
        return sum(np.where(part * share > STACK_BYTES, part * share, 0.0) for part in self.parts)

    def read(self, rows: Numbers, columns: Numbers) -> Numbers:
        """Bytes of weights that come from beyond the second-level cache for a box, if they weren't there before."""
        if self.others:
            each = [w.read(rows, columns) for w in (replace(self, others=()), *self.others)]
            return np.choose(self.way(rows, columns), each)
        if not self.strip:
            return float(self.weights)
        passes = np.maximum(1.0, self.units(rows, columns) / self.strip)
        return self.weights * (1 + (passes - 1) * self.lost)


def member_cost(
    group: Group,
    target: Target,
    policy: Policy = ANY,
    known: Known | None = None,
    room: int | None = None,
) -> MemberCost:
    """The cost of ``group``, by the kernel family that builds it. ``known``: see :class:`Fit`. ``room``: the most bytes
    that the kernel may hold beside what it reads and writes."""
    alone = target if target.cores == 1 else _alone(target)
    output = group.outputs[0]
    positions = max(1, math.prod(output.shape[2:]))  # none are left of a state that has no length
    lanes = target.channel_block(output.dtype)
    vectors = output.shape[0] * -(-output.shape[1] // lanes) if len(output.shape) > 1 else 1
    anchor = group.anchor
    extra = vectors * sum(LONG if Facts(n).calls_functions else SHORT for n in group.nodes if n is not anchor)
    if anchor is not None and supports_conv(anchor) and len(output.shape) == 4:
        weights = anchor.operands[1].bytes
        if anchor.operator == "halotile.conv_transpose":
            steps = anchor.operands[0].elements * math.prod(anchor.operands[1].shape[1:]) / positions
            return MemberCost((1, 1), 1.3 * steps / lanes / target.fma_ports + extra, weights, positions)
        facts = ConvFacts.of(anchor)
        if facts.of_bytes:
            unit, cycles, fit = _direct(facts, target, lanes, extra, {} if known is None else known)
            return MemberCost(unit, cycles, weights, positions, fit=fit)
        if facts.is_depthwise:
            cycles = vectors * (facts.taps + 0.5) / min(2, target.fma_ports)
            return MemberCost((1, 1), cycles + extra, weights, positions, moves=True)
        if has_few(facts, lanes):
            tile = choose_few_tile(alone, facts, lanes)
            steps = facts.data.shape[0] * -(-facts.channels // lanes) * facts.taps
            cycles = steps * few_step(alone, tile.positions, facts.outputs)
            cycles += 3 * lanes + extra * tile.positions  # sums across the lanes, and what follows
            return MemberCost((tile.rows, tile.columns), cycles, weights, positions)
        if has_small_groups(alone, facts):
            tile = choose_grouped_tile(alone, facts)
            steps = vectors * facts.group_in * facts.taps / facts.kernel[-1]
            cycles = steps * grouped_step(alone, facts, tile) + extra * tile.positions
            return MemberCost((tile.rows, tile.columns), cycles, weights, positions)
        split = policy.parts and has_matrix_unit(target)
        part = replace(facts, edges=facts.margins())
        plan = choose_plan(alone, part, room, split) if policy.winograd else None
        strip = best_strip(alone, facts, 1, room) if split and suits(facts) else None
        if strip is not None and strip.cycles < MARGIN * (plan.cycles if plan else float_cycles(alone, facts)):
            return _matrix(facts, strip.strip, strip_bytes(facts.channels, strip), extra, room)
        if plan is not None:
            asks = facts.data in group.inputs and asks_next(alone, part, plan, lanes)
            own = replace(_winograd(part, alone, plan, lanes, extra), asks=asks)
            size = plan.transform.size if plan.transform.strides == (1, 1) else 0
            less = [p for p in least_plans(alone, part, room, split) if F2.size < p.transform.size < size]
            others = [_winograd(part, alone, p, lanes, extra) for p in less]
            if facts.is_plain:  # tiles of 5 x 5 and more
                unit, cycles, fit = _direct(facts, target, lanes, extra, {} if known is None else known)
                others.append(MemberCost(unit, cycles, weights, positions, fit=fit))
            return replace(own, others=tuple(others))
        unit, cycles, fit = _direct(facts, target, lanes, extra, {} if known is None else known)
        return MemberCost(unit, cycles, weights, positions, fit=fit)
    work, weights = 0.0, 0
    for node in group.nodes:
        if node.operator == MATMUL:
            depth = MatmulFacts.of(node).steps
            work += sum(r.elements for r in node.results) * depth / lanes / target.fma_ports
            weights += sum(v.bytes for v in node.inputs if v.constant is not None)
            continue
        work += _map_cycles(Facts(node), lanes)
    moves = MATMUL not in group.operators
    return MemberCost((1, 1), work / positions, weights, positions, moves=moves)


def _winograd(facts: ConvFacts, target: Target, plan: Plan, lanes: int, extra: float) -> MemberCost:
    batch = facts.data.shape[0]
    turns = math.prod(facts.dilation)  # tiles that take turns, which a box has all of
    tiles = batch * plan.tiles[0] * plan.tiles[1]
    transformed = weight_bytes(lanes, facts.channels, plan)
    sizes = scratch_bytes(lanes, facts.channels, plan)
    lost = min(1.0, max(0.0, (transformed + sum(sizes)) / target.l2_bytes - FILL) / FILL)
    cycles = turns * (warm_cycles(target, facts, plan) / tiles * batch + extra * plan.transform.outputs)
    strip = max(1, plan.strip // (batch * turns))
    unit = plan.transform.tile[0] * facts.dilation[0], plan.transform.tile[1] * facts.dilation[1]
    positions = math.prod(facts.out_spatial)
    return MemberCost(unit, cycles, transformed, positions, sizes, PHASED, strip, lost)


def _matrix(facts: ConvFacts, strip: Strip, scratch: int, extra: float, room: int | None) -> MemberCost:
    beyond = max(t.row for t in strip.taps), max(t.column for t in strip.taps)
    split = SPLIT_CYCLES * -(-facts.channels // COLUMNS) * len(strip.phases)
    place_bytes = 4 * len(strip.phases) * -(-facts.channels // DEPTH) * PARTS * PAIRS
    register = facts.batch * register_cycles(facts) + extra * ROWS
    places = Places(beyond, register, facts.batch * split, place_bytes, room)
    positions = math.prod(facts.out_spatial)
    cycles = float(places.box(*facts.out_spatial)) / positions
    size = strip.rows * strip.columns
    weights = facts.weight.bytes
    return MemberCost((1, 1), cycles, weights, positions, (scratch,), strip=size, places=places)


def _direct(
    facts: ConvFacts, target: Target, lanes: int, extra: float, known: Known
) -> tuple[tuple[int, int], float, Fit]:
    blocks = -(-facts.outputs // lanes)
    height, width = facts.out_spatial
    limit = blocks if facts.groups == 1 else max(1, facts.group_out // lanes if facts.group_out % lanes == 0 else 1)
    if facts.of_bytes:
        target = multiplier(target, facts.data.dtype)
    tile = choose_tile(target, Space(height, width, blocks, limit))
    span = facts.channels if facts.groups == 1 else max(facts.group_in, lanes)
    depth = facts.data.shape[0] * (-(-span // per_word(facts.data.dtype)) if facts.of_bytes else span) * facts.taps
    fit = Fit(target, blocks, limit, depth, extra, known)
    return (tile.rows, tile.columns), depth * blocks / tile.blocks * _step(tile, target) + extra * tile.positions, fit


def _step(tile: Tile, target: Target) -> float:
    """Cycles of a step of a register tile's reduction."""
    arithmetic = tile.positions * tile.blocks / target.fma_ports
    return LOOP + max(arithmetic, (tile.positions + tile.blocks) / 2, float(target.fma_latency))


def _map_cycles(facts: Facts, lanes: int) -> float:
    operator, elements = facts.node.operator, sum(r.elements for r in facts.node.results)
    if facts.kind == "stencil":
        taps = getattr(facts.node.call.attrs, "pool_size", None)
        return elements / lanes * (math.prod(int(k) for k in taps) if taps is not None else 9) * 1.2
    if any(word in operator for word in ("permute", "transpose", "reshape", "resize", "slice", "pad", "gather")):
        return elements / lanes * 8.0  # moves that seldom run over whole vectors
    if operator == "halotile.standardise":
        return elements / lanes * 10.0  # three passes, and the lanes of two sums
    return elements / lanes * (LONG if facts.calls_functions else 2.0)


def _alone(target: Target) -> Target:
    return replace(target, cores=1)


def value_bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    """Bytes of ``value`` in memory, padding lanes and margins included."""
    layout = layouts.get(value)
    return (layout.elements if layout is not None else value.elements) * dtype_bytes(value.dtype)


def position_bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    """Bytes of one row and column of ``value``, over its batch and channels."""
    layout = layouts.get(value)
    block = layout.block if layout is not None else 0
    channels = -(-value.shape[1] // block) * block if block else value.shape[1]
    return value.shape[0] * channels * dtype_bytes(value.dtype)


def joined(arithmetic: Numbers, traffic: Numbers, exposed: Numbers) -> Numbers:
    """Cycles of arithmetic and memory traffic side by side."""
    return np.maximum(arithmetic, traffic) + exposed * np.minimum(arithmetic, traffic)
