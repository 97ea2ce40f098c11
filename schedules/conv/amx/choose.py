"""Whether a convolution runs on the matrix unit, and in which strips: from the target's facts and the shape.

Cycles of one core for a strip of outputs:

    split       every vector of the input that its taps read, once for each group of output channels
    products    registers of places x registers of outputs x steps x products of parts, 16 cycles each
    results     registers are written to the first-level cache and read by the epilogue
    weights     read once a strip, at the rate at which they come from where they are, in part beside the products

A direct convolution in float32 is counted as its register tiles are chosen (:mod:`..register_tile`), the results left
out that both have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ....targets.target import Target
from ...instructions.amx import (
    COLUMNS,
    DEPTH,
    MULTIPLY_CYCLES,
    REGISTER_BYTES,
    ROWS,
    may_split,
)
from ...instructions.bf16_parts import THREE, Products, parts_of, products_of
from ...matmul.folded_moves import producers
from ...words.dims import is_open
from ...words.group import Request, Value
from ...words.sizes import usual
from ..facts import ConvFacts
from ..kernel import PARALLEL_FLOPS
from ..register_tile import Space, choose_tile
from ..weight_bandwidth import kept_bytes, stream_rate
from .pixel_strips import PixelStrip, pixel_strips
from .strips import Strip, roomy, strips_of

SHARE = 0.3  # of the second-level cache for a strip's data: weights and results pass beside it
MARGIN = 0.93  # the estimate must beat the one in float32 by this much
LESS = 4  # strips smaller than the largest that fits, which may be dealt out more evenly
LINE = 16  # words of a cache line
FEW = 8  # channels of pixels
LEAST_DEPTH = 16  # channels; fewer fill a quarter of a step at most


@dataclass(frozen=True)
class MatrixPlan:
    """How a convolution runs on the matrix unit. ``strip``: the largest one; ``groups``: number of parts of the output
    channels, each of which splits the data anew; ``cycles``: predicted, of one core; ``products`` of parts stand for
    one of float32."""

    strip: Any  # Strip, or PixelStrip of few channels
    groups: int
    cycles: float
    products: Products = THREE

    @property
    def parts(self) -> int:
        return parts_of(self.products)

    def __str__(self) -> str:
        pixels = self.strip.pixels if isinstance(self.strip, PixelStrip) else None
        text = f"matrix conv, strip {self.strip.rows}x{self.strip.columns}"
        text += f", pixels of {pixels.deep} rows" if pixels is not None else ""
        return text + (f", {self.groups} channel groups" if self.groups > 1 else "")


@dataclass(frozen=True)
class ConvWork:
    """The numbers of a convolution that plans depend on; ``size`` are (rows, columns) of the outputs."""

    facts: ConvFacts
    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    products: Products = THREE

    @staticmethod
    def of(facts: ConvFacts, products: Products = THREE) -> ConvWork:
        rows, columns = (1, *facts.out_spatial)[-2:]
        return ConvWork(facts, facts.batch, facts.channels, facts.outputs, (rows, columns), products)

    @property
    def parts(self) -> int:
        return parts_of(self.products)

    @property
    def pairs(self) -> int:
        """Pairs of input channel blocks, of which a register holds one."""
        return -(-self.channels // DEPTH)

    @property
    def steps(self) -> int:
        """Steps of a sum: pairs times taps."""
        return self.pairs * self.facts.taps

    @property
    def blocks(self) -> int:
        """Registers of outputs."""
        return -(-self.outputs // COLUMNS)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the packed weights, all parts included."""
        return self.blocks * self.steps * self.parts * REGISTER_BYTES


def suits(facts: ConvFacts) -> bool:
    """True for what the kernel can do at all: one group, one or two axes, float32, no weights of whole numbers, whose
    sums are exact."""
    return (
        not facts.of_bytes
        and facts.groups == 1
        and len(facts.out_spatial) in (1, 2)
        and facts.output.dtype == "float32"
        and facts.channels >= LEAST_DEPTH
        and not facts.weight.is_whole
    )


def matrix_applies(request: Request, facts: ConvFacts) -> bool:
    """True if the request allows bf16 parts, and the tensors are in channel blocks of a register's columns."""
    blocked = all(request.layout(v).block == COLUMNS for v in (facts.data, *request.group.outputs))
    return blocked and may_split(request) and suits(facts)


