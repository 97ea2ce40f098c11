"""Resizing to a size that is open: positions follow from both lengths, so they are computed here.

    half_pixel       (o + 1/2) * n / m - 1/2        with n elements of the input and m of the output
    align_corners    o * (n - 1) / (m - 1)
    asymmetric       o * n / m

Linear reads the element below a position and the next one, cubic one more on either side, at the border the last
element instead. Positions grow with the output, so the ends of a box are those of what it reads.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ...words.group import Node
from .box import Box, BoxRefusal, Needs, Span, need

_AROUND = {"linear": (0, 1), "cubic": (-1, 2)}


def position(o: int, n: int, m: int, mode: str) -> Fraction | None:
    """Where output ``o`` lies among the inputs; None for a mode that is not known."""
    if mode == "half_pixel":
        return Fraction((2 * o + 1) * n, 2 * m) - Fraction(1, 2)
    if mode == "align_corners":
        return Fraction(o * (n - 1), m - 1) if m > 1 else Fraction(0)
    return Fraction(o * n, m) if mode == "asymmetric" else None


def nearest(at: Fraction, rounding: str) -> int:
    """The element that stands for a position."""
    if rounding in ("floor", "ceil"):
        return math.floor(at) if rounding == "floor" else math.ceil(at)
    half = Fraction(1, 2)
    return math.ceil(at - half) if rounding == "round_prefer_floor" else math.floor(at + half)


def resize2d(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    data, attrs = node.inputs[0], node.call.attrs
    if str(attrs.layout) != "NCHW":
        return BoxRefusal(f"{node.operator} in layout {attrs.layout}")
    method, mode, rounding = str(attrs.method), str(attrs.coordinate_transformation_mode), str(attrs.rounding_method)
    spans: list[Span] = list(box[:2])
    for span, n, m in zip(box[2:], data.shape[2:], node.results[0].shape[2:]):
        first, last = (position(o, n, m, mode) for o in (span[0], span[1] - 1))
        if first is None or last is None or method != "nearest_neighbor" and method not in _AROUND:
            return BoxRefusal(f"{node.operator} with {method}, {mode}")
        if n == m:
            spans.append(span)
        elif method == "nearest_neighbor":
            spans.append((nearest(first, rounding), nearest(last, rounding) + 1))
        else:
            before, after = _AROUND[method]
            spans.append((math.floor(first) + before, math.floor(last) + after + 1))
    return (need(data, spans, "edge"),)


RULES = {"relax.image.resize2d": resize2d}
