"""The state of fusion: drafts of groups, who owns a node, who reads a value, and what a draft would be as a group."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...schedules.operators.expression_lengths import LONGEST, Lengths
from ...schedules.operators.kind import facts_of
from ...schedules.words.group import Group, Node, Value
from ...schedules.words.policy import ANY, Policy
from .graph import ProgramGraph

if TYPE_CHECKING:
    pass


@dataclass(eq=False)
class Draft:
    """A group in the making."""

    nodes: list[Node]
    anchor: Node | None
    kind: str
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> Value:
        """The first result of the last node."""
        return self.nodes[-1].results[0]


class Drafts:
    """What the rules of fusion share: facts and consumers of all nodes of ``graph``, and ``owner``, node -> the draft
    that it is in."""

    def __init__(
        self, graph: ProgramGraph, enabled: bool, target: Any = None, policy: Policy = ANY, rows: bool = False
    ) -> None:
        self.graph, self.enabled, self.target, self.policy, self.rows = graph, enabled, target, policy, rows
        self.facts = {node: facts_of(node) for node in graph.nodes}
        self.lengths = Lengths(self.facts)
        self.order = {node: i for i, node in enumerate(graph.nodes)}
        self.consumers: dict[Value, list[Node]] = {}
        for node in graph.nodes:
            for value in dict.fromkeys(node.inputs):
                self.consumers.setdefault(value, []).append(node)
        self.produced_by = {value: node for node in graph.nodes for value in node.results}
        self.leaves = set(graph.outputs)
        self.owner: dict[Node, Draft] = {}

    def producer_of(self, value: Value) -> Draft | None:
        """The draft that computes ``value``; None of inputs, constants and views."""
        node = self.produced_by.get(value)
        return self.owner.get(node) if node is not None else None

    def outputs_of(self, nodes: Sequence[Node]) -> list[Value]:
        """Values of ``nodes`` that the model or other groups read, in program order."""
        inside = set(nodes)
        return [
            r
            for n in nodes
            for r in n.results
            if r in self.leaves or any(c not in inside for c in self.consumers.get(r, []))
        ]

    def group(self, index: int, draft: Draft) -> Group:
        """``draft`` as the group number ``index``: what it reads and what others read of it."""
        produced = {r for n in draft.nodes for r in n.results}
        inputs: dict[Value, None] = {}
        for node in draft.nodes:
            for value in node.inputs:
                if value not in produced:
                    inputs[value] = None
        outputs = self.outputs_of(draft.nodes) or [draft.result]
        name = f"g{index}_" + "_".join(dict.fromkeys(n.operator.rsplit(".", 1)[-1] for n in draft.nodes))[:60]
        return Group(name, tuple(draft.nodes), tuple(inputs), tuple(outputs), draft.anchor, tuple(draft.notes))

    def depends(self, values: list[Value], draft: Draft) -> bool:
        """True if one of ``values`` is computed from a value of ``draft`` by way of other groups or views."""
        start = self.order[draft.nodes[0]]
        seen: set[int] = set()
        stack = list(values)
        while stack:
            node = self.produced_by.get(stack.pop())
            if node is None:
                continue
            owner = self.owner.get(node)
            if owner is draft:
                return True
            members = [node] if owner is None else owner.nodes
            if id(members[0]) in seen or all(self.order[m] < start for m in members):
                continue
            seen.add(id(members[0]))
            stack.extend(v for m in members for v in m.inputs)
        return False

    def sources(self, draft: Draft) -> list[Draft]:
        """The other groups that ``draft`` reads from, views seen through."""
        found = []
        stack = [v for n in draft.nodes for v in n.inputs]
        while stack:
            node = self.produced_by.get(stack.pop())
            if node is None:
                continue
            owner = self.owner.get(node)
            if owner is None:
                stack.extend(node.inputs)
            elif owner is not draft:
                found.append(owner)
        return found

    def in_order(self, drafts: list[Draft]) -> list[Draft]:
        """``drafts`` in an order in which every value is written before it is read; by their last nodes where there is
        a choice."""
        last = {id(d): max(self.order[n] for n in d.nodes) for d in drafts}
        readers: dict[int, list[Draft]] = {id(d): [] for d in drafts}
        waits = {id(d): 0 for d in drafts}
        for draft in drafts:
            for source in {id(s): s for s in self.sources(draft)}.values():
                readers[id(source)].append(draft)
                waits[id(draft)] += 1
        ready = [(last[id(d)], i, d) for i, d in enumerate(drafts) if not waits[id(d)]]
        heapq.heapify(ready)
        result = []
        while ready:
            _, _, draft = heapq.heappop(ready)
            result.append(draft)
            for reader in readers[id(draft)]:
                waits[id(reader)] -= 1
                if not waits[id(reader)]:
                    heapq.heappush(ready, (last[id(reader)], -1, reader))
        if len(result) != len(drafts):
            raise AssertionError("groups depend on each other in a circle")
        return result

    def too_long(self, nodes: Collection[Node]) -> bool:
        """True if the expressions of ``nodes``, written into one another, are too long for one kernel."""
        ordered = sorted(nodes, key=lambda n: self.order[n])
        return self.lengths.of(ordered, self.outputs_of(ordered)) > LONGEST
