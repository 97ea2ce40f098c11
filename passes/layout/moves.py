"""A map that joins or cuts channels within blocks, as permutations of vectors and the maps before and after them.

    relu(concat(resize(a), b) * s), 9 and 13 channels     ->     v = resize(a)    y = concat(v, b)    relu(y * s)

The second is a kernel of vectors (schedules/general/channel_shuffle.py), the others run over channel lanes; in one they
would be plain memory, with a conversion behind. A plain image that is joined is converted first, if it is the smaller
part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...schedules.general.channel_lanes import preserves_channels
from ...schedules.general.channel_shuffle import permutes_vectors
from ...schedules.words.group import Group, Node, Value
from ...schedules.words.sizes import usual


def without_moves(group: Group, blocked: dict[Value, int], lanes: int) -> list[Group]:
    """The groups that compute ``group`` in blocks of ``lanes`` with moves of channels as groups of their own; empty if
    the rest can't be computed in blocks, or there are no moves. Inputs that are not in ``blocked`` are to be
    converted."""
    pieces: list[Group] = []
    left = list(group.nodes)
    for node in group.nodes:
        alone = _of(group, [node], f"{group.name}_{len(pieces)}")
        if not permutes_vectors(alone, lanes):
            continue
        needed = _before(node, left)
        pieces += [_of(group, needed, f"{alone.name}_of")] if needed else []
        pieces.append(alone)
        left = [n for n in left if n is not node and n not in needed]
    if not pieces:
        return []
    pieces += [_of(group, left, group.name)] if left else []
    held = dict(blocked)
    for piece in pieces:
        moves = permutes_vectors(piece, lanes)
        fresh = [v for v in piece.inputs if v not in held] if moves else []
        known = usual(sum(v.elements for v in piece.inputs if v in held))
        if usual(sum(v.elements // v.shape[1] * (-(-v.shape[1] // lanes)) * lanes for v in fresh)) > known:
            return []
        held.update(dict.fromkeys((*fresh, *piece.outputs), lanes))
        if not moves and not preserves_channels(piece, {v: lanes for v in piece.inputs if v in held}, lanes):
            return []
    return pieces


def _before(node: Node, nodes: Sequence[Node]) -> list[Node]:
    """Those of ``nodes`` that ``node`` is computed from."""
    wanted, found = set(node.inputs), []
    for other in reversed(nodes):
        if other is not node and not wanted.isdisjoint(other.results):
            found.append(other)
            wanted |= set(other.inputs)
    return found[::-1]


def _of(group: Group, nodes: Sequence[Node], name: str) -> Group:
    """What ``nodes`` of ``group`` compute for the others or for its readers, as a group."""
    made = [r for n in nodes for r in n.results]
    inputs = dict.fromkeys(v for n in nodes for v in n.inputs if v not in made)
    others = {v for n in group.nodes if n not in nodes for v in n.inputs}
    outputs = tuple(v for v in made if v in group.outputs or v in others)
    return replace(group, name=name, nodes=tuple(nodes), inputs=tuple(inputs), outputs=outputs)
