"""The region question: which box of each input does this box of an output need? One rule for each operator family."""

from __future__ import annotations

from collections.abc import Callable

from ...words.group import Node, Value
from . import channels, pads, resized, shapes, slices, transposed, windows
from .box import Box, BoxRefusal, Needs, contains, is_empty, merge, whole
from .elementwise import elementwise

Rule = Callable[[Node, int, Box], "Needs | BoxRefusal"]

RULES: dict[str, Rule] = {
    **windows.RULES,
    **transposed.RULES,
    **pads.RULES,
    **resized.RULES,
    **slices.RULES,
    **shapes.RULES,
    **channels.RULES,
}


def node_needs(node: Node, output: Value, box: Box) -> Needs | BoxRefusal:
    """What ``node`` reads for ``box`` of its result ``output``: one need for each value and fill, in operand order.

    ``box`` lies in ``output``. A value of which nothing is read has no need; one whose need lies wholly outside of the
    tensor has one (the fill is all there is), with ``inside`` None.
    """
    if len(box) != len(output.shape) or not contains(whole(output), box):
        raise ValueError(f"box {box} does not lie in {output}")
    if is_empty(box):
        return ()
    index = 0 if node.results[0] is output else node.results.index(output)
    found = RULES.get(node.operator, elementwise)(node, index, box)
    return found if isinstance(found, BoxRefusal) else merge(found)
