"""Whether a convolution of bytes runs on the matrix unit, in which strips and by which windows.

Cycles of one core for a strip of outputs:

    copy        every byte that its taps read, in vectors
    products    registers of places x registers of outputs x windows, 16 cycles each
    results     registers are written to the first-level cache and read by the epilogue
    weights     read once a strip, at the rate at which they come from where they are, in part beside the products

The kernel of vectors (:mod:`..direct.int8_dot`) is counted as its register tiles are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ....targets.target import Target
from ...instructions.amx import (
    COLUMNS,
    MULTIPLY_CYCLES,
    REGISTER_BYTES,
    ROW_BYTES,
    ROWS,
    SUMS,
    has_matrix_unit,
)
from ...instructions.int8_dot import FEW, per_word
from ...words.dims import is_open
from ...words.group import Request
from ..facts import ConvFacts
from ..kernel import PARALLEL_FLOPS
from ..register_tile import Space
from ..weight_bandwidth import stream_rate
from .strips import Strip, Tap, roomy, strips_of

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

KIND = "amx-int8"
SHARE = 0.3  # of the second-level cache for a strip's data: weights and results pass beside it
MARGIN = 0.9  # the estimate must beat that of vectors by this much


@dataclass(frozen=True)
class ByteWindow:
    """64 bytes from ``begin`` bytes behind a place on, ``row`` rows below it. ``terms``: which weight of an output each
    of them meets, -1 for none."""

    begin: int
    terms: tuple[int, ...]
    row: int = 0


@dataclass(frozen=True)
class BytesPlan:
    """``strip``: the largest number of outputs at a time; ``groups``: parts of the output channels, each of which
    copies the data anew. A phase of a place has blocks of ``block`` channels, of which there are ``depth``. ``varies``:
    rows lie at a distance that is known at run time, and no window spans two."""

    strip: Strip
    groups: int
    block: int
    depth: int
    cycles: float = 0.0
    varies: bool = False

    @property
    def channels(self) -> int:
        """Bytes of one phase of a place."""
        return -(-self.depth // self.block) * self.block

    @property
    def place(self) -> int:
        """Bytes of a place, all phases."""
        return len(self.strip.phases) * self.channels

    @cached_property
    def windows(self) -> tuple[ByteWindow, ...]:
        taps, place = self.strip.taps, (self.place, self.channels, self.depth)
        if not self.varies:
            return windows_of(taps, self.strip.pitch, *place)
        return tuple(w for row in sorted({t.row for t in taps}) for w in windows_of(taps, 0, *place, row))

    def __str__(self) -> str:
        text = f"matrix unit, {len(self.windows)} windows, strip {self.strip.rows}x{self.strip.columns}"
        return text + (f", {self.groups} channel groups" if self.groups > 1 else "")


@lru_cache(maxsize=1024)
def windows_of(
    taps: tuple[Tap, ...], pitch: int, place: int, channels: int, depth: int, row: int | None = None
) -> tuple[ByteWindow, ...]:
    """The fewest windows, first come first, that hold what all taps read, or those of one ``row``; they begin with
    whole words."""
    own = [i for i, t in enumerate(taps) if row in (None, t.row)]
    begins = np.array([(t.row * pitch + t.column) * place + t.phase * channels for t in (taps[i] for i in own)])
    at = (begins[:, None] + np.arange(depth)[None, :]).reshape(-1)
    term = (np.array(own)[:, None] + np.arange(depth)[None, :] * len(taps)).reshape(-1)
    order = np.argsort(at, kind="stable")
    at, term = at[order], term[order]
    found, first = [], 0
    while first < len(at):
        begin = int(at[first]) // 4 * 4
        last = int(np.searchsorted(at, begin + ROW_BYTES))
        terms = np.full(ROW_BYTES, -1)
        terms[at[first:last] - begin] = term[first:last]
        found.append(ByteWindow(begin, tuple(int(t) for t in terms), row or 0))
        first = last
    return tuple(found)


def held_bytes(plan: BytesPlan) -> int:
    """Bytes of a core's scratch, in whole cache lines: places of a strip, and what the last registers read beyond the
    end."""
    found: int = bytes_of(plan, plan.strip.places, plan.strip.pitch if plan.varies else 0)
    return found


def bytes_of(plan: BytesPlan, places: SizeLike, pitch: SizeLike) -> SizeLike:
    """The same of so many ``places`` in rows of ``pitch``."""
    last = max((w.row, w.begin) for w in plan.windows)
    end = (places + SUMS * ROWS + last[0] * pitch) * plan.place + max(w.begin for w in plan.windows)
    return -(-end // ROW_BYTES + 1) * ROW_BYTES


def workers_of(facts: ConvFacts, plan: BytesPlan, workers: int) -> int:
    """Number of cores that have a task."""
    rows, columns = (1, *facts.out_spatial)[-2:]
    strips = -(-rows // plan.strip.rows) * -(-columns // plan.strip.columns)
    return min(workers, facts.batch * plan.groups * strips) if facts.flops >= PARALLEL_FLOPS else 1


def bytes_plan(request: Request, facts: ConvFacts) -> BytesPlan | None:
    """The plan with the fewest cycles, where the unit is there and expected to be faster."""
    block = request.layout(facts.data).block
    size = request.group.outputs[0].shape
    whole = (request.box is None or is_open(size)) and facts.groups == 1 and len(facts.out_spatial) in (1, 2)
    if not (whole and request.policy.matrix and has_matrix_unit(request.target, KIND)):
        return None
    if block not in (FEW, COLUMNS) or facts.data.dtype != "uint8":
        return None
    room, target = request.limits.room, request.target
    plans = [p for p in plans_of(target, facts, block, request.workers) if room is None or held_bytes(p) <= room]
    best = min(plans, key=lambda p: p.cycles, default=None)
    if best is None or best.cycles >= MARGIN * vector_cycles(target, facts, request.workers):
        return None
    if not is_open(size[2:]):
        return best
    best, most = replace(best, varies=True), SHARE * target.l2_bytes if room is None else room
    fits = lambda strip: held_bytes(replace(best, strip=strip)) <= most  # noqa: E731
    return replace(best, strip=roomy(facts, best.strip, size[-1], fits))


def plans_of(target: Target, facts: ConvFacts, block: int, workers: int) -> Iterator[BytesPlan]:
    """All plans for data in blocks of ``block`` channels."""
    height, width = (1, *facts.out_spatial)[-2:]
    size = (height, width)
    panels = -(-facts.outputs // (2 * COLUMNS))
    fits = False
    for strip in strips_of(facts, size):
        if strip.columns < width and fits:
            return
        fits = fits or held_bytes(BytesPlan(strip, 1, block, facts.channels)) <= SHARE * target.l2_bytes
        for groups in sorted({1, min(workers, panels)}):
            plan = BytesPlan(strip, groups, block, facts.channels)
            yield replace(plan, cycles=_cycles(target, facts, plan, size, workers))


def _cycles(target: Target, facts: ConvFacts, plan: BytesPlan, size: tuple[int, int], workers: int) -> float:
    """Of the core that has the most to do."""
    strip, held = plan.strip, held_bytes(plan)
    registers, strips = -(-facts.outputs // COLUMNS), -(-size[0] // strip.rows) * -(-size[1] // strip.columns)
    blocks = -(-registers // plan.groups)
    places = -(-strip.spread(strip.rows, strip.columns) // ROWS)
    vectors = 0
    for phase in range(len(strip.phases)):
        rows, columns = strip.reach(phase)
        vectors += (strip.rows + rows) * (strip.columns + columns)
    copy = target.fitted.unit.bytes_copy * vectors * (plan.channels // plan.block)
    if held > SHARE * target.l2_bytes:
        copy += 2 * held / target.far_bytes  # written to and read from beyond the cache
    products = places * blocks * len(plan.windows) * MULTIPLY_CYCLES / target.fitted.unit.bytes_full
    results = places * blocks * target.fitted.unit.bytes_result
    weights = registers * len(plan.windows) * REGISTER_BYTES
    own = weights / plan.groups
    again = strips > 1 and own > target.l2_bytes // 2
    stream = own / stream_rate(target, weights, again)
    rounds = -(-facts.batch * strips * plan.groups // workers)
    first = max(products, stream) + target.fitted.winograd.exposed * min(products, stream)
    later = first if again else products
    return rounds * (copy + results) + first + (rounds - 1) * later


def vector_cycles(target: Target, facts: ConvFacts, workers: int) -> float:
    """Predicted cycles of the kernel of vectors, on the core that has the most to do."""
    height, width = (1, *facts.out_spatial)[-2:]
    blocks = -(-facts.outputs // target.lanes())
    space = Space(height, width, blocks, blocks)
    steps = facts.batch * facts.taps * -(-facts.channels // per_word("uint8"))
    products = min(cost for cost, _ in space.tiles(target)) * steps / workers
    weights = float(blocks * target.lanes() * facts.channels * facts.taps)
    stream = weights / stream_rate(target, weights) / workers
    return max(products, stream) + target.fitted.winograd.exposed * min(products, stream)
