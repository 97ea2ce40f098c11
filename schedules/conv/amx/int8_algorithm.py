"""Convolution of bytes on a matrix unit as a choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...words.choice import AlgorithmRefusal, Choice
from ...words.group import Kernel, Request
from ..algorithm import ConvAlgorithm, Held
from ..box_cost import Costing, MemberCost
from ..facts import ConvFacts
from .int8_choose import BytesPlan, bytes_plan, held_bytes, vector_cycles, workers_of
from .int8_kernel import build_matrix_bytes


class AmxBytesConv(ConvAlgorithm):
    name = "bytes on the matrix unit"

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        plan = bytes_plan(request, facts)
        if plan is None:
            return self.refuses("not applicable, or expected to be no faster than vectors")
        return self.choice(plan, plan.cycles)

    def build(self, request: Request, facts: ConvFacts, plan: BytesPlan) -> Kernel:
        return build_matrix_bytes(request, facts, plan)

    def label(self, plan: BytesPlan) -> str:
        return str(plan)

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[BytesPlan]]:
        plan = bytes_plan(request, facts)
        return () if plan is None else ([plan],)

    def holds(self, request: Request, facts: ConvFacts, plan: BytesPlan, less: bool) -> list[Held]:
        """A strip's copies; and if ``less``, none with vectors."""
        held = held_bytes(plan) * workers_of(facts, plan, request.workers)
        share = vector_cycles(request.target, facts, request.workers) / plan.cycles
        return [Held(None, held), *([Held(0, 0, share)] if less else [])]

    def cost(self, ask: Costing, plan: BytesPlan) -> MemberCost:
        """The cost of the whole layer, spread over its positions: no box is computed so."""
        cycles = plan.cycles * ask.request.workers / ask.positions + ask.extra
        return MemberCost((1, 1), cycles, ask.facts.weight.bytes, ask.positions)
