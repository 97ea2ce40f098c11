"""Residuals that an epilogue reads at another place than its own: rows or columns of a larger image.

    y = conv(x) + skip[:, :, 2:50, :]        the residual of row r is row r + 2 of the skip

Steps of streams read skips so, whose rows of the past lie in front of the new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..operators.regions.attributes import ints
from ..words.group import Node, Value

CUT = "relax.strided_slice"


class CutPlace(NamedTuple):
    """A value that is read ``shift`` rows and columns behind the place of the output."""

    value: Value
    shift: tuple[int, int]


def cuts_of(nodes: Sequence[Node], output: Value) -> list[CutPlace]:
    """The images of which ``nodes`` read a cut of the output's size, with all of its channels."""
    found = (_cut(node, output) for node in nodes if node.operator == CUT and len(output.shape) == 4)
    return list(dict.fromkeys(place for place in found if place is not None))


def _cut(node: Node, output: Value) -> CutPlace | None:
    """Where a slice of an image begins that has the output's size; None of other slices."""
    source, axes, begin, _, *steps = node.operands
    shape = output.shape
    if not isinstance(source, Value) or source.constant is not None or node.results[0].shape != shape:
        return None
    if source.shape[:2] != shape[:2] or (steps and any(n != 1 for n in ints(steps[0]))):
        return None
    try:
        shifts = dict(zip((a % len(shape) for a in ints(axes)), ints(begin)))
    except (TypeError, ValueError, AttributeError):  # an open size
        return None
    return CutPlace(source, (shifts.get(2, 0), shifts.get(3, 0)))
