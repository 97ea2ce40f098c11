"""Epilogues that end in bytes: four neighbours of a row are narrowed together and stored at once.

    whole[0..3] = rounded sums of four columns            int32, a vector each
    y[column, 4 lanes] = packed(whole)                    two steps of narrowing, whose order one shuffle mends

Each for itself takes two shuffles, a comparison with each end of the bytes, and a store of a quarter of a line. Bytes
that are looked up for those that sums are rounded to are narrowed behind the lookup, or before it where the target
looks up vectors of bytes. There, four vectors of a tile are narrowed together wherever they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import tirx

from ..emit.inline import key
from ..instructions.byte_packs import TOGETHER, packed, packs, packs_rows
from ..instructions.byte_tables import looked_up, looks_words_up
from ..instructions.nearest import NEAREST
from ..kernel.context import Channel
from ..operators.byte_tables import TABLE
from ..operators.registry import attributes
from ..words.group import Node
from ..words.tvm_types import Buffer, Expr
from .kernel import ConvKernel

ROUNDED, SATURATED = "halotile.rounded", "halotile.saturated"
Where = tuple[Expr, Expr, list[Expr], Expr]  # image, first vector of channels, origins, first column


@dataclass(frozen=True)
class Narrowing:
    """The node that makes bytes of floats, the ends that it holds them within, and the node that looks bytes up for
    them, where there is one."""

    node: Node
    low: int
    high: int
    zero: int
    table: Node | None = None
    behind: bool = False  # bytes are looked up when they are narrowed

    @property
    def dtype(self) -> str:
        """Of what numbers are narrowed to."""
        return (self.node if self.behind or self.table is None else self.table).results[0].dtype

    def bytes_of(self, vectors: list[Expr], lanes: int) -> Expr:
        """The result's bytes of four vectors that :meth:`whole` made."""
        made = packed(self.dtype, vectors, lanes)
        if self.table is None or not self.behind:
            return made
        count = TOGETHER * lanes
        found = looked_up(tirx.Cast(f"int32x{count}", made), attributes(self.table.call)["words"])
        return tirx.Cast(f"{self.table.results[0].dtype}x{count}", found)

    def whole(self, x: Expr) -> Expr:
        """The int32 of ``x`` that packing narrows: within ends that are not those of the type, where there are such."""
        if self.table is None or self.behind:
            return self._rounded(x, packed=True)
        made = looked_up(self._rounded(x, packed=False), attributes(self.table.call)["words"])
        return made if self.dtype == "uint8" else made.astype("int8").astype("int32")

    def _rounded(self, x: Expr, packed: bool) -> Expr:
        """``packed``: the ends of the type are held by what follows."""
        limits = np.iinfo(self.node.results[0].dtype)
        if self.node.operator == SATURATED:
            low, high = (tirx.const(float(end), "float32") for end in (self.low, self.high))
            return tirx.min(tirx.Select(x > low, x, low), high).astype("int32")
        made = tirx.call_llvm_pure_intrin("int32", NEAREST, x)
        made = made + tirx.IntImm("int32", self.zero) if self.zero else made
        made = tirx.max(made, tirx.IntImm("int32", self.low)) if self.low > limits.min or not packed else made
        return tirx.min(made, tirx.IntImm("int32", self.high)) if self.high < limits.max or not packed else made


def write_tile(
    conv: ConvKernel, sums: Buffer, n: Expr, first_block: Expr, origins: list[Expr], column: Expr, blocks: int
) -> None:
    """Writes the group's output for every position of a tile: bytes in fours, where they may be, and whatever else as
    :meth:`.kernel.ConvKernel.epilogue` does."""
    narrowed = narrowing(conv)
    if narrowed is None:
        conv.epilogue(sums, n, first_block, origins, column, blocks)
    else:
        write_bytes(conv, narrowed, sums, (n, first_block, origins, column), blocks)


def narrowing(conv: ConvKernel) -> Narrowing | None:
    """How the kernel's only result becomes bytes, if a tile's columns may be narrowed together; None if not."""
    group, value, ctx = conv.request.group, conv.output, conv.ctx
    layout = conv.request.layout(value)
    together = conv.tile.columns * (conv.tile.rows if packs_rows(conv.lanes) else 1)
    fits = packs(conv.request.target, value.dtype, conv.lanes) and together >= TOGETHER
    if not fits or layout.block != conv.lanes or len(group.outputs) != 1 or conv.steps or conv.place is not list:
        return None
    if conv.costly or ctx.log is not None or ctx.apart is not None:
        return None
    made = {v: n for n in group.nodes for v in n.results}
    node, table = made.get(value), None
    if node is not None and node.operator == TABLE:
        node, table = made.get(node.inputs[0]), node
    if node is None or node is group.anchor or node.operator not in (ROUNDED, SATURATED):
        return None
    if node.inputs[0].dtype != "float32":
        return None
    behind = table is not None and not looks_words_up(conv.request.target)
    if behind and (conv.outputs or conv.facts.outputs) % conv.lanes:  # zero is no longer that in lanes past the last
        return None
    own = attributes(node.call)
    return Narrowing(node, int(own["low"]), int(own["high"]), int(own.get("zero", 0)), table, behind)


