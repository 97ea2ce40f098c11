"""Operators on constants only become constants."""

from __future__ import annotations

import numpy as np

from .evaluate import evaluate, steps
from .graph import CONST, ITEM, Graph, GraphNode
from .interpret import compiled
from .rule import EXACT, Declined, Rewrite, Rule

#: A folded value may be this large even when its operands are smaller: a causal mask of 1,024 tokens in f32.
SIZE_LIMIT = 4 << 20
#: Operators are compiled to fold constants of up to this many bytes.
COMPILED_LIMIT = 1 << 18
#: Bytes of all folded values that are larger than each of their operands: what is joined again and again doubles.
GROWTH_LIMIT = 1 << 30
#: Steps that numpy may take for all, about ten seconds.
STEPS_LIMIT = 1 << 33

#: Operators whose last bit depends on the library that computes them, or on the order of a sum.
_ROUNDED = frozenset(
    f"relax.{n}"
    for n in "exp log sin cos tan tanh sinh cosh sigmoid rsqrt power sum prod mean matmul".split()
)


class FoldConstants(Rule):
    """c = op(constants)    ->    constant

    The value must not be larger than 4 MiB or than its operands, whichever is more, so that a broadcast of a small
    constant to a whole feature map is not baked into the weights; and there are limits on all of them together. What
    numpy can't compute as the compiled operator does is computed by the compiled operator itself, which takes a
    moment; that, too, is for small constants only. In ``exact`` mode what depends on the kernel in its last bit is left
    to the kernel.
    """

    name = "fold-constants"
    family = "folds"
    modes = EXACT

    def __init__(self, float_mode: str = "strict") -> None:
        self._exact = float_mode == "exact"
        self._growth, self._steps = GROWTH_LIMIT, STEPS_LIMIT

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        source = node.inputs[0] if node.op == ITEM else node
        if node.op == ITEM and source.op != "relax.split":
            return None
        if any(i.op != CONST for i in source.inputs) or not node.is_tensor or not node.static:
            return None
        if source.op == "relax.shape_to_tensor":  # of open dimensions, or import had made it a constant
            return None
        operands = {i: i.nbytes for i in source.inputs}
        grown = node.nbytes if node.nbytes > max(SIZE_LIMIT, *operands.values(), 0) else 0
        if node.nbytes > max(SIZE_LIMIT, sum(operands.values())) or grown > self._growth:
            return Declined(f"the constant would take {node.nbytes} bytes")
        needed = steps(node, [i.array for i in source.inputs])
        if needed > self._steps:
            return Declined("constants of the model take too long to fold")
        value = folded(node, source, self._exact)
        if isinstance(value, Declined):
            return value
        self._growth -= grown
        self._steps -= needed
        return Rewrite(lambda b: b.const(value))


def folded(node: GraphNode, source: GraphNode, exact: bool) -> np.ndarray | Declined:
    """The value of ``node`` (an item of ``source``, or that itself) on constants; ``exact``: as the kernel gives it."""
    arrays = [i.array for i in source.inputs]
    rounds = node.op in _ROUNDED and node.dtype.startswith(("float", "bfloat"))
    value = evaluate(node, arrays)
    if exact and (rounds or value is None) and node.dtype.startswith(("float", "bfloat")):
        return Declined("its last bit depends on the kernel")
    if value is not None:
        return value
    if node.op == ITEM or max([node.nbytes, *(i.nbytes for i in source.inputs)]) > COMPILED_LIMIT:
        return Declined(f"{node.op} is not evaluated at compile time in this form or size")
    try:
        return np.asarray(compiled(node, arrays))
    except (ValueError, RuntimeError, TypeError) as problem:
        return Declined(f"{node.op} can't be run at compile time: {str(problem).splitlines()[-1][:80]}")
