"""Values that depend on their place in the image, so that a crop, whose places are others, has other values there.

Coordinates (``arange`` along rows), constants that differ from row to row (tables of positions), resizing that rounds
its positions in floats or whose ratio follows from the size. Tables of positions of resizing and padding are fine where
they repeat with the period.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction

import numpy as np

from ...schedules.operators.regions.node import RULES
from ...schedules.words.group import Node, Value
from .flows import flows
from .sample import Demanded, SampledGraph

Moves = Mapping[tuple[Value, int], int]
TABLES = ("halotile.resample", "relax.take", "halotile.gather")
_ALIGNED = "align_corners"


def placed(
    samples: Sequence[SampledGraph], low: Demanded, high: Demanded, moves: Moves, depends: Collection[Value]
) -> tuple[Node, str] | None:
    """The node whose values depend on their place, and how; None where none does. ``low`` and ``high`` are what two
    periods need."""
    for node, (output, _) in low.needs.items():
        axes = {a for (v, a) in moves if v is output}
        if output in depends and axes:
            if why := _reason(samples, node, output, axes, moves):
                return node, why
            others = [v for v in node.inputs if v not in depends and node.operator not in TABLES]
            if any(_moves(samples[0], v, low, high) for v in others):
                return node, "takes other numbers at other places of the image"
    return None


def _reason(samples: Sequence[SampledGraph], node: Node, output: Value, axes: set[int], moves: Moves) -> str:
    if node.operator in TABLES:
        if any(_uneven(samples[0], node, output, axis, moves) for axis in axes):
            return "reads at positions, or with weights, that do not repeat"
    elif node.operator == "relax.image.resize2d":
        return next((why for axis in axes if (why := _resized(samples, node, axis, moves))), "")
    elif node.operator not in RULES and axes & flows(node)[node.results.index(output)].positions:
        return "computes with coordinates"
    return ""


def _moves(sample: SampledGraph, value: Value, low: Demanded, high: Demanded) -> bool:
    """Whether other elements of a value that no input makes are read at another place, and they may differ."""
    if value not in low.boxes or value not in high.boxes:
        return value in low.boxes
    for axis, (a, b) in enumerate(zip(low.boxes[value], high.boxes[value])):
        known = sample.at(value).constant
        if a != b and (known is None or _varies(known, axis)):
            return True
    return False


def _varies(constant: np.ndarray, axis: int) -> bool:
    first = constant.take([0], axis=axis)
    return not np.array_equal(np.broadcast_to(first, constant.shape), constant)


def _uneven(sample: SampledGraph, node: Node, output: Value, axis: int, moves: Moves) -> bool:
    """Whether a table along ``axis`` does not repeat with the period in the middle half of the image."""
    length = sample.shape(output)[axis]
    constants = [c for v in node.inputs[1:] if (c := sample.at(v).constant) is not None]
    tables = [c for c in constants if c.shape[:1] == (length,)]
    own = moves.get((output, axis), 0)
    read = max((shift for (v, _), shift in moves.items() if v is node.inputs[0]), default=0)
    if not tables or not own:
        return False
    rows = slice(length // 4, length - length // 4)
    index, *weights = (np.asarray(t)[rows] for t in tables)
    if len(index) <= own:
        return True
    steady = np.array_equal(index[own:], index[:-own] + read)
    return not steady or any(not np.array_equal(w[own:], w[:-own]) for w in weights)


def _resized(samples: Sequence[SampledGraph], node: Node, axis: int, moves: Moves) -> str:
    """What is wrong with resizing along an axis: a ratio that follows from the size, or one that floats round, so that
    weights differ in their last digits from place to place."""
    data, result = node.inputs[0], node.results[0]
    own, read = moves.get((result, axis), 0), moves.get((data, axis), 0)
    sizes = [(s.shape(data)[axis], s.shape(result)[axis]) for s in samples]
    if not own or any(n == m for n, m in sizes):
        return ""
    if str(node.call.attrs.coordinate_transformation_mode) == _ALIGNED:
        return "resizes with aligned corners, whose step depends on the size"
    if any(n * own != m * read for n, m in sizes):
        return f"resizes by a ratio that depends on the size; build with sizes that are multiples of {max(own, read)}"
    ratio = Fraction(read, own)
    if str(node.call.attrs.method) != "nearest_neighbor" and any(n & (n - 1) for n in ratio.as_integer_ratio()):
        return f"resizes by {Fraction(own, read)}, at positions that are rounded differently from place to place"
    return ""
