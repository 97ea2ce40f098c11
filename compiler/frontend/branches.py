"""Results of two branches whose condition is only known at run time.

Where both have one form and little to do, both are computed, and one is taken. Else they become the two functions of a
``halotile.branch``, of which a run takes one. Results that differ in the length of one axis have room for the longer
one, of which a part is there (partial.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from tvm import relax

from ...schedules.operators import registry
from ...schedules.operators.control import BRANCH
from ...schedules.words.dims import is_open, maximum, to_relax
from ...schedules.words.refusal import Refusal
from .bodies import Cutter, bound, results_of
from .deciding import deciding, flags
from .node import OnnxNode
from .parts import held, with_part
from .slot import Slot
from .value import PLAIN, OnnxValue

R = relax.op

#: Operators of which one makes a branch worth being left out where it is not taken.
HEAVY = frozenset(
    "Conv ConvTranspose ConvInteger QLinearConv DeformConv MatMul Gemm MatMulInteger QLinearMatMul Einsum LSTM GRU RNN "
    "Attention MultiHeadAttention STFT DFT GridSample NonMaxSuppression TopK Loop Scan TreeEnsemble "
    "TreeEnsembleClassifier TreeEnsembleRegressor".split()
)
MANY = 64  # nodes of a branch that are as much


def is_heavy(graph: onnx.GraphProto) -> bool:
    """True for a branch that takes more than a choice between results does."""
    inner = [a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]
    return len(graph.node) >= MANY or any(n.op_type in HEAVY for n in graph.node) or any(map(is_heavy, inner))


def different(condition: OnnxValue, a: Slot, b: Slot, what: str = "which differ in form") -> Refusal:
    """The refusal of two branches that give ``a`` and ``b``."""
    names = deciding(condition.expr)
    way = f"; it follows from {', '.join(map(repr, names))}, and {flags(names)} leaves one branch" if names else ""
    return Refusal(f"its condition is computed at run time, and its branches give {a} and {b}, {what}{way}", names)


@dataclass(frozen=True)
class Branches:
    """Two branches of which a run takes one; ``cutter`` was made before they were written. ``alike``: only results of
    one form will do."""

    node: OnnxNode
    condition: OnnxValue
    cutter: Cutter
    alike: bool = False

    def write(self, one: Sequence[Slot], other: Sequence[Slot]) -> list[Slot]:
        """The results."""
        pairs = [self._pair(a, b) for a, b in zip(one, other)]
        written = [(a, b, axis) for a, b, axis in pairs if a is not b]
        sides: list[list[OnnxValue]] = [[], []]
        for a, b, axis in written:
            for side, value in zip(sides, (a, b)):
                room = None if axis is None else maximum(a.shape[axis], b.shape[axis])
                side += [value] if axis is None else held(self.node, value, axis, room)
        made = self._emitted(*sides) if written else []
        found: list[Slot] = []
        for a, b, axis in pairs:
            if a is b:
                found.append(a)
                continue
            value = made.pop(0)
            found.append(value if axis is None else with_part(value, axis, made.pop(0)))
        return found

    def _pair(self, a: Slot, b: Slot) -> tuple[OnnxValue, OnnxValue, int | None]:
        """Two results, and the axis in whose length they differ; the same twice where nothing is to be chosen."""
        if not isinstance(a, OnnxValue) or not isinstance(b, OnnxValue):
            raise different(self.condition, a, b, "and only tensors can be chosen between")
        if a.dtype != b.dtype:
            raise different(self.condition, a, b, "which differ in type: cast one")
        if a.dtype not in PLAIN:
            raise Refusal(f"its branches give the type {a.dtype}, which is not supported")
        if a.rank != b.rank and a.dtype == "bool" and _is_one(a) and _is_one(b):
            least = min(a.shape, b.shape, key=len)
            a, b = (v if v.rank == len(least) else self.node.reshape(v, least) for v in (a, b))
        if a.rank != b.rank:
            raise different(self.condition, a, b, "which differ in rank: give both the same number of axes (Unsqueeze)")
        axes = {i for i in range(a.rank) if a.shape[i] != b.shape[i]}
        axes |= {v.part.axis for v in (a, b) if v.part is not None}
        if axes and self.alike:
            raise different(self.condition, a, b)
        if len(axes) > 1:
            raise different(self.condition, a, b, "which differ in more than one length: pad them to one form")
        if not axes and not is_open(a.shape) and 0 in a.shape:
            return a, a, None
        return a, b, next(iter(axes), None)

    def _emitted(self, one: Sequence[OnnxValue], other: Sequence[OnnxValue]) -> list[OnnxValue]:
        node = self.node
        bodies = self.cutter.branches([[bound(node, v) for v in side] for side in (one, other)])
        types = [relax.TensorType([to_relax(d) for d in v.shape], v.dtype) for v in one]
        call = registry.call(
            BRANCH, self.condition.expr, *bodies[0].seen,
            then=bodies[0].function, otherwise=bodies[1].function, results=relax.TupleType(types),
        )  # fmt: skip
        return results_of(node, call)


def _is_one(value: OnnxValue) -> bool:
    """Whether it is one element, in however many axes: conditions are such, [] in one branch and [1] in the other."""
    return all(not is_open([d]) and d == 1 for d in value.shape)


def either(node: OnnxNode, condition: OnnxValue, a: OnnxValue, b: OnnxValue) -> OnnxValue | None:
    """``a`` where the condition (of run time) is true, else ``b``; None for two that differ in more than one length.

    If(c) then int64[0] else int64[n of 64]     becomes     int64[c ? 0 : n of 64]
    """
    if a.dtype != b.dtype or a.rank != b.rank:
        return None
    if a.shape == b.shape and a.part is None and b.part is None:
        return node.do(R.where, condition, a, b)
    if is_open((*a.shape, *b.shape)):
        return None
    parts = [v.part for v in (a, b) if v.part is not None]
    axes = {i for i in range(a.rank) if a.shape[i] != b.shape[i]} | {p.axis for p in parts}
    if len(axes) > 1:
        return None
    (axis,) = axes
    room = max(a.shape[axis], b.shape[axis])
    counts = [v.part.count if v.part is not None else node.const([v.shape[axis]], "int64") for v in (a, b)]
    one, other = (_with_room(node, v.with_part(None), axis, room) for v in (a, b))
    count = counts[0] if counts[0] is counts[1] else node.do(R.where, condition, *counts)
    return with_part(node.do(R.where, condition, one, other), axis, count)


def _with_room(node: OnnxNode, value: OnnxValue, axis: int, room: int) -> OnnxValue:
    shape = [room - value.shape[axis] if i == axis else d for i, d in enumerate(value.shape)]
    if not shape[axis]:
        return value
    zeros = node.broadcast(node.scalar(0, value), shape)
    return node.do(R.concat, [value, zeros], axis=axis) if value.shape[axis] else zeros
