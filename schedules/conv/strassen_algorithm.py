"""Seven products of halves as a choice, for 1 x 1 convolutions computed whole."""

from __future__ import annotations

from ..words.choice import AlgorithmRefusal, Choice
from ..words.group import Kernel, Request
from .algorithm import ConvAlgorithm, Held
from .amx.choose import float_cycles
from .facts import ConvFacts
from .strassen import build_halves, halves_bytes, halves_share


class StrassenConv(ConvAlgorithm):
    name = "seven products of halves"

    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        if not request.policy.strassen:
            return self.refuses("sums keep their order, or memory goes before speed")
        if request.limits.closing:
            return self.refuses("a model's output follows")
        if facts.taps > 1 or facts.groups > 1 or request.box is not None:
            return self.refuses("it is for 1 x 1 of one group, computed whole")
        share = halves_share(request, facts)
        if share is None:
            return self.refuses("half of the channels fill no whole vectors, or it is expected to be no faster")
        room = request.limits.room
        if room is not None and halves_bytes(request, facts) > room * request.workers:
            return self.refuses("its left operands take more memory than it may hold")
        return self.choice(None, float_cycles(request.target, facts) * share)

    def build(self, request: Request, facts: ConvFacts, plan: None) -> Kernel:
        return build_halves(request, facts)

    def holds(self, request: Request, facts: ConvFacts, plan: None, less: bool) -> list[Held]:
        """The left operands, with a share of the direct form's time; and if ``less``, that form."""
        share = halves_share(request, facts)
        own = Held(None, halves_bytes(request, facts), min(1.0, share or 1.0))
        return [own, *([Held(0)] if less else [])]
