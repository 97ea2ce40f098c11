"""Chooses whether a convolution runs by Winograd's algorithm, and how: the plan of the fewest cycles (cost.py)
of all that the registers, the outputs and the memory have room for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from ....targets.target import Target
from ...instructions.amx import ROWS, SUMS
from ...instructions.by_element import most_rows, takes_elements
from ...instructions.int8_dot import PAIRS, multiplier
from ...kernel.register_budget import free_registers
from ..facts import ConvFacts
from .cost import cycles_of_plans, direct_cycles, plan_cycles, reached_share
from .hints import waited
from .plan import Layer, Pairs, WinogradPlan, all_transforms, fits, held_bytes, products_for, weight_bytes
from .plan_table import PlanTable, in_arrays
from .transform import F2, Transform

LEAST_CHANNELS = 16  # fewer leave the products no longer than the transforms
MARGIN = 0.93  # the estimate must beat the direct one by this much
PLAIN_MARGIN = 0.8  # the same of plain data, whose transforms were measured on one processor
LARGER = 0.95  # F(6x6, 3x3) and its like must beat smaller tiles by this much: they double the bound of errors and, in
# two dimensions, the bytes of weights
MOST_HELD = 6  # tiles whose channels lie in registers: with eight sums go to the stack, and come back
TIE = 1.001  # times the fewest cycles can't be told from these, but more scratch pushes out what lies beside it: strips
# of 12 tiles take 0.95 of the time of 36, expected to be the same, in stripes of 720 x 1280 with 64 channels
HARDLY = 1.02  # times the cycles at one size: as tiles and strips are left over, plans differ by more at the next one
HELD = 0.5  # of the second-level cache, what strips of images of any size may take of it: the rest is the weights'
LONGEST = 8  # register tiles of such a strip
MANY_SIZES = 1.3  # times the direct cycles take register tiles that are for all small images: of 32 channels at 16x16
# they took 1.3 times as long as F(6x6, 3x3), of which 0.95 times the direct cycles were expected (Emerald Rapids), of
# 48 at 9x9 1.4 and of 256 at 10x10 1.25 times as long as F(4x4, 3x3), of which 1.2 times as many were (Zen 5)


def applies(facts: ConvFacts) -> bool:
    """True for what the algorithm can do at all: some taps along rows and columns with stride 1 and any dilation, or
    with a stride that divides them or is 2 of 3 taps, one group, float32, at least one whole tile of every phase;
    but no weights of whole numbers, whose sums are exact. In float16, and of bytes in pairs of int16, whose sums stay
    exact, data lies in blocks of channels."""
    if facts.of_bytes:
        able = facts.data.dtype == PAIRS and not facts.is_plain
    else:
        able = facts.output.dtype == "float32" or facts.output.dtype == "float16" and not facts.is_plain
    return (
        able
        and facts.groups == 1
        and (facts.plane.dilation == (1, 1) or facts.plane.strides == (1, 1))
        and len(all_transforms(Layer.of(facts))) > 0
        and (facts.of_bytes or not facts.weight.is_whole)
    )


def choose_plan(target: Target, facts: ConvFacts, room: int | None = None, split: bool = False) -> WinogradPlan | None:
    """The best plan; None where Winograd's algorithm does not apply or the direct convolution is expected to be as
    fast. ``room``: scratch limit in bytes a core (None: any number); ``split``: products may be those of bf16 parts."""
    enough = facts.is_plain or facts.channels >= LEAST_CHANNELS
    if not enough or facts.outputs < target.lanes(facts.output.dtype) // 2 or not applies(facts):
        return None
    best = best_plan(target, facts, room, split)
    margin = PLAIN_MARGIN if facts.is_plain else MARGIN
    if best is None or best.cycles > margin * direct_cycles(target, facts):
        return None
    return best


def smaller_strips(target: Target, facts: ConvFacts, plan: WinogradPlan, split: bool = False) -> WinogradPlan:
    """The plan of the same transform that holds the fewest bytes, of those that take hardly more cycles, in strips of
    as many register tiles: these share the weights, and half of them take 1.02 to 1.1 times as long where no more
    cycles are expected (32 channels at 24 x 24 to 240 x 240)."""
    for front in _fronts(target, target.native, Layer.of(facts), split):
        for _, other in reversed(front):
            alike = (other.transform, other.products, other.row_tiles)
            if alike == (plan.transform, plan.products, plan.row_tiles) and other.cycles <= HARDLY * plan.cycles:
                return other
    return plan


def longer_strips(target: Target, facts: ConvFacts, plan: WinogradPlan) -> WinogradPlan:
    """The plan in strips as long as images may be that have more tiles than those it was made for, where weights pass
    the second-level cache once a strip: the longest of which that cache holds what a strip needs in HELD of it. Images
    of fewer tiles have shorter strips, and hold no more bytes than they need. Where channels lie in registers, and on
    the matrix unit, hints for weights are the plan's, too few for shorter strips: there it stays as it is."""
    lanes, dtype = target.lanes(facts.output.dtype), facts.output.dtype
    if plan.products or takes_elements(target, dtype) or weight_bytes(lanes, facts.channels, plan) <= target.l2_bytes:
        return plan
    for tiles in range(LONGEST, plan.row_tiles, -1):
        longer = replace(plan, strip=tiles * plan.rows, strips=1)
        if 0 < held_bytes(lanes, facts.channels, longer) <= HELD * target.l2_bytes:
            return longer
    return plan


