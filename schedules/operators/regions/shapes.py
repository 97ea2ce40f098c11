"""Transposes and reshapes.

A reshape is cut into the smallest runs of axes with equal products (axes of length 1 left out):

    [1, 12, 5, 7] -> [1, 2, 2, 3, 5, 7]      12 | 2 2 3,   5 | 5,   7 | 7

One axis from several, or several from one, keep a box a box: a span of the flat axis is at most a box in the digits.
Depth-to-space is such a reshape, a transpose, and another. Runs of several axes on both sides are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...words.group import Node
from .attributes import ints
from .box import Box, BoxRefusal, Needs, Span, need, whole


def permute(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    axes = node.call.attrs.axes
    order = list(range(len(box)))[::-1] if axes is None else [a % len(box) for a in ints(axes)]
    spans: list[Span] = [(0, 0)] * len(box)
    for position, axis in enumerate(order):
        spans[axis] = box[position]
    return (need(node.inputs[0], spans),)


def reshape(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    data, result = node.inputs[0], node.results[0]
    if box == whole(result):
        return (need(data, whole(data)),)
    runs = _runs(data.shape, result.shape)
    if runs is None:
        return BoxRefusal(f"reshaping {list(data.shape)} to {list(result.shape)} mixes axes")
    spans: list[Span] = [(0, 1)] * len(data.shape)
    for into, out in runs:
        flat = _flat([box[a] for a in out], [result.shape[a] for a in out])
        for axis, span in zip(into, _digits(flat, [data.shape[a] for a in into])):
            spans[axis] = span
    return (need(data, spans),)


def _runs(old: Sequence[int], new: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """Axes of ``old`` and of ``new`` that make up one another; None where several stand against several."""
    left = [a for a, n in enumerate(old) if n != 1]
    right = [a for a, n in enumerate(new) if n != 1]
    runs = []
    while left and right:
        into, out = [left.pop(0)], [right.pop(0)]
        a, b = old[into[0]], new[out[0]]
        while a != b:
            if not (left if a < b else right):
                return None  # of sizes that no run has, counts may differ
            if a < b:
                into.append(left.pop(0))
                a *= old[into[-1]]
            else:
                out.append(right.pop(0))
                b *= new[out[-1]]
        if len(into) > 1 and len(out) > 1:
            return None
        runs.append((into, out))
    return runs


def _flat(box: Sequence[Span], sizes: Sequence[int]) -> Span:
    """The span of the flat positions of a box."""
    first = last = 0
    for (lo, hi), n in zip(box, sizes):
        first, last = first * n + lo, last * n + hi - 1
    return first, last + 1


def _digits(span: Span, sizes: Sequence[int]) -> list[Span]:
    """The smallest box with all flat positions of ``span``."""
    result: list[Span] = []
    lo, last = span[0], span[1] - 1
    for axis in range(len(sizes)):
        inner = math.prod(sizes[axis + 1 :])
        result.append((lo // inner, last // inner + 1))
        if lo // inner != last // inner:
            return result + [(0, n) for n in sizes[axis + 1 :]]
        lo, last = lo % inner, last % inner
    return result


RULES = {
    "relax.permute_dims": permute,
    **{f"relax.{name}": reshape for name in ("reshape", "squeeze", "expand_dims", "flatten")},
    "relax.memory.view": reshape,
}
