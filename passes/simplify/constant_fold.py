"""Operators on constants only become constants."""

from __future__ import annotations

from .evaluate import evaluate
from .graph import CONST, Graph, Node
from .rule import EXACT, Declined, Rewrite, Rule

#: A folded value may be this large even when its operands are smaller: a causal mask of 1,024 tokens in f32.
SIZE_LIMIT = 4 << 20

#: Operators whose last bit depends on the library that computes them, or on the order of a sum.
_ROUNDED = frozenset(
    f"relax.{n}"
    for n in "exp log sin cos tan tanh sinh cosh sigmoid rsqrt power sum prod mean matmul".split()
)


class FoldConstants(Rule):
    """c = op(constants)    ->    constant

    The value must not be larger than 4 MiB or than its operands, whichever is more, so that a broadcast of a small
    constant to a whole feature map is not baked into the weights. In ``exact`` mode only operators that are correctly
    rounded by IEEE rules, or do not round, are folded.
    """

    name = "fold-constants"
    family = "folds"
    modes = EXACT

    def __init__(self, float_mode: str = "strict") -> None:
        self._float_mode = float_mode

    def match(self, node: Node, graph: Graph) -> Rewrite | Declined | None:
        if any(i.op != CONST for i in node.inputs) or not node.is_tensor:
            source = node.inputs[0] if node.op == "item" else None
            if source is None or source.op != "relax.split" or source.inputs[0].op != CONST:
                return None
        operands = node.inputs[0].inputs if node.op == "item" else node.inputs
        if not node.static:
            return None
        if node.nbytes > max(SIZE_LIMIT, sum(i.nbytes for i in operands)):
            return Declined(f"the constant would take {node.nbytes} bytes")
        if self._float_mode == "exact" and node.op in _ROUNDED and node.dtype.startswith(("float", "bfloat")):
            return Declined("its last bit depends on the library that computes it")
        value = evaluate(node, [i.array for i in operands])
        if value is None:
            return Declined(f"{node.op} is not evaluated at compile time in this form")
        return Rewrite(lambda b: b.const(value))