def best_alike(target: Target, facts: ConvFacts, plan: WinogradPlan) -> WinogradPlan:
    """The plan of the fewest cycles for the outputs of ``facts`` that reads the weights as ``plan`` does: by the same
    transform, in chunks of as many vectors."""
    table = _table(target, Layer.of(facts), plan.transform, plan.products)
    for i in table.best_first(TIE):
        other = table.plan(i)
        if (other.vectors, other.groups) == (plan.vectors, plan.groups):
            return other
    return plan


def still_pays(
    target: Target, facts: ConvFacts, plan: WinogradPlan, share: float = 1.0, images: int | None = None
) -> bool:
    """True if ``plan``, which was chosen for an image of another size, is expected to be faster than direct
    convolutions, of which the best takes a ``share`` of float32's time, at so many ``images`` (by default those of
    ``facts``) of that of ``facts``, in strips of as many tiles as there are."""
    layer = Layer.of_images(facts, images or facts.batch)
    own = cycles_at(target, facts, plan, layer)
    return own is not None and own <= MANY_SIZES * share * direct_cycles(target, facts, layer)


def cycles_at(target: Target, facts: ConvFacts, plan: WinogradPlan, layer: Layer) -> float | None:
    """Predicted cycles of ``plan``, which was chosen for another size, at that of ``layer``, in strips of as many tiles
    as there are; None where these don't fit it."""
    if not fits(layer, plan.transform):
        return None
    sizes = zip(layer.out_spatial, layer.dilation, plan.transform.tile)
    rows, columns = (d * -(-extent // (d * m)) for extent, d, m in sizes)
    total = layer.batch * rows * columns
    strips = -(-total // plan.strip)
    own = replace(plan, tiles=(rows, columns), strip=-(-total // strips), strips=strips)
    reached = 1.0 if plan.products else reached_share(target, layer, plan.transform)
    return plan_cycles(target, layer.channels, own) / reached


def best_plan(target: Target, facts: ConvFacts, room: int | None = None, split: bool = False) -> WinogradPlan | None:
    """The plan with the fewest cycles, whatever a direct convolution would take; None if none fits ``room``."""
    return min(least_plans(target, facts, room, split), key=_weighed, default=None)


def _weighed(plan: WinogradPlan) -> float:
    return plan.cycles / (LARGER if plan.transform.is_large and not plan.products else 1)


def least_plans(
    target: Target, facts: ConvFacts, room: int | None = None, split: bool = False
) -> tuple[WinogradPlan, ...]:
    """For each transform that the outputs have room for, the plan with the fewest cycles whose scratch fits ``room``
    bytes a core."""
    fronts = _fronts(target, target.native, Layer.of(facts), split)
    fitting = ([p for held, p in front if room is None or held <= room] for front in fronts)
    return tuple(plans[0] for plans in fitting if plans)


def smaller_plans(target: Target, facts: ConvFacts, split: bool = False) -> list[tuple[int, WinogradPlan]]:
    """(bytes of scratch a core, plan) of what :func:`choose_plan` takes in less and less room than its free choice,
    from the fastest to the smallest."""
    found: list[tuple[int, WinogradPlan]] = []
    fronts = _fronts(target, target.native, Layer.of(facts), split)
    for held in sorted({h for front in fronts for h, _ in front})[::-1]:
        plan = choose_plan(target, facts, held, split)
        if plan is not None and (not found or found[-1][1] != plan):
            found.append((held_bytes(target.lanes(facts.output.dtype), facts.channels, plan), plan))
    return found[1:]


@lru_cache(maxsize=1024)
def _fronts(
    target: Target, native: bool, layer: Layer, split: bool
) -> tuple[tuple[tuple[int, WinogradPlan], ...], ...]:
    """Of each transform that the outputs have room for: the bytes that a core holds, and the plan, for all plans that
    no other beats in both, from the fastest on. ``native`` makes targets differ that are equal otherwise."""
    return tuple(table.front(table.best_first(TIE)) for table in _tables(target, layer, split))


def sorted_plans(target: Target, facts: ConvFacts, split: bool = False) -> list[list[WinogradPlan]]:
    """All plans of each transform that the outputs have room for, those with the fewest cycles first."""
    tables = _tables(target, Layer.of(facts), split)
    return [[table.plan(i) for i in table.best_first(TIE)] for table in tables]


def _tables(target: Target, layer: Layer, split: bool) -> list[PlanTable]:
    """The same, transforms with products of parts apart from those with multiply-adds."""
    able = [t for t in all_transforms(layer) if not layer.half or t.growth <= target.half_growth]
    found = [_table(target, layer, t) for t in able]
    floats = not layer.plain and not layer.half and layer.whole is None
    if split and floats and layer.strides[0] == layer.strides[1] and layer.kernel == F2.kernel:
        found += [_table(target, layer, t, products_for(t)) for t in able]
    return found


def _plans(target: Target, layer: Layer, transform: Transform, products: Pairs = ()) -> list[WinogradPlan]:
    """All plans of a transform, from small register tiles and few strips on."""
    table = _table(target, layer, transform, products)
    return [table.plan(i) for i in range(len(table))]


def _table(target: Target, layer: Layer, transform: Transform, products: Pairs = ()) -> PlanTable:
    lanes = target.lanes(layer.dtype)
    blocks = -(-layer.outputs // lanes)
    rows_of_tiles, columns_of_tiles = (
        d * -(-extent // (d * m)) for extent, d, m in zip(layer.out_spatial, layer.dilation, transform.tile)
    )
    grid, planes = (rows_of_tiles, columns_of_tiles), layer.planes * transform.planes
    reached = 1.0 if products else reached_share(target, layer, transform)
    total = layer.batch * grid[0] * grid[1]
    registers = target if layer.whole is None else multiplier(target, PAIRS)
    varied = []
    for rows, vectors in _matrix_tiles(blocks) if products else _register_tiles(registers, blocks, layer):
        chunks = -(-blocks // vectors)
        parted = [-(-chunks // g) for g in sorted({g for g in (1, 2, 4, 8, 16, chunks) if g <= chunks})]
        groups = [-(-chunks // per) for per in parted]
        for strips in _strip_counts(total, rows):
            strip = -(-total // strips)
            used = -(-total // strip)
            varied += [(rows, vectors, strip, used, chunks, g) for g in groups]
    alike = WinogradPlan(
        transform, grid, 0, 0, 0, 0, 0, 0, 0.0, planes, products, layer.plain, layer.half, layer.whole is not None
    )
    plans = in_arrays(alike, varied)
    cycles = cycles_of_plans(target, layer.channels, plans) / reached + waited(target, layer, plans)
    return PlanTable(plans, cycles, held_bytes(lanes, layer.channels, plans))


def _register_tiles(target: Target, blocks: int, layer: Layer) -> Iterator[tuple[int, int]]:
    """Tiles by vectors that fit the registers and hide the latency of a multiply-add."""
    registers, elements = target.vector_registers, not layer.plain and takes_elements(target, layer.dtype)
    for vectors in range(min(2, blocks), min(8, blocks) + 1):  # one vector reads the data too often
        most = (registers - vectors - free_registers(target, vectors)) // vectors
        most = min(MOST_HELD, most_rows(target, vectors)) if elements else most
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