def write_bytes(conv: ConvKernel, narrowed: Narrowing, sums: Buffer, where: Where, blocks: int) -> None:
    """Writes the outputs of a tile whose ``sums`` are [row][column][vector][lane]."""
    k, tile = conv.k, conv.tile
    if tile.columns >= TOGETHER:
        with k.loop(tile.rows, "unroll", "dy") as dy, k.loop(blocks, "unroll", "b") as b:
            places = [(dy, tirx.IntImm("int32", i)) for i in range(tile.columns)]
            _write(conv, narrowed, sums, where, blocks, b, places)
        return
    rows = [tirx.IntImm("int32", i) for i in range(tile.rows)]
    with k.loop(blocks, "unroll", "b") as b:
        places = [(dy, tirx.IntImm("int32", i)) for dy in rows for i in range(tile.columns)]
        _write(conv, narrowed, sums, where, blocks, b, places)


def _write(
    conv: ConvKernel, narrowed: Narrowing, sums: Buffer, where: Where, blocks: int, b: Expr,
    positions: list[tuple[Expr, Expr]],
) -> None:  # fmt: skip
    """Writes the vectors of channel block ``b`` at ``positions``, rows and columns of the tile, in fours; the last four
    overlap those before them."""
    k, lanes, value = conv.k, conv.lanes, conv.output
    n, first_block, origins, column = where
    count = len(positions)
    starts = sorted({*range(0, count - TOGETHER + 1, TOGETHER), count - TOGETHER})
    whole, known = k.local("whole", "int32", count * lanes), 0
    for start in starts:
        # columns that two packs have in common are computed once: the first store may lie over a residual of them
        for i in range(known, start + TOGETHER):
            dy, x = positions[i]
            at = conv.positions(origins, column, dy, x)
            with k.loop(lanes, "vectorized", "v") as v:
                slot = ((dy * conv.tile.columns + x) * blocks + b) * lanes + v
                made = _element(conv, narrowed, lambda: sums[slot], [n, first_block + b, v, *at])  # noqa: B023
                k.store(whole, i * lanes + v, made)
        known = start + TOGETHER
        made = narrowed.bytes_of([whole[tirx.Ramp((start + i) * lanes, 1, lanes)] for i in range(TOGETHER)], lanes)
        four = [conv.positions(origins, column, *p) for p in positions[start:known]]
        places = [conv.result(value, n, first_block + b, at) for at in four]
        _store(conv, conv.ctx.buffer(value), places, made)


def _store(conv: ConvKernel, buffer: Buffer, places: list[Expr], made: Expr) -> None:
    """Stores four neighbours of a row, which lie one after the other wherever rows are whole."""
    k, lanes = conv.k, conv.lanes
    apart = [conv.ctx.analyzer.simplify(place - places[0]) for place in places]
    if all(isinstance(d, tirx.IntImm) and d.value == i * lanes for i, d in enumerate(apart)):
        k.store(buffer, tirx.Ramp(places[0], 1, TOGETHER * lanes), made)
        return
    held = k.whole(made, str(buffer.dtype), TOGETHER * lanes)
    for i, place in enumerate(places):
        k.store(buffer, tirx.Ramp(place, 1, lanes), held.source[tirx.Ramp(i * lanes, 1, lanes)])


def _element(conv: ConvKernel, narrowed: Narrowing, value: Callable[[], Expr], at: list[Expr]) -> Expr:
    """An element of the result before it is narrowed, zero in lanes past the last channel."""
    ctx = conv.ctx
    n, block, lane, *position = at
    channel = block * conv.lanes + lane
    ctx.ranged(lane, conv.lanes)
    ctx.channel = Channel(channel, block, lane, conv.lanes, conv.outputs or conv.facts.outputs)
    inliner = ctx.inliner({key(conv.summed): lambda _indices: value()})
    made = narrowed.whole(inliner.at(ctx.graph.tensors[narrowed.node.inputs[0]], [n, channel, *position]))
    if not ctx.channel.has_tail:
        return made
    return tirx.Select(ctx.channel.index < ctx.channel.extent, made, tirx.IntImm("int32", 0))