def few_plan(request: Request, facts: ConvFacts) -> MatrixPlan | None:
    """The plan of pixels with the fewest cycles, where few channels are read as they lie and the kernel applies."""
    layout, group = request.layout(facts.data), request.group
    written = all(request.layout(v).block == COLUMNS for v in group.outputs)
    plain = not layout.block and written and not producers(group, facts.data) and request.box is None
    alike = facts.groups == 1 and len(facts.out_spatial) == 2 and facts.output.dtype == "float32"
    if not (plain and alike and may_split(request)) or facts.channels > FEW or facts.weight.is_whole:
        return None
    return best_pixels(request.target, facts, request.workers, request.limits.room, products_of(request.policy))


def best_pixels(
    target: Target, facts: ConvFacts, workers: int, room: int | None = None, products: Products = THREE
) -> MatrixPlan | None:
    """The plan of pixel strips with the fewest cycles, in at most ``room`` bytes of scratch a core (None: a share of
    the second-level cache); None if no strip fits."""
    found, parts, fitted = [], parts_of(products), target.fitted.unit
    for strip in pixel_strips(facts):
        held = 4 * strip.elements(facts.channels, parts)
        if held > (SHARE * target.l2_bytes if room is None else room):
            continue
        registers = -(-strip.spread(strip.rows, strip.columns) // ROWS)
        vectors = strip.vectors * (fitted.conv_fill * parts * strip.pixels.words)
        blocks = -(-facts.outputs // COLUMNS)
        moved = _moved(target, facts.output) * registers * ROWS * blocks
        steps = len(strip.steps) * (len(products) * MULTIPLY_CYCLES / fitted.conv_full + fitted.conv_unaligned)
        rounds = -(-facts.batch * -(-facts.out_spatial[0] // strip.rows) // workers)
        cycles = rounds * (registers * blocks * (steps + fitted.conv_result) + vectors + moved)
        found.append(MatrixPlan(strip, 1, cycles, products))
    return min(found, key=lambda p: p.cycles, default=None)


def matrix_plan(request: Request, facts: ConvFacts) -> MatrixPlan | None:
    """The plan with the fewest cycles, where the kernel applies; ``facts`` may be those of a box."""
    if not matrix_applies(request, facts):
        return None
    room = request.limits.room
    plan = best_plan(request.target, facts, request.workers, room, products_of(request.policy))
    size = request.group.outputs[0].shape[2:]
    if plan is None or not is_open(size):
        return plan
    most = SHARE * request.target.l2_bytes if room is None else room
    fits = lambda strip: 4 * strip.elements(facts.channels, plan.parts) <= most  # noqa: E731
    return replace(plan, strip=roomy(facts, plan.strip, size[-1], fits))


def smaller_plans(
    target: Target, facts: ConvFacts, workers: int, held: int, products: Products = THREE
) -> list[MatrixPlan]:
    """The best plans in less and less scratch than ``held`` bytes a core: half of it, a half of what that holds, and so
    on until none fits."""
    found: list[MatrixPlan] = []
    while (plan := best_plan(target, facts, workers, held // 2, products)) is not None:
        found.append(plan)
        held = held_bytes(facts.channels, plan)
    return found


def best_plan(
    target: Target, facts: ConvFacts, workers: int, room: int | None = None, products: Products = THREE
) -> MatrixPlan | None:
    """The plan with the fewest cycles in at most ``room`` bytes of scratch a core (None: any number); None if there is
    none."""
    return min(_plans(target, ConvWork.of(facts, products), workers, room), key=lambda p: p.cycles, default=None)


def times_split(facts: ConvFacts, plan: MatrixPlan) -> float:
    """How often a number of the data is split into parts, on average."""
    strip = plan.strip
    strips = plan.groups * _strips(ConvWork.of(facts), strip)
    return facts.batch * facts.channels * strips * _vectors(strip) / usual(facts.data.elements)


def _vectors(strip: Strip) -> int:
    """Places of all planes that taps read."""
    reaches = (strip.reach(phase) for phase in range(len(strip.phases)))
    return sum((strip.rows + rows) * (strip.columns + columns) for rows, columns in reaches)


def held_bytes(channels: int, plan: MatrixPlan) -> int:
    """Bytes of a core's scratch, in whole cache lines."""
    return -(-plan.strip.elements(channels, plan.parts) // LINE) * LINE * 4


def workers_of(facts: ConvFacts, plan: MatrixPlan, workers: int) -> int:
    """Number of cores that share the tasks; a small convolution stays on one."""
    tasks = facts.batch * plan.groups * _strips(ConvWork.of(facts), plan.strip)
    return min(workers, tasks) if facts.flops >= PARALLEL_FLOPS else 1


def register_cycles(target: Target, facts: ConvFacts, products: Products = THREE) -> float:
    """Cycles of sixteen places by all outputs."""
    blocks, steps = -(-facts.outputs // COLUMNS), -(-facts.channels // DEPTH) * facts.taps
    fitted = target.fitted.unit
    multiply = steps * len(products) * fitted.slower * MULTIPLY_CYCLES / fitted.conv_full
    return blocks * (multiply + fitted.conv_result)


def split_cycles(target: Target, products: Products) -> float:
    """Cycles to split a vector of the data into its parts."""
    return target.fitted.unit.conv_split if parts_of(products) > 1 else target.fitted.unit.conv_split_once


def _plans(target: Target, work: ConvWork, workers: int, room: int | None) -> Iterator[MatrixPlan]:
    found: dict[int, int] = {}
    for strip in strips_of(work.facts, work.size):
        held = 4 * strip.elements(work.channels, work.parts)
        if (room is not None and held > room) or found.get(strip.columns, 0) > LESS:
            continue
        tasks = work.batch * _strips(work, strip)
        for groups in sorted({1, min(workers, -(-work.blocks // 2))}):
            cycles = _cycles(target, work, strip, groups, workers, tasks, held)
            yield MatrixPlan(strip, groups, cycles, work.products)
        if held <= SHARE * target.l2_bytes and tasks >= workers:
            found[strip.columns] = found.get(strip.columns, 0) + 1


def _moved(target: Target, value: Value) -> float:
    """Cycles that a vector of an image takes to come, or to go, beside what is done with it."""
    size, fitted = usual(value.bytes), target.fitted.unit
    if size > kept_bytes(target):
        return fitted.conv_farthest
    return fitted.conv_far if size > target.l2_bytes // 2 else 0.0


def _strips(work: ConvWork, strip: Strip) -> int:
    return -(-work.size[0] // strip.rows) * -(-work.size[1] // strip.columns)


def _cycles(
    target: Target, work: ConvWork, strip: Strip, groups: int, workers: int, tasks: int, held: int
) -> float:
    """Of the core that has the most to do."""
    blocks = -(-work.blocks // groups)
    places = -(-strip.spread(strip.rows, strip.columns) // ROWS)
    split = split_cycles(target, work.products) * _vectors(strip) * -(-work.channels // COLUMNS)
    split += _moved(target, work.facts.data) * _vectors(strip) * -(-work.channels // COLUMNS)
    moved = _moved(target, work.facts.output) * places * ROWS * blocks
    if held > SHARE * target.l2_bytes:
        split += 2 * held / target.far_bytes  # written to and read from beyond the cache
    products = places * register_cycles(target, work.facts, work.products) * (blocks / work.blocks)
    if held > SHARE * target.l2_bytes:  # each panel reads all of it from there
        data = -(-blocks // 2) * held / target.far_bytes
        products = max(products, data) + target.fitted.winograd.exposed * min(products, data)
    own = work.weight_bytes / groups
    again = _strips(work, strip) > 1 and own > target.l2_bytes // 2
    stream = own / stream_rate(target, work.weight_bytes, again)
    rounds = -(-tasks * groups // workers)
    first = max(products, stream) + target.fitted.winograd.exposed * min(products, stream)
    later = first if again else products
    return rounds * (split + moved) + first + (rounds - 1) * later


@lru_cache(maxsize=4096)
def _float_cycles(target: Target, space: Space, depth: int, batch: int, weight_bytes: int) -> float:
    tile = choose_tile(target, space)
    count = batch * -(-space.height // tile.rows) * -(-space.width // tile.columns) * (space.blocks // tile.blocks)
    step = target.fitted.winograd.step + max(
        tile.positions * tile.blocks / target.fma_ports, (tile.positions + tile.blocks) / 2, float(target.fma_latency)
    )
    products = count * depth * step / target.cores
    stream = weight_bytes / stream_rate(target, weight_bytes) / target.cores
    return max(products, stream) + target.fitted.winograd.exposed * min(products, stream)


def float_cycles(target: Target, facts: ConvFacts) -> float:
    """What the direct convolution in float32 is expected to take, for one group of channels."""
    height, width = (1, *facts.out_spatial)[-2:]
    blocks = -(-facts.outputs // target.lanes())
    depth = facts.channels * facts.taps
    space = Space(height, width, blocks, blocks)
    batch = facts.batch * math.prod(facts.out_spatial[:-2])
    moved = _moved(target, facts.output) * usual(facts.output.elements) / target.lanes() / target.cores
    return moved + _float_cycles(target, space, depth, batch, 4 * depth * blocks * target.lanes())
