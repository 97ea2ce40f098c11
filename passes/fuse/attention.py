"""Finds attention by its structure and makes each one group: two matrix products with work on rows between them.

    Q, K, V -> [moves] -> matmul -> [scale, mask] -> softmax -> matmul -> [moves]      ->      one group

The first product's group already holds the maps behind it, the second one's too; what lies between joins them, then
the maps that only Q, K and V are read through (transposes, slices, rotations), then the moves of the output. Whatever
the kernel family does not take is left apart, with a note that says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...schedules.attention import AttentionFacts, attention_facts
from ...schedules.group import Group, Node, Value
from ...schedules.matmul import supports_matmul

if TYPE_CHECKING:
    from .fuse import _Draft, _Fuser

BETWEEN = 24  # operators between two products that are looked through


def merge_attention(fuser: _Fuser, drafts: list[_Draft]) -> list[_Draft]:
    """``drafts`` with those that make an attention merged into the draft of the second product."""
    gone: set[int] = set()
    for draft in drafts:
        if draft.anchor is None or draft.anchor.operator != "relax.matmul" or not supports_matmul(draft.anchor):
            continue
        for nodes in _stages(fuser, draft):
            group = _group(fuser, draft, nodes)
            facts = attention_facts(group)
            if not isinstance(facts, AttentionFacts):
                draft.notes.append(f"attention: not fused further: {facts}")
                break
            taken = {id(o) for n in nodes if (o := fuser.owner.get(n)) is not None and o is not draft}
            gone |= taken
            draft.nodes = list(group.nodes)
            for node in nodes:
                fuser.owner[node] = draft
    return [d for d in drafts if id(d) not in gone]


def stays_attention(fuser: _Fuser, draft: _Draft, nodes: Iterable[Node]) -> bool:
    """False if ``draft`` is an attention and would be none with ``nodes``."""
    if sum(n.operator == "relax.matmul" for n in draft.nodes) < 2:
        return True
    return isinstance(attention_facts(_group(fuser, draft, {*draft.nodes, *nodes})), AttentionFacts)


def _stages(fuser: _Fuser, draft: _Draft) -> Iterable[set[Node]]:
    """The nodes of the group, larger from step to step; each is asked for after the one before was accepted."""
    core = _core(fuser, draft)
    if core is None:
        return
    yield core
    before = _prologue(fuser, draft)
    if before:
        yield {*draft.nodes, *before}
    while True:
        after = _next_move(fuser, draft)
        if after is None:
            return
        size = len(draft.nodes)
        yield {*draft.nodes, *after}
        if len(draft.nodes) == size:
            return


def _group(fuser: _Fuser, draft: _Draft, nodes: set[Node]) -> Group:
    ordered = sorted(nodes, key=lambda n: fuser.order[n])
    return fuser._group(0, replace(draft, nodes=ordered, notes=[]))


def _core(fuser: _Fuser, draft: _Draft) -> set[Node] | None:
    """Both products, their epilogues and all between them; None if there is no first product."""
    second = draft.anchor
    assert second is not None
    for first in _products_before(fuser, second):
        between = _between(fuser, first, second)
        if between is None:
            continue
        nodes = {first, *between, *draft.nodes}
        owners = [fuser.owner[n] for n in (first, *between) if n in fuser.owner]
        if all(set(o.nodes) <= nodes for o in owners):
            return nodes
    return None


def _products_before(fuser: _Fuser, second: Node) -> list[Node]:
    """Matrix products that the second one's left operand is computed from, with maps and reductions between."""
    found: list[Node] = []
    seen: set[Node] = set()
    stack: list[Value] = [second.operands[0]]
    while stack and len(seen) < BETWEEN:
        node = fuser.produced_by.get(stack.pop())
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.operator == "relax.matmul":
            found.append(node)
        elif fuser.facts[node].kind in ("injective", "reduce", "view"):
            stack.extend(node.inputs)
    return [n for n in found if supports_matmul(n)]


def _between(fuser: _Fuser, first: Node, second: Node) -> list[Node] | None:
    """Everything that depends on the first product, if all of it ends in the second one's left operand."""
    inside: dict[Node, None] = {}
    stack = list(first.results)
    while stack:
        value = stack.pop()
        if value in fuser.leaves:
            return None
        for node in fuser.consumers.get(value, []):
            if node is second:
                if value is not second.operands[0] or value is second.operands[1]:
                    return None
            elif node not in inside:
                if fuser.facts[node].kind not in ("injective", "reduce", "view") or len(inside) == BETWEEN:
                    return None
                inside[node] = None
                stack.extend(node.results)
    return list(inside) if inside else None


def _prologue(fuser: _Fuser, draft: _Draft) -> set[Node]:
    """Maps in groups of their own, and views between them, that nothing but this attention reads."""
    second = draft.anchor
    assert second is not None
    first = next(n for n in draft.nodes if n.operator == "relax.matmul")
    candidates: set[Node] = set()
    stack = [*first.inputs, second.operands[1]]
    while stack:
        node = fuser.produced_by.get(stack.pop())
        if node is None or node in candidates or node in draft.nodes:
            continue
        owner = fuser.owner.get(node)
        if fuser.facts[node].kind == "view" or (owner is not None and owner.kind == "injective"):
            candidates.add(node)
            stack.extend(node.inputs)
    while True:
        inside = {*draft.nodes, *candidates}
        kept = {n for n in candidates if _serves_only(fuser, n, inside) and _complete(fuser, n, candidates)}
        if kept == candidates:
            break
        candidates = kept
    while True:  # views in front alias as well outside
        outer = {
            n
            for n in candidates
            if fuser.facts[n].kind == "view" and fuser.produced_by.get(n.inputs[0]) not in candidates
        }
        if not outer:
            return candidates
        candidates -= outer


def _serves_only(fuser: _Fuser, node: Node, inside: set[Node]) -> bool:
    return all(
        r not in fuser.leaves and all(c in inside for c in fuser.consumers.get(r, [])) for r in node.results
    )


def _complete(fuser: _Fuser, node: Node, candidates: set[Node]) -> bool:
    owner = fuser.owner.get(node)
    return owner is None or all(n in candidates for n in owner.nodes)


def _next_move(fuser: _Fuser, draft: _Draft) -> set[Node] | None:
    """The only group that reads the result, views between included, if it is a group of maps."""
    outputs = fuser._outputs(draft)
    views: set[Node] = set()
    while len(outputs) == 1 and outputs[0] not in fuser.leaves:
        readers = fuser.consumers.get(outputs[0], [])
        if len(readers) != 1:
            return None
        node = readers[0]
        owner = fuser.owner.get(node)
        if owner is None:
            views.add(node)
            outputs = list(node.results)
            continue
        own = {outputs[0], *(r for n in owner.nodes for r in n.results)}
        others = [v for n in owner.nodes for v in n.inputs if v not in own]
        if owner.kind != "injective" or owner is draft or fuser._depends(others, draft):
            return None
        return {*owner.nodes, *views}
    return None
