"""Phases of a transposed convolution (:mod:`..transposed`) by Winograd's algorithm: each is a convolution of stride 1
and few taps, four of 2 x 2 for a kernel of 4 x 4 and stride 2. They run one after the other, in scratch that they
share.

Only whole layers: boxes of tile groups are computed by direct phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...words.group import Request
from ..algorithm import plain_bytes
from ..facts import ConvFacts
from .choose import choose_plan
from .cost import direct_cycles
from .kernel import workers_of
from .plan import STACK_BYTES, WinogradPlan, scratch_bytes, weight_bytes


@dataclass(frozen=True)
class PhasePlans:
    """A plan for each phase that has one, what their scratch takes on all cores, and the share of the direct phases'
    time that all are estimated to take."""

    plans: tuple[WinogradPlan | None, ...]
    elements: tuple[int, int]
    bytes: int
    share: float


def plan_phases(request: Request, phases: Sequence[ConvFacts]) -> PhasePlans | None:
    """None where no phase is faster so, where sums must keep their order, and in boxes."""
    lanes = request.target.lanes(phases[0].output.dtype)
    blocked = all(request.layout(v).block == lanes for v in (phases[0].data, *request.group.outputs))
    allowed = request.policy.winograd and request.box is None
    if not blocked or not allowed or phases[0].is_plain or phases[0].output.dtype != "float32":
        return None
    room = request.limits.room
    plans = tuple(_small(request, facts, choose_plan(request.target, facts, room)) for facts in phases)
    held, total = [0, 0], 0.0
    for facts, plan in zip(phases, plans):
        direct = direct_cycles(request.target, facts)
        total += direct
        if plan is None:
            continue
        workers = workers_of(request, facts, plan)
        for i, size in enumerate(scratch_bytes(lanes, facts.channels, plan)):
            if size > STACK_BYTES:
                held[i] = max(held[i], -(-size // 64) * 64 * workers)
    if not any(plans):
        return None
    taken = sum(p.cycles if p else direct_cycles(request.target, f) for f, p in zip(phases, plans))
    return PhasePlans(plans, (held[0] // 4, held[1] // 4), sum(held), taken / total)


def _small(request: Request, facts: ConvFacts, plan: WinogradPlan | None) -> WinogradPlan | None:
    """``plan``, unless few bytes of weights are wanted and it stores more than the phase's own."""
    if plan is None or not request.policy.small_weights:
        return plan
    fits = weight_bytes(request.target.lanes(), facts.channels, plan) <= plain_bytes(request, facts)
    return plan if fits else None
