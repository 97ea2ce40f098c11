"""Regions of fused groups and of whole subgraphs: the nodes' answers, composed from the last one back.

    pad 1 -> conv 3x3 -> relu      relu rows 0..16  <-  conv rows 0..16  <-  padded rows 0..18  <-  rows -1..17, zero

What is read of a value inside is clipped to the tensor before it is asked of the node that makes it: the border of an
inner tensor is fill, and never computed from the border of the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...words.group import Group, Node, Value
from .box import Box, BoxRefusal, Need, Needs, hull, merge
from .node import node_needs


@dataclass(frozen=True)
class Demand:
    """What a set of nodes computes and reads for some boxes of its results.

    ``boxes`` has the box to be computed of each value that the nodes make (nothing for one that isn't needed).
    ``needs`` has, for each value that is read, inside or from outside, what its consumers ask of it together.
    """

    boxes: Mapping[Value, Box]
    needs: Mapping[Value, Needs]


def demand(nodes: Sequence[Node], wanted: Mapping[Value, Box]) -> Demand | BoxRefusal:
    """The demand of ``nodes`` (in program order) for ``wanted``, the boxes of results that are wanted whole or in part.

    A value with several consumers must be computed, or read, on the hull of their needs.
    """
    boxes = dict(wanted)
    needs: dict[Value, Needs] = {}
    for node in reversed(nodes):
        found: list[Need] = []
        for result in node.results:
            if result not in boxes:
                continue
            answer = node_needs(node, result, boxes[result])
            if isinstance(answer, BoxRefusal):
                return BoxRefusal(f"{node.name}: {answer.reason}")
            found.extend(answer)
        for one in found:
            needs[one.value] = merge((*needs.get(one.value, ()), one))
            inside = one.inside
            if inside is not None:
                boxes[one.value] = hull(boxes[one.value], inside) if one.value in boxes else inside
    made = {v for n in nodes for v in n.results}
    return Demand({v: b for v, b in boxes.items() if v in made}, needs)


def group_needs(group: Group, output: Value, box: Box) -> Needs | BoxRefusal:
    """What ``group`` reads of its inputs (constants too) for ``box`` of ``output``.

    One need for each value and kind of fill, in the order of the group's inputs; boxes are unclipped.
    """
    found = demand(group.nodes, {output: box})
    if isinstance(found, BoxRefusal):
        return found
    return tuple(n for v in group.inputs for n in found.needs.get(v, ()))


def read_boxes(needs: Iterable[Need]) -> dict[Value, Box]:
    """The box of each value that is really read (inside of the tensor)."""
    boxes: dict[Value, Box] = {}
    for one in needs:
        inside = one.inside
        if inside is not None:
            boxes[one.value] = hull(boxes[one.value], inside) if one.value in boxes else inside
    return boxes
