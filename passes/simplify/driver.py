"""Runs rules to a fixed point: sweeps over the graph in topological order until a sweep changes nothing.

Every rewrite must lower the measure (:mod:`.measure`), which the driver checks before it carries the rewrite out, so
the pass ends, never adds an operator, and a fold that would have to duplicate shared work declines by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ...errors import InternalError
from .common import share_common
from .graph import CONST, INPUT, Graph, GraphNode
from .measure import measure
from .provenance import attribute
from .rule import Declined, Rewrite, RewriteBuilder, Rule
from .steps import before_steps

#: A rewrite may add this many bytes of constants beyond those that it makes superfluous.
CONSTANT_GROWTH = 64 << 20

#: Called with the rule, its replacements, and the nodes that it makes or removes.
Check = Callable[[Rule, dict[GraphNode, GraphNode], set[GraphNode]], None]


@dataclass
class Record:
    """What happened: applications per rule, and what still declines at the end, by rule, reason and place."""

    applied: Counter[str] = field(default_factory=Counter)
    declined: dict[tuple[str, str], list[str]] = field(default_factory=dict)


def run(graph: Graph, rules: Sequence[Rule], check: Check | None = None) -> Record:
    """Rewrites ``graph`` in place; ``check`` is called with each rewrite before it is carried out."""
    record = Record()
    if graph.dead:
        record.applied["dead-code"] = graph.dead
    early, late, last = (_by_root([r for r in rules if r.late + 2 * r.last == turn]) for turn in range(3))
    while True:
        record.declined.clear()
        for name, count in share_common(graph).items():
            record.applied[name] += count
        if not _sweep(graph, early, record, check) and not _sweep(graph, late, record, check):
            break
    while _sweep(graph, last, record, check):
        pass
    return record


def _by_root(rules: Sequence[Rule]) -> Callable[[str], list[Rule]]:
    """For each operator the rules that are tried at it, in the order given."""
    general = [r for r in rules if not r.roots]
    table = {root: [r for r in rules if not r.roots or root in r.roots] for r in rules for root in r.roots}
    return lambda name: table.get(name, general)


def _sweep(graph: Graph, rules: Callable[[str], list[Rule]], record: Record, check: Check | None) -> bool:
    """Tries the rules at every node, inputs first; whether anything changed."""
    nodes = graph.order()
    stepped = before_steps(nodes)
    for node in nodes:
        node.level = 1 + max((i.level for i in node.inputs), default=-1)
    changed = False
    for node in nodes:
        if node.op in (INPUT, CONST, "removed"):
            continue
        for rule in rules(node.op):
            try:
                outcome: Rewrite | Declined | bool | None = rule.match(node, graph)
                if isinstance(outcome, Rewrite):
                    outcome = _apply(graph, node, outcome, rule, check, stepped)
            except (
                ArithmeticError,
                AttributeError,
                LookupError,
                TypeError,
                ValueError,
                RuntimeError,
            ) as problem:
                raise InternalError(
                    f"simplify: rule {rule.name} failed at {node.place} {node!r}: {problem}"
                ) from problem
            if outcome is None:
                continue
            if isinstance(outcome, Declined):
                record.declined.setdefault((rule.name, outcome.reason), []).append(node.place)
                continue
            record.applied[rule.name] += 1
            changed = True
            if node.op == "removed":
                break
    return changed


def _apply(
    graph: Graph, node: GraphNode, rewrite: Rewrite, rule: Rule, check: Check | None, stepped: set[GraphNode]
) -> Declined | bool | None:
    """Carries ``rewrite`` out if types agree and the measure falls; True when it did."""
    builder = RewriteBuilder(graph, node)
    built = rewrite.build(builder)
    replacements = built if isinstance(built, dict) else {node: built}
    reason = _objection(graph, replacements, builder.created)
    rounds = "exact" not in rule.modes if rewrite.rounds is None else rewrite.rounds
    if reason is None and rounds and not stepped.isdisjoint(replacements):
        reason = "rounded otherwise, a floor, cast or comparison behind it could give another value"
    if reason is not None:
        graph.remove_unused(reversed(builder.created))
        return Declined(reason) if reason else None
    dying = unread_after(replacements, builder.created)
    if check is not None:
        check(rule, replacements, dying.union(builder.created))
    attribute(dying.difference(builder.created), [n for n in builder.created if n not in dying], replacements)
    for old, new in replacements.items():
        if old in stepped:
            stepped.add(new)
        if new.op not in (INPUT, CONST) and new in builder.created:
            new.order, new.name = old.order, old.name
        graph.substitute(old, new)
    graph.remove_unused([*replacements, *builder.created])
    return True


def _objection(graph: Graph, replacements: dict[GraphNode, GraphNode], created: list[GraphNode]) -> str | None:
    """Why the rewrite must not be carried out; empty when it is merely no improvement, None when it is fine."""
    for old, new in replacements.items():
        if not graph.same_type(old, new):
            return f"the result would be {new.ty} instead of {old.ty}"
    dying = unread_after(replacements, created)
    alive = [n for n in created if n not in dying]
    after, before = measure(alive), measure(dying.difference(created))
    # Levels decide only between equals, and only if no reader's level can rise: their sum then falls for good.
    if (
        after >= before
        or after[:-1] == before[:-1]
        and any(n.level > o.level for o, n in replacements.items())
    ):
        return ""
    grown = sum(n.nbytes for n in alive if n.op == CONST)
    freed = sum(n.nbytes for n in dying if n.op == CONST and n not in created)
    if grown - freed > CONSTANT_GROWTH:
        return f"it would add {grown - freed} bytes of constants"
    return None


def unread_after(replacements: dict[GraphNode, GraphNode], created: Iterable[GraphNode]) -> set[GraphNode]:
    """The nodes that nobody reads once ``replacements`` are made."""
    targets = set(replacements.values())
    dying: set[GraphNode] = set()
    stack = [*replacements, *(n for n in created if not n.users and not n.outputs and n not in targets)]
    while stack:
        node = stack.pop()
        if node in dying:
            continue
        if node not in replacements:
            if node.outputs or node in targets or node.op == INPUT or not dying.issuperset(node.users):
                continue
        dying.add(node)
        stack.extend(node.inputs)
    return dying
