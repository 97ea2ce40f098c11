"""Chooses whether a convolution runs by Winograd's algorithm, and how: from the target's facts and the shape.

Cycles of one core, for ``tiles`` tiles in strips of ``strip``, output channels in ``groups``:

    products    tiles * products * channels * vectors of outputs / FMA ports, edges of the register tile included
    transforms  tiles * (each input vector once a group + each output vector once) * (operations / ports + stores)
    weights     (matrices / taps) times the bytes of the convolution's own, read once a strip (once in all where a
                group's weights stay in the second-level cache); they arrive at far_bytes a cycle from beyond that
                cache, or as fast as the memory gives them where the last level would not keep them from run to run,
                in part beside the arithmetic

and the sum is shared by the cores as evenly as whole tasks allow. The direct convolution is counted the same way.

Only rows and columns are transformed. Along further axes (depth) outputs count as images of a batch, and a kernel's
planes as further channels: sums of several planes are made before the products are transformed back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ...targets.target import Target
from ..ahead import free_registers
from ..matrix.parts import SIX, THREE, parts_of
from ..matrix.unit import REGISTER_BYTES, ROWS, SLOWER, SUMS, block_cycles, loads_of
from .choose import Space, choose_tile
from .facts import ConvFacts
from .winograd_math import F2, Transform, transforms

MEMORY = 5.0  # bytes a cycle that one core reads in order from memory, where the target doesn't say
REACHED = 0.7  # of a memory's bandwidth at best, what programs get
CLOCK = 2e9  # hertz, where the target doesn't say
KEPT = 0.25  # share of the last-level cache that one layer's weights may take to be there in the next run
MOST_KEPT = 32 << 20  # bytes; of a cache of hundreds of megabytes most belongs to other cores
NEAR = 20.0  # bytes a cycle from the second-level cache, beside the arithmetic
LEAST_CHANNELS = 16  # fewer leave the products no longer than the transforms
EXPOSED = 0.3  # of the shorter of arithmetic and streaming, the part that the other doesn't hide
EXPOSED_STARVED = 0.5  # the same on starved cores
FILL = 0.55  # share of the second-level cache up to which weights stay between two strips; at twice it none do
STARVED = 12.0  # multiply-adds of a core while one vector arrives from beyond its second-level cache: from so many on,
# products wait for the caches (measured with 13; with 5 they do not)
MOVED = 1.5  # cycles of a vector of transformed data beside its arithmetic
SPREAD = 1.8  # of the cycles of plain data's transforms: single numbers are loaded and spread over a vector
MOVED_STARVED = 7.0  # the same on starved cores: it comes from where the kernel before left it, 7 to 12 with all
LOOP = 0.25  # cycles that a step of the reduction spends beside its arithmetic
MARGIN = 0.93  # the estimate must beat the direct one by this much
PLAIN_MARGIN = 0.8  # the same of plain data, whose transforms were measured on one processor
NEAR_WEIGHTS = 2  # second-level caches: transformed weights up to so many arrive beside the products of F(6x6, 3x3)
FAR = 0.75  # of their speed, what F(6x6, 3x3) and its like reach with more
LAST = 0.5  # both where no third level is behind the second
LARGER = 0.95  # F(6x6, 3x3) and its like must beat smaller tiles by this much: they double the bound of errors and, in
# two dimensions, the bytes of weights
TIE = 1.001  # times the fewest cycles can't be told from these, but more scratch pushes out what lies beside it: strips
# of 12 tiles take 0.95 of the time of 36, expected to be the same, in stripes of 720 x 1280 with 64 channels
MOVED_PART = 1.0  # the same of a part of such a vector, half a line
SPLIT = 1.9  # cycles of a part of a vector
LOADED = 6.0  # cycles of a register's load that products don't hide: from the second-level cache, mostly
STORED = 36.0  # cycles of a register of sums, from its last product to the next one's first
PARTS_RATE = 0.4  # of the rate at which data arrive from beyond that cache, what loads of registers get
STACK_BYTES = 64 * 1024  # scratch up to this lies on the stack; larger one in the memory plan


Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """How one convolution is computed. ``rows x vectors`` is the register tile of the products: tiles by vectors of
    output channels; ``strip`` tiles are transformed together, ``strips`` cover all; ``chunks`` of ``vectors`` cover
    the output channels, split in ``groups``, each of which transforms the data anew. Each sum goes over the channels of
    ``planes`` planes of the kernel, and parts of these. ``products``: those of parts of numbers that the matrix unit
    makes; none where it does not, and multiply-adds do. ``plain`` data is not in blocks of channels."""

    transform: Transform
    tiles: tuple[int, int]
    rows: int
    vectors: int
    strip: int
    strips: int
    chunks: int
    groups: int
    cycles: float
    planes: int = 1
    products: Pairs = ()
    plain: bool = False

    @property
    def row_tiles(self) -> int:
        return -(-self.strip // self.rows)

    @property
    def chunks_per_group(self) -> int:
        return -(-self.chunks // self.groups)

    @property
    def column(self) -> int:
        """Floats of a transformed column of plain data: quarters of vectors, as many as hold it."""
        return -(-self.transform.down.extent // 4) * 4

    @property
    def tasks(self) -> int:
        return self.strips * self.groups

    def __str__(self) -> str:
        text = f"winograd {self.transform}, strip {self.strip}, tile {self.rows}x{self.vectors}"
        text += f", {len(self.products)} matrix products" if self.products else ""
        text += ", few channels" if self.plain else ""
        return text + (f", {self.groups} channel groups" if self.groups > 1 else "")


class Layer(NamedTuple):
    """What plans of a convolution depend on: those of equal layers are equal. ``batch`` counts planes of outputs,
    ``planes`` those of the kernel; the tuples are of rows and columns. The kernel of a whole layer of ``plain`` data
    has taps of zeros at its end where the stride doesn't divide it."""

    batch: int
    channels: int
    outputs: int
    out_spatial: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    planes: int = 1
    kernel: tuple[int, int] = (3, 3)
    plain: bool = False

    @staticmethod
    def of(facts: ConvFacts) -> Layer:
        plane, batch = facts.plane, facts.batch * math.prod(facts.out_spatial[:-2])
        (rows, columns), (down, across) = plane.kernel, plane.strides
        if facts.is_plain and facts.edges is None and plane.dilation == (1, 1):
            rows, columns = _up(rows, down), _up(columns, across)
        sizes = plane.outputs, plane.strides, plane.dilation, facts.planes, (rows, columns)
        return Layer(batch, facts.channels, facts.outputs, *sizes, facts.is_plain)


