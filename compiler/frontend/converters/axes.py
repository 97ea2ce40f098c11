"""Axes of one element: taken out and put in."""

from __future__ import annotations

from ....schedules.words.dims import Dim
from ....schedules.words.refusal import Refusal
from ..implied import require_equal, require_longer
from ..node import OnnxNode, normal_axes
from ..registry import converts
from ..value import OnnxValue


@converts("Squeeze")
def squeeze(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axes = node.ints(1, "its axes", "axes")
    if axes is None:
        require_longer(x.shape, node.guarded, str(x))
    chosen = [i for i, d in enumerate(x.shape) if d == 1] if axes is None else normal_axes(axes, x.rank)
    for axis in chosen:
        if isinstance(x.shape[axis], Dim) and not node.guarded:
            require_equal(x.shape[axis], 1, f"axis {axis} of {x}")
            x = node.slice(x, axis, 0, 1)
    if any(x.shape[a] != 1 for a in chosen):
        raise Refusal(f"axes {chosen} of {x} are not all one long")
    return node.reshape(x, [d for i, d in enumerate(x.shape) if i not in chosen])


@converts("Unsqueeze")
def unsqueeze(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    axes = node.ints(1, "its axes", "axes")
    if axes is None:
        raise Refusal("it has no axes")
    new = set(normal_axes(axes, x.rank + len(axes)))
    if len(new) < len(axes):
        raise Refusal(f"axes {axes} name one twice")
    old = iter(x.shape)
    return node.reshape(x, [1 if i in new else next(old) for i in range(x.rank + len(axes))])
