"""Common subexpressions and duplicate constants: one node for each distinct value.

    y1 = exp(x); y2 = exp(x); z = y1 + y2    ->    y1 = exp(x); z = y1 + y1

Two nodes are the same when operator, attributes, non-tensor arguments and inputs are; two constants when dtype, shape
and every bit are. All operators are pure, so this is exact.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import tvm_ffi

from ...schedules.words.tvm_types import Attribute, Expr
from .graph import CONST, INPUT, OPAQUE, Graph, GraphNode, plain
from .provenance import joined

COMMUTATIVE = frozenset(
    f"relax.{name}"
    for name in (
        "add",
        "multiply",
        "equal",
        "not_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
        "bitwise_and",
    )
)


def share_common(graph: Graph) -> Counter[str]:
    """Merges equal nodes of ``graph`` in place; how many of each kind."""
    counts: Counter[str] = Counter()
    seen: dict[tuple[Attribute, ...], list[GraphNode]] = {}
    numbers: dict[GraphNode, int] = {}
    for node in graph.order():
        numbers[node] = len(numbers)
        if node.op in (INPUT, OPAQUE):
            continue
        key = _constant_key(node) if node.op == CONST else _call_key(node, numbers)
        for other in seen.setdefault(key, []):
            if _same_payload(node, other):
                graph.substitute(node, other)
                other.sources = joined((other, node))
                graph.remove_unused([node])
                counts["duplicate-constant" if node.value is not None else "common-subexpression"] += 1
                break
        else:
            seen[key].append(node)
    return counts


def _constant_key(node: GraphNode) -> tuple[str, str, tuple[int, ...], bytes]:
    array = node.array
    flat = array.reshape(-1)
    probe = flat[:: max(1, flat.size // 16)][:16]
    return ("const", str(array.dtype), array.shape, probe.tobytes())


def _call_key(node: GraphNode, numbers: dict[GraphNode, int]) -> tuple[Attribute, ...]:
    inputs = [numbers[i] for i in node.inputs]
    if node.op in COMMUTATIVE:
        inputs.sort()
    literals = tuple(_literal_key(o) for o in node.operands if not isinstance(o, (int, tuple)))
    attrs = node.attrs if node.attrs is None or isinstance(node.attrs, int) else tvm_ffi.structural_hash(node.attrs)
    return (node.op, tuple(inputs), len(node.operands), literals, attrs)


def _literal_key(literal: Expr) -> bytes | int:
    """Equal for equal literals; slices of one tensor by the thousand differ in nothing else."""
    value = plain(literal)
    return np.float64(value).tobytes() if isinstance(value, float) else tvm_ffi.structural_hash(literal)


def _same_payload(a: GraphNode, b: GraphNode) -> bool:
    if a.op == CONST:
        return _same_bits(a.array, b.array)
    if isinstance(a.attrs, int) or isinstance(b.attrs, int):
        return a.attrs == b.attrs
    for p, q in zip(a.operands, b.operands):
        if isinstance(p, (int, tuple)) or isinstance(q, (int, tuple)):
            if type(p) is not type(q) or (p != q and a.op not in COMMUTATIVE):
                return False
        elif not _same_literal(p, q):
            return False
    if a.attrs is None or b.attrs is None:
        return a.attrs is b.attrs
    return bool(tvm_ffi.structural_equal(a.attrs, b.attrs))


def _same_literal(a: Expr, b: Expr) -> bool:
    p, q = plain(a), plain(b)
    if isinstance(p, float) and isinstance(q, float):
        return bool(np.float64(p).tobytes() == np.float64(q).tobytes())
    return bool(tvm_ffi.structural_equal(a, b))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a is b:
        return True
    width = np.dtype(f"u{a.dtype.itemsize}") if a.dtype.itemsize in (1, 2, 4, 8) else None
    if width is None or not (a.flags.c_contiguous and b.flags.c_contiguous):
        return a.tobytes() == b.tobytes()
    return bool(np.array_equal(a.view(width), b.view(width)))
