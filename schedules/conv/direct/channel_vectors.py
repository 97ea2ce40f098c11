"""Positions of a register tile whose channels lie in vector registers, of which multiply-adds repeat elements.

    for channel block, taps
      x[p] = the block's channels at position p                 one load a position
      for channel in block                                      written out
        acc[p][b] += x[p][channel] * w[tap][channel][b]

A tile of 6 positions and 4 vectors takes 22 loads for 192 multiply-adds so, 80 where each number is loaded by itself.
"""

from __future__ import annotations

from tvm import tirx

from ...instructions.by_element import most_rows, multiply_elements, takes_elements
from ...math.bfloat16 import load_of
from ...matmul.folded_moves import producers
from ...words.group import Request
from ...words.tvm_types import Buffer, Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel
from ..spanning import spans_groups


def holds_channels(request: Request, facts: ConvFacts) -> bool:
    """True where register tiles hold the channels of their positions: blocks of a vector each, straight from memory,
    of a single group of channels for all lanes."""
    lanes = request.layout(request.group.outputs[0]).block
    blocked = request.layout(facts.data).block == lanes == request.target.lanes(facts.data.dtype)
    aligned = facts.groups == 1 or (facts.group_in % lanes == 0 and not spans_groups(facts, lanes))
    plain = not producers(request.group, facts.data) and facts.data.dtype == facts.output.dtype
    return takes_elements(request.target, facts.data.dtype) and blocked and aligned and plain


def has_room(conv: ConvKernel) -> bool:
    """True if the registers have room for the channels of the tile's positions."""
    tile = conv.tile
    return tile.window is None and tile.parts == 1 and tile.positions <= most_rows(conv.request.target, tile.blocks)


def held_channels(
    conv: ConvKernel, n: Expr, block: Expr, origins: list[Expr], column: Expr, taps: list[Expr]
) -> Buffer:
    """[position][channel] of a block of channels, as one tap of each position reads them."""
    k, tile, lanes, data = conv.k, conv.tile, conv.lanes, conv.facts.data
    held = k.local("x", data.dtype, tile.positions * lanes)
    first = (block, tirx.IntImm("int32", 0))
    for position in range(tile.positions):
        dy, dx = divmod(position, tile.columns)
        at = load_of(conv.input(n, first, conv.positions(origins, column, dy, dx), taps)).indices[0]
        k.store(held, tirx.Ramp(position * lanes, 1, lanes), conv.read(data)[tirx.Ramp(at, 1, lanes)])
    return held


def multiply_channel(conv: ConvKernel, acc: Buffer, held: Buffer, weights: Buffer, step: Expr, channel: Expr) -> None:
    """The products of one channel of the block that is held."""
    tile, lanes = conv.tile, conv.lanes

    def element(position: int) -> Expr:
        return held[position * lanes + channel]

    shape = tile.positions, tile.blocks, lanes
    multiply_elements(conv.k, conv.request.target, acc, element, lambda i: weights[step + i], shape)
