"""Winograd convolution of a few channels that are not in blocks, as first layers read images: :mod:`.kernel`, with
another transform of the data. No vector has channels to hold, so it has the rows of BT:

    for plane and part of the kernel, channel
      for column of a tile       BT d         d: scalars, each times a column of BT, all rows of which are a vector
      BT d B                                  of these vectors, as ever

The products read single numbers anyhow, and V lies as it is made: [column of xi][register tile][row][channel of all
planes and parts][row of xi]. Seven taps of stride 2 and three channels take F(5x5, 4x4) four times: 31 multiply-adds an
output, and about as many instructions for the transforms, where the direct convolution takes 147. Of the direct form's
time 7x7/2 of three channels takes 0.6, 11x11/4 0.5, 9x9 0.55, 5x5 of four 0.74 (64, 64, 64, 48 outputs; Emerald
Rapids); 3x3 would take as long.

Where the stride doesn't divide the kernel, taps of zero behind its last one meet inputs that the direct convolution
doesn't read: those beyond the margins, or what the box needs, are read as the last ones within, whatever these are.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx

from ...words.group import Kernel, Packed, Request
from ...words.tvm_types import Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel
from .kernel import TilePlace, WinogradKernel, build_winograd
from .plan import WinogradPlan
from .products import Products, RegisterTiles, ScratchPart


def build_few_winograd(request: Request, facts: ConvFacts, plan: WinogradPlan) -> Kernel:
    """The kernel of a convolution of few plain channels by ``plan``."""
    return build_winograd(request, facts, plan, _FewWinograd)


class _FewTiles(RegisterTiles):
    """Products whose sums go over single channels."""

    def __init__(self, conv: ConvKernel, plan: WinogradPlan) -> None:
        super().__init__(conv, plan)
        self.depth = plan.planes * self.facts.channels
        self.data_plane = self.padded * self.apart + self.lanes  # of a column of xi

    @property
    def apart(self) -> int:
        return self.depth * self.plan.column

    @property
    def data_elements(self) -> int:
        return self.t.across.extent * self.data_plane

    def place_of(self, slot: Expr, term: Expr) -> Expr:
        """Where a tile's numbers of one term of the sums begin."""
        return self.conv.bind(slot * self.apart + term * self.plan.column, self.data_plane)

    def _clear(self, data: ScratchPart, slot: Expr) -> None:
        k, column = self.k, self.plan.column
        with k.loop(self.t.across.extent, name="j") as j, k.loop(self.depth, name="term") as term:
            self.ctx.ranged(j, self.t.across.extent)
            self.ctx.ranged(term, self.depth)
            at = data.base + self.place_of(slot, term) + j * self.data_plane
            with k.loop(column, "vectorized", "v") as v:
                k.store(data.buffer, at + v, tirx.const(0, "float32"))

    def _left(self, xi: Expr, panel: Expr, block: Expr, channel: Expr) -> Expr:
        width = self.t.across.extent
        row, column = tirx.floordiv(xi, width), tirx.floormod(xi, width)
        return column * self.data_plane + panel * (self.plan.rows * self.apart) + channel * self.plan.column + row

    def _runs(self) -> list[tuple[int, int, int, int]]:
        return [(0, 1, 1, self.depth)]

    def _channel(self, block: Expr, lane: Expr) -> Expr:
        return lane


class _FewWinograd(WinogradKernel):
    products: _FewTiles

    def _products(self) -> Products:
        return _FewTiles(self.conv, self.plan)

    def emit(self) -> None:
        column, matrix = self.plan.column, self.t.down.data
        lying = np.zeros((matrix.shape[1], column), np.float32)
        lying[:, : len(matrix)] = matrix.T
        self.factors = self.ctx.packed(Packed("bt", lying), narrow=False)
        super().emit()

    def _transform(self, data: ScratchPart, first: Expr, count: Expr) -> None:
        k, channels = self.k, self.facts.channels
        with k.loop(count, name="tile") as tile:
            self.ctx.ranged(tile, self.plan.strip)
            at = self._origin(first + tile)
            with k.loop(self.plan.planes, name="plane") as plane, k.loop(channels, name="ch") as channel:
                self.ctx.ranged(plane, self.plan.planes)
                self.ctx.ranged(channel, channels)
                place = self.products.place_of(tile, plane * channels + channel)
                self._transform_channel(data, place, at, plane, channel)

    def _transform_channel(self, data: ScratchPart, place: Expr, at: TilePlace, plane: Expr, channel: Expr) -> None:
        k, column, across = self.k, self.plan.column, self.t.across
        height, width = self.t.extents
        held = k.local("t", "float32", width * column)
        inputs = self._places(at, plane)
        self._begin(at.n, channel, inputs(0, 0))
        for j in range(width):
            places = [self._within(inputs(i, j), i, j) for i in range(height)]
            given = [k.bind(self.conv.element_at(at.n, channel, place)) for place in places]
            with k.loop(column, "vectorized", "v") as v:
                value: Expr = given[0] * self.factors[v]
                for i in range(1, height):
                    value = value + given[i] * self.factors[i * column + v]
                k.store(held, j * column + v, value)
        self.ctx.starts.clear()
        number = self._numbers(across.apply_data, width)
        with k.loop(column, "vectorized", "v") as v:
            row = [held[j * column + v] for j in range(width)]
            for j, value in enumerate(across.apply_data(row, number, k.bind)):
                k.store(data.buffer, data.base + place + j * self.products.data_plane + v, value)

    def _within(self, at: list[Expr], i: int, j: int) -> list[Expr]:
        """The last inputs of a part may meet taps of zero."""
        facts, found = self.facts, list(at)
        pairs = zip((i, j), self.t.extents, self.t.kernel, self.plane.kernel)
        for axis, (own, extent, taps, real) in enumerate(pairs, start=-2):
            if own == extent - 1 and taps != real:
                last = facts.data.shape[axis] + facts.margins()[axis][1] - 1
                if self.ctx.origin is not None:  # a window may end with what the box needs
                    end = self.conv.corner(axis + 2) + self.conv.spatial[axis]
                    last = (end - 1) * self.plane.strides[axis] + real - 1 - self.plane.before[axis]
                found[axis] = tirx.min(found[axis], last)
        return found
