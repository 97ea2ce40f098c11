"""When a Winograd convolution's products ask for what the next strip's transforms read (prefetch.py), and what those
wait where they don't."""

from __future__ import annotations

import math

import numpy as np

from ....targets.target import Target
from ...instructions.prefetch import LINE
from ..box_cost import Numbers
from ..weight_bandwidth import far_from
from .plan import Layer, WinogradPlan, scratch_bytes, weight_bytes

MOST = 2  # rows of a kind that one step asks for: more lines could not come in that time


def asks_next(target: Target, channels: int, plan: WinogradPlan, lanes: int) -> Numbers | bool:
    """True if the products prefetch the next strip where the input comes from memory and is read as it lies: the
    second-level cache has room for it. Of many plans at once, if ``plan`` has arrays (plan_table.py)."""
    if plan.planes > 1 or channels % lanes or plan.plain or target.in_order:
        return False
    strip = plan.element_bytes * plan.strip * channels * plan.transform.products
    weights = weight_bytes(lanes, channels, plan) * plan.chunks_per_group // plan.chunks
    room = weights + sum(scratch_bytes(lanes, channels, plan)) + strip <= target.l2_bytes
    return room & (next_rows(plan) <= MOST)


def next_rows(plan: WinogradPlan) -> Numbers:
    """Rows of tiles of the next strip that one xi of a register tile asks for, in each block of channels."""
    return -(-plan.rows // (plan.chunks_per_group * plan.transform.across.extent))


def waited(target: Target, layer: Layer, plans: WinogradPlan) -> Numbers:
    """Cycles of a core that each of many plans waits for data from memory that it does not ask for; none where no plan
    could ask, or data is near."""
    area = math.prod(n * s for n, s in zip(layer.out_spatial, layer.strides))
    size = layer.batch * layer.channels * area * plans.element_bytes
    if layer.whole is not None or plans.products or size <= far_from(target, target.cores):
        return 0.0
    asks = np.asarray(asks_next(target, layer.channels, plans, target.lanes(layer.dtype)))
    lines = size / (LINE * target.cores)
    return np.where(asks, 0.0, target.fitted.winograd.unasked * lines) if asks.any() else 0.0
