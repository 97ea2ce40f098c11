"""Can a group of maps and reductions run over channel lanes, in a blocked layout? Read off its index expressions.

It can if all its phases have the same rank and channels, and whatever they read of blocked tensors and of each other
they read at the lane's own channel, at a fixed channel, or at one whole blocks away (concatenation, slices, shuffles
of blocks to places).
"""

from __future__ import annotations

from tvm import sym, te, tirx
from tvm.ir import Range
from tvm.ir.prim import expr as prim

from ..emit.inline import Inliner, Source, key, narrow
from ..operators.te_graph import GroupGraph
from ..words.group import Group, Value
from ..words.tvm_types import Analyzer, Expr, Operation
from .phases import plan_phases


def preserves_channels(group: Group, blocked: dict[Value, int], lanes: int) -> bool:
    """True if every output of ``group`` may be blocked by ``lanes``, given which inputs are."""
    graph = GroupGraph(group)
    stages = graph.stages(group.outputs)
    if any(not isinstance(t.op, te.ComputeOp) for t in stages):
        return False
    phases = plan_phases(graph, group.outputs).phases
    rank, channels = len(phases[-1].shape), phases[-1].shape[1] if len(phases[-1].shape) > 1 else 0
    if rank < 3 or channels == 0:
        return False
    if any(len(p.shape) != rank or p.shape[1] != channels for p in phases):
        return False
    stored = {key(t) for p in phases for t in p.tensors}
    for phase in phases:
        for tensor in phase.tensors:
            if not reads_own_channels(graph, tensor, stored, blocked, lanes):
                return False
    return True


def reads_own_channels(
    graph: GroupGraph, tensor: te.Tensor, stored: set[tuple[Operation, int]], blocked: dict[Value, int], lanes: int
) -> bool:
    """True if ``tensor`` reads what is ``stored`` at its own channel, and blocked inputs there or whole blocks away."""
    axes = [tirx.Var(f"a{i}", "int32") for i in range(len(tensor.shape))]
    ranges = sym.Analyzer()
    for axis, extent in zip(axes, tensor.shape):
        ranges.bind(axis, Range(0, extent))
    fine = True

    def strict(indices: tuple[Expr, ...]) -> None:
        nonlocal fine
        fine = fine and len(indices) > 1 and _is(indices[1], axes[1])

    def loose(indices: tuple[Expr, ...]) -> None:
        nonlocal fine
        fine = fine and len(indices) > 1 and _shifted(indices[1], axes[1], lanes, ranges)

    def reader(watch: Expr, like: te.Tensor) -> Expr:
        def read(indices: tuple[Expr, ...]) -> Expr:
            if watch is not None:
                watch(indices)
            return tirx.Var("read", like.expr_ty())

        return read

    sources: dict[tuple[Operation, int], Source] = {}
    for value in graph.group.inputs:
        like = graph.tensors[value]
        sources[key(like)] = reader(loose if value in blocked else None, like)
    for tensor_key in stored:
        if tensor_key[0] != tensor.op:
            sources[tensor_key] = reader(strict, tensor_key[0].output(tensor_key[1]))
    inliner = Inliner(sources)
    mapping = {axis.var: a for axis, a in zip(tensor.op.axis, axes)}
    body = tensor.op.body[tensor.value_index]
    for part in body.source if isinstance(body, tirx.Reduce) else [body]:
        inliner.expression(part, mapping)
    return fine


def _bare(index: Expr) -> Expr:
    while isinstance(index, prim.Cast):
        index = index.value
    return index


def _is(index: Expr, axis: Expr) -> bool:
    index = _bare(index)
    return isinstance(index, tirx.Var) and index.same_as(axis)


def _shifted(index: Expr, axis: Expr, lanes: int, ranges: Analyzer) -> bool:
    index = _bare(index)
    if isinstance(index, int | prim.IntImm) or _is(index, axis):
        return True
    shift = ranges.simplify(narrow(index) - axis)
    if any(v.same_as(axis) for v in tirx.analysis.undefined_vars(shift)):
        return False
    rest = ranges.simplify(shift % lanes)
    return isinstance(rest, prim.IntImm) and int(rest.value) == 0
