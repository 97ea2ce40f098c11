"""The pass: reads ``main`` as a graph, runs the rules of the float mode to a fixed point, writes it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import relax
from tvm.ir import IRModule

from ...targets.target import Target
from ..result import Result
from .check import TranslationCheck
from .convert import Unreadable, read, replace_main, write
from .driver import Record, run
from .graph import CONST, INPUT, Graph
from .measure import is_operator
from .rule import FLOAT_MODES
from .rules import rules_for

if TYPE_CHECKING:
    from ...targets.plain import Json


@dataclass(frozen=True)
class Simplify:
    """Options: ``float_mode`` is what may change (``exact``: nothing; ``strict``: rounding; ``finite``: NaN, inf).

    ``check`` validates every rewrite numerically on the rewritten subgraph before it is carried out (slow).
    """

    float_mode: str = "strict"
    check: bool = False
    name: str = "simplify"

    def __post_init__(self) -> None:
        if self.float_mode not in FLOAT_MODES:
            raise ValueError(f"float_mode is {self.float_mode!r}; it must be one of {', '.join(FLOAT_MODES)}")

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        function = module["main"]
        if not isinstance(function, relax.Function):
            return Result(module, False, ("main is not a Relax function; left alone",))
        try:
            graph = read(function)
        except Unreadable as reason:
            return Result(module, False, (f"left alone, because {reason}",))
        before = sum(map(is_operator, graph.order())) + graph.dead
        check = TranslationCheck(self.float_mode) if self.check else None
        record = run(graph, rules_for(self.float_mode), check)
        after = sum(map(is_operator, graph.order()))
        details = _details(record, graph, before, after, self.float_mode)
        if check is not None:
            details["checked"], details["unchecked"] = check.checked, check.skipped
        if not record.applied:
            return Result(module, False, _notes(record), details)
        return Result(replace_main(module, write(graph, function)), True, _notes(record), details)


def _notes(record: Record) -> tuple[str, ...]:
    done = [f"{rule} {count}x" for rule, count in sorted(record.applied.items())]
    kept = [
        f"{rule} declined at {_places(nodes)}: {reason}"
        for (rule, reason), nodes in sorted(record.declined.items())
    ]
    return tuple(done + kept)


def _places(nodes: list[str]) -> str:
    names = list(dict.fromkeys(nodes))
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _details(record: Record, graph: Graph, before: int, after: int, mode: str) -> Json:
    operators: dict[str, int] = {}
    for node in graph.order():
        if node.op not in (INPUT, CONST):
            operators[node.op] = operators.get(node.op, 0) + 1
    return {
        "float_mode": mode,
        "operators_before": before,
        "operators_after": after,
        "operators": dict(sorted(operators.items())),
        "applied": dict(sorted(record.applied.items())),
        "declined": [
            {"rule": rule, "reason": reason, "nodes": nodes}
            for (rule, reason), nodes in sorted(record.declined.items())
        ],
    }
