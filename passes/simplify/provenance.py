"""Who inherits the names of nodes that a rewrite removes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .graph import CONST, INPUT, GraphNode


def attribute(
    dying: Iterable[GraphNode], made: Sequence[GraphNode], replacements: Mapping[GraphNode, GraphNode]
) -> None:
    """Hands the sources of ``dying`` nodes on: to those of the nodes ``made`` in their place that have the same
    operator, and what is left to the values that replace theirs.

        conv(x, w) * s     ->    conv(x, w * s)          the convolution has the names of both
        conv(transpose x)  ->    transpose(conv x)       each keeps its own
    """
    gone = sorted(dying, key=lambda n: n.order)
    claimed: set[GraphNode] = set()
    for node in made:
        same = [n for n in gone if n.op == node.op]
        claimed.update(same)
        node.sources = joined(same)
    left = joined(n for n in gone if n not in claimed)
    heirs = [new for new in dict.fromkeys(replacements.values()) if new.op not in (INPUT, CONST)]
    for node in dict.fromkeys([*heirs, *(n for n in made if not n.sources)]):
        node.sources = tuple(dict.fromkeys((*node.sources, *left)))


def joined(nodes: Iterable[GraphNode]) -> tuple[str, ...]:
    """The sources of ``nodes``, each once."""
    return tuple(dict.fromkeys(name for node in nodes for name in node.sources))
