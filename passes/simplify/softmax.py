"""Softmax and its logarithm written out become one operator each."""

from __future__ import annotations

from tvm import relax

from .graph import Graph, GraphNode
from .norms import reduction
from .rule import STRICT, Declined, Rewrite, Rule

op = relax.op


class RecogniseSoftmax(Rule):
    """exp(x - max(x)) / sum(exp(x - max(x)))    ->    softmax(x)

    Without the maximum only in ``finite`` mode: exp may overflow, and inf / inf is NaN.
    """

    name = "recognise-softmax"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.divide",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        exp, total = node.inputs
        summed = reduction(total, "relax.sum")
        if exp.op != "relax.exp" or summed is None or summed[0] is not exp or len(summed[1]) != 1:
            return None
        axis = summed[1][0]
        x = exp.inputs[0]
        if x.op == "relax.subtract":
            largest = reduction(x.inputs[1], "relax.max")
            if largest is not None and largest == (x.inputs[0], [axis]):
                source = x.inputs[0]
                return Rewrite(lambda b: b.call(op.nn.softmax, source, axis))
        if not self._finite:
            return Declined("without the maximum the exponential overflows")
        return Rewrite(lambda b: b.call(op.nn.softmax, x, axis))


class LogOfSoftmax(Rule):
    """log(softmax(x))    ->    log_softmax(x)

    Only in ``finite`` mode: where the softmax vanishes its logarithm is -inf, the log-softmax is not.
    """

    name = "log-of-softmax"
    family = "recognition"
    modes = STRICT
    roots = frozenset(("relax.log",))

    def __init__(self, float_mode: str = "strict") -> None:
        self._finite = float_mode == "finite"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        soft = node.inputs[0]
        if soft.op != "relax.nn.softmax":
            return None
        if not self._finite:
            return Declined("the logarithm of a vanished probability is -inf")
        return Rewrite(lambda b: b.call(op.nn.log_softmax, soft.inputs[0], int(soft.attrs.axis)))
