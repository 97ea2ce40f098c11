"""Winograd's algorithm as a choice: where it may be, how it is planned, and what boxes cost by it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ....targets.target import Target
from ...instructions.amx import may_split
from ...words.choice import AlgorithmRefusal, Choice
from ...words.dims import is_open
from ...words.group import Kernel, Request, Value
from ..algorithm import ConvAlgorithm, Held
from ..box_cost import Costing, MemberCost, direct_cost
from ..direct.pairs import pair_share
from ..facts import ConvFacts
from ..residual_in_place import taken_over
from .choose import (
    applies,
    best_alike,
    choose_plan,
    cycles_at,
    least_plans,
    longer_strips,
    smaller_plans,
    smaller_strips,
    sorted_plans,
    still_pays,
)
from .cost import direct_cycles, warm_cycles
from .few_channels import build_few_winograd
from .hints import asks_next
from .kernel import build_winograd, workers_of
from .plan import Layer, WinogradPlan, held_bytes, scratch_bytes, weight_bytes
from .transform import F2

CLOSE = 0.9  # of the bytes of a faster plan: nearer than that, a slower one is not worth a look
MARGIN = 0.93  # of products in float32, which plans with products of parts compare with as those on the unit alone do


class Winograd(ConvAlgorithm):
    name = "winograd"
    boxes_in_place = True

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if reason := self.forbids(request, facts):
            return self.refuses(reason)
        split, target = may_split(request), self.target_of(request)
        plan = choose_plan(target, facts, split=split)
        room = request.limits.room
        if plan is not None and room is not None and held_bytes(_lanes(request, facts), facts.channels, plan) > room:
            plan = choose_plan(target, facts, room, split)
        if plan is not None and _any_size(request):  # each core holds it, however small the image
            plan = longer_strips(target, facts, smaller_strips(target, facts, plan, split))
        if plan is None:
            slower = "expected to be no faster than the direct form"
            return self.refuses(slower if applies(facts) else "no transform fits")
        return self.choice(plan, plan.cycles / MARGIN if plan.products else plan.cycles)

    def target_of(self, request: Request) -> Target:
        """What a request is planned for."""
        return request.target

    def forbids(self, request: Request, facts: ConvFacts) -> str:
        """Why sums may not be re-associated here, or are not between channel blocks, or from few channels that lie
        plain; empty where they may be."""
        if not request.policy.winograd:
            return "sums keep their order" if request.policy.exact else "switched off"
        return self.lies_plain(request, facts)

    def lies_plain(self, request: Request, facts: ConvFacts) -> str:
        """Why data and results don't lie as the transforms take them; empty where they do."""
        lanes = _lanes(request, facts)
        blocked = all(request.layout(v).block == lanes for v in request.group.outputs)
        if not blocked or request.layout(facts.data).block != (0 if facts.is_plain else lanes):
            return "the data or the result lie in no channel blocks"
        return ""

    def build(self, request: Request, facts: ConvFacts, plan: WinogradPlan) -> Kernel:
        kernel = (build_few_winograd if plan.plain else build_winograd)(request, facts, plan)
        return replace(kernel, inplace=self.overwrites(request, facts, plan))

    def label(self, plan: WinogradPlan) -> str:
        return str(plan)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[WinogradPlan]]:
        if self.forbids(request, facts) or not applies(facts):
            return
        room, lanes = request.limits.room, _lanes(request, facts)
        for plans in sorted_plans(self.target_of(request), facts, may_split(request)):
            yield [p for p in plans if room is None or held_bytes(lanes, facts.channels, p) <= room]

    def overwrites(self, request: Request, facts: ConvFacts, plan: WinogradPlan) -> tuple[Value, ...]:
        """The inputs whose memory the output may take: each element is stored once, after all that its tile reads."""
        return taken_over(request, facts, None)

    def larger(self, request: Request, facts: ConvFacts, plan: WinogradPlan) -> WinogradPlan:
        return best_alike(self.target_of(request), facts, plan)

    def pays(self, request: Request, facts: ConvFacts, plan: WinogradPlan, images: int) -> bool:
        return still_pays(self.target_of(request), facts, plan, pair_share(request, facts), images)

    def form(self, plan: WinogradPlan) -> str:
        return str(plan.transform)

    def expected(self, request: Request, facts: ConvFacts, plan: WinogradPlan, images: int) -> float | None:
        return cycles_at(self.target_of(request), facts, plan, Layer.of_images(facts, images))

    def loads(self, facts: ConvFacts, plan: WinogradPlan) -> float | None:
        return None if plan.plain else plan.groups * plan.planes * plan.transform.reads

    def stored(self, request: Request, facts: ConvFacts, plan: WinogradPlan) -> int:
        return weight_bytes(_lanes(request, facts), facts.channels, plan)

    def held(self, request: Request, facts: ConvFacts, plan: WinogradPlan) -> int:
        return held_bytes(request.layout(request.group.outputs[0]).block, facts.channels, plan)

    def holds(self, request: Request, facts: ConvFacts, plan: WinogradPlan, less: bool) -> list[Held]:
        """What it holds; and if ``less``, with smaller strips and smaller tiles, and at last without any."""
        held = self.held(request, facts, plan)
        found = [Held(None, held * workers_of(request, facts, plan))]
        if not less or not held:
            return found
        last = held
        for held, other in smaller_plans(self.target_of(request), facts, may_split(request)):
            if held <= CLOSE * last:
                last = held
                found.append(Held(held, held * workers_of(request, facts, other), other.cycles / plan.cycles))
        if last:
            found.append(Held(0, 0, direct_cycles(self.target_of(request), facts) / plan.cycles))
        return found

    def cost(self, ask: Costing, plan: WinogradPlan) -> MemberCost:
        """The cost of boxes, of which those are computed by a smaller transform, or by none, that its tiles fit
        better."""
        part, target, lanes = replace(ask.facts, edges=ask.facts.margins()), ask.target, ask.lanes
        asks = not plan.whole and part.data in ask.request.group.inputs
        asks = asks and bool(asks_next(target, part.channels, plan, lanes))
        own = replace(_tiles_cost(ask, part, target, plan), asks=asks)
        size = plan.transform.size if plan.transform.strides == (1, 1) else 0
        every = least_plans(target, part, ask.request.limits.room, may_split(ask.request))
        others = [_tiles_cost(ask, part, target, p) for p in every if F2.size < p.transform.size < size]
        if part.is_plain:  # tiles of 5 x 5 and more
            others.append(direct_cost(ask))
        return replace(own, others=tuple(others))


