"""Finds attention by its structure and makes each one group: two matrix products with work on rows between them.

    Q, K, V -> [moves] -> matmul -> [scale, mask] -> softmax -> matmul -> [moves]      ->      one group

The first product's group already holds the maps behind it, the second one's too; what lies between joins them, then
the maps that only Q, K and V are read through (transposes, slices, rotations), then the moves of the output. Whatever
the kernel family does not take is left apart, with a note that says why.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...schedules.attention import AttentionFacts, attention_facts
from ...schedules.matmul import is_product, moves_problem
from ...schedules.words.group import Node, Value
from .drafts import Draft, Drafts
from .moves import TOO_LONG, group_of, is_attention, next_move, prologue, take

BETWEEN = 24  # operators between two products that are looked through


def merge_attention(fuser: Drafts, drafts: list[Draft]) -> list[Draft]:
    """``drafts`` with each attention merged into the draft of its second product."""
    gone: set[int] = set()
    for draft in drafts:
        if draft.anchor is None or draft.anchor.operator != "relax.matmul" or not is_product(draft.anchor):
            continue
        for nodes in _stages(fuser, draft):
            group = group_of(fuser, draft, nodes)
            facts = TOO_LONG if fuser.too_long(group.nodes) else attention_facts(group)
            if not isinstance(facts, AttentionFacts):
                draft.notes.append(f"the attention takes in no more: {facts}")
                break
            gone |= take(fuser, draft, group)
    return [d for d in drafts if id(d) not in gone]


def stays_whole(fuser: Drafts, draft: Draft, nodes: Iterable[Node]) -> bool:
    """True if the kernel of ``draft`` can compute ``nodes`` as well; only those of attentions and products have
    limits."""
    if draft.anchor is None or not is_product(draft.anchor):
        return True
    group = group_of(fuser, draft, {*draft.nodes, *nodes})
    return isinstance(attention_facts(group), AttentionFacts) if is_attention(draft.nodes) else not moves_problem(group)


def _stages(fuser: Drafts, draft: Draft) -> Iterable[set[Node]]:
    """The nodes of the group, larger from step to step; each is asked for after the one before was accepted."""
    core, second = _core(fuser, draft), draft.anchor
    if core is None or second is None:
        return
    yield core
    first = next(n for n in draft.nodes if n.operator == "relax.matmul")
    before = prologue(fuser, draft, (*first.inputs, second.operands[1]))
    if before:
        yield {*draft.nodes, *before}
    while True:
        after = next_move(fuser, draft)
        if after is None:
            return
        size = len(draft.nodes)
        yield {*draft.nodes, *after}
        if len(draft.nodes) == size:
            return


def _core(fuser: Drafts, draft: Draft) -> set[Node] | None:
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


def _products_before(fuser: Drafts, second: Node) -> list[Node]:
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
    return [n for n in found if is_product(n)]


def _between(fuser: Drafts, first: Node, second: Node) -> list[Node] | None:
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
