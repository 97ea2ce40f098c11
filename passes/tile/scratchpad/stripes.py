"""Plans chains of groups as double-buffered stripes for a machine with a scratchpad.

    conv -> relu -> conv          load rows 0..10, load rows 8..18, ...    what the stripe's members need of the input
                                  compute both, inner rows in a ring       the steps of a tile plan of one band
                                  store rows 0..8, store rows 8..16, ...

The stripe height is the one that the timeline says ends first, among those whose windows, streams and kernels' own
scratch fit. Whatever can't be in a chain (it needs everything, or no stripe of it fits) is computed as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....errors import HalotileError, several
from ....schedules.scratchpad.kernel import MOST_TRANSFERS, most_transfers, scratch_bytes
from ....schedules.words.alignment import aligned
from ....schedules.words.group import Group, Request, Value, dtype_bytes
from ....schedules.words.layout import Layout
from ....schedules.words.policy import Policy
from ....schedules.words.stripe_plan import Part, StreamedValue, Stripe, StripePlan
from ....schedules.words.tile_plan import Compute, Fill, Span, Step
from ....targets.target import Target
from ...memory.places import Places
from ..plan.form import Form, NeededPart, Untileable, clip, hull
from ..plan.lower import lower
from ..plan.needs import group_needs_of
from ..search.program import Program
from ..tile import TileResult, joined
from ..user_request import checked_shape
from .costs import predicted

if TYPE_CHECKING:
    from ....targets.plain import JsonView

MISSES = 3  # chains that do not fit before longer ones are given up


@dataclass(frozen=True)
class StripeResult(TileResult):
    """Groups in order; those in ``plans`` stand for chains in stripes. ``layouts`` are those of all values: what only
    stripes read and write has no margins in memory."""

    layouts: Mapping[Value, Layout] = field(default_factory=dict)


@dataclass(frozen=True)
class Stripes:
    """The pass that tiles for a scratchpad. ``rows`` fixes the height of stripes, None chooses it; ``policy`` is the
    build's."""

    rows: int | None = None
    policy: Policy = Policy()
    name: str = "tile"

    @staticmethod
    def of(tile: str | JsonView, policy: Policy) -> Stripes:
        """The pass that a build asks for: ``{"shape": (rows, None)}`` fixes the height of stripes. Raises HalotileError
        for any other wish."""
        if isinstance(tile, str) or not tile:
            return Stripes(None, policy)
        rows, columns = checked_shape(tile["shape"]) if set(tile) == {"shape"} else (None, 0)
        if columns is not None:
            raise HalotileError("tile: stripes for a scratchpad have a height alone: {'shape': (rows, None)}")
        return Stripes(rows, policy)

    def apply(
        self,
        groups: Sequence[Group],
        layouts: Mapping[Value, Layout],
        places: Places,
        outputs: Sequence[Value],
        target: Target,
    ) -> StripeResult:
        """``groups`` with chains in stripes: from the last group back, the longest chains whose windows, streams and
        scratch fit the scratchpad."""
        program = Program(groups, layouts, places, frozenset(outputs))
        plans: list[tuple[int, int, StripePlan]] = []
        last = len(groups) - 1
        while last >= 0:
            found = self._longest(program, last, target)
            if found is not None:
                plans.append(found)
            last = (found[0] if found is not None else last) - 1
        return _replaced(groups, plans, _without_margins(program, plans))

    def _longest(self, program: Program, last: int, target: Target) -> tuple[int, int, StripePlan] | None:
        """The longest chain that ends with group ``last`` and fits, with its plan."""
        found: list[tuple[int, list[StripePlan]]] = []
        misses = 0
        for first in range(last, -1, -1):
            if program.refusal(first) is not None or not program.reads(first, last) or program.joined(first, last):
                break
            if not program.leaving(first, last) <= set(program.groups[last].outputs):
                continue
            plans = self._candidates(program.groups[first : last + 1], program.layouts, target)
            if plans:
                found.append((first, plans))
            misses = 0 if plans else misses + 1
            if misses == MISSES:
                break
        for first, plans in reversed(found):
            for plan in plans:
                if most_transfers(plan, program.layouts) > MOST_TRANSFERS:
                    continue
                whole = Request(joined(plan.tiles), program.layouts, target, self.policy)
                if scratch_bytes(plan, whole) <= target.scratchpad_bytes:
                    return first, last, plan
        return None

    def _candidates(
        self, groups: Sequence[Group], layouts: Mapping[Value, Layout], target: Target
    ) -> list[StripePlan]:
        """Plans whose windows and streams fit, the one first that ends first. Higher stripes take more memory."""
        height = groups[-1].outputs[0].shape[2]
        heights = [self.rows] if self.rows else sorted({-(-height // k) for k in range(1, height + 1)})
        plans = []
        for rows in heights:
            try:
                plan = stripe_plan(groups, layouts, rows)
            except Untileable:
                continue
            if plan.bytes > target.scratchpad_bytes:
                break
            plans.append(plan)
        return sorted(plans, key=lambda p: (predicted(p, target).seconds, -p.stripe_rows))


def _without_margins(program: Program, plans: Sequence[tuple[int, int, StripePlan]]) -> dict[Value, Layout]:
    """The layouts, without margins for values that only stripes read and write: their borders are filled in the
    scratchpad, and a stripe of them is one transfer."""
    striped = {i for first, last, _ in plans for i in range(first, last + 1)}
    layouts = dict(program.layouts)
    for value, layout in program.layouts.items():
        touched = {program.producer.get(value, -1), *program.readers.get(value, ())}
        if layout.margins and value not in program.shared and touched <= striped:
            layouts[value] = Layout.blocked(value.shape, layout.block)
    return layouts


def _replaced(
    groups: Sequence[Group], plans: Sequence[tuple[int, int, StripePlan]], layouts: Mapping[Value, Layout]
) -> StripeResult:
    """``groups`` with each chain as one entry."""
    result: list[Group] = []
    by_group: dict[Group, Any] = {}
    notes = []
    at = 0
    for first, last, plan in sorted(plans, key=lambda p: p[0]):
        one = joined(plan.tiles)
        result += [*groups[at:first], one]
        by_group[one] = plan
        notes.append(
            f"{groups[first].name} to {groups[last].name}: {several(len(plan.members), 'group')} in "
            f"{several(len(plan.stripes), 'stripe')} of "
            f"{several(plan.stripe_rows, 'row')}, {plan.bytes} bytes of the scratchpad, work x {plan.extra_work:.3f}"
        )
        at = last + 1
    told = tuple(notes) or ("no group is computed in stripes",)
    return StripeResult((*result, *groups[at:]), by_group, told, layouts=layouts)


def stripe_plan(
    groups: Sequence[Group],
    layouts: Mapping[Value, Layout],
    rows: int,
    modes: Mapping[Value, str] | None = None,
) -> StripePlan:
    """The plan of ``groups`` in stripes of ``rows`` rows of the last one's output. Raises Untileable."""
    last = groups[-1]
    width = last.outputs[-1].shape[3]
    tiles = lower(groups, layouts, Form(rows, width, 1, modes or {}), frozenset(), apart=True)
    inner = [v.name for v in tiles.outputs if v not in last.outputs]
    if inner:
        raise Untileable(f"{', '.join(inner)} leave the chain before its end")
    (task,) = tiles.tasks
    stripes = _merged(task.stripes, len(groups) - 1)
    streamed = [v for v in tiles.inputs if v.constant is None and len(v.shape) == 4]
    needs = [{v: _needed(tiles.members, steps, v) for v in streamed} for steps in stripes]
    streams: dict[Value, StreamedValue] = {}
    total = aligned(tiles.task_bytes)
    for value in (*streamed, *last.outputs):
        spans = [n[value] for n in needs] if value in streamed else [_computed(steps, groups) for steps in stripes]
        held = [s for s in spans if s is not None]
        if not held:
            continue
        shape = (*value.shape[:2], max(_size(s.rows) for s in held), max(_size(s.columns) for s in held))
        known = layouts.get(value)
        layout = Layout.blocked(shape, known.block if known is not None else 0)
        size = aligned(layout.elements * dtype_bytes(value.dtype))
        streams[value] = StreamedValue(value, layout, (total, total + size))
        total += 2 * size
    given, results = ([v for v in values if v in streams] for values in (streamed, last.outputs))
    made = [_stripe(steps, {v: n[v] for v in given}, results, groups) for steps, n in zip(stripes, needs)]
    return StripePlan(tiles, streams, tuple(made), total, rows)


def _merged(stripes: Sequence[Sequence[Step]], last: int) -> list[list[Step]]:
    """Stripes in which the last member computes nothing (rings fill first) belong to the next one."""
    merged: list[list[Step]] = []
    waiting: list[Step] = []
    for steps in stripes:
        waiting += steps
        if any(isinstance(s, Compute) and s.member == last for s in steps):
            merged.append(waiting)
            waiting = []
    assert not waiting, "a band ends with its last output"
    return merged


def _needed(members: Sequence[Group], steps: Sequence[Step], value: Value) -> NeededPart | None:
    """What the steps of a stripe read of a value from memory."""
    rows: Span | None = None
    columns: Span | None = None
    outside: float | None = None
    for step in steps:
        if not isinstance(step, Compute) or value not in members[step.member].inputs:
            continue
        need = group_needs_of(members[step.member], value, step.rows, step.columns)
        if need is None:
            continue
        if need.outside is None:
            need = NeededPart(clip(need.rows, value.shape[2]), clip(need.columns, value.shape[3]))
        else:
            outside = need.outside
        rows, columns = hull(rows, need.rows), hull(columns, need.columns)
    return None if rows is None or columns is None else NeededPart(rows, columns, outside)


def _computed(steps: Sequence[Step], groups: Sequence[Group]) -> NeededPart | None:
    """What the last member computes in a stripe (in one step or several)."""
    rows: Span | None = None
    columns: Span | None = None
    for step in steps:
        if isinstance(step, Compute) and step.member == len(groups) - 1:
            rows, columns = hull(rows, step.rows), hull(columns, step.columns)
    return None if rows is None or columns is None else NeededPart(rows, columns)


def _stripe(
    steps: Sequence[Step], needs: Mapping[Value, NeededPart | None], outputs: Sequence[Value], groups: Sequence[Group]
) -> Stripe:
    loads, stores, filled = [], [], []
    bases: dict[Value, tuple[int, int]] = {}
    for value, need in needs.items():
        if need is None:  # all of it is padding here: the kernel reads nothing, wherever its window is
            bases[value] = (0, 0)
            continue
        base = need.rows[0], need.columns[0]
        bases[value] = base
        inside = clip(need.rows, value.shape[2]), clip(need.columns, value.shape[3])
        if inside[0][0] < inside[0][1] and inside[1][0] < inside[1][1]:
            loads.append(Part(value, *inside, base))
        filled += border(value, need.rows, need.columns, base)
    done = _computed(steps, groups)
    assert done is not None
    for value in outputs:
        bases[value] = done.rows[0], done.columns[0]
        stores.append(Part(value, done.rows, done.columns, bases[value]))
    based: list[Step] = [*filled]
    for step in steps:
        if isinstance(step, Compute):
            own = {v: b for v, b in bases.items() if v in (*groups[step.member].inputs, *groups[step.member].outputs)}
            step = Compute(step.member, step.rows, step.columns, {**step.bases, **own})
        based.append(step)
    return Stripe(tuple(loads), tuple(based), tuple(stores))


def border(value: Value, rows: Span, columns: Span, base: tuple[int, int]) -> list[Step]:
    """Steps that fill with zeros the part of ``rows x columns`` of a window that lies outside of the tensor."""
    height, width = value.shape[2:4]
    inner = clip(rows, height)
    bands: list[tuple[Span, Span]] = [
        ((rows[0], min(rows[1], 0)), columns),
        ((max(rows[0], height), rows[1]), columns),
        (inner, (columns[0], min(columns[1], 0))),
        (inner, (max(columns[0], width), columns[1])),
    ]
    return [Fill(value, r, c, base) for r, c in bands if r[0] < r[1] and c[0] < c[1]]


def _size(span: Span) -> int:
    return span[1] - span[0]
