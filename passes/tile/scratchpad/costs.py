"""What the stripes of a plan take on a machine, from its facts: the input of the timeline."""

from __future__ import annotations

from ....schedules.words.group import Value, dtype_bytes
from ....schedules.words.stripe_plan import Part, Stripe, StripePlan
from ....schedules.words.tile_plan import Compute
from ....targets.target import Target
from ..plan.work import work_per_element
from .timeline import StripeCosts, Timeline, predict

EFFICIENCY = 0.5  # of the peak that members' kernels reach, on boxes of a few rows


def predicted(plan: StripePlan, target: Target) -> Timeline:
    """The timeline of all stripes of ``plan``."""
    return predict([stripe_costs(plan, stripe, target) for stripe in plan.stripes])


def stripe_costs(plan: StripePlan, stripe: Stripe, target: Target) -> StripeCosts:
    """Predicted seconds of one stripe: bytes over the transfers' bandwidth, multiply-adds over the processor's peak."""
    each = [work_per_element(group) for group in plan.members]
    work = 0.0
    for step in stripe.steps:
        if isinstance(step, Compute):
            work += each[step.member] * (step.rows[1] - step.rows[0]) * (step.columns[1] - step.columns[0])
    peak = target.fma_ports * target.lanes() * target.hertz
    return StripeCosts(
        sum(_bytes(p) for p in stripe.loads) / target.bandwidth,
        work / (peak * EFFICIENCY),
        sum(_bytes(p) for p in stripe.stores) / target.bandwidth,
        issue_load=target.transfer_seconds * len(stripe.loads),
        issue_store=target.transfer_seconds * len(stripe.stores),
    )


def _bytes(part: Part) -> float:
    rows, columns = (hi - lo for lo, hi in (part.rows, part.columns))
    value: Value = part.value
    return float(value.shape[0] * value.shape[1] * rows * columns * dtype_bytes(value.dtype))
