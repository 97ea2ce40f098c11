"""Which groups can be computed box by box."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..conv import builds_conv, input_needs
from ..conv.family import TRANSPOSED
from ..dispatch import works_on_plain
from ..emit.inline import Inliner, Source, key
from ..general.generator import SPREAD_PLAIN, opens, opens_rows
from ..general.phases import Phase, plan_phases
from ..operators.kind import facts_of
from ..operators.registry import attributes
from ..operators.te_graph import GroupGraph
from ..operators.te_stages import is_reduce
from ..words.group import Group, Request, Value
from ..words.layout import Layout
from ..words.tvm_types import Expr, Operation, Tensor


def box_refusal(group: Group, layouts: Mapping[Value, Layout], filled: bool = False) -> str | None:
    """Why no kernel computes a part of the rows and columns of this group, or None if one does. ``filled``: what lies
    around its data holds what it needs there, as margins of whole images do."""
    shapes = {v.shape[2:] for v in group.outputs}
    if any(len(v.shape) != 4 for v in group.outputs) or len(shapes) != 1:
        return "its outputs are not images of one size"
    anchor = group.anchor
    if anchor is not None and builds_conv(group, lambda v: _block(v, layouts)):
        if anchor.operator == TRANSPOSED and any(o % s for o, s in zip(group.outputs[0].shape[2:], _strides(group))):
            return "the stride does not divide the output"
        needs = input_needs(anchor)
        if needs.fill and not filled and any(map(any, needs.margins)):
            return "outside of its data lies not zero but a byte that stands for it"
        if any(len(v.shape) != 4 for v in anchor.results):
            return "its anchor is not an image"
        return None
    if works_on_plain(group) or any(facts_of(n).kind == "opaque" for n in group.nodes):
        return "it is computed whole"
    return _staged_refusal(group, _block(group.outputs[0], layouts) > 0)


def box_opens(request: Request) -> bool:
    """True if one kernel of this group computes boxes of every size."""
    return builds_conv(request.group, lambda v: request.layout(v).block) or opens(request)


def any_box_opens(request: Request) -> bool:
    """True if kernels take boxes of any size, and also for maps, where no kernel of known size is to be had instead."""
    return box_opens(request) or request.group.anchor is None and opens_rows(request)


def box_alignment(group: Group) -> tuple[int, int]:
    """(rows, columns) that origin and size of a box of ``group`` must be multiples of."""
    if group.anchor is not None and group.anchor.operator == TRANSPOSED:
        rows, columns = _strides(group)
        return rows, columns
    return 1, 1


def _strides(group: Group) -> tuple[int, ...]:
    assert group.anchor is not None
    return tuple(int(s) for s in attributes(group.anchor.call)["strides"])


def _block(value: Value, layouts: Mapping[Value, Layout]) -> int:
    return layouts[value].block if value in layouts else 0


def _staged_refusal(group: Group, blocked: bool) -> str | None:
    """Every stage must have the rows and columns of the outputs, and read the others' at its own place. What a whole
    image takes columns first, then rows (windows, resizing), is taken tap by tap in a box: in plain memory one output
    at a time."""
    graph = GroupGraph(group)
    phases = plan_phases(graph, group.outputs).phases
    if not blocked and len(plan_phases(graph, group.outputs, spread=SPREAD_PLAIN).phases) > len(phases):
        return "what it reads of plain memory several times is kept only by the whole"
    size = group.outputs[0].shape[2:]
    if any(phase.shape[2:] != size for phase in phases):
        return "a stage spans all rows and columns"
    stored = {key(t) for phase in phases for t in phase.tensors}
    if any(not _local(graph, phase, stored) for phase in phases):
        return "a stage reads its neighbours' results"
    return None


def _local(graph: GroupGraph, phase: Phase, stored: set[tuple[Operation, int]]) -> bool:
    """True if ``phase`` reads stored stages at its own row and column only."""
    own = {t.op for t in phase.tensors}
    axes = [tirx.Var(f"a{i}", "int32") for i in range(4)]
    fine = True

    def watch(tensor: Tensor, kept: bool) -> Source:
        def read(indices: tuple[Expr, ...]) -> Expr:
            nonlocal fine
            if kept:
                fine = fine and len(indices) == 4 and all(_is(i, a) for i, a in zip(indices[2:], axes[2:]))
            return tirx.Var("read", tensor.expr_ty())

        return read

    sources = {k: watch(k[0].output(k[1]), True) for k in stored if k[0] not in own}
    for value in graph.group.inputs:
        sources[key(graph.tensors[value])] = watch(graph.tensors[value], False)
    for tensor in phase.tensors:
        inliner = Inliner(sources)
        mapping = {axis.var: a for axis, a in zip(tensor.op.axis, axes)}
        body = tensor.op.body[tensor.value_index]
        for part in body.source if is_reduce(tensor) else [body]:
            inliner.expression(part, mapping)
    return fine


def _is(index: Expr, axis: Expr) -> bool:
    while isinstance(index, prim.Cast):
        index = index.value
    return hasattr(index, "same_as") and bool(index.same_as(axis))
