"""What makes a byte of one byte, however long it takes, is a table of 256 of them.

    rounded(f((byte - zero) * scale) / s)         ->      byte_table(byte)

Quantised models compute sigmoids, error functions and the gates made of them between two roundings to bytes, and often
round every step of them: SiLU is two functions of the byte that a convolution made, GELU five. The lookup takes nine
instructions for a vector of sixteen on x86-64 with vectors of 512 bits, where a sigmoid takes thirty. The table is
computed in NumPy, so that in ``exact`` mode kernels compute as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ...schedules.instructions.byte_tables import has_lookup, table_words
from ...schedules.operators.byte_tables import TABLE
from ...schedules.operators.registry import call
from ...targets.target import Target
from ..simplify.evaluate import evaluate
from ..simplify.graph import CONST, GraphNode
from ..simplify.patterns import ELEMENTWISE
from ..sweep import Build
from .operands import BYTES, alike
from .quotients import QUOTIENT, ROUNDED, SATURATED

MOST = 64  # operators between the two bytes
CAST = "relax.astype"
_OWN = frozenset((QUOTIENT, ROUNDED, SATURATED, TABLE))
#: Functions that take more than a lookup, and other lookups, which one of them all saves.
_LONG = frozenset(f"relax.{n}" for n in "erf exp log sigmoid tanh sin cos tan sinh cosh power nn.silu nn.gelu".split())
_LONG |= {TABLE}

_erf = np.vectorize(math.erf, otypes=[np.float64])
_FUNCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relax.erf": _erf,
    "relax.nn.gelu": lambda x: x * (1 + _erf(x * math.sqrt(0.5))) / 2,
    "relax.nn.silu": lambda x: x / (1 + np.exp(-x)),
}


def byte_table(target: Target, exact: bool, node: GraphNode) -> Build | None:
    """What builds ``node``, bytes that are a function of one byte each, by a table; None if they are none, or the
    function takes no longer than a lookup."""
    if exact or node.dtype not in BYTES or node.op == TABLE or not has_lookup(target):
        return None
    found = _between(node)
    if found is None:
        return None
    byte, nodes = found
    if not any(n.op in _LONG for n in nodes) or not alike(byte, node):
        return None
    table = _table(byte, nodes, node)
    if table is None:
        return None
    own = {"words": table_words(table), "dtype": node.dtype}
    return lambda b: b.call(partial(call, TABLE), byte, **own)


def _between(node: GraphNode) -> tuple[GraphNode, list[GraphNode]] | None:
    """The byte that ``node`` is a function of, and the operators from it to ``node`` in their order; None if it is of
    several, or of anything else. What is made of bytes by tables is looked through."""
    order: list[GraphNode] = []
    ends: set[GraphNode] = set()
    if not _walk(node, node, order, ends, set()):
        return None
    if len(ends) > 1:  # a gate: what a table made of the other byte is computed again
        order, ends = [], set()
        if not _walk(node, node, order, ends, set(), through=True):
            return None
    return (ends.pop(), order) if len(ends) == 1 else None


def _walk(
    node: GraphNode, root: GraphNode, order: list[GraphNode], ends: set[GraphNode], seen: set[GraphNode],
    through: bool = False,
) -> bool:  # fmt: skip
    if node in seen or node.op == CONST:
        return node in seen or node.array.size == 1
    seen.add(node)
    if node is not root and node.dtype in BYTES and not (through and node.op == TABLE):
        ends.add(node)
        return True
    if len(order) >= MOST or not _known(node) or not alike(node, root):
        return False
    if not all(_walk(i, root, order, ends, seen, through) for i in node.inputs):
        return False
    order.append(node)
    return True


def _known(node: GraphNode) -> bool:
    return node.is_tensor and bool(node.inputs) and (node.op in ELEMENTWISE or node.op in _OWN)


def _table(byte: GraphNode, nodes: list[GraphNode], result: GraphNode) -> np.ndarray | None:
    """The 256 results; None where NumPy does not know an operator, or bytes lead to NaN or beyond the integers of a
    cast: of these, kernels have rules of their own."""
    known = {byte: np.arange(256, dtype=np.uint8).view(byte.dtype)}
    for node in nodes:
        inputs = [known[i] if i in known else i.array.reshape(()) for i in node.inputs]
        value = _value(node, inputs)
        if value is None or value.shape not in ((), (256,)) or np.isnan(value).any():
            return None
        if value.dtype.kind in "iu" and node.op == CAST and not _holds(value.dtype, inputs[0]):
            return None
        known[node] = value
    return np.ascontiguousarray(np.broadcast_to(known[result], (256,)))


def _holds(dtype: np.dtype, values: np.ndarray) -> bool:
    ends = np.iinfo(dtype)
    return bool(((values >= ends.min) & (values <= ends.max)).all())


def _value(node: GraphNode, inputs: list[np.ndarray]) -> np.ndarray | None:
    function = _FUNCTIONS.get(node.op)
    if function is None:
        return evaluate(node, inputs)
    with np.errstate(all="ignore"):
        return function(inputs[0].astype(np.float64)).astype(node.dtype)
