"""Weights that several products read lie in one form: panels of one width, where that costs no measurable time.

    16 rows @ W   tile 4 x 3     \\                              tile 4 x 3
    50 rows @ W   tile 5 x 2      >  W packed three times   ->   tile 4 x 3     W packed once
    60 rows @ W   tile 6 x 2     /                              tile 4 x 3

Which tile is best depends on the rows; the next best of another width is often within what can be measured. Products
that read streams (:mod:`.streamed_panels`) have one form among them, whatever their tile: vector after vector.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...targets.target import Target
from ..instructions.int8_dot import row_multiplier
from ..words.group import Group, Request, SharedWeights, Value, dtype_bytes
from .facts import MatmulFacts
from .register_tile import Space, choose_tile, group_space, least_cost, own_tile, tile_space, widest
from .streamed_panels import reads_streams

SLOWER = 1.02  # of the estimated cycles: no more than a measurement tells from the best


def shared_weights(groups: Iterable[Group], target: Target) -> SharedWeights:
    """The panel widths on which products of different sizes agree, for each constant that several of ``groups``
    read."""
    readers: dict[Value, dict[Space, Target]] = {}
    for group in groups:
        if group.anchor is None or group.anchor.operator != "relax.matmul":
            continue
        facts = MatmulFacts.of(group.anchor)
        if not facts.packs or len(facts.a.shape) < 2:
            continue
        own, space = row_multiplier(target, facts.a.dtype), group_space(target, group, facts)
        if not reads_streams(target, facts, choose_tile(own, *space), dtype_bytes(facts.output.dtype)):
            readers.setdefault(facts.b, {})[space] = own
    return SharedWeights({(b, s): w for b, known in readers.items() for s, w in _agreed(known).items()})


def shared_tile(request: Request, facts: MatmulFacts) -> tuple[int, int]:
    """Rows by vectors in registers for the request, of the width on which the readers of its weight agree."""
    shared = request.shared
    known = {} if shared is None else shared.widths
    return own_tile(request, facts, known.get((facts.b, tile_space(request, facts))))


def _agreed(spaces: dict[Space, Target]) -> dict[Space, int]:
    """A width for each product: the one that most can take, then the one that most of the others can."""
    found: dict[Space, int] = {}
    while len(open_ := [s for s in spaces if s not in found]) > 1:
        takers = {w: [s for s in open_ if _takes(spaces[s], s, w)] for w in range(widest(open_), 0, -1)}
        best = max(takers, key=lambda w: len(takers[w]))
        if len(takers[best]) < 2:
            break
        found.update(dict.fromkeys(takers[best], best))
    return found


def _takes(target: Target, space: Space, width: int) -> bool:
    return width <= widest([space]) and least_cost(target, *space, width) <= SLOWER * least_cost(target, *space)
