"""Rows of plain data in vector registers, of which multiply-adds repeat elements, as first layers read images.

    for taps of all axes but the last, channel
      x[r] = the columns that row r of the tile reads           a load for each eight of them, the last one moved back
      for tap of the last axis                                  written out
        acc[r, p][b] += x[r][stride * p + tap] * w[tap][b]

Seven taps of stride 2 read 15 columns for five neighbours: 2 loads where each number by itself takes 35. No channels
lie side by side there for what :mod:`.channel_vectors` does.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ...instructions.by_element import multiply_elements, takes_elements
from ...math.bfloat16 import load_of
from ...matmul.folded_moves import producers
from ...words.group import Request
from ...words.tvm_types import Buffer, Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel
from ..register_tile import TapWindow

MOST_TAPS = 11  # of a row, written out


def row_window(request: Request, facts: ConvFacts) -> TapWindow | None:
    """The taps of a row, where register tiles hold the columns that they read: those of plain data straight from
    memory, side by side."""
    plain = request.layout(facts.data).block == 0 and not producers(request.group, facts.data)
    side_by_side = facts.groups == 1 and facts.dilation[-1] == 1 and 1 < facts.kernel[-1] <= MOST_TAPS
    halves = facts.data.dtype == facts.output.dtype and takes_elements(request.target, facts.data.dtype)
    lanes = request.layout(request.group.outputs[0]).block
    if not (plain and side_by_side and halves and lanes == request.target.lanes(facts.data.dtype)):
        return None
    return TapWindow(facts.kernel[-1], facts.strides[-1], 1, lanes)


def multiply_rows(
    conv: ConvKernel, acc: Buffer, weights: Buffer, step: Expr, at: tuple[Expr, Expr, list[Expr], Expr, list[Expr]]
) -> None:
    """The products of one channel and the taps of a row; ``at``: image, channel, origins, column and the taps of all
    axes but the last."""
    k, tile, window = conv.k, conv.tile, conv.tile.window
    assert window is not None
    starts, size = window.loads(tile.columns)
    held = k.local("x", conv.facts.data.dtype, tile.rows * len(starts) * size)
    for row in range(tile.rows):
        first = _first(conv, row, at)
        for i, start in enumerate(starts):
            vector = tirx.Ramp(first + start, 1, size) if size > 1 else first + start
            slot = (row * len(starts) + i) * size
            k.store(held, tirx.Ramp(slot, 1, size) if size > 1 else slot, conv.read(conv.facts.data)[vector])

    def element(tap: int) -> Callable[[int], Expr]:
        def of(position: int) -> Expr:
            row, column = divmod(position, tile.columns)
            offset = column * window.stride + tap
            number = min(offset // size, len(starts) - 1)
            return held[(row * len(starts) + number) * size + offset - starts[number]]

        return of

    width = tile.blocks * conv.lanes
    for tap in range(window.taps):
        multiply_elements(
            k, conv.request.target, acc, element(tap), lambda i: weights[step + tap * width + i],  # noqa: B023
            (tile.positions, tile.blocks, conv.lanes),
        )  # fmt: skip


def _first(conv: ConvKernel, row: int, at: tuple[Expr, Expr, list[Expr], Expr, list[Expr]]) -> Expr:
    """Where the first column lies that a row of the tile reads."""
    n, channel, origins, column, taps = at
    facts = conv.facts
    steps = zip(conv.positions(origins, column, row, 0), [*taps, 0], facts.strides, facts.dilation, facts.before)
    return load_of(conv.element_at(n, channel, [p * s + t * d - b for p, t, s, d, b in steps])).indices[0]