def _up(taps: int, stride: int) -> int:
    return taps if (taps, stride) == (3, 2) else -(-taps // stride) * stride


def applies(facts: ConvFacts) -> bool:
    """True for what the algorithm can do at all: some taps along rows and columns with stride 1 and any dilation, or
    with a stride that divides them or is 2 of 3 taps, one group, float32, at least one whole tile of every phase;
    but no weights of whole numbers, whose sums are exact."""
    return (
        facts.groups == 1
        and facts.output.dtype == "float32"
        and (facts.plane.dilation == (1, 1) or facts.plane.strides == (1, 1))
        and len(all_transforms(Layer.of(facts))) > 0
        and not facts.weight.is_whole
    )


def all_transforms(layer: Layer) -> list[Transform]:
    """Those of which the outputs have room for a tile."""
    return [t for t in transforms(layer.kernel, layer.strides) if fits(layer, t)]


def choose_plan(target: Target, facts: ConvFacts, room: int | None = None, split: bool = False) -> Plan | None:
    """The best plan, or None where the direct convolution is expected to be as fast. ``room``: the most bytes that each
    core may hold beside what it reads and writes; None is any number. ``split``: products may be those of parts."""
    enough = facts.is_plain or facts.channels >= LEAST_CHANNELS
    if not enough or facts.outputs < target.lanes() // 2 or not applies(facts):
        return None
    best = best_plan(target, facts, room, split)
    margin = PLAIN_MARGIN if facts.is_plain else MARGIN
    if best is None or best.cycles > margin * direct_cycles(target, facts):
        return None
    return best


def best_plan(target: Target, facts: ConvFacts, room: int | None = None, split: bool = False) -> Plan | None:
    """The plan with the fewest cycles, whatever a direct convolution would take."""
    return min(least_plans(target, facts, room, split), key=_weighed, default=None)


def _weighed(plan: Plan) -> float:
    return plan.cycles / (LARGER if plan.transform.is_large and not plan.products else 1)


def least_plans(target: Target, facts: ConvFacts, room: int | None = None, split: bool = False) -> tuple[Plan, ...]:
    """The plan with the fewest cycles of each transform that the outputs, and its scratch, have room for."""
    fronts = _fronts(target, target.native, Layer.of(facts), split)
    fitting = ([p for held, p in front if room is None or held <= room] for front in fronts)
    return tuple(plans[0] for plans in fitting if plans)


def smaller_plans(target: Target, facts: ConvFacts, split: bool = False) -> list[tuple[int, Plan]]:
    """What :func:`choose_plan` takes where there is less and less room than for its free choice, and the bytes that
    a core holds of each: from the fastest to the smallest."""
    found: list[tuple[int, Plan]] = []
    fronts = _fronts(target, target.native, Layer.of(facts), split)
    for held in sorted({h for front in fronts for h, _ in front})[::-1]:
        plan = choose_plan(target, facts, held, split)
        if plan is not None and (not found or found[-1][1] != plan):
            found.append((held_bytes(target.lanes(), facts.channels, plan), plan))
    return found[1:]


@lru_cache(maxsize=1024)
def _fronts(target: Target, native: bool, layer: Layer, split: bool) -> tuple[tuple[tuple[int, Plan], ...], ...]:
    """Of each transform that the outputs have room for: the bytes that a core holds, and the plan, for all plans that
    no other beats in both, from the fastest on. ``native`` makes targets differ that are equal otherwise."""
    fronts = []
    for plans in _sorted_plans(target, layer, split):
        front: list[tuple[int, Plan]] = []
        for plan in plans:
            held = held_bytes(target.lanes(), layer.channels, plan)
            if not front or held < front[-1][0]:
                front.append((held, plan))
        fronts.append(tuple(front))
    return tuple(fronts)


def sorted_plans(target: Target, facts: ConvFacts, split: bool = False) -> list[list[Plan]]:
    """All plans of each transform that the outputs have room for, those with the fewest cycles first."""
    return _sorted_plans(target, Layer.of(facts), split)


def _sorted_plans(target: Target, layer: Layer, split: bool) -> list[list[Plan]]:
    """The same, transforms with products of parts apart from those with multiply-adds."""
    found = [_plans(target, layer, t) for t in all_transforms(layer)]
    if split and not layer.plain and layer.kernel == F2.kernel and layer.strides[0] == layer.strides[1]:
        found += [_plans(target, layer, t, products_for(t)) for t in all_transforms(layer)]
    return [_in_order(target, layer.channels, list(plans)) for plans in found]


def _in_order(target: Target, channels: int, plans: list[Plan]) -> list[Plan]:
    """Those with the fewest cycles first; of as many in the same register tile, the one with the least scratch."""
    found = sorted(plans, key=lambda p: p.cycles)
    best = found[:1]
    ties = [p for b in best for p in found if p.cycles <= TIE * b.cycles and (p.rows, p.vectors) == (b.rows, b.vectors)]
    return sorted(ties, key=lambda p: held_bytes(target.lanes(), channels, p)) + [p for p in found if p not in ties]


def products_for(transform: Transform) -> Pairs:
    """The products of parts that a transform takes: those that multiply errors need parts as exact as float32."""
    return THREE if transform.growth <= F2.growth else SIX


def fits(layer: Layer, transform: Transform) -> bool:
    """True if the outputs that are a convolution without dilation, the fewest of all such, fill a tile."""
    phases = (extent // d for extent, d in zip(layer.out_spatial, layer.dilation))
    return all(phase >= m for phase, m in zip(phases, transform.tile))


def _reached(target: Target, layer: Layer, transform: Transform) -> float:
    """The part of its speed that F(6x6, 3x3) or its like keeps where it waits for the transformed weights that it reads
    for every strip: a last second level has nothing behind it, and cores share it with all that they read and write.
    256 x 256 x 5 x 5 at 28 take 0.34 of the direct time where 0.27 is expected, 128 x 128 x 7 x 7 at 46 x 54 0.40 on
    one core and 0.50 on two for 0.39 (Emerald Rapids)."""
    size = 4 * transform.matrices * transform.planes * layer.planes * layer.channels * layer.outputs
    if not transform.is_large or size <= (NEAR_WEIGHTS if target.l3_bytes else LAST) * target.l2_bytes:
        return 1.0
    return FAR if target.l3_bytes else LAST


def warm_cycles(target: Target, facts: ConvFacts, plan: Plan) -> float:
    """The cycles of ``plan`` where its weights and its scratch lie in the second-level cache already."""
    return _cycles(replace(target, l2_bytes=1 << 40), facts.channels, plan)


def direct_cycles(target: Target, facts: ConvFacts) -> float:
    """What the direct convolution is expected to take, waste at its edges included."""
    lanes, layer = target.lanes(), Layer.of(facts)
    blocks = -(-facts.outputs // lanes)
    height, width = layer.out_spatial
    tile = choose_tile(target, Space(height, width, blocks, blocks))
    count = layer.batch * -(-height // tile.rows) * -(-width // tile.columns) * (blocks // tile.blocks)
    depth = layer.channels * facts.taps
    step = LOOP + max(
        tile.positions * tile.blocks / target.fma_ports,
        (tile.positions + tile.blocks) / 2,
        float(target.fma_latency),
    )
    products = count * depth * step / target.cores
    weight_bytes = depth * blocks * lanes * 4
    stream = weight_bytes / stream_rate(target, weight_bytes) / target.cores
    return max(products, stream) + EXPOSED * min(products, stream)


def stream_rate(target: Target, weight_bytes: float, again: bool = False, readers: int = 1) -> float:
    """Bytes a cycle at which one core, beside all others, reads weights of ``weight_bytes`` in order. A run finds a
    layer's in the last-level cache if they take less than its share of that, and all layers' together stay; a strip
    finds those of the strip before it, ``again``, in all of it. What ``readers`` cores read at about the same time
    comes from memory once."""
    near = min(float(target.l3_bytes), MOST_KEPT) if again else kept_bytes(target)
    if (again or target.weights_stay) and weight_bytes <= max(target.l2_bytes, near):
        return target.far_bytes
    if target.native or not target.bandwidth:  # of this machine it is only assumed
        return min(target.far_bytes, MEMORY if target.weights_stay else MEMORY * readers)
    return min(target.far_bytes, REACHED * target.bandwidth / (target.hertz or CLOCK) / max(1, target.cores))


def kept_bytes(target: Target) -> float:
    """Bytes of one tensor that the last-level cache has for sure when a later kernel reads it."""
    return min(KEPT * target.l3_bytes, MOST_KEPT)


def _plans(target: Target, layer: Layer, transform: Transform, products: Pairs = ()) -> Iterator[Plan]:
    lanes = target.lanes()
    blocks = -(-layer.outputs // lanes)
    rows_of_tiles, columns_of_tiles = (
        d * -(-extent // (d * m)) for extent, d, m in zip(layer.out_spatial, layer.dilation, transform.tile)
    )
    grid, planes = (rows_of_tiles, columns_of_tiles), layer.planes * transform.planes
    reached = 1.0 if products else _reached(target, layer, transform)
    total = layer.batch * grid[0] * grid[1]
    for rows, vectors in _matrix_tiles(blocks) if products else _register_tiles(target, blocks):
        chunks = -(-blocks // vectors)
        for strips in _strip_counts(total, rows):
            strip = -(-total // strips)
            used = -(-total // strip)
            for groups in sorted({g for g in (1, 2, 4, 8, 16, chunks) if g <= chunks}):
                per = -(-chunks // groups)
                split = -(-chunks // per)
                plan = Plan(
                    transform, grid, rows, vectors, strip, used, chunks, split, 0.0, planes, products, layer.plain
                )
                yield replace(plan, cycles=_cycles(target, layer.channels, plan) / reached)


def starved(target: Target) -> bool:
    """True if a core multiplies much faster than its weights arrive."""
    return target.lanes() * 4 / target.far_bytes * target.fma_ports >= STARVED


def _register_tiles(target: Target, blocks: int) -> Iterator[tuple[int, int]]:
    """Tiles by vectors that fit the registers and hide the latency of a multiply-add."""
    registers = target.vector_registers
    for vectors in range(min(2, blocks), min(8, blocks) + 1):  # one vector reads the data too often
        most = (registers - vectors - free_registers(target, vectors)) // vectors
        for rows in range(1, min(16, most) + 1):
            if rows * vectors >= target.fma_ports * target.fma_latency or rows == most:
                yield rows, vectors


def _matrix_tiles(blocks: int) -> Iterator[tuple[int, int]]:
    """A register's tiles, by the registers of outputs that share its loads."""
    return ((ROWS, vectors) for vectors in range(1, min(SUMS, blocks) + 1))


def _strip_counts(total: int, rows: int) -> Iterator[int]:
    """Numbers of strips whose size is about 1, 2, 3 ... register tiles."""
    seen = set()
    for multiple in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24):
        count = max(1, -(-total // (rows * multiple)))
        if count not in seen:
            seen.add(count)
            yield count


def scratch_bytes(lanes: int, channels: int, plan: Plan) -> tuple[int, int]:
    """Bytes of the transformed data, and of the products of one chunk of output channels."""
    padded = plan.row_tiles * plan.rows
    vectors = plan.planes * -(-channels // lanes)
    if plan.products:
        vectors = -(-vectors // 2) * parts_of(plan.products)
    data = plan.transform.products * (vectors * padded * lanes + lanes)
    if plan.plain:
        data = plan.transform.across.extent * (plan.planes * channels * padded * plan.column + lanes)
    products = plan.transform.products * (padded * plan.vectors * lanes + lanes)
    return 4 * data, 4 * products


def held_bytes(lanes: int, channels: int, plan: Plan) -> int:
    """Bytes of a core's scratch that lie in the memory plan."""
    return sum(-(-size // 64) * 64 for size in scratch_bytes(lanes, channels, plan) if size > STACK_BYTES)


def weight_bytes(lanes: int, channels: int, plan: Plan) -> int:
    """Bytes of the weights as the kernel reads them."""
    return plan.transform.matrices * plan.chunks * plan.vectors * _vector_bytes(lanes, channels, plan)


def _vector_bytes(lanes: int, channels: int, plan: Plan) -> int:
    """Of one matrix of weights, for one vector of outputs."""
    if plan.products:
        steps = -(-plan.planes * -(-channels // lanes) // 2)
        return steps * parts_of(plan.products) * REGISTER_BYTES
    return 4 * plan.planes * channels * lanes


def _matrix_cycles(lanes: int, channels: int, plan: Plan) -> float:
    """Of a strip's products for one xi and chunk on the matrix unit."""
    steps = -(-plan.planes * -(-channels // lanes) // 2)
    high = SUMS // plan.vectors
    whole, rest = divmod(plan.row_tiles, high)
    step = whole * _step_cycles(high, plan) + (_step_cycles(rest, plan) if rest else 0.0)
    return steps * step + STORED * plan.row_tiles * plan.vectors


def _step_cycles(high: int, plan: Plan) -> float:
    """Of a step of a block of ``high`` registers of tiles."""
    shape = high, plan.vectors
    return SLOWER * block_cycles(shape, len(plan.products)) + LOADED * loads_of(shape, plan.products)


def _cycles(target: Target, channels: int, plan: Plan) -> float:
    lanes, t = target.lanes(), plan.transform
    depth, blocks_in = plan.planes * channels, plan.planes * -(-channels // lanes)
    data_bytes, product_bytes = scratch_bytes(lanes, channels, plan)
    step = LOOP + max(
        plan.rows * plan.vectors / target.fma_ports,
        (plan.rows + plan.vectors) / 2,
        float(target.fma_latency),
        (plan.vectors * lanes + (plan.rows if starved(target) else 0)) * 4 / NEAR,
    )
    share = plan.chunks_per_group / plan.chunks
    read = weight_bytes(lanes, channels, plan) * share
    panel = t.matrices * plan.vectors * _vector_bytes(lanes, channels, plan)
    # a task: transform the strip's data, multiply by a group's weights, transform the products
    products = plan.row_tiles * (depth * step + 2 * plan.rows * plan.vectors)
    if plan.products:
        products = _matrix_cycles(lanes, channels, plan)
    products *= t.products * plan.chunks_per_group
    data_ops = t.data_operations / target.fma_ports
    moved = MOVED_STARVED if starved(target) else MOVED
    if plan.products:
        moved = (MOVED_PART + SPLIT) * parts_of(plan.products)
    data_ops += moved * t.products
    result_ops = t.result_operations / target.fma_ports + t.products + 2.0 * t.outputs
    if plan.plain:
        vectors = -(-plan.column // lanes)
        data_ops = vectors * (t.products + t.across.data_operations) / target.fma_ports
        data_ops, blocks_in = SPREAD * (data_ops + MOVED * vectors * t.across.extent), depth
    transforms = plan.strip * (blocks_in * data_ops + plan.chunks_per_group * plan.vectors * result_ops)
    slow = PARTS_RATE if plan.products else 1.0
    scratch, again_read = data_bytes + product_bytes, 0.0
    if scratch + min(panel, target.l2_bytes // 4) > 0.75 * target.l2_bytes:
        transforms += 2 * data_bytes / target.far_bytes  # written to and read from beyond the cache
        again_read = plan.chunks_per_group * data_bytes / (slow * target.far_bytes)
    beside = starved(target)  # data that return arrive beside the products, as weights do
    if not beside:
        products += again_read
    readers = max(1, target.cores // plan.groups)
    first_stream = read / (slow * stream_rate(target, read / share, readers=readers)) + beside * again_read
    later_stream = read / (slow * stream_rate(target, read / share, again=True)) + beside * again_read
    exposed = EXPOSED_STARVED if starved(target) and not plan.products else EXPOSED
    cold, again = (max(products, s) + exposed * min(products, s) for s in (first_stream, later_stream))
    # tasks of one group follow each other on a core: only the first finds all of the weights cold
    fill = (read + scratch) / target.l2_bytes
    lost = min(1.0, max(0.0, fill - FILL) / FILL)
    rounds = -(-plan.tasks // target.cores)
    first = min(rounds, -(-rounds // plan.strips))
    return rounds * transforms + first * cold + (rounds - first) * (lost * again + (1 - lost) * products)
