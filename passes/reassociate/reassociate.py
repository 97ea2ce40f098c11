"""The pass: linear maps change places where that saves work, until none does.

Results differ by rounding. A value that is infinite or NaN leaves a value that is one or the other, but which can
change, as it can in Winograd's algorithm: `exact` turns both off.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tvm import relax
from tvm.ir import IRModule

from ...targets.target import Target
from ..result import Result
from ..simplify.convert import Unreadable, read, replace_main, write
from ..simplify.graph import CONST, INPUT, Graph
from ..simplify.rule import Builder
from .compose import compose
from .resizes import resize_later

_RULES = {"resize-later": resize_later, "compose": compose}


@dataclass(frozen=True)
class Reassociate:
    """``enabled=False`` leaves the order of all operators as it is."""

    enabled: bool = True
    name: str = "reassociate"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        function = module["main"]
        if not self.enabled or not isinstance(function, relax.Function):
            return Result(module, False)
        try:
            graph = read(function)
        except Unreadable:
            return Result(module, False)
        done: Counter[str] = Counter()
        while _sweep(graph, done):  # each rewrite saves multiply-adds, so this ends
            pass
        if not done:
            return Result(module, False)
        notes = tuple(f"reassociate: {rule} {count}x" for rule, count in sorted(done.items()))
        details = {"applied": dict(sorted(done.items()))}
        return Result(replace_main(module, write(graph, function)), True, notes, details)


def _sweep(graph: Graph, done: Counter[str]) -> bool:
    changed = False
    for node in graph.order():
        if node.op in (INPUT, CONST, "removed"):
            continue
        for rule, match in _RULES.items():
            build = match(node)
            if build is None:
                continue
            builder = Builder(graph, node)
            fresh = build(builder)
            if not graph.same_type(fresh, node):
                graph.remove_unused(reversed(builder.created))
                continue
            fresh.order, fresh.name = node.order, node.name
            graph.substitute(node, fresh)
            graph.remove_unused([node, *builder.created])
            done[rule] += 1
            changed = True
            break
    return changed
