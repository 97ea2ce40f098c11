"""Bytes that become numbers, are moved, and become the same bytes again, as quantisers write it around every move."""

from __future__ import annotations

import numpy as np

from .evaluate import evaluate
from .graph import CONST, Graph, GraphNode
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

BYTES = ("uint8", "int8")
SATURATED = "halotile.saturated"
_MAPS = frozenset((
    SATURATED,
    *(f"relax.{n}" for n in "astype add subtract multiply divide minimum maximum round clip nn.relu".split()),
))  # fmt: skip
_POOLS = frozenset(f"relax.nn.max_pool{d}d" for d in (1, 2, 3))
_MOVES = _POOLS | {
    *("relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.permute_dims", "relax.strided_slice"),
    "halotile.upsample",
}


class MovedBytes(Rule):
    """quantize(move(dequantize(x: bytes)))    ->    move(x), where every byte comes out as it went in

    Moves are reshapes, transposes, slices, nearest upsampling, and the largest of a window, if a larger byte never
    becomes a smaller number. All 256 bytes are tried, so the maps around the moves may be any of single numbers.
    """

    name = "moved-bytes"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.astype", SATURATED))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.dtype not in BYTES or node.inputs[0].dtype in BYTES:
            return None
        maps, moves, pools = [node], [], []
        source = node.inputs[0]
        while source.dtype != node.dtype:
            if source.op in _MAPS and (data := _mapped(source)) is not None:
                maps.append(source)
                source = data
            elif source.op in _MOVES:
                moves.append(source)
                if source.op in _POOLS:
                    pools.append(len(maps))
                source = source.inputs[0]
            else:
                return None
        limits = np.iinfo(node.dtype)
        every = np.arange(limits.min, limits.max + 1).astype(node.dtype)
        numbers = [every]  # what the bytes are, from the source on
        for step in reversed(maps):
            made = evaluate(step, [i.array.reshape(()) if i.op == CONST else numbers[-1] for i in step.inputs])
            if made is None or made.shape != every.shape:
                return None
            numbers.append(made)
        if (numbers[-1] != every).any() or any((np.diff(numbers[len(maps) - p]) < 0).any() for p in pools):
            return None

        def build(b: RewriteBuilder) -> GraphNode:
            value = source
            for move in reversed(moves):
                value = b.same(move, value, *move.inputs[1:])
            return value

        return Rewrite(build)


def _mapped(node: GraphNode) -> GraphNode | None:
    """What a map reads, if all else that it reads are single numbers."""
    data = [i for i in node.inputs if i.op != CONST]
    fits = len(data) == 1 and all(i.array.size == 1 for i in node.inputs if i.op == CONST)
    return data[0] if fits and data[0].shape is not None and data[0].shape == node.shape else None
