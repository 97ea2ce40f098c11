"""The ways to compute one convolution, as candidates to be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from ..instructions.amx import may_split
from ..words.candidates import Candidate, alternating, conditions, own_first
from ..words.group import Kernel, Request
from .amx.choose import MatrixPlan, few_plan, matrix_plan
from .amx.int8_choose import BytesPlan
from .direct.depthwise import column_counts
from .direct.kernel import own_window, tile_space
from .facts import ConvFacts
from .register_tile import Tile, best_tiles
from .winograd.choose import applies, sorted_plans
from .winograd.plan import Plan, held_bytes

FEW, HALVES, DEPTHWISE, GROUPED = "few outputs", "seven products of halves", "depthwise", "small groups"
DOTS = "bytes"
# a transform's plan, a matrix unit's, a direct register tile, one of the above, a depthwise one's columns
Way = Plan | MatrixPlan | BytesPlan | Tile | str | int


def decision_key(request: Request, facts: ConvFacts) -> str:
    """Everything about the convolution that its time depends on, but for what is fused around it."""
    kind = "blocked" if request.layout(facts.data).block else "plain"
    shapes = ("x".join(map(str, t)) for t in (facts.data.shape, facts.weight.shape, facts.output.shape))
    steps = f"strides {facts.strides} dilation {facts.dilation} pads {facts.before} {facts.after}"
    text = f"conv {facts.output.dtype} {' '.join(shapes)} {steps} groups {facts.groups} {kind}"
    return f"{text}, {conditions(request)}"


def candidates(
    request: Request, facts: ConvFacts, own: Way, winograd: bool, make: Callable[[Way], Kernel]
) -> list[Candidate]:
    """Register tiles of the direct convolution and, if ``winograd`` may be, plans of either transform; the family's
    ``own`` choice first. Few outputs have one way that is far ahead; depthwise ones are one for every number of columns
    in registers."""

    def offered(ways: Iterable[Way]) -> list[Candidate]:
        return [Candidate(_name(way), partial(make, way)) for way in ways]

    if own == FEW:
        return offered([own])
    if own == DOTS or isinstance(own, BytesPlan):
        return own_first(_name(own), offered([own, DOTS]))
    if own == DEPTHWISE:
        return offered(column_counts(request, facts))
    space = replace(tile_space(request, facts), window=own_window(request, facts))
    classes = [offered(best_tiles(request.target, space))]
    for plans in sorted_plans(request.target, facts, may_split(request)) if winograd and applies(facts) else ():
        classes.append(offered(p for p in plans if _fits(request, facts, p)))
    unit = matrix_plan(request, facts) or few_plan(request, facts)
    if unit is not None:
        classes.insert(0, offered([unit]))
    return own_first(_name(own), [*offered([own]), *alternating(classes)])


def _fits(request: Request, facts: ConvFacts, plan: Plan) -> bool:
    room = request.limits.room
    return room is None or held_bytes(request.target.lanes(), facts.channels, plan) <= room


def _name(way: Way) -> str:
    if isinstance(way, int):
        return f"{DEPTHWISE} {way}"
    return f"direct {way}" if isinstance(way, Tile) else str(way)
