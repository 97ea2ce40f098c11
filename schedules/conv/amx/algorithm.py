"""Convolution of float32 in parts on a matrix unit as a choice: strips of channel blocks, or pixels of few channels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...instructions.amx import COLUMNS, DEPTH, PAIRS, ROWS, may_split
from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Request, Value
from ..algorithm import ConvAlgorithm, Held
from ..box_cost import BoxPlaces, Costing, MemberCost
from ..facts import ConvFacts
from ..residual_in_place import taken_over
from ..strassen import halves_share
from .choose import (
    MARGIN,
    MatrixPlan,
    few_plan,
    float_cycles,
    held_bytes,
    matrix_plan,
    register_cycles,
    smaller_plans,
    split_cycles,
    times_split,
    workers_of,
)
from .few_channels import build_pixels
from .kernel import build_matrix


class _OnUnit(ConvAlgorithm):
    kind = ""  # what it takes, said where there is no plan

    @abstractmethod
    def plan(self, request: Request, facts: ConvFacts) -> MatrixPlan | None:
        """The plan with the fewest cycles; None where the algorithm does not apply, or nothing fits."""

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        """Compared as cycles of a core beside others of the target's cores; the plan has to win by MARGIN."""
        if not may_split(request):
            return self.refuses("the target has no such unit, or float32 must not be split into parts for it")
        plan = self.plan(request, facts)
        if plan is None:
            return self.refuses(self.kind)
        cycles = plan.cycles * request.workers / request.target.cores / MARGIN
        if cycles >= float_cycles(request.target, facts) * (halves_share(request, facts) or 1.0):
            return self.refuses("expected to be no faster than multiply-adds of vectors")
        return self.choice(plan, cycles)

    def label(self, plan: MatrixPlan) -> str:
        return str(plan)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[MatrixPlan]]:
        plan = self.plan(request, facts) if may_split(request) else None
        return () if plan is None else ([plan],)

    def overwrites(self, request: Request, facts: ConvFacts, plan: MatrixPlan) -> tuple[Value, ...]:
        return taken_over(request, facts, None)

    def held(self, request: Request, facts: ConvFacts, plan: MatrixPlan) -> int:
        return held_bytes(facts.channels, plan)

    def holds(self, request: Request, facts: ConvFacts, plan: MatrixPlan, less: bool) -> list[Held]:
        """What it holds with the strips it likes; and if ``less``, with smaller and smaller ones, and without."""
        found = [Held(None, self._all(request, facts, plan))]
        if not less:
            return found
        own = held_bytes(facts.channels, plan)
        for smaller in smaller_plans(request.target, facts, request.workers, own, plan.products):
            room = held_bytes(facts.channels, smaller)
            found.append(Held(room, self._all(request, facts, smaller), smaller.cycles / plan.cycles))
        share = float_cycles(request.target, facts) * request.target.cores / request.workers / plan.cycles
        return [*found, Held(0, 0, share)]

    def _all(self, request: Request, facts: ConvFacts, plan: MatrixPlan) -> int:
        return held_bytes(facts.channels, plan) * workers_of(facts, plan, request.workers)

    def cost(self, ask: Costing, plan: MatrixPlan) -> MemberCost:
        facts, target, strip = ask.facts, ask.target, plan.strip
        beyond = max(t.row for t in strip.taps), max(t.column for t in strip.taps)
        split = split_cycles(target, plan.products) * -(-facts.channels // COLUMNS) * len(strip.phases)
        place_bytes = 4 * len(strip.phases) * -(-facts.channels // DEPTH) * plan.parts * PAIRS
        register = facts.batch * register_cycles(target, facts, plan.products) + ask.extra * ROWS
        places = BoxPlaces(beyond, register, facts.batch * split, place_bytes, ask.request.limits.room)
        cycles = float(places.box(*facts.out_spatial)) / ask.positions
        held, size = (held_bytes(facts.channels, plan),), strip.rows * strip.columns
        return MemberCost((1, 1), cycles, facts.weight.bytes, ask.positions, held, strip=size, places=places)


class AmxStrips(_OnUnit):
    name = "matrix unit"
    kind = "it takes one group of 16 channels or more in blocks, not of whole numbers, and memory for a strip"

    def plan(self, request: Request, facts: ConvFacts) -> MatrixPlan | None:
        return matrix_plan(request, facts)

    def loads(self, facts: ConvFacts, plan: MatrixPlan) -> float:
        return times_split(facts, plan)

    def build(self, request: Request, facts: ConvFacts, plan: MatrixPlan) -> Kernel:
        return replace(build_matrix(request, facts, plan), inplace=self.overwrites(request, facts, plan))


class AmxPixels(_OnUnit):
    name = "pixels on the matrix unit"
    kind = "it takes up to 8 channels that lie plain, a layer computed whole, and memory for a strip"

    def plan(self, request: Request, facts: ConvFacts) -> MatrixPlan | None:
        return few_plan(request, facts)

    def build(self, request: Request, facts: ConvFacts, plan: MatrixPlan) -> Kernel:
        return replace(build_pixels(request, facts, plan), inplace=self.overwrites(request, facts, plan))

    def cost(self, ask: Costing, plan: MatrixPlan) -> MemberCost:
        """The cost of the whole layer, spread over its positions: no box is computed so."""
        cycles = plan.cycles * ask.request.workers / ask.positions + ask.extra
        return MemberCost((1, 1), cycles, ask.facts.weight.bytes, ask.positions)