def _any_size(request: Request) -> bool:
    """True for boxes of images whose size is open."""
    return request.box is not None and request.box.open and is_open(request.group.outputs[0].shape)


def _lanes(request: Request, facts: ConvFacts) -> int:
    return request.target.lanes(facts.output.dtype)


def _tiles_cost(ask: Costing, facts: ConvFacts, target: Target, plan: WinogradPlan) -> MemberCost:
    lanes, batch = ask.lanes, facts.batch
    turns = math.prod(facts.dilation)  # tiles that take turns, which a box has all of
    tiles = batch * plan.tiles[0] * plan.tiles[1]
    transformed = weight_bytes(lanes, facts.channels, plan)
    sizes = scratch_bytes(lanes, facts.channels, plan)
    fill = target.fitted.winograd.fill
    lost = min(1.0, max(0.0, (transformed + sum(sizes)) / target.l2_bytes - fill) / fill)
    cycles = turns * (warm_cycles(target, facts, plan) / tiles * batch + ask.extra * plan.transform.outputs)
    strip = max(1, plan.strip // (batch * turns))
    unit = plan.transform.tile[0] * facts.dilation[0], plan.transform.tile[1] * facts.dilation[1]
    positions = math.prod(facts.out_spatial)
    return MemberCost(unit, cycles, transformed, positions, sizes, strip, lost, phased=True)
