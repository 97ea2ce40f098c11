"""Sums of bytes that begin with the constant which is added to them: the share of a zero point, once for all places.

    dot_conv(x, w) + c        acc = c, acc += x . w
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import tirx

from ...kernel.context import Context
from ...words.group import Group, Node, Packed, Value
from ...words.tvm_types import Buffer, Expr
from ..facts import ConvFacts


@dataclass(frozen=True)
class Starts:
    """What accumulators begin with: ``buffer`` has a number for each lane of each vector of outputs (None: zero).
    ``summed`` is the value that they hold in the end, where it is not the convolution."""

    buffer: Buffer | None = None
    summed: Value | None = None

    def vector(self, block: Expr, lanes: int) -> Expr:
        """The first sums of vector ``block`` of outputs."""
        if self.buffer is None:
            return tirx.Broadcast(tirx.IntImm("int32", 0), lanes)
        return self.buffer[tirx.Ramp(block * lanes, 1, lanes)]


def starts(ctx: Context, facts: ConvFacts, lanes: int, blocks: int) -> Starts:
    """The constant that the group adds to its convolution before anything else reads it, in ``blocks`` vectors."""
    group = ctx.request.group
    found = _added(group, facts)
    if found is None:
        return Starts()
    node, constant = found
    padded = np.zeros(blocks * lanes, np.int32)
    padded[: facts.outputs] = np.asarray(constant.constant).reshape(-1)
    return Starts(ctx.packed(Packed(f"s_{facts.weight.name}", padded)), node.results[0])


def _added(group: Group, facts: ConvFacts) -> tuple[Node, Value] | None:
    """The node that adds a number for each channel to the sums, which nobody else reads, and these numbers."""
    anchor = group.anchor
    assert anchor is not None
    (made,) = anchor.results
    readers = [n for n in group.nodes if made in n.inputs]
    if made in group.outputs or len(readers) != 1 or readers[0].operator != "relax.add":
        return None
    others = [v for v in readers[0].operands if v is not made]
    wanted = (facts.outputs, *(1 for _ in facts.kernel))
    if len(others) != 1 or others[0].constant is None or others[0].dtype != "int32":
        return None
    return (readers[0], others[0]) if tuple(others[0].shape)[-len(wanted) :] == wanted else None
