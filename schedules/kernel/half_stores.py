"""What a group stores as float16 though it is float32: functions that have a form in float16 are computed there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..emit.inline import key

if TYPE_CHECKING:
    from ..operators.te_graph import GroupGraph
    from ..words.group import Request
    from ..words.tvm_types import Operation


def stored_halves(request: Request, graph: GroupGraph) -> frozenset[tuple[Operation, int]] | None:
    """The stages of outputs that are rounded to float16 where they are stored; None where no kernel computes in it."""
    if not request.target.in_halves:
        return None
    return frozenset(key(graph.tensors[v]) for v in graph.group.outputs if request.layout(v).stored == "float16")
