"""Winograd's algorithm for bytes as a choice: where no instruction sums products of bytes, but of pairs of int16."""

from __future__ import annotations

from dataclasses import replace

from ....targets.target import Target
from ...words.group import Kernel, Request
from ..facts import ConvFacts
from .algorithm import Winograd
from .pair_kernel import build_pairs
from .plan import WinogradPlan


class PairWinograd(Winograd):
    name = "winograd of bytes"

    def target_of(self, request: Request) -> Target:
        """With as many cores as share the work: weights that arrive for one of them are no fewer."""
        return replace(request.target, cores=request.workers)

    def build(self, request: Request, facts: ConvFacts, plan: WinogradPlan) -> Kernel:
        return replace(build_pairs(request, facts, plan), inplace=self.overwrites(request, facts, plan))

    def loads(self, facts: ConvFacts, plan: WinogradPlan) -> None:
        """Boxes too small for a tile are the direct form's, which reads words of the data from memory."""

    def forbids(self, request: Request, facts: ConvFacts) -> str:
        """Sums of whole numbers are the same in any order."""
        if not (request.policy.winograd or request.policy.exact):
            return "switched off"
        return self.lies_plain(request, facts)
