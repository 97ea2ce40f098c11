"""A chosen tile group's shape, made better in small steps.

The search knows few shapes, and one mode for all inner values of a group. From its choice on, stripes and blocks grow
and shrink, bands join and part, and each inner value changes between ring and recompute, as long as the group becomes
faster and its scratch stays within the bytes that the choice has to spare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from .model import SearchModel, Segment, Shape
from .search import CurvePoint, Live
from .segments import segments_of

ROUNDS = 6
ROOMS = (8, 12, 16, 18, 20, 24, 32, 40, 48)  # eighths of what members hold that may hold little
WORTH = 0.998  # of the cycles: what a step must come to


def refined(model: SearchModel, choice: CurvePoint, most: float) -> CurvePoint:
    """``choice`` improved within a peak of ``most`` bytes: better shapes for its tile groups, and for groups that are
    computed whole the fastest kernel whose scratch fits."""
    memory = Live(model)
    parts = []
    peak = 0.0
    for part in choice.segments:
        between = memory.of(part) - part.beside
        if part.shape is not None:
            part = better(model, part, max(part.beside, most - between))
            peak = max(peak, between + part.beside)
        else:
            ways = [w for w in model.wholes(part.first) if memory.of(w) <= most and w.cycles < part.cycles]
            part = min(ways, key=lambda w: w.cycles, default=part)
            peak = max(peak, memory.of(part))
        parts.append(part)
    return replace(choice, bytes=peak, cycles=sum(p.cycles for p in parts), segments=tuple(parts))


def better(model: SearchModel, segment: Segment, room: float) -> Segment:
    """``segment`` in the fastest shape that small steps lead to, with at most ``room`` bytes beside what crosses its
    ends."""
    seen = {segment.shape}
    for _ in range(ROUNDS):
        best = segment
        assert segment.shape is not None
        tries = [s for s in steps(model, segment.first, segment.last, segment.shape) if s not in seen]
        tries = list(dict.fromkeys(tries))
        seen.update(tries)
        for found in segments_of(model, segment.first, segment.last, tries) if tries else []:
            if found is not None and found.beside <= room and found.cycles < WORTH * best.cycles:
                best = found
        if best is segment:
            break
        segment = best
    return segment


def steps(model: SearchModel, first: int, last: int, shape: Shape) -> Iterator[Shape]:
    """The shapes one step away from ``shape``: other rows, columns, bands, rounding, room, or another mode of one
    member."""
    groups = model.program.groups
    height, width = groups[last].outputs[-1].shape[2:4]
    rooms = (None, *(model.room * part // 8 for part in ROOMS)) if shape.saves else (shape.room,)
    units = sorted({4, *(model.cost(i).unit[0] for i in range(first, last + 1))})
    for rows in dict.fromkeys((shape.rows // 2, shape.rows * 2 // 3, shape.rows * 3 // 2, shape.rows * 2)):
        for rounded in dict.fromkeys((rows, *(-(-rows // unit) * unit for unit in units))):
            if 1 <= rounded <= height and rounded != shape.rows:
                for room in rooms:  # more rows may have to do with less beside them
                    yield replace(shape, rows=rounded, room=room)
    parts, period = -(-width // shape.columns), model.period(last)
    for count in (parts - 2, parts - 1, parts + 1, parts + 2, parts * 3 // 2) if shape.sharing == 1 else ():
        if count >= 1 and (block := -(-width // count)) >= 8:
            for unit in (math.lcm(u, period) for u in (4, 24)):
                yield replace(shape, columns=min(width, -(-block // unit) * unit))
    for bands in {1, model.threads, 2 * model.threads} - {shape.bands} if shape.sharing == 1 else ():
        yield replace(shape, bands=bands)
    yield replace(shape, units=not shape.units)
    for room in rooms:
        yield replace(shape, room=room)
    for group in groups[first:last]:
        own = frozenset(group.outputs)
        yield replace(shape, others=shape.others - own if own <= shape.others else shape.others | own)
