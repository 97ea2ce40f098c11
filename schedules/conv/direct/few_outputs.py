"""Convolutions with few output channels: lanes run over the input channels, and sums are gathered at the end.

A vector of output channels would be mostly empty. Instead each position keeps one vector of partial sums an output:

    for n, rows of tiles, column of tiles
      acc[position][output][lanes] = 0
      for channel block, taps                      rolled
        acc[p][o] += x[p, block] * w[block][tap][o]            both are vectors over the channels of the block
      sums = acc, added across its lanes             log2(lanes) steps, a whole vector of sums at a time
      epilogue(sums)

3 of 16 output channels take 3 multiply-adds for 16 channels and tap, not 16. So are 3 of 8, whose parts
(:mod:`.last_vector`) would leave a quarter of the lanes empty, behind sums of some length: 32 inputs, 3x3 take 0.73 of
the time (Zen 3). 5 of 16 have more weights than registers to hold positions beside them.

A plain output is written as it lies: sums are gathered as vectors of neighbouring columns of one output, and blocks of
channels, of which most would be zeros, are neither written nor read again (:func:`writes_plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tvm import tirx

from ....targets.target import Target
from ...emit.builder import KernelBuilder
from ...kernel.half_sums import HALF
from ...matmul.folded_moves import producers
from ...words.choice import AlgorithmRefusal, Choice
from ...words.dims import is_open
from ...words.group import Group, Kernel, Packed, Request, Value
from ...words.tvm_types import Buffer, Expr
from ..algorithm import ConvAlgorithm
from ..box_cost import Costing, MemberCost
from ..facts import OPERATORS, ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..register_tile import Tile
from .data_prefetch import comes_from_afar, prefetch_rows_below

FEW = 4  # a vector holds at least so many times the outputs
FILLED = 0.75  # of the lanes: where parts of input channels fill no more of them, FEW outputs may fill half a vector
PER_LINE = 2  # multiply-adds for each line that is prefetched
TERMS = 64  # of a sum, beside which gathering it counts for little


def has_few(facts: ConvFacts, lanes: int) -> bool:
    """True for dense convolutions whose outputs fill a fraction of a vector, and whose inputs fill one; not in float16,
    whose sums are added up in runs."""
    if facts.output.dtype == HALF or facts.groups > 1 or facts.channels < lanes // 2 or lanes & (lanes - 1):
        return False
    if facts.outputs * FEW <= lanes:
        return True
    if facts.outputs > min(FEW, lanes // 2) or facts.channels * facts.taps < TERMS:
        return False
    parts = 1 << (lanes // facts.outputs).bit_length() - 1
    return parts * facts.outputs <= FILLED * lanes


def few_applies(request: Request, facts: ConvFacts) -> bool:
    """True for convolutions of few outputs that read channel blocks from memory."""
    lanes = request.layout(facts.data).block
    return lanes > 0 and has_few(facts, lanes) and not producers(request.group, facts.data)


def is_few(group: Group, block: Callable[[Value], int]) -> bool:
    """True for a group of such a convolution; ``block`` says how many lanes a channel block of its data has."""
    anchor = group.anchor
    if anchor is None or anchor.operator not in OPERATORS:
        return False
    facts = ConvFacts.of(anchor)
    if is_open(facts.output.shape) and len(facts.kernel) != 2:
        return False  # open images of two axes are computed in boxes, others by the direct kernel
    return block(facts.data) > 0 and has_few(facts, block(facts.data)) and not producers(group, facts.data)


def writes_plain(group: Group, block: Callable[[Value], int]) -> bool:
    """True for a group of such a convolution that reads channel blocks and writes none."""
    return not any(block(v) for v in group.outputs) and is_few(group, block)


def build_few(request: Request, facts: ConvFacts) -> Kernel:
    """The kernel of a convolution of few outputs, with input channels in lanes."""
    ctx = new_context(request)
    lanes = request.layout(facts.data).block
    plain = not request.layout(request.group.outputs[0]).block
    tile = choose_few_tile(request.target, facts, lanes, plain)
    _emit(ConvKernel(request, facts, tile, lanes, ctx), plain)
    schedule = f"few outputs conv C{lanes}, tile {tile}, {facts.outputs} {'plain ' if plain else ''}outputs"
    return finish(ctx, schedule, facts.flops, [tile])


def choose_few_tile(target: Target, facts: ConvFacts, lanes: int, plain: bool = False) -> Tile:
    """Positions for the fewest cycles: as many as one round of :func:`_sums` takes, more only to hide the latency of a
    multiply-add, and no more than fit the registers beside one step's weights and two vectors of data (with room for
    one LLVM spills). Those of ``plain`` outputs are neighbours in a row."""
    outputs = facts.outputs
    height = facts.out_spatial[-2] if len(facts.out_spatial) > 1 else 1
    width = facts.out_spatial[-1]
    round_of_sums = lanes // _padded(outputs)
    hidden = -(-target.fma_latency * target.fma_ports // outputs)
    most = max(1, min((target.vector_registers - outputs - 2) // outputs, max(round_of_sums, hidden)))
    best, best_cost = Tile(1, 1, 1), float("inf")
    for rows in range(1, min(height, most, 1 if plain else 4) + 1):
        for columns in range(1, min(width, most // rows) + 1):
            count = rows * columns
            cost = -(-height // rows) * -(-width // columns) * few_step(target, count, outputs)
            if cost < best_cost - 1e-9:
                best, best_cost = Tile(rows, columns, 1), cost
    return best


def few_step(target: Target, positions: int, outputs: int) -> float:
    """Cycles of one block of input channels and one tap of a tile."""
    fmas, loads = positions * outputs / target.fma_ports, target.fitted.registers.load * (positions + outputs)
    return max(fmas, loads, float(target.fma_latency)) + 1.0


def pack_few_weights(facts: ConvFacts, lanes: int) -> np.ndarray:
    """[block][tap][output][lane], zero for channels past the last."""
    weight = np.asarray(facts.weight.constant).reshape(facts.outputs, facts.channels, facts.taps)
    blocks = -(-facts.channels // lanes)
    padded = np.zeros((facts.outputs, blocks * lanes, facts.taps), weight.dtype)
    padded[:, : facts.channels] = weight
    return np.ascontiguousarray(padded.reshape(facts.outputs, blocks, lanes, facts.taps).transpose(1, 3, 0, 2))


def _emit(conv: ConvKernel, plain: bool) -> None:
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    dtype, outputs = facts.output.dtype, facts.outputs
    weights = ctx.packed(Packed(f"w_{facts.weight.name}", pack_few_weights(facts, lanes)))
    with conv.tasks(1) as (n, _, origins), conv.columns() as column:
        conv.ask_for_results(n, tirx.IntImm("int32", 0), origins, column, 1)
        acc = k.local("acc", dtype, tile.positions * outputs * lanes)
        for slot in range(tile.positions * outputs):
            with k.loop(lanes, "vectorized", "v") as v:
                k.store(acc, slot * lanes + v, tirx.const(0, dtype))

        def step(block: Expr, index: Expr, taps: list[Expr]) -> None:
            for position in range(tile.positions):
                dy, dx = divmod(position, tile.columns)
                at = conv.positions(origins, column, dy, dx)
                for output in range(outputs):
                    with k.loop(lanes, "vectorized", "v") as v:
                        slot = (position * outputs + output) * lanes + v
                        value = conv.input(n, (block, v), at, taps)
                        k.store(acc, slot, acc[slot] + value * weights[(index * outputs + output) * lanes + v])

        def nest(i: int, block: Expr, index: Expr, taps: list[Expr]) -> None:
            if i == len(facts.kernel):
                step(block, index, taps)
                return
            with k.loop(facts.kernel[i], name="t") as t:
                ctx.ranged(t, facts.kernel[i])
                nest(i + 1, block, index * facts.kernel[i] + t, [*taps, t])

        blocks, below = -(-facts.channels // lanes), _prefetches_below(conv, plain)
        with k.loop(blocks, name="cb") as block:
            ctx.ranged(block, blocks)
            if below:
                prefetch_rows_below(conv, n, block, origins, column)
            nest(0, block, block, [])
        if plain:
            _write_rows(conv, acc, n, origins, column)
        else:
            conv.epilogue(_sums(conv, acc), n, tirx.IntImm("int32", 0), origins, column, 1)


def _prefetches_below(conv: ConvKernel, plain: bool) -> bool:
    """True if tiles prefetch the rows that the next row of tiles reads first. Rows of an image that has left the
    second-level cache come from afar, and in more runs than the hardware follows. On Zen 5 3x3 layers of 64 channels to
    3 take 0.75, 0.55 and 0.43 of the time at 80, 160 and 320, with stride 2 0.89 at 200; of 32 to 3 at 96 x 608 to 4800
    0.4 to 1.0; 1x1 layers of 256 to 4 0.53 to 0.66 at 40 to 160, of 16 to 2 0.85 to 1.0; 5x5 of 32 to 1 0.49 and 1.0.
    One multiply-add for each hint is too few: 1x1 of 64 to 1 take 1.1."""
    facts = conv.facts
    if facts.outputs * facts.taps < PER_LINE * min(facts.strides[0], facts.kernel[0]):
        return False
    return plain and comes_from_afar(conv)


def _sums(conv: ConvKernel, acc: Buffer) -> Buffer:
    """[position][lane = output], zero in the lanes past the last: each accumulator added across its lanes."""
    k, lanes, outputs = conv.k, conv.lanes, conv.facts.outputs
    dtype = conv.facts.output.dtype
    positions = conv.tile.positions
    padded = _padded(outputs)
    sums = k.local("sums", dtype, positions * lanes)
    zero = tirx.Broadcast(tirx.const(0, dtype), lanes)
    for first in range(0, positions, lanes // padded):
        vector = _gathered(conv, acc, [(first + i // padded, i % padded) for i in range(lanes)])
        for position in range(first, min(positions, first + lanes // padded)):
            start = (position - first) * padded
            picked = [start + i if i < outputs else lanes for i in range(lanes)]
            k.store(sums, tirx.Ramp(position * lanes, 1, lanes), tirx.Shuffle([vector, zero], picked))
    return sums


def _write_rows(conv: ConvKernel, acc: Buffer, n: Expr, origins: list[Expr], column: Expr) -> None:
    """The epilogue of plain outputs: a vector holds neighbouring columns of an output."""
    k, lanes, columns = conv.k, conv.lanes, conv.tile.columns
    run = lanes // _padded(conv.facts.outputs)
    sums = k.local("sums", conv.facts.output.dtype, lanes, "global" if conv.costly else "local")
    for first in range(0, columns, run):
        vector = _gathered(conv, acc, [(first + i % run, i // run) for i in range(lanes)])
        k.store(sums, tirx.Ramp(0, 1, lanes), vector)
        with k.loop(conv.facts.outputs, "serial" if conv.costly else "unroll", "o") as output:
            conv.ctx.ranged(output, conv.facts.outputs)
            with k.loop(min(run, columns - first), "vectorized", "v") as v:
                place = conv.positions(origins, column, 0, first + v)
                conv.plain_element(lambda: sums[output * run + v], n, output, place)  # noqa: B023


def _gathered(conv: ConvKernel, acc: Buffer, sums: list[tuple[int, int]]) -> Expr:
    """One vector of ``sums``, each the (position, output) of an accumulator that is added across its lanes; zero for
    those that the tile hasn't."""
    lanes, outputs, positions = conv.lanes, conv.facts.outputs, conv.tile.positions
    zero = tirx.Broadcast(tirx.const(0, conv.facts.output.dtype), lanes)
    vectors: list[Expr | None] = []
    for position, output in sums:
        present = position < positions and output < outputs
        vectors.append(_vector(acc, (position * outputs + output) * lanes, lanes) if present else None)
    parts = lanes  # partial sums of each accumulator in a vector
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2])
        vectors = [_merge(conv.k, a, b, parts, lanes, zero) for a, b in pairs]
        parts //= 2
    return vectors[0]


