"""What the memory of a machine is like decides how deep tile groups are."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from compiled import native
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.search.bandwidth import Rates
from halotile.passes.tile.search.member_cost import member_cost
from halotile.schedules.words.group import Box, Request
from halotile.schedules.words.tile_plan import Compute
from halotile.targets.target import Target

WIDE = replace(native(), vector_bits=512, vector_registers=32)
DESKTOP = replace(WIDE, fma_ports=1, l2_bytes=1 << 20, l3_bytes=32 << 20, far_bytes=12)
SERVER = replace(WIDE, fma_ports=2, l2_bytes=2 << 20, l3_bytes=300 << 20, far_bytes=10)


def test_rates_follow_from_the_target() -> None:
    desktop, server = Rates.of(DESKTOP, 1), Rates.of(SERVER, 1)
    assert (desktop.far, desktop.ahead, desktop.memory) == (16.0, 12.0, 4.0)
    assert desktop.hides and desktop.kept == 8 << 20
    assert server.far == pytest.approx(40 / 3) and server.ahead == 10.0 and server.memory == 8.0
    assert not server.hides and server.kept == 204 << 20
    assert server.at(118e6) == server.far and desktop.at(118e6) == desktop.memory


@pytest.mark.parametrize(("target", "least", "most"), [(DESKTOP, 5, 32), (SERVER, 0, 2)])
def test_deep_groups_of_edsr_are_for_a_small_last_level(target: Target, least: int, most: int) -> None:
    """Its values are 59 MB each: through memory on the one, while the other's last level holds them, and layers that
    write to rings that left the second level in the meantime are slower than whole ones (0.91)."""
    build = run_pipeline(MODELS["edsr"].model(), Options(target=target, threads=1, stop_after="tile"))
    deepest = max((len(p.members) for p in build.tiled.values()), default=0)
    assert least <= deepest <= most


@pytest.mark.parametrize("threads", [1, 2])
def test_what_promises_next_to_nothing_is_not_tiled(threads: int) -> None:
    """EDSR's last two layers promised 5% of 2% of its time, which no measurement finds."""
    build = run_pipeline(MODELS["edsr"].model(), Options(target=SERVER, threads=threads, stop_after="tile"))
    details = build.details["tile"]
    assert not build.tiled
    assert details["chosen"] == details["untiled"]


def test_boxes_are_of_whole_tiles_of_the_transform_that_computes_them() -> None:
    """ESPCN's 3 x 3 layers are computed by tiles of 6 x 6 outputs, at a third of the size of the last: stripes of 24
    rows there are 8 here, a tile and a third (1.03 times as fast as whole layers were, when they did not yet ask memory
    for their data beside the products), those of 36 two tiles (1.13)."""
    options = Options(target=SERVER, threads=1, stop_after="tile", memory_budget=48 << 20)
    build = run_pipeline(MODELS["espcn"].model(), options)
    (plan,) = build.tiled.values()
    transformed = [i for i, g in enumerate(plan.members[:-1]) if g.anchor is not None]
    assert len(transformed) == 4
    rows = {
        step.rows[1] - step.rows[0]
        for step in (s for stripe in plan.tasks[0].stripes[4:20] for s in stripe)
        if isinstance(step, Compute) and step.member in transformed
    }
    assert all(count % 6 == 0 for count in rows)


def test_a_small_box_is_computed_by_smaller_tiles_and_priced_so() -> None:
    build = run_pipeline(MODELS["espcn"].model(), Options(target=SERVER, threads=1, stop_after="layout"))
    group = next(
        g
        for g in build.groups
        if g.anchor is not None
        and g.outputs[0].shape[1:] == (64, 720, 1280)
        and g.anchor.operands[1].shape[2:] == (3, 3)
    )
    alone = replace(SERVER, cores=1)
    cost = member_cost(Request(group, build.layouts, alone, box=Box(720, 1280)))
    assert cost.unit == (6, 6) and [way.unit for way in cost.others] == [(4, 4)]
    assert cost.way(12, 320) == 0 and cost.way(8, 320) == 1  # its own, the first of the others
    assert cost.box(8, 320) < cost.cycles * cost.units(8, 320)
    assert cost.read(8, 320) < cost.read(12, 320)  # 36 matrices instead of 64


def test_a_large_third_level_keeps_rings_up_to_a_size() -> None:
    """Smaller ones are known by what others leave of them."""
    assert Rates.of(SERVER, 1).stays == SERVER.fitted.memory.stay < Rates.of(SERVER, 1).kept
    assert Rates.of(DESKTOP, 1).stays == math.inf


@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_a_pixel_shuffle_are_of_whole_periods(threads: int) -> None:
    """ESPCN's, by three: blocks of 1280 of 3840 columns began anywhere, and were divided and gathered."""
    model, budget = MODELS["espcn"].model(), 47_000_000
    build = run_pipeline(model, Options(target=SERVER, threads=threads, stop_after="plan", memory_budget=budget))
    (plan,) = build.tiled.values()
    last = len(plan.members) - 1
    steps = [s for task in plan.tasks for stripe in task.stripes for s in stripe if isinstance(s, Compute)]
    columns = [s.columns for s in steps if s.member == last]
    assert columns and all(begin % 3 == 0 and (end % 3 == 0 or end == 3840) for begin, end in columns)
    assert "reads repeat after 3 rows and 3 columns" in [n for k in build.kernels for n in k.notes]
