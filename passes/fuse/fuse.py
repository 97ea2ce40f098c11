"""Groups nodes: an anchor with any prologue and any epilogue, by a few rules about reads, not a table of operators.

1. Downstream: a group takes the only consumer of its result, if that is a map which reads it element for element.
2. Upstream: a reduction takes the map that only it consumes, element for element; so does a map, if nothing is
   computed twice by that.
3. Everything else is a group of its own. Views are no groups: they alias.

A value with several consumers, or one that leaves the model, is written once and ends its group. Nothing costly is
computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...schedules.classify import Facts
from ...schedules.group import Group, Node, Value
from .graph import Graph


@dataclass(frozen=True)
class Fusion:
    """Groups in execution order; ``views`` maps a value to the one whose elements it renames."""

    groups: tuple[Group, ...]
    views: dict[Value, Value]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fuse:
    """``enabled=False`` makes every node a group (for honest attribution of what fusion is worth)."""

    enabled: bool = True
    name: str = "fuse"

    def apply(self, graph: Graph) -> Fusion:
        return _Fuser(graph, self.enabled).run()


@dataclass
class _Draft:
    nodes: list[Node]
    anchor: Node | None
    kind: str
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> Value:
        return self.nodes[-1].results[0]


class _Fuser:
    def __init__(self, graph: Graph, enabled: bool) -> None:
        self.graph, self.enabled = graph, enabled
        self.facts = {node: Facts(node) for node in graph.nodes}
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.consumers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.consumers.setdefault(value, []).append(node)
        self.produced_by = {value: node for node in graph.nodes for value in node.results}
        self.leaves = set(graph.outputs)
        self.owner: dict[Node, _Draft] = {}

    def run(self) -> Fusion:
        views: dict[Value, Value] = {}
        drafts: list[_Draft] = []
        for node in self.graph.nodes:
            facts = self.facts[node]
            if facts.kind == "view":
                views[node.results[0]] = node.inputs[0]
                continue
            draft = self._join(node, facts) if self.enabled else None
            if draft is None:
                anchor = node if facts.kind in ("anchor", "stencil", "reduce", "opaque") else None
                draft = _Draft([node], anchor, facts.kind)
                drafts.append(draft)
            self.owner[node] = draft
        if self.enabled:
            drafts = self._absorb_prologues(drafts)
        drafts.sort(key=lambda d: max(self.order[n] for n in d.nodes))
        return Fusion(tuple(self._group(i, d) for i, d in enumerate(drafts)), views)

    def _join(self, node: Node, facts: Facts) -> _Draft | None:
        """The draft of the producer whose only consumer ``node`` is, if ``node`` may be its epilogue."""
        if facts.kind != "injective" or len(node.results) != 1:
            return None
        candidates: list[tuple[int, _Draft]] = []
        for value in dict.fromkeys(node.inputs):
            draft = self._producer(value)
            if draft is None or value in self.leaves or len(self.consumers[value]) != 1 or draft.kind == "opaque":
                continue
            if draft.result is not value or len(draft.nodes[-1].results) != 1:
                continue
            if not facts.elementwise_in(value):
                draft.notes.append(f"{node.operator} ({node.name}) not fused: reads {value.name} at other elements")
                continue
            # the heaviest producer takes the node: anchors before reductions before maps, the later one if equal
            rank = {"anchor": 3, "stencil": 2, "reduce": 2}.get(draft.kind, 1)
            candidates.append((rank * 1_000_000 + self.order[draft.nodes[-1]], draft))
        if not candidates:
            return None
        draft = max(candidates, key=lambda c: c[0])[1]
        draft.nodes.append(node)
        return draft

    def _absorb_prologues(self, drafts: list[_Draft]) -> list[_Draft]:
        """Maps whose result one reduction or map group alone reads move into it."""
        gone: set[int] = set()
        for draft in sorted(drafts, key=lambda d: self.order[d.nodes[-1]], reverse=True):
            if draft.kind != "injective":
                continue
            value = draft.result
            users = self.consumers.get(value, [])
            if value in self.leaves or len(users) != 1 or len(draft.nodes[-1].results) != 1:
                continue
            user = users[0]
            if user not in self.owner:
                continue
            target = self.owner[user]
            if target is draft or not self._may_precede(draft, value, user, target):
                continue
            target.nodes = sorted({*target.nodes, *draft.nodes}, key=lambda n: self.order[n])
            for node in draft.nodes:
                self.owner[node] = target
            gone.add(id(draft))
        return [d for d in drafts if id(d) not in gone]

    def _may_precede(self, draft: _Draft, value: Value, user: Node, target: _Draft) -> bool:
        facts = self.facts[user]
        if facts.kind == "reduce":
            return all(value.elements >= v.elements or v.constant is not None for v in user.inputs)
        if facts.kind == "injective":
            once = sum(r.elements for r in user.results) <= value.elements
            return once or not any(self.facts[n].costly for n in draft.nodes)
        return False

    def _producer(self, value: Value) -> _Draft | None:
        node = self.produced_by.get(value)
        return self.owner.get(node) if node is not None else None

    def _group(self, index: int, draft: _Draft) -> Group:
        produced = {r for n in draft.nodes for r in n.results}
        inputs: dict[Value, None] = {}
        for node in draft.nodes:
            for value in node.inputs:
                if value not in produced:
                    inputs[value] = None
        inside = set(draft.nodes)
        outputs = [
            r
            for n in draft.nodes
            for r in n.results
            if r in self.leaves or any(c not in inside for c in self.consumers.get(r, []))
        ]
        if not outputs:
            outputs = [draft.result]
        name = f"g{index}_" + "_".join(dict.fromkeys(n.operator.rsplit(".", 1)[-1] for n in draft.nodes))[:60]
        return Group(name, tuple(draft.nodes), tuple(inputs), tuple(outputs), draft.anchor, tuple(draft.notes))
