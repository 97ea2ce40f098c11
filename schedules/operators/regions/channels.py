"""Operators that need all of some axes: reductions, softmax, norms, scans.

Over batch and channels they work position by position and so on any box of rows and columns: all of those axes is
needed, and no more of the others. Over rows and columns they need everything, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...words.group import Node
from .attributes import ints, own
from .box import Box, BoxRefusal, Needs, Span, need

if TYPE_CHECKING:
    from ...words.tvm_types import Attribute

SPATIAL = 2  # the first axis of N, C, H, W that tiles cut


def _axes(node: Node) -> list[int]:
    """The axes that ``node`` reduces, scans or normalises."""
    rank = len(node.inputs[0].shape)
    attrs: Attribute = own(node) if node.operator.startswith("halotile.") else node.call.attrs
    if isinstance(attrs, dict) and "axes" in attrs:
        return [a % rank for a in ints(attrs["axes"])]
    if isinstance(attrs, dict):
        return [int(attrs["axis"]) % rank]
    axes = attrs.axes if node.operator.endswith("_norm") else attrs.axis
    if axes is None:
        return list(range(rank))
    return [a % rank for a in ([int(axes)] if isinstance(axes, int) else ints(axes))]


def _refused(node: Node, axes: Iterable[int]) -> BoxRefusal | None:
    shape = node.inputs[0].shape
    spatial = [a for a in axes if a >= SPATIAL and shape[a] > 1]
    if spatial:
        return BoxRefusal(f"{node.operator} needs all of axis {', '.join(map(str, spatial))} of {list(shape)}")
    return None


def along(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """Same shape out as in: softmax, running sums. (topk: its own length on the axis.)"""
    data = node.inputs[0]
    axes = _axes(node)
    return _refused(node, axes) or (
        need(data, [(0, n) if a in axes else s for a, (s, n) in enumerate(zip(box, data.shape))]),
    )


def reduction(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """The reduced axes are gone, or of length 1."""
    data = node.inputs[0]
    axes = _axes(node)
    left = list(box)
    spans: list[Span] = []
    keep = len(box) == len(data.shape)
    for axis, n in enumerate(data.shape):
        if axis in axes:
            spans.append((0, n))
            if keep:
                left.pop(0)
        else:
            spans.append(left.pop(0))
    return _refused(node, axes) or (need(data, spans),)


def norm(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """layer_norm and rms_norm; scale and bias have the axes that are normalised."""
    data, *factors = node.inputs
    axes = sorted(_axes(node))
    spans = [(0, n) if a in axes else s for a, (s, n) in enumerate(zip(box, data.shape))]
    return _refused(node, axes) or (need(data, spans), *(need(f, [box[a] for a in axes]) for f in factors))


RULES = {
    **{f"relax.{name}": reduction for name in ("mean", "sum", "max", "min", "prod", "std", "variance")},
    **{f"halotile.{name}": reduction for name in ("argmax", "argmin", "global_max_pool")},
    **{f"relax.nn.{name}": along for name in ("softmax", "log_softmax")},
    **{f"halotile.{name}": along for name in ("cumsum", "cumprod", "topk", "standardise", "centre")},
    **{f"relax.nn.{name}": norm for name in ("layer_norm", "rms_norm")},
}
