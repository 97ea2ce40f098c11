"""The ways to compute one convolution, as candidates to be measured."""

from __future__ import annotations

from functools import partial

from ..group import Request
from ..tuning import Candidate, alternating, conditions, own_first
from .choose import Tile, best_tiles, choose_tile
from .depthwise import build_depthwise, column_counts
from .direct import build_direct, tile_space
from .facts import ConvFacts
from .few import build_few, few_applies
from .winograd import build_winograd
from .winograd_choose import Plan, applies, choose_plan, sorted_plans


def decision_key(request: Request, facts: ConvFacts) -> str:
    """Everything about the convolution that its time depends on, but for what is fused around it."""
    kind = "blocked" if request.layout(facts.data).block else "plain"
    shapes = ("x".join(map(str, t)) for t in (facts.data.shape, facts.weight.shape, facts.output.shape))
    steps = f"strides {facts.strides} dilation {facts.dilation} pads {facts.before} {facts.after}"
    text = f"conv {facts.output.dtype} {' '.join(shapes)} {steps} groups {facts.groups} {kind}"
    return f"{text}, {conditions(request)}"


def depthwise_candidates(request: Request, facts: ConvFacts) -> list[Candidate]:
    """One for every number of columns in registers."""
    counts = column_counts(request, facts)
    return [Candidate(f"depthwise {c}", partial(build_depthwise, request, facts, c)) for c in counts]


def candidates(request: Request, facts: ConvFacts, winograd: bool) -> list[Candidate]:
    """Register tiles of the direct convolution and, if ``winograd`` may be, plans of either transform; the family's
    own choice first. Few outputs have one way that is far ahead."""
    if few_applies(request, facts):
        return [Candidate("few outputs", partial(build_few, request, facts))]
    plan = choose_plan(request.target, facts) if winograd else None
    space = tile_space(request, facts)
    own = _name(plan) if plan is not None else _name(choose_tile(request.target, *space))
    direct = [Candidate(_name(t), partial(build_direct, request, facts, t)) for t in best_tiles(request.target, *space)]
    classes = [direct]
    for plans in sorted_plans(request.target, facts) if winograd and applies(facts) else ():
        classes.append([Candidate(_name(p), partial(build_winograd, request, facts, p)) for p in plans])
    return own_first(own, alternating(classes))


def _name(choice: Plan | Tile) -> str:
    return f"direct {choice}" if isinstance(choice, Tile) else str(choice)
