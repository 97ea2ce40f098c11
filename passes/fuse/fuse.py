"""Groups nodes: an anchor with any prologue and any epilogue, by a few rules about reads, not a table of operators.

1. Downstream: a group takes a map that reads one of its values element for element. Where others read that value too,
   it is written once, as a second output, and nobody in the group reads it back:

       y = conv(x); z = relu(y); y and z used elsewhere      ->      one group, outputs y and z

2. Upstream: a reduction takes the map that only it consumes, element for element; so does a map, if nothing is
   computed twice by that.
3. Everything else is a group of its own. Views are no groups: they alias. Nor does a concatenation take an epilogue
   whose parts can be written where they belong: reading the whole costs the same then, without a choice among parts.

A group stays one step of the program: nothing joins it that depends on its outputs by way of other groups. Nothing
costly is computed twice. A chain of any length is cut into groups of at most ``MOST_NODES``, and where moves would be
written into one another again and again (schedules/operators/expression_lengths.py), sooner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...schedules.general.channel_shuffle import channel_tables
from ...schedules.matmul import is_product
from ...schedules.operators.kind import Facts
from ...schedules.words.group import Group, Node, Value, dtype_bytes
from ...schedules.words.policy import ANY, Policy
from ...schedules.words.sizes import usual
from .attention import merge_attention, stays_whole
from .drafts import Draft, Drafts
from .graph import ProgramGraph
from .images import merge_images
from .moves import TOO_LONG, merge_moves
from .prologue import prologue_of, prologue_problem
from .shuffles import merge_shuffles

if TYPE_CHECKING:
    pass

MOST_NODES = 64  # of a group: its kernel is one expression, which is walked by recursion and grows with every node


@dataclass(frozen=True)
class Fusion:
    """The result of fusion: groups in execution order, and ``views``, value -> the value whose elements it renames."""

    groups: tuple[Group, ...]
    views: dict[Value, Value]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fuse:
    """``enabled=False`` makes every node a group (for honest attribution of what fusion is worth). Only with a
    ``target`` are maps computed in the loads of convolutions: whether that pays depends on the kernel. ``rows``:
    concatenations of rows are memory as well, as those in a step of a stream."""

    enabled: bool = True
    target: Any = None
    policy: Policy = ANY
    rows: bool = False
    name: str = "fuse"

    def apply(self, graph: ProgramGraph) -> Fusion:
        return _Fuser(graph, self.enabled, self.target, self.policy, self.rows).run()


class _Fuser(Drafts):
    def run(self) -> Fusion:
        views: dict[Value, Value] = {}
        drafts: list[Draft] = []
        for node in self.graph.nodes:
            facts = self.facts[node]
            if facts.kind == "view":
                views[node.results[0]] = node.inputs[0]
                continue
            draft = self._join(node, facts) if self.enabled else None
            if draft is None:
                anchor = node if facts.kind in ("anchor", "stencil", "reduce", "opaque") else None
                draft = Draft([node], anchor, facts.kind)
                drafts.append(draft)
            self.owner[node] = draft
        if self.enabled:
            drafts = merge_images(self, merge_moves(self, merge_attention(self, drafts)))
            drafts = merge_shuffles(self, drafts) if self.target is not None else drafts
            drafts = self._absorb_prologues(drafts)
            views = {v: base for v, base in views.items() if self.produced_by[v] not in self.owner}
        return Fusion(tuple(self.group(i, d) for i, d in enumerate(self.in_order(drafts))), views)

    def _join(self, node: Node, facts: Facts) -> Draft | None:
        """The draft whose epilogue ``node`` becomes: the heaviest one that computes a value it reads."""
        if facts.kind != "injective" or len(node.results) != 1:
            return None
        candidates: list[tuple[int, Draft]] = []
        apart: list[tuple[Draft, str]] = []
        for value in dict.fromkeys(node.inputs):
            draft = self.producer_of(value)
            if draft is None or draft.kind == "opaque":
                continue
            reason = self._apart(node, facts, value, draft)
            if reason:
                apart.append((draft, f"{node.operator} ({node.place}) not fused: {reason}"))
                continue
            # the heaviest producer takes the node: anchors before reductions before maps, the later one if equal
            rank = {"anchor": 3, "stencil": 2, "reduce": 2}.get(draft.kind, 1)
            candidates.append((rank * 1_000_000 + self.order[draft.nodes[-1]], draft))
        chosen = max(candidates, key=lambda c: c[0])[1] if candidates else None
        if chosen is None or chosen.kind != "anchor":  # else it is an epilogue, of another kernel
            for draft, note in apart:
                draft.notes.append(note)
        if chosen is not None:
            chosen.nodes.append(node)
        return chosen

    def _apart(self, node: Node, facts: Facts, value: Value, draft: Draft) -> str:
        """Why ``node``, which reads ``value``, may not join ``draft``, which computes it; empty if it may."""
        producer = self.produced_by[value]
        if len(producer.results) != 1:
            return f"{producer.operator} has several results"
        if not facts.elementwise_in(value):
            return f"it reads {producer.place} at other elements"
        if facts.widens and draft.anchor is not None and is_product(draft.anchor):
            return "its constants would take the registers of the product's sums"
        if len(draft.nodes) >= MOST_NODES:
            return f"the group has {MOST_NODES} operators already"
        if value in self.leaves and draft.kind != "anchor":
            return f"{producer.place} leaves the model"
        if self._lies_in_place(producer):
            return f"the parts of {producer.place} can be written where they belong"
        if self._widened_later(node, value):
            return "what it makes of bytes is four times as long, and others read the bytes"
        others = [v for v in node.inputs if self.producer_of(v) is not draft]
        if self.depends(others, draft):
            return f"it needs something that is computed from {draft.nodes[-1].place} elsewhere"
        return ""

    def _widened_later(self, node: Node, value: Value) -> bool:
        """True if ``node`` widens bytes to floats (``value`` is written anyway, for others or as an output), and one
        map alone reads the floats: fused into that map instead, the memory read is a quarter and the floats are never
        written."""
        if value.dtype not in ("uint8", "int8") or dtype_bytes(node.results[0].dtype) == 1:
            return False
        if value not in self.leaves and len(self.consumers.get(value, [])) < 2:
            return False
        made = node.results[0]
        while True:
            readers = self.consumers.get(made, [])
            if made in self.leaves or len(readers) != 1 or self.facts[readers[0]].kind != "injective":
                return False
            if sum(v.constant is None for v in readers[0].inputs) > 1:
                return True
            if len(readers[0].results) != 1:
                return False
            made = readers[0].results[0]

    def _lies_in_place(self, node: Node) -> bool:
        """True for a concatenation whose parts can probably be written into it: they lie behind one another."""
        if node.operator != "relax.concat" or not isinstance(node.operands[0], tuple):
            return False
        parts, whole = node.operands[0], node.results[0]
        axis = int(node.call.attrs.axis) % len(whole.shape)
        if self.rows and axis == 2 and len(whole.shape) > 3:
            return whole not in self.leaves
        made = all(self.producer_of(p) is not None and p not in self.leaves for p in parts)
        return made and len(set(parts)) == len(parts) and all(s == 1 for s in whole.shape[:axis])

    def _absorb_prologues(self, drafts: list[Draft]) -> list[Draft]:
        """Maps whose result one group alone reads move into it."""
        gone: set[int] = set()
        for draft in sorted(drafts, key=lambda d: self.order[d.nodes[-1]], reverse=True):
            if draft.kind != "injective":
                continue
            value = draft.result
            users = self.consumers.get(value, [])
            if not users or len(draft.nodes[-1].results) != 1 or self.outputs_of(draft.nodes) != [value]:
                continue
            if value in self.leaves or self._lies_in_place(draft.nodes[-1]):
                continue
            if any(self.owner.get(u) is not self.owner.get(users[0]) for u in users):
                continue
            target = self.owner.get(users[0])
            if target is None or target is draft or len(target.nodes) + len(draft.nodes) > MOST_NODES:
                continue
            if len(users) > 1 and any(self.facts[n].costly for n in draft.nodes):
                continue
            if not all(self._may_precede(draft, value, user, target, len(users) == 1) for user in users):
                continue
            if not stays_whole(self, target, draft.nodes):
                continue
            if self.too_long({*target.nodes, *draft.nodes}):
                target.notes.append(f"{draft.nodes[-1].place} is not computed where it is read: {TOO_LONG}")
                continue
            target.nodes = sorted({*target.nodes, *draft.nodes}, key=lambda n: self.order[n])
            for node in draft.nodes:
                self.owner[node] = target
            gone.add(id(draft))
        return [d for d in drafts if id(d) not in gone]

    def _may_precede(self, draft: Draft, value: Value, user: Node, target: Draft, alone: bool) -> bool:
        """True if ``value``, computed by ``draft``, may be computed again where ``user``, a node of the group
        ``target``, reads it. ``alone``: no other node of the group reads it."""
        facts = self.facts[user]
        if facts.kind == "reduce":
            size = usual(value.elements)
            return alone and all(size >= usual(v.elements) or v.constant is not None for v in user.inputs)
        before = prologue_of(target, self)
        if facts.kind == "anchor" or user in before:
            anchor = target.anchor
            assert anchor is not None
            data = value if facts.kind == "anchor" else anchor.operands[0]
            why = prologue_problem(anchor, data, [*draft.nodes, *before], self) if alone or before else "read twice"
            if why:
                place = self.produced_by[value].place
                target.notes.append(f"{place} is not computed in the loads of {anchor.operator}: {why}")
            return not why
        if facts.kind == "injective":
            if self._lies_in_place(user) or channel_tables(self.group(0, target)) is not None:
                return False  # it is written where it belongs, or in vectors
            once = usual(sum(r.elements for r in user.results)) <= usual(value.elements)
            facts_of = [self.facts[n] for n in draft.nodes]
            if not alone and target.anchor is not None:
                return False
            return once or not any(f.costly or target.anchor and f.interpolates for f in facts_of)
        return False
