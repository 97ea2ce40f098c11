"""Rewrites that build one value in another's place, tried at every node until none is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tvm import relax
from tvm.ir import IRModule

from .result import Result
from .simplify.convert import Unreadable, read, replace_main, write
from .simplify.driver import unread_after
from .simplify.graph import CONST, INPUT, Graph, GraphNode
from .simplify.provenance import attribute
from .simplify.rule import RewriteBuilder

Build = Callable[[RewriteBuilder], GraphNode]
Rule = Callable[[GraphNode], Build | None]


def opened(module: IRModule) -> tuple[relax.Function, Graph] | None:
    """The main function of ``module`` and its graph; None where there is nothing to rewrite."""
    function = module["main"]
    try:
        return (function, read(function)) if isinstance(function, relax.Function) else None
    except Unreadable:
        return None


def closed(module: IRModule, function: relax.Function, graph: Graph, name: str, done: Counter[str]) -> Result:
    """The result of the pass ``name``: ``module`` with ``graph`` written back, and notes of what was ``done``."""
    if not done:
        return Result(module, False)
    notes = tuple(f"{name}: {rule} {count}x" for rule, count in sorted(done.items()))
    return Result(replace_main(module, write(graph, function)), True, notes, {"applied": dict(sorted(done.items()))})


def sweep(graph: Graph, rules: Mapping[str, Rule], done: Counter[str]) -> bool:
    """True if ``rules`` changed anything, each tried once at every node, inputs first; ``done`` counts rewrites by
    rule."""
    changed = False
    for node in graph.order():
        if node.op in (INPUT, CONST, "removed"):
            continue
        for rule, match in rules.items():
            build = match(node)
            if build is None:
                continue
            builder = RewriteBuilder(graph, node)
            fresh = build(builder)
            if not graph.same_type(fresh, node):
                graph.remove_unused(reversed(builder.created))
                continue
            gone = unread_after({node: fresh}, builder.created)
            attribute(gone, [n for n in builder.created if n not in gone], {node: fresh})
            fresh.order, fresh.name = node.order, node.name
            graph.substitute(node, fresh)
            graph.remove_unused([node, *builder.created])
            done[rule] += 1
            changed = True
            break
    return changed
