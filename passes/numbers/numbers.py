"""The pass: constants that are whole numbers times a scale stay such numbers, where a kernel reads them as they lie.

    take(W, ids)           ->    float32(take(q, ids)) * s               tables of embeddings, whatever their size
    recurrent(x, W)        ->    recurrent(x, q, s)                      LSTM, GRU and RNN, whose floats leave the cache

Every bit is as before (:mod:`...schedules.math.scaled_integers`). Weights of products are their kernels' own affair
(schedules/matmul/scaled_integers.py): these pack them. A recurrent layer reads its weights once a step: from beyond the
second-level cache a quarter of the bytes is faster (1.15 times, 256 units; Zen 3), from within widening would cost it
a quarter of its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ...schedules.math.scaled_integers import Numbers as Found
from ...schedules.math.scaled_integers import nearest_numbers, numbers_of
from ...schedules.operators.recurrent import SCALES
from ...schedules.operators.registry import attributes, call
from ...targets.target import Target
from ..result import Result
from ..simplify.graph import CONST, GraphNode
from ..simplify.rule import RewriteBuilder
from ..sweep import Build, closed, opened, sweep

op = relax.op
GATHERS = ("relax.take", "halotile.gather")
RECURRENT = "halotile.recurrent"
Taken = list[tuple[int, Found]]  # bytes of floats, and what stands in their place
Find = Callable[[np.ndarray], Found | None]


@dataclass(frozen=True)
class NumbersPass:
    """The pass that keeps weights as scaled integers. ``small``: recurrent weights that stay in the second-level cache
    as well, where memory goes before speed. ``rounded``: all such weights, to the nearest numbers."""

    small: bool = False
    rounded: bool = False
    name: str = "numbers"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        """``module`` with constants that are whole numbers times a scale stored as these numbers, where a kernel reads
        them so."""
        if target is None or (found := opened(module)) is None:
            return Result(module, False)
        function, graph = found
        done: Counter[str] = Counter()
        least = 0 if self.small or self.rounded else target.l2_bytes
        find = nearest_numbers if self.rounded else numbers_of
        taken: list[tuple[int, Found]] = []
        rules = {"tables": partial(_table, find, taken), "recurrent layers": partial(_recurrent, find, taken, least)}
        sweep(graph, rules, done)
        result = closed(module, function, graph, self.name, done)
        saved = sum(size - found.numbers.nbytes for size, found in taken)
        off = max((found.off for _, found in taken), default=0.0)
        return replace(result, details={**result.details, "saved_bytes": saved, "largest_rounding": off})


def _table(find: Find, taken: Taken, node: GraphNode) -> Build | None:
    """Builds the numbers of the rows that ``node`` takes of a constant table, which nothing else reads, as floats."""
    if node.op not in GATHERS or node.attr("axis") != 0 or node.inputs[0].op != CONST:
        return None
    table, ids = node.inputs
    if table.rank < 2 or table.dtype != "float32" or not ids.static:
        return None
    if any(user.op not in GATHERS or user.inputs[0] is not table for user in table.users):
        return None
    found = find(table.array)
    if found is None:
        return None

    def build(b: RewriteBuilder) -> GraphNode:
        taken.append((table.array.nbytes, found))
        value = b.call(op.astype, b.same(node, b.const(found.numbers), ids), "float32")
        if found.scales.size == 1:
            return b.call(op.multiply, value, b.const(found.scales.reshape(())))
        scales = b.const(found.scales.reshape(-1, *(1 for _ in table.array.shape[1:])))
        return b.call(op.multiply, value, b.same(node, scales, ids))

    return build


def _recurrent(find: Find, taken: Taken, least: int, node: GraphNode) -> Build | None:
    """Builds a recurrent layer on numbers, if its weights as floats are more than ``least`` bytes."""
    if node.op != RECURRENT:
        return None
    own = attributes(node)  # type: ignore[arg-type]  # which are in the same place as a call's
    names = str(own["names"])
    if not set(names).isdisjoint(SCALES.values()):
        return None
    operands = dict(zip(names, node.inputs[1:]))
    weights = {n: operands[n] for n in SCALES if n in operands}
    if any(w.op != CONST for w in weights.values()) or sum(w.array.nbytes for w in weights.values()) <= least:
        return None
    found, rounded = {}, []
    for name, weight in weights.items():
        rows = np.ascontiguousarray(weight.array.transpose(0, 2, 3, 1))  # blocks, gates, lanes, k
        numbers = find(rows.reshape(-1, rows.shape[-1]))
        if numbers is None:
            return None
        rounded.append((weight.array.nbytes, numbers))
        packed = np.ascontiguousarray(numbers.numbers.reshape(rows.shape).transpose(0, 3, 1, 2))
        found[name] = packed, numbers.spread(rows.size // rows.shape[-1])

    def build(b: RewriteBuilder) -> GraphNode:
        taken.extend(rounded)
        ins = [b.const(found[n][0]) if n in found else value for n, value in operands.items()]
        scales = [b.const(found[n][1]) for n in found]
        more = "".join(SCALES[n] for n in found)
        return b.call(
            partial(call, RECURRENT), node.inputs[0], *ins, *scales, **{**own, "names": names + more}
        )

    return build
