"""What boxes of a group cost on one core, in cycles: of one size, or of many at once (arrays of rows and of columns).

    arithmetic   register tiles of the algorithm that computes the box, their waste at its edges included
    weights      bytes that a box reads of them (transformed ones for Winograd)
    scratch      bytes that the kernel holds beside what it reads and writes
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...targets.fitted import Kernels
from ...targets.target import Target
from ..instructions.amx import ROWS, SUMS
from ..instructions.int8_dot import multiplier, per_word
from ..words.group import Request
from .facts import ConvFacts
from .register_tile import Space, Tile, choose_tile
from .winograd.plan import STACK_BYTES

SMALL = 4  # tiles of the whole that a box is wide, beyond which its own are no others
LAST_PLACES = SUMS * ROWS  # that the last registers may read beyond a box's

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
            self.known[key] = tiles * self.blocks / tile.blocks * step_cycles(tile, self.target), tiles * tile.positions
        steps, positions = self.known[key]
        return self.depth * steps + self.extra * positions


@dataclass(frozen=True)
class BoxPlaces:
    """Cycles and scratch of boxes on a matrix unit.

    ``beyond``       rows and columns by which the input of a box is larger than its output
    ``register``     cycles of sixteen output positions, with all their channels; rows are as long as the input's
    ``split``        cycles of an input position: its numbers are split into parts
    ``place_bytes``  bytes of scratch of an input position
    ``room``         the most bytes of scratch that a kernel may hold; None is any number
    """

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
    (0: once a call); ``lost`` is the share of them that the second-level cache forgets in between. ``phased``: it first
    moves data and then computes. ``fit`` has unit and
    cycles for small boxes, where they are others than for the whole; ``others`` are ways that a kernel takes for boxes
    which they fit better: a transform of smaller tiles, or none, where a large one's would be half empty; ``places``
    counts what has no unit; ``moves``: it computes little of what it reads; ``asks``: the kernel of the whole asks for
    what it reads from memory beside its arithmetic."""

    unit: tuple[int, int]
    cycles: float
    weights: int
    positions: int
    parts: tuple[int, ...] = ()  # bytes that the kernel takes beside what it reads and writes, for a whole strip
    strip: int = 0
    lost: float = 0.0
    fit: Fit | None = None
    others: tuple[MemberCost, ...] = ()
    places: BoxPlaces | None = None
    phased: bool = False
    moves: bool = False
    asks: bool = False
    algorithm: str = "general"  # that computes a box as large as the whole

    def exposed(self, fitted: Kernels) -> float:
        """The part of the shorter of arithmetic and traffic that the longer one doesn't hide."""
        return fitted.phased if self.phased else fitted.exposed

    @property
    def scratch(self) -> int:
        """The bytes of all ``parts``."""
        return sum(self.parts)

    @property
    def gathers(self) -> bool:
        """True if tiles of the input are gathered, rather than rows read in order."""
        return self.phased

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


@dataclass(frozen=True)
class Costing:
    """What an algorithm is asked for the cost of: ``facts`` of the whole convolution, on one core. ``extra``: cycles of
    what is fused around it, an output position. ``known``: see :class:`Fit`."""

    request: Request
    facts: ConvFacts
    extra: float
    known: Known = field(default_factory=dict)

    @property
    def target(self) -> Target:
        target: Target = self.request.target
        return target if target.cores == 1 else replace(target, cores=1)

    @property
    def lanes(self) -> int:
        return self.target.channel_block(self.facts.output.dtype)

    @property
    def vectors(self) -> int:
        """The vectors of an output position, over the batch."""
        return self.facts.batch * -(-self.facts.output.shape[1] // self.lanes)

    @property
    def positions(self) -> int:
        return max(1, math.prod(self.facts.out_spatial))


def direct_cost(ask: Costing) -> MemberCost:
    """The cost of register tiles that are chosen for the box."""
    facts, lanes, target = ask.facts, ask.lanes, ask.target
    blocks = -(-facts.outputs // lanes)
    height, width = facts.out_spatial
    limit = blocks if facts.groups == 1 else max(1, facts.group_out // lanes if facts.group_out % lanes == 0 else 1)
    if facts.of_bytes:
        target = multiplier(target, facts.data.dtype)
    tile = choose_tile(target, Space(height, width, blocks, limit))
    span = facts.channels if facts.groups == 1 else max(facts.group_in, lanes)
    depth = facts.batch * (-(-span // per_word(facts.data.dtype)) if facts.of_bytes else span) * facts.taps
    fit = Fit(target, blocks, limit, depth, ask.extra, ask.known)
    cycles = depth * blocks / tile.blocks * step_cycles(tile, target) + ask.extra * tile.positions
    return MemberCost((tile.rows, tile.columns), cycles, facts.weight.bytes, ask.positions, fit=fit)


def step_cycles(tile: Tile, target: Target) -> float:
    """Cycles of a step of a register tile's reduction."""
    arithmetic = tile.positions * tile.blocks / target.fma_ports
    busy = max(arithmetic, (tile.positions + tile.blocks) / 2, float(target.fma_latency))
    return target.fitted.registers.box_step + busy