def _padded(outputs: int) -> int:
    """Lanes from the first output of a position to that of the next."""
    return 1 << (outputs - 1).bit_length()


def _vector(buffer: Buffer, offset: int, lanes: int) -> Expr:
    return buffer[tirx.Ramp(offset, 1, lanes)]


def _merge(k: KernelBuilder, a: Expr | None, b: Expr | None, parts: int, lanes: int, zero: Expr) -> Expr | None:
    """Two vectors of sums in ``parts`` parts each as one in half as many, those of ``a`` first."""
    if a is None and b is None:
        return None
    half = parts // 2
    low = [i for start in range(0, 2 * lanes, parts) for i in range(start, start + half)]
    pair = [zero if v is None else v for v in (a, b)]
    added = tirx.Shuffle(pair, low) + tirx.Shuffle(pair, [i + half for i in low])
    held = k.local("part", str(added.ty.dtype).split("x")[0], lanes)
    k.store(held, tirx.Ramp(0, 1, lanes), added)
    return _vector(held, 0, lanes)


class FewOutputs(ConvAlgorithm):
    name = "few outputs"
    alone = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if not has_few(facts, request.layout(facts.data).block or request.target.lanes(facts.output.dtype)):
            return self.refuses("the outputs fill much of a vector, the inputs little, or sums are short")
        if not few_applies(request, facts):
            return self.refuses("the data are computed in the kernel, or lie in no channel blocks")
        return self.choice(sure=True)

    def build(self, request: Request, facts: ConvFacts, plan: None) -> Kernel:
        return build_few(request, facts)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[None]]:
        return ([None],)

    def cost(self, ask: Costing, plan: None) -> MemberCost:
        facts, lanes, target = ask.facts, ask.lanes, ask.target
        tile = choose_few_tile(target, facts, lanes)
        steps = facts.batch * -(-facts.channels // lanes) * facts.taps
        cycles = steps * few_step(target, tile.positions, facts.outputs)
        cycles += 3 * lanes + ask.extra * tile.positions  # sums across the lanes, and what follows
        return MemberCost((tile.rows, tile.columns), cycles, facts.weight.bytes, ask.positions)
