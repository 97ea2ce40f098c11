"""Gives every model output memory of its own: a copy where it is also an input, a constant, or another output."""

from __future__ import annotations

from tvm.ir import Call

from ...schedules import operators  # noqa: F401  (registers halotile.copy)
from ...schedules.operators.registry import call
from ...schedules.words.dims import to_relax
from ...schedules.words.group import Group, Node, Value
from .fuse import Fusion
from .graph import ProgramGraph


def root_of(value: Value, views: dict[Value, Value]) -> Value:
    """The value that owns the memory of ``value``."""
    while value in views:
        value = views[value]
    return value


def copy_group(name: str, source: Value, result: Value, note: str = "") -> Group:
    """A group that writes ``source``'s elements to ``result`` (layouts may differ)."""
    from tvm import relax

    operand = relax.Var(source.name, relax.TensorType([to_relax(d) for d in source.shape], source.dtype))
    expr: Call = call("halotile.copy", operand)
    node = Node(name, "halotile.copy", expr, (source,), (result,))
    return Group(name, (node,), (source,), (result,), None, (note,) if note else ())


def own_outputs(graph: ProgramGraph, fusion: Fusion) -> tuple[ProgramGraph, Fusion, dict[Value, Value]]:
    """The graph, the groups and the views with memory of its own for every output: copies are added where an output is
    also an input, a constant or another output. Where a group's result is only renamed on its way out, the view is
    turned around: the result becomes a view of the output, so that the kernel writes there."""
    views = dict(fusion.views)
    groups = list(fusion.groups)
    inputs = set(graph.inputs)
    taken: set[Value] = set()
    outputs: list[Value] = []
    for position, value in enumerate(graph.outputs):
        root = root_of(value, views)
        if root in inputs or root.constant is not None or root in taken or value in taken:
            fresh = Value(f"{value.name}.out{position}", value.shape, value.dtype)
            groups.append(copy_group(f"copy_out{position}", value, fresh, "an output that is also something else"))
            outputs.append(fresh)
            continue
        taken.update((root, value))
        outputs.append(value)
        if root is not value:
            views.pop(value, None)
            chain = [v for v, base in views.items() if root_of(v, views) is root and v is not value]
            for v in chain:
                views[v] = value
            views[root] = value
    return ProgramGraph(graph.inputs, tuple(outputs), graph.nodes), Fusion(tuple(groups), views, fusion.notes), views
