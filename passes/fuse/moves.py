"""Moves of data that vanish into the loads and stores of a matrix product: transposes, reshapes, slices.

    x -> reshape -> transpose -> matmul -> reshape -> transpose -> add      ->      one group

What the kernel could not read or write along memory is left apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...schedules.conv import supports_conv
from ...schedules.matmul import is_product, moves_problem
from ...schedules.words.group import Group, Node, Value
from .drafts import Draft, Drafts

TOO_LONG = "their expression would be too long for one kernel"


def merge_moves(fuser: Drafts, drafts: list[Draft]) -> list[Draft]:
    """``drafts`` with the moves before the left operand and behind the result of each product merged into it."""
    gone: set[int] = set()
    for draft in drafts:
        anchor = draft.anchor
        if anchor is None or not is_product(anchor) or is_attention(draft.nodes) or id(draft) in gone:
            continue
        before = prologue(fuser, draft, [anchor.operands[0]])
        if before and not (apart := _read_apart(fuser, anchor, before)):
            gone |= _taken(fuser, draft, before)
        elif before:
            draft.notes.append(f"moves ({', '.join(sorted(n.place for n in before))}) not fused: {apart}")
        while (after := next_move(fuser, draft)) is not None:
            taken = _taken(fuser, draft, after)
            if not taken:
                break
            gone |= taken
    return [d for d in drafts if id(d) not in gone]


def _read_apart(fuser: Drafts, anchor: Node, before: set[Node]) -> str:
    """Why the product ``anchor`` had better read what the moves ``before`` it leave in memory; empty where it may move
    itself."""
    inside = {*before, anchor}
    if any(reader not in inside for n in before for r in n.results for reader in fuser.consumers.get(r, [])):
        return "what it adds to the sums would lie apart"
    made = {r for n in before for r in n.results}
    for value in {v for n in before for v in n.inputs} - made:
        producer = fuser.produced_by.get(value)
        owner = fuser.owner.get(producer) if producer is not None else None
        if len(value.shape) == 4 and owner is not None and owner.anchor is not None and supports_conv(owner.anchor):
            return "a convolution's image lies in channel blocks"
    return ""


def is_attention(nodes: Iterable[Node]) -> bool:
    """True if ``nodes`` hold more than one matrix product."""
    return sum(n.operator == "relax.matmul" for n in nodes) > 1


def _taken(fuser: Drafts, draft: Draft, nodes: set[Node]) -> set[int]:
    """Moves ``nodes`` into ``draft`` if its kernel can compute them, with a note if not; the ids of the drafts that
    they were in."""
    group = group_of(fuser, draft, {*draft.nodes, *nodes})
    why = TOO_LONG if fuser.too_long(group.nodes) else moves_problem(group)
    if why:
        names = ", ".join(sorted(n.place for n in nodes))
        draft.notes.append(f"moves ({names}) not fused: {why}")
        return set()
    return take(fuser, draft, group)


def take(fuser: Drafts, draft: Draft, group: Group) -> set[int]:
    """Moves the nodes of ``group`` into ``draft``; the ids of the drafts that they were in."""
    taken = {id(o) for n in group.nodes if (o := fuser.owner.get(n)) is not None and o is not draft}
    draft.nodes = list(group.nodes)
    for node in group.nodes:
        fuser.owner[node] = draft
    return taken


def group_of(fuser: Drafts, draft: Draft, nodes: set[Node]) -> Group:
    """The group that ``draft`` would be with exactly ``nodes``."""
    ordered = sorted(nodes, key=lambda n: fuser.order[n])
    return fuser.group(0, replace(draft, nodes=ordered, notes=[]))


def prologue(fuser: Drafts, draft: Draft, values: Iterable[Value]) -> set[Node]:
    """The nodes that ``values`` are computed from and that nothing outside of ``draft`` reads: maps in groups of their
    own, and views between them."""
    candidates: set[Node] = set()
    stack = list(values)
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


def _serves_only(fuser: Drafts, node: Node, inside: set[Node]) -> bool:
    return all(
        r not in fuser.leaves and all(c in inside for c in fuser.consumers.get(r, [])) for r in node.results
    )


def _complete(fuser: Drafts, node: Node, candidates: set[Node]) -> bool:
    owner = fuser.owner.get(node)
    return owner is None or all(n in candidates for n in owner.nodes)


def next_move(fuser: Drafts, draft: Draft) -> set[Node] | None:
    """The nodes of the only group that reads the result of ``draft``, views in between included, if it is a group of
    maps that leave registers to the sums; else None."""
    outputs = fuser.outputs_of(draft.nodes)
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
        if owner.kind != "injective" or owner is draft or fuser.depends(others, draft):
            return None
        if any(fuser.facts[n].widens for n in owner.nodes):
            return None
        return {*owner.nodes, *views}
    return None
