"""Taps of a row that share their data, in tiles of one vector of outputs.

    acc[positions][lanes]
      for channel block, taps of all axes but the last, channel in block
        for column of the input that the tile reads            unrolled
          v = x[column, channel] (broadcast)
          acc[p] += v * w[tap]                                 for each position and tap that reads it

Such a tile loads a broadcast for each multiply-add, and as many loads start in a cycle as multiply-adds where there are
two ports for these: with its weights it waits for loads. Three taps of 14 neighbours read 16 columns: 42 multiply-adds
beside 19 loads instead of 45. Where tiles have two vectors, 28 multiply-adds have 16 loads, and nothing waits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ....targets.target import Target
from ..facts import ConvFacts
from ..kernel import ConvKernel
from ..register_tile import TapWindow

if TYPE_CHECKING:
    from ...words.tvm_types import Buffer, Expr

MOST_TAPS = 7  # unrolled, with their weights in registers
GAIN = 0.75  # of the loads without a window that one may take
NEIGHBOURS = 14  # positions for which that is counted: what is chosen must not depend on the box that is computed


def window_of(facts: ConvFacts) -> TapWindow:
    """The taps of the last axis."""
    return TapWindow(facts.kernel[-1], facts.strides[-1], facts.dilation[-1])


def shared_window(target: Target, facts: ConvFacts, channel_blocks: int = 1, limit: int = 1) -> TapWindow | None:
    """The window of tiles of ``channel_blocks`` vectors of which no more than ``limit`` may share one; None where they
    have several vectors each, or wait for multiply-adds rather than for loads."""
    window = window_of(facts)
    if math.gcd(channel_blocks, limit) > 1 or target.fma_ports < 2 or target.in_order or target.is_aarch64:
        return None
    if not 1 < window.taps <= MOST_TAPS:
        return None
    loads = len(window.reads(NEIGHBOURS)) + window.taps
    return window if loads <= GAIN * window.taps * (NEIGHBOURS + 1) else None


def columns_read(
    conv: ConvKernel, origins: list[Expr], column: Expr, taps: list[Expr]
) -> list[tuple[list[Expr], list[tuple[int, int]]]]:
    """For each column of the input that a tile reads at the ``taps`` of all axes but the last: its coordinates, and the
    (position, tap) pairs that read it."""
    facts, tile, window = conv.facts, conv.tile, conv.tile.window
    assert window is not None
    found = []
    for row in range(tile.rows):
        corner = conv.positions(origins, column, row, 0)
        steps = zip(corner, [*taps, 0], facts.strides, facts.dilation, facts.before)
        at = [p * s + t * d - b for p, t, s, d, b in steps]
        for offset, pairs in window.reads(tile.columns).items():
            own = [(row * tile.columns + position, tap) for position, tap in pairs]
            found.append(([*at[:-1], at[-1] + offset], own))
    return found


def multiply(
    conv: ConvKernel, acc: Buffer, value: Expr, weights: Buffer, step: Expr, pairs: list[tuple[int, int]]
) -> None:
    """Adds the products of one column, whose vector ``value`` gives by lanes, to the positions that read it."""
    k, lanes = conv.k, conv.lanes
    for position, tap in pairs:
        with k.loop(lanes, "vectorized", "v") as v:
            factor = value(v)
            slot = position * lanes + v
            k.store(acc, slot, acc[slot] + factor * weights[step + tap * lanes + v])
