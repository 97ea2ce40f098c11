"""The cycles that a convolution is expected to take by Winograd's algorithm: from the target's facts and the shape.

Cycles of one core, for ``tiles`` tiles in strips of ``strip``, output channels in ``groups``:

    products    tiles * products * channels * vectors of outputs / FMA ports, edges of the register tile included
    transforms  tiles * (each input vector once a group + each output vector once) * (operations / ports + stores)
    weights     (matrices / taps) times the bytes of the convolution's own, read once a strip (once in all where a
                group's weights stay in the second-level cache); they arrive at far_bytes a cycle from beyond that
                cache, or as fast as the memory gives them where the last level would not keep them from run to run,
                in part beside the arithmetic

and the sum is shared by the cores as evenly as whole tasks allow. The direct convolution is counted the same way.
Cycles and shares that no fact of the target tells are fitted constants (targets/fitted.toml, ``winograd``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ....targets.target import Target
from ...instructions.amx import SUMS, block_cycles, loads_of
from ...instructions.bf16_parts import parts_of
from ...instructions.by_element import takes_elements
from ...instructions.int8_dot import PAIRS, SUMMED, multiplier
from ..box_cost import Numbers
from ..facts import ConvFacts
from ..register_tile import Space, choose_tile
from ..weight_bandwidth import stream_rate
from .plan import Layer, WinogradPlan, scratch_bytes, terms, vector_bytes, weight_bytes
from .transform import Transform

HALF_SUMS = 1.1  # times the cycles, for sums of RUN products that are added up
FULL = 24  # sums of a register tile whose channels lie in registers, if it is as large as it can be
STEP = 1.0  # cycles of a channel of a small one, beside its products: hints and addresses for fewer of these


def reached_share(target: Target, layer: Layer, transform: Transform) -> float:
    """The part of its speed that F(6x6, 3x3) or its like keeps where it waits for the transformed weights that it reads
    for every strip: a last second level has nothing behind it, and cores share it with all that they read and write.
    256 x 256 x 5 x 5 at 28 take 0.34 of the direct time where 0.27 is expected, 128 x 128 x 7 x 7 at 46 x 54 0.40 on
    one core and 0.50 on two for 0.39 (Emerald Rapids)."""
    size = 4 * transform.matrices * transform.planes * layer.planes * layer.channels * layer.outputs
    fitted = target.fitted.winograd
    if layer.half or layer.whole is not None or not transform.is_large:
        return 1.0
    if size <= (fitted.near_weights if target.l3_bytes else fitted.last) * target.l2_bytes:
        return 1.0
    return fitted.far if target.l3_bytes else fitted.last


def warm_cycles(target: Target, facts: ConvFacts, plan: WinogradPlan) -> float:
    """Predicted cycles of ``plan`` where its weights and its scratch lie in the second-level cache already."""
    return plan_cycles(replace(target, l2_bytes=1 << 40), facts.channels, plan)


def direct_cycles(target: Target, facts: ConvFacts, layer: Layer | None = None) -> float:
    """Predicted cycles of the direct convolution, waste at its edges included; of a ``layer`` with another batch than
    ``facts`` have, where one is given."""
    layer = layer or Layer.of(facts)
    whole = layer.whole is not None
    target = doubled(target) if layer.half else multiplier(target, PAIRS) if whole else target
    lanes = target.lanes()
    blocks = -(-facts.outputs // lanes)
    height, width = layer.out_spatial
    tile = choose_tile(target, Space(height, width, blocks, blocks))
    count = layer.batch * -(-height // tile.rows) * -(-width // tile.columns) * (blocks // tile.blocks)
    depth = (-(-layer.channels // 2) if whole else layer.channels) * facts.taps
    step = target.fitted.winograd.step + (SUMMED if whole else 1.0) * max(
        tile.positions * tile.blocks / target.fma_ports,
        (tile.positions + tile.blocks) / 2,
        float(target.fma_latency),
    )
    products = count * depth * step / target.cores
    weight_bytes = depth * blocks * lanes * 4
    stream = weight_bytes / stream_rate(target, weight_bytes) / target.cores
    return max(products, stream) + target.fitted.winograd.exposed * min(products, stream)


@lru_cache(maxsize=64)
def doubled(target: Target) -> Target:
    """A machine whose float32 costs what float16 does on ``target``: twice the lanes, and caches and memory that hold
    and move twice as many numbers."""
    memory = target.fitted.memory
    memory = replace(memory, stream=2 * memory.stream, most_kept=2 * memory.most_kept, beside=2 * memory.beside)
    twice = ("vector_bits", "l1_bytes", "l2_bytes", "l3_bytes", "far_bytes", "bandwidth")
    more: dict[str, Any] = {name: 2 * getattr(target, name) for name in twice}
    return replace(target, fitted=replace(target.fitted, memory=memory), **more)


def starved(target: Target) -> bool:
    """True if a core multiplies much faster than its weights arrive."""
    return target.lanes() * 4 / target.far_bytes * target.fma_ports >= target.fitted.winograd.starved


def _matrix_cycles(target: Target, channels: int, plan: WinogradPlan, row_tiles: int, vectors: int) -> float:
    """Of a strip's products for one xi and chunk on the matrix unit."""
    steps = -(-plan.planes * -(-channels // target.lanes()) // 2)
    high = SUMS // vectors
    whole, rest = divmod(row_tiles, high)
    step = whole * _step_cycles(target, (high, vectors), plan)
    step += _step_cycles(target, (rest, vectors), plan) if rest else 0.0
    return steps * step + target.fitted.winograd.stored * row_tiles * vectors


def _step_cycles(target: Target, shape: tuple[int, int], plan: WinogradPlan) -> float:
    """Of a step of a block of ``shape`` registers, of tiles and of outputs."""
    loads = target.fitted.winograd.loaded * loads_of(shape, plan.products)
    return target.fitted.unit.slower * block_cycles(shape, len(plan.products)) + loads


def plan_cycles(target: Target, channels: int, plan: WinogradPlan) -> float:
    """The predicted cycles of ``plan``."""
    return float(cycles_of_plans(target, channels, plan))


def _of_each(function: Callable[..., float], *numbers: Numbers) -> Numbers:
    """``function`` of numbers, or of each element of arrays: once of those that are equal."""
    arrays = np.broadcast_arrays(*numbers)
    entries = list(zip(*(a.ravel().tolist() for a in arrays)))
    known = {entry: function(*entry) for entry in set(entries)}
    return np.reshape([known[entry] for entry in entries], arrays[0].shape)


def cycles_of_plans(target: Target, channels: int, plan: WinogradPlan, further: Numbers = 0.0) -> Numbers:
    """The same of many plans at once: ``plan`` has arrays in place of what they differ in (plan_table.py).
    ``further``: cycles of a step of the products beside these."""
    if plan.half:
        if takes_elements(target, "float16"):
            further = STEP * np.maximum(0.0, 1 - plan.rows * plan.vectors / FULL)
        return HALF_SUMS * cycles_of_plans(doubled(target), channels, replace(plan, half=False), further)
    lanes, t, fitted = target.lanes(), plan.transform, target.fitted.winograd
    depth, blocks_in = plan.planes * terms(channels, plan), plan.planes * -(-channels // lanes)
    data_bytes, product_bytes = scratch_bytes(lanes, channels, plan)
    issued = np.maximum(
        (SUMMED if plan.whole else 1.0) * plan.rows * plan.vectors / target.fma_ports, (plan.rows + plan.vectors) / 2
    )
    loaded = (plan.vectors * lanes + (plan.rows if starved(target) else 0)) * 4 / target.fitted.memory.beside
    latency = 1.0 if plan.whole else float(target.fma_latency)
    step = further + fitted.step + np.maximum(np.maximum(issued, latency), loaded)
    share = plan.chunks_per_group / plan.chunks
    read = weight_bytes(lanes, channels, plan) * share
    panel = t.matrices * plan.vectors * vector_bytes(lanes, channels, plan)
    # a task: transform the strip's data, multiply by a group's weights, transform the products
    products: Numbers = plan.row_tiles * (depth * step + 2 * plan.rows * plan.vectors)
    if plan.products:
        products = _of_each(partial(_matrix_cycles, target, channels, plan), plan.row_tiles, plan.vectors)
    products = products * (t.products * plan.chunks_per_group)
    data_ops = t.data_operations / target.fma_ports
    moved = fitted.moved_starved if starved(target) else fitted.moved
    if plan.products:
        moved = (fitted.moved_part + fitted.split) * parts_of(plan.products)
    data_ops += moved * t.products
    result_ops = t.result_operations / target.fma_ports + t.products + 2.0 * t.outputs
    if plan.plain:
        vectors = -(-plan.column // lanes)
        data_ops = vectors * (t.products + t.across.data_operations) / target.fma_ports
        data_ops, blocks_in = fitted.spread * (data_ops + fitted.moved * vectors * t.across.extent), depth
    transforms: Numbers = plan.strip * (blocks_in * data_ops + plan.chunks_per_group * plan.vectors * result_ops)
    slow = fitted.parts_rate if plan.products else 1.0
    scratch = data_bytes + product_bytes
    spilled = scratch + np.minimum(panel, target.l2_bytes // 4) > 0.75 * target.l2_bytes
    # written to and read from beyond the cache
    transforms = transforms + np.where(spilled, 2 * data_bytes / target.far_bytes, 0.0)
    again_read = np.where(spilled, plan.chunks_per_group * data_bytes / (slow * target.far_bytes), 0.0)
    beside = starved(target)  # data that return arrive beside the products, as weights do
    if not beside:
        products = products + again_read
    readers = np.maximum(1, target.cores // plan.groups)
    first_rate = _of_each(lambda size, readers: stream_rate(target, size, readers=readers), read / share, readers)
    later_rate = _of_each(lambda size: stream_rate(target, size, again=True), read / share)
    first_stream = read / (slow * first_rate) + beside * again_read
    later_stream = read / (slow * later_rate) + beside * again_read
    exposed = fitted.exposed_starved if starved(target) and not plan.products else fitted.exposed
    cold, again = (
        np.maximum(products, s) + exposed * np.minimum(products, s) for s in (first_stream, later_stream)
    )
    # tasks of one group follow each other on a core: only the first finds all of the weights cold
    fill = (read + scratch) / target.l2_bytes
    lost = np.minimum(1.0, np.maximum(0.0, fill - fitted.fill) / fitted.fill)
    rounds = -(-plan.tasks // target.cores)
    first = np.minimum(rounds, -(-rounds // plan.strips))
    return rounds * transforms + first * cold + (rounds - first) * (lost * again + (1 - lost) * products)
