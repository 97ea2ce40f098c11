"""Which images lie in channel blocks: those that come from convolutions near by, and those that go to some."""

from __future__ import annotations

from ..simplify.anchors import CONVOLUTIONS, TRANSPOSED
from ..simplify.graph import CONST, GraphNode
from ..simplify.patterns import ELEMENTWISE

NEAR = 24  # operators to look through
_THROUGH = ELEMENTWISE | {f"relax.nn.{n}_pool2d" for n in ("max", "avg")}
_THROUGH |= {"relax.concat", "relax.strided_slice", "relax.split", "halotile.resample", "halotile.upsample"}


def of_convolution(node: GraphNode) -> bool:
    """True if a convolution's image is not far behind."""
    seen, stack = {node}, [node]
    while stack and len(seen) <= NEAR:
        current = stack.pop()
        if current.op in CONVOLUTIONS | TRANSPOSED:
            return True
        if current.op in _THROUGH:
            fresh = [i for i in current.inputs if i not in seen and i.op != CONST]
            seen.update(fresh)
            stack += fresh
    return False


def for_convolution(node: GraphNode) -> bool:
    """True if a convolution that reads the image is not far ahead."""
    seen, stack = {node}, [node]
    while stack and len(seen) <= NEAR:
        for user in stack.pop().users:
            if user.op in CONVOLUTIONS | TRANSPOSED:
                return True
            if user.op in _THROUGH and user not in seen:
                seen.add(user)
                stack.append(user)
    return False
