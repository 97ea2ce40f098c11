"""Rules of quantised operators for operands that are there in part (partial.py).

    q, s, z = DynamicQuantizeLinear(rows)     where nothing is, zeros: they change no range, which holds zero anyway
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schedules.words.refusal import Refusal
from .node import OnnxNode
from .parts import Write, count_of, only, part_of, row_by_row, tagged, told, untagged, zeroed
from .value import OnnxValue


def rows(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    if node.need(0).rank < 2:
        raise Refusal(f"{told(node)}, and it sums along it")
    return row_by_row(node, write)


def dynamic(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    """Quantised by a range that holds zero in any case, so that zeros where nothing is do not change it."""
    only(node, 0)
    y, scale, zero = write([zeroed(node, node.need(0))])
    return [*tagged([y], part_of(node[0]).axis, count_of(node)), scale, zero]


def dynamic_product(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    only(node, 0)
    if part_of(node[0]).axis != 0 or node.need(0).rank < 2:
        raise Refusal(f"{told(node)}, and it sums along it")
    return tagged(write([zeroed(node, node.need(0)), *node.inputs[1:]]), 0, count_of(node))


def elements(node: OnnxNode, write: Write) -> Sequence[OnnxValue | None]:
    only(node, 0)
    if any(v is not None and v.size != 1 for v in node.inputs[1:]):
        raise Refusal(f"{told(node)}, and its scales are many")
    return tagged(write(untagged(node.inputs)), part_of(node[0]).axis, count_of(node))
