"""Of plans that take about as many cycles, one whose products ask for the next strip is taken where data is far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from halotile.schedules.conv.weight_bandwidth import far_from
from halotile.schedules.conv.winograd import choose
from halotile.schedules.conv.winograd.hints import asks_next, waited
from halotile.schedules.conv.winograd.plan import Layer
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from winograd_layers import facts_of


def zen5(unasked: float) -> Target:
    target = resolve("x86_64-linux-gnu+znver5")
    target = replace(target, cores=2, l3_bytes=32 << 20)
    return replace(target, fitted=target.fitted.with_values({("winograd", "unasked"): unasked}))


@pytest.mark.parametrize("height,width", [(48, 2000), (96, 1999), (240, 2000)])
def test_plans_alike_ask_for_the_next_strip_of_far_data(height: int, width: int) -> None:
    facts, asking = facts_of(64, 32, height, width), []
    for unasked in (1e-6, 2.0):
        target = zen5(unasked)
        plan = choose.choose_plan(target, facts)
        assert plan is not None
        asking.append(bool(asks_next(target, 64, plan, 16)))
    assert asking[1]
    if (height, width) == (48, 2000):
        assert not asking[0]  # or the constant decides nothing


@pytest.mark.parametrize("channels,outputs", [(64, 32), (64, 64), (48, 40), (40, 64), (256, 256)])
def test_of_many_plans_at_once_as_of_each(channels: int, outputs: int) -> None:
    target, facts = zen5(2.0), facts_of(channels, outputs, 48, 2000)
    layer = Layer.of(facts)
    size = 48 * 2000 * channels * 4
    assert size > far_from(target, 2)
    for transform in choose.all_transforms(layer):
        table = choose._table(target, layer, transform)
        asks = np.broadcast_to(asks_next(target, channels, table.plans, 16), len(table))
        each = [bool(asks_next(target, channels, table.plan(i), 16)) for i in range(len(table))]
        assert asks.tolist() == each
        waits = np.broadcast_to(waited(target, layer, table.plans), len(table))
        wanted = 2.0 * size / 64 / 2 if any(each) else 0.0
        assert waits.tolist() == [0.0 if own else wanted for own in each]


def test_near_data_has_nothing_to_wait_for() -> None:
    target, layer = zen5(2.0), Layer.of(facts_of(64, 32, 56, 56))
    for transform in choose.all_transforms(layer):
        assert not np.any(waited(target, layer, choose._table(target, layer, transform).plans))
