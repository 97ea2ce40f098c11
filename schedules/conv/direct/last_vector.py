"""The last vector of output channels, where it has room: lanes hold several input channels of one output.

    acc[positions][channel j, part i of s]                 lane j * s + i, s a power of two
      for channel block, taps, s channels in block
        acc[p] += x[p, channels] (s of them, repeated) * w[block][tap][channels][j, i]
    y[p, j] = acc[p, j, 0] + ... + acc[p, j, s - 1]        log2(s) additions a position

24 channels in vectors of 16 take 1 1/2 vectors' multiply-adds instead of 2, 65 channels 4 1/16 instead of 5. The s
neighbouring inputs are one load: vbroadcastsd, ld1r.2d, or a whole vector. It needs blocked input straight from memory:
lanes past the last channel are zero there, as their weights are.

Where a core starts two multiply-adds in a cycle, and so waits for the loads of tiles of one vector, all outputs of a
convolution to few channels are computed so: 24 of them by two channels are three vectors, and one load serves three
multiply-adds instead of one. 1x1 144 to 24 channels takes 0.77 of the time, 96 to 24 0.81 (Granite Rapids). The last
vector need not be full: 21 outputs by two channels are three vectors with six lanes of zeros, which take 0.71 of the
time of a vector of 16 and half a one for 5 (256 channels; 64: 0.85), 9 by four 0.77.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx

from ....targets.target import Target
from ...instructions.load_order import keep_loads
from ...kernel.half_sums import HALF
from ...kernel.register_budget import free_registers
from ...math.bfloat16 import load_of
from ...matmul.folded_moves import producers
from ...words.group import Request, dtype_bytes
from ...words.tvm_types import Buffer, Expr
from ..facts import OPERATORS, ConvFacts
from ..kernel import ConvKernel
from ..register_tile import Space, Tile, choose_tile, step_cycles, tiles_of
from ..result_waits import SHORT
from ..weight_prefetch import prefetch
from .data_prefetch import ask_for_data, data_distance
from .shared_taps import columns_read, multiply, shared_window

GAIN = 0.97  # of the cycles with a whole last vector: nearer than that, it stays whole
JOINED = 0.9  # the same of all outputs: their parts are added at the end
MOST_VECTORS = 5  # of which a register tile holds five positions, and two loads serve five multiply-adds
LEAST_TERMS = 32  # of a sum, for which that counts for little
WIDE = 420  # rows and columns for the comparison: what is chosen must not depend on the box that is computed


def tail_parts(request: Request, facts: ConvFacts) -> int:
    """Input channels that share the last vector of outputs; 1 where that vector is computed like all others."""
    lanes = request.layout(request.group.outputs[0]).block
    rest = facts.outputs % lanes
    if facts.output.dtype == HALF:  # whose sums are added up in runs
        return 1
    if facts.groups > 1 or not rest or lanes & (lanes - 1) or request.layout(facts.data).block != lanes:
        return 1
    if producers(request.group, facts.data):
        return 1
    parts = 1
    while 2 * parts * rest <= lanes:
        parts *= 2
    if parts == 1:
        return 1
    target, whole = request.target, facts.outputs // lanes
    share = _steps(facts, lanes, parts) / facts.channels
    plain = _cost(target, facts, whole + 1)
    split = _cost(target, facts, whole) + share * _cost(target, facts, 1) if whole else share * plain
    return parts if split < GAIN * plain else 1


def joined_tile(request: Request, facts: ConvFacts) -> Tile | None:
    """The tile of all outputs at once, lanes holding several input channels; None where vectors hold one."""
    parts = joined_parts(request, facts)
    if parts == 1:
        return None
    lanes = request.layout(request.group.outputs[0]).block
    return _row_tile(request.target, -(-facts.outputs * parts // lanes), facts.out_spatial[-1], parts)


def joined_parts(request: Request, facts: ConvFacts) -> int:
    """Input channels that share the vectors of all outputs; 1 where they don't."""
    lanes, anchor, target = request.layout(request.group.outputs[0]).block, request.group.anchor, request.target
    if facts.output.dtype == HALF:
        return 1
    if anchor is None or anchor.operator not in OPERATORS or facts.groups > 1 or lanes & (lanes - 1):
        return 1
    if request.layout(facts.data).block != lanes or producers(request.group, facts.data):
        return 1
    if target.fma_ports < 2 or target.in_order or target.is_aarch64 or shared_window(target, facts) is not None:
        return 1
    if facts.channels * facts.taps < LEAST_TERMS:
        return 1
    alone, whole = tail_parts(request, facts), -(-facts.outputs // lanes)
    plain = _cost(target, facts, whole)
    if alone > 1:
        share = _steps(facts, lanes, alone) / facts.channels * _cost(target, facts, 1)
        plain = share + (_cost(target, facts, whole - 1) if whole > 1 else 0.0)
    found = [(JOINED * plain, 1)]
    for parts in (2, 4):
        vectors = -(-facts.outputs * parts // lanes)
        if 1 < vectors <= MOST_VECTORS:
            tile = _row_tile(target, vectors, WIDE, parts)
            share = _steps(facts, lanes, parts) / facts.channels
            found.append((share * tiles_of(tile, WIDE, WIDE) * step_cycles(target, tile), parts))
    return min(found)[1]


def _row_tile(target: Target, vectors: int, width: int, parts: int) -> Tile:
    most = (target.vector_registers - vectors - free_registers(target, vectors, unrolled=True)) // vectors
    tiles = [Tile(1, columns, vectors, parts) for columns in range(1, max(1, min(width, most)) + 1)]
    return min(tiles, key=lambda t: tiles_of(t, 1, width) * step_cycles(target, t))


def _cost(target: Target, facts: ConvFacts, blocks: int) -> float:
    """Cycles a step of ``blocks`` vectors of outputs at WIDE x WIDE positions."""
    window = shared_window(target, facts, blocks, blocks)
    tile = choose_tile(target, Space(WIDE, WIDE, blocks, blocks, window=window))
    return tiles_of(tile, WIDE, WIDE) * (blocks // tile.blocks) * step_cycles(target, tile)


def _steps(facts: ConvFacts, lanes: int, parts: int) -> int:
    """Steps of a tap: whole groups of ``parts`` channels in each block."""
    return facts.channels // lanes * (lanes // parts) + -(-(facts.channels % lanes) // parts)


def tail_tile(target: Target, facts: ConvFacts, rows: int, width: int, parts: int) -> Tile:
    """The tile of one vector over as many rows as the others have."""
    window = shared_window(target, facts)
    held = 1 if window is None else window.taps
    most = target.vector_registers - held - free_registers(target, 1, unrolled=True)
    counts = range(1, max(1, min(width, most // rows)) + 1)
    tiles = [Tile(rows, columns, 1, parts, window) for columns in counts]
    return min(tiles, key=lambda t: tiles_of(t, rows, width) * step_cycles(target, t))


def pack_tail(facts: ConvFacts, lanes: int, tile: Tile) -> np.ndarray:
    """[block][tap][channels / parts][tap of a window][output][part], zero where there is no output or no channel."""
    parts, side = tile.parts, 1 if tile.window is None else tile.window.taps
    weight = np.asarray(facts.weight.constant).reshape(facts.outputs, facts.channels, facts.taps)
    weight, width = weight[_first_output(facts, lanes, tile) :], tile.blocks * lanes
    blocks = []
    for first in range(0, facts.channels, lanes):
        block = weight[:, first : first + lanes]
        steps = -(-block.shape[1] // parts)
        padded = np.zeros((width // parts, steps * parts, facts.taps), weight.dtype)
        padded[: block.shape[0], : block.shape[1]] = block
        padded = padded.reshape(-1, steps, parts, facts.taps // side, side)
        blocks.append(padded.transpose(3, 1, 4, 0, 2).reshape(-1))
    return np.concatenate(blocks)


def _first_output(facts: ConvFacts, lanes: int, tile: Tile) -> int:
    """Of a tile of the last vector, or of all."""
    return 0 if tile.blocks * lanes >= facts.outputs * tile.parts else facts.outputs // lanes * lanes


def emit_tail(conv: ConvKernel, weights: Buffer, base: int, n: Expr, origins: list[Expr]) -> None:
    """All columns of one row of tiles of the last vector, or of all outputs; their weights begin at ``base``."""
    k, ctx, facts, tile, lanes = conv.k, conv.ctx, conv.facts, conv.tile, conv.lanes
    width, dtype, parts = tile.blocks * lanes, facts.output.dtype, tile.parts
    side = 1 if tile.window is None else tile.window.taps
    first_output = _first_output(facts, lanes, tile)
    block, blocks_out = tirx.IntImm("int32", first_output // lanes), -(-(facts.outputs - first_output) // lanes)
    distance = data_distance(conv) * parts
    with conv.columns() as column:
        if facts.channels * facts.taps <= SHORT:
            conv.ask_for_results(n, block, origins, column, blocks_out)
        acc = k.local("acc", dtype, tile.positions * width)
        with k.loop(tile.positions * tile.blocks, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(acc, z * lanes + v, tirx.const(0, dtype))
        first = 0
        for blocks, channels in ((facts.channels // lanes, lanes), (1, facts.channels % lanes)):
            if not blocks or not channels or facts.empty:
                continue
            steps = -(-channels // parts)
            with k.loop(blocks, name="cb") as cb:
                ctx.ranged(cb, blocks)
                if distance and tile.blocks > 1 and blocks > 1:
                    ask_for_data(conv, n, cb + distance, origins, column)
                with conv.taps(cb) as (index, taps), k.loop(steps, name="c") as c:
                    ctx.ranged(c, steps)
                    step = base + first * facts.taps * width + (index * steps + c) * (side * width)
                    if conv.far:
                        prefetch(k, weights, step, side * tile.blocks, lanes, dtype_bytes(dtype))
                    channel = (cb + first * parts // lanes, c * parts)
                    keep_loads(k, conv.request.target)
                    if tile.window is not None:
                        for at, pairs in columns_read(conv, origins, column, taps):
                            vector = _repeated(conv, conv.element_at(n, channel, at))
                            multiply(conv, acc, lambda v: vector[v], weights, step, pairs)  # noqa: B023
                    else:
                        _multiply(conv, acc, weights, step, (n, channel, origins, column, taps))
            first += blocks * steps
        conv.epilogue(_sums(conv, acc), n, block, origins, column, blocks_out)


def _multiply(conv: ConvKernel, acc: Buffer, weights: Buffer, step: Expr, at: Expr) -> None:
    """The products of one tap, for each position."""
    k, tile, lanes, (n, channel, origins, column, taps) = conv.k, conv.tile, conv.lanes, at
    with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(tile.columns, "unroll", "dx") as dx:
        value = _repeated(conv, conv.input(n, channel, conv.positions(origins, column, dy, dx), taps))
        with k.loop(tile.blocks, "unroll", "b") as b, k.loop(lanes, "vectorized", "v") as v:
            slot = ((dy * tile.columns + dx) * tile.blocks + b) * lanes + v
            k.store(acc, slot, acc[slot] + value[v] * weights[step + b * lanes + v])


def _repeated(conv: ConvKernel, first: Expr) -> Buffer:
    """A vector of ``parts`` neighbouring input channels from the one that ``first`` reads, again and again."""
    parts, at = conv.tile.parts, load_of(first).indices[0]
    found = conv.read(conv.facts.data)[tirx.Ramp(at, 1, parts)]
    vector = conv.k.local("x", conv.facts.data.dtype, conv.lanes)
    if parts < conv.lanes:
        found = tirx.Shuffle([found] * (conv.lanes // parts), list(range(conv.lanes)))
    conv.k.store(vector, tirx.Ramp(0, 1, conv.lanes), found)
    return vector


def _sums(conv: ConvKernel, acc: Buffer) -> Buffer:
    """[position][lane = output], anything in the lanes past the last: the parts of each output added, by which vectors
    become half as many each time."""
    k, lanes, dtype, tile = conv.k, conv.lanes, conv.facts.output.dtype, conv.tile
    kept = -(-tile.blocks // tile.parts)
    sums = k.local("sums", dtype, tile.positions * kept * lanes)
    for position in range(tile.positions):
        vectors = [acc[tirx.Ramp((position * tile.blocks + b) * lanes, 1, lanes)] for b in range(tile.blocks)]
        left = tile.parts
        while left > 1:
            pairs = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
            left, vectors = left // 2, []
            for pair in pairs:
                even = [2 * i % (len(pair) * lanes) for i in range(lanes)]
                added = tirx.Shuffle(pair, even) + tirx.Shuffle(pair, [i + 1 for i in even])
                vectors.append(added if left == 1 else k.bind(added))
        for b, vector in enumerate(vectors):
            k.store(sums, tirx.Ramp((position * kept + b) * lanes, 1, lanes), vector)
    return sums
