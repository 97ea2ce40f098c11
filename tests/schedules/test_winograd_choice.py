"""When Winograd's algorithm is chosen and by what plan, and which weights its products ask for next."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from compiled import module_of, native, staged
from halotile.compiler import pipeline, rewrites
from halotile.compiler.state import Build, Options
from halotile.schedules import operators  # noqa: F401  (defines them)
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd import weights as winograd_weights
from halotile.schedules.conv.winograd.cost import plan_cycles, reached_share
from halotile.schedules.conv.winograd.transform import F2, F4, F6
from winograd_layers import conv, facts_of, random, server


@pytest.mark.parametrize("shape", [(64, 64, 56, 56), (128, 128, 28, 28), (256, 256, 56, 56)])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_chosen_where_products_dominate(shape: tuple[int, int, int, int], cores: int) -> None:
    plan = choose.choose_plan(server(cores=cores), facts_of(*shape))
    assert plan is not None and plan.transform is F4
    assert plan.tasks >= cores


@pytest.mark.parametrize("ports", [1, 2])
def test_large_images_take_larger_tiles(ports: int) -> None:
    """Where 6 nearly divides the image, and the transformed weights stay near: 67 MB do not."""
    target = server(fma_ports=ports)
    for shape in ((64, 64, 360, 640), (32, 48, 511, 512), (64, 64, 112, 112)):
        plan = choose.choose_plan(target, facts_of(*shape))
        assert plan is not None and plan.transform is F6
    plan = choose.choose_plan(target, facts_of(512, 512, 360, 360))
    assert plan is not None and plan.transform is F4


def test_of_plans_that_take_as_long_the_one_with_the_least_scratch_is_first() -> None:
    """In one register tile: strips of a stripe of 12 x 322, of which 12 tiles and 36 are expected to be the same."""
    target, facts, ties = server(cores=1), facts_of(64, 64, 12, 322), 0
    for plans in choose.sorted_plans(target, facts):
        least = min(plans, key=lambda p: p.cycles)
        assert (plans[0].rows, plans[0].vectors) == (least.rows, least.vectors)
        assert plans[0].cycles <= choose.TIE * least.cycles and plans[0].strip <= least.strip
        ties += plans[0].strip < least.strip
    assert ties


@pytest.mark.parametrize("shape", [(32, 12, 112, 224), (16, 24, 56, 112)])
def test_images_of_any_size_hold_the_least_of_plans_that_hardly_differ(shape: tuple[int, int, int, int]) -> None:
    target, facts = server(cores=1), facts_of(*shape)
    best = choose.choose_plan(target, facts)
    assert best is not None
    own = choose.smaller_strips(target, facts, best)
    assert own.transform is best.transform and own.cycles <= choose.HARDLY * best.cycles
    held, most = (winograd_plan.held_bytes(target.lanes(), shape[0], p) for p in (own, best))
    assert held < most


def test_a_plan_pays_from_some_size_on() -> None:
    """Few tiles of 6 x 6 are no faster than register tiles, whatever is faster at the size it was chosen for."""
    target, facts = server(cores=1), facts_of(16, 24, 56, 112)
    plan = choose.choose_plan(target, facts)
    assert plan is not None and plan.transform is F6
    pays = [choose.still_pays(target, facts.cut(n, n), plan) for n in range(1, 57)]
    assert not any(pays[:11]) and all(pays[23:])
    assert choose.still_pays(target, facts, plan)


@pytest.mark.parametrize(("taps", "channels", "size"), [(5, 256, 28), (7, 128, 50), (5, 512, 14)])
def test_far_weights_leave_large_kernels_theirs(taps: int, channels: int, size: int) -> None:
    """Weights of 17 MB and more are read beside the products: nothing but such tiles saves as much. They count for
    what they take then, a third more than expected."""
    target, facts = server(), facts_of(channels, channels, size, size, kernel=(taps, taps))
    plan = choose.choose_plan(target, facts)
    assert plan is not None and plan.transform.is_large
    near = choose.choose_plan(replace(target, l2_bytes=1 << 30), facts)
    assert near is not None and near.cycles < target.fitted.winograd.far * 1.05 * plan.cycles


def test_weights_from_memory_count_for_more() -> None:
    """At 7 x 7, 21 MB for F(4x4) take longer to arrive than F(2x2) takes to multiply by 9 MB, unless they stay."""
    facts = facts_of(384, 384, 7, 7)
    target = server(fma_ports=1)
    far, near = (choose.choose_plan(replace(target, l3_bytes=m << 20), facts) for m in (32, 512))
    assert far is not None and far.transform is F2
    assert near is not None and near.transform is F4


@pytest.mark.parametrize("row_tiles", [1, 2, 4])
def test_tiles_that_share_weights_ask_for_the_next_ones(row_tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint for each vector of a step; where register tiles share a matrix, each asks for its part of the next."""
    found = [
        p
        for p in choose._plans(server(), winograd_plan.Layer.of(facts_of(64, 64, 16, 16)), F4)
        if (p.row_tiles, p.vectors) == (row_tiles, 4)
    ]
    monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda target, facts, **_: replace(found[0], cycles=0.0))
    x, k = random((1, 64, 16, 16), 1), random((64, 64, 3, 3), 2)
    kernels = staged(module_of([x], lambda x: conv(x, k)), server(), tiled=False).kernels
    text = next(str(kernel.function) for kernel in kernels if "winograd" in kernel.schedule)
    assert text.count("T.prefetch") == 4 // row_tiles + 1  # and for the next block of data
    assert text.count(", 0, 3, 1)") == text.count("T.prefetch")  # all of them into the first level


@pytest.mark.parametrize("vectors,row_tiles", [(2, 2), (4, 2), (2, 4), (3, 2), (2, 3)])
def test_the_next_weights_are_asked_for_at_an_even_rate(
    vectors: int, row_tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines of the next matrix, in order; a place is a step away from the one before, which needs no division."""
    channels, planes, lanes, asked = 5, 2, 16, []
    monkeypatch.setattr(
        winograd_weights, "prefetch", lambda k, w, at, count, *_, **__: asked.append((int(at), count))
    )
    conv = SimpleNamespace(
        k=None,
        lanes=lanes,
        facts=SimpleNamespace(channels=channels),
        bind=lambda v, _: v,
        request=SimpleNamespace(target=server()),
    )
    plan = SimpleNamespace(vectors=vectors, row_tiles=row_tiles, planes=planes, element_bytes=4)
    weights = winograd_weights.Weights(conv, plan)  # type: ignore
    depth, size = channels * planes, channels * planes * vectors
    for panel in range(row_tiles):
        ask = weights.hints(panel, 3)  # type: ignore
        for channel in range(depth):
            ask(None, channel)
    lines = [at // lanes + i for at, count in asked for i in range(count)]
    assert set(range(4 * size, 5 * size)) <= set(lines) and max(lines) <= 5 * size
    places, steps = [at - 4 * size * lanes for at, _ in asked], row_tiles * depth
    assert all(-1 < at - step * size * lanes / steps < lanes for step, at in enumerate(places))
    each = {b - a for step, (a, b) in enumerate(zip(places, places[1:]), 1) if step % depth}
    assert each == {-(-vectors * lanes // row_tiles)}


@pytest.mark.parametrize(
    "facts",
    [
        facts_of(3, 64, 224, 224),
        facts_of(64, 1, 56, 56),
        facts_of(64, 64, 56, 56, strides=(4, 2)),
        facts_of(64, 64, 56, 56, dilation=(2, 2), strides=(2, 2)),
        facts_of(64, 64, 56, 56, dilation=(29, 1)),
        facts_of(64, 64, 56, 56, groups=4),
        facts_of(64, 64, 56, 56, kernel=(5, 5), strides=(2, 2)),
        facts_of(64, 64, 56, 1),
        facts_of(2048, 2048, 4, 4),
    ],
    ids=[
        "first-layer",
        "one-output",
        "stride",
        "dilation-and-stride",
        "dilation-beyond-the-outputs",
        "groups",
        "5x5-stride",
        "one-column",
        "weights-dominate",
    ],
)
def test_not_chosen(facts: ConvFacts) -> None:
    assert choose.choose_plan(server(), facts) is None


@pytest.mark.parametrize(
    "cin,cout,h,w", [(64, 64, 56, 56), (256, 256, 14, 14), (16, 40, 9, 33), (512, 512, 28, 28)]
)
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_plans_cover_every_tile_and_channel(cin: int, cout: int, h: int, w: int, bits: int) -> None:
    target = replace(native(), vector_bits=bits, vector_registers=32 if bits != 256 else 16)
    for transform in (F2, F4, F6):
        for plan in choose._plans(target, winograd_plan.Layer.of(facts_of(cin, cout, h, w, batch=2)), transform):
            total = 2 * plan.tiles[0] * plan.tiles[1]
            assert plan.strip * (plan.strips - 1) < total <= plan.strip * plan.strips
            assert (
                plan.chunks_per_group * (plan.groups - 1) < plan.chunks <= plan.chunks_per_group * plan.groups
            )
            assert plan.chunks * plan.vectors * target.lanes() >= cout
            assert plan.rows * plan.vectors + plan.vectors + 1 <= target.vector_registers


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("matrix", [False, True])
def test_plans_cost_together_what_each_costs_alone(dtype: str, matrix: bool) -> None:
    """To the bit, by which ties between plans are decided."""
    layer = winograd_plan.Layer.of(facts_of(61, 97, 29, 53))._replace(half=dtype == "float16")
    target, seen = server(), 0
    for transform in winograd_plan.all_transforms(layer):
        products = winograd_plan.products_for(transform) if matrix else ()
        reached = 1.0 if products else reached_share(target, layer, transform)
        for plan in choose._plans(target, layer, transform, products):
            assert plan.cycles == plan_cycles(target, layer.channels, plan) / reached
            assert type(plan.cycles) is float and type(plan.rows) is int
            seen += 1
    assert seen > 100


def schedules(exact: bool, winograd: bool) -> list[str]:
    x, k = random((1, 32, 28, 28), 1), random((32, 32, 3, 3), 2)
    build = Build(None, Options(server(), exact=exact, winograd=winograd))
    build.module = module_of([x], lambda x: conv(x, k))
    stages = (rewrites.reassociate, rewrites.merge, pipeline.fuse, pipeline.layout, pipeline.tile, pipeline.schedule)
    for stage in stages:
        stage(build)
    return [kernel.schedule for kernel in build.kernels]


def test_off_when_exact_or_switched_off() -> None:
    assert any("winograd F(4x4,3x3)" in s for s in schedules(False, True))
    assert not any("winograd" in s for s in schedules(True, True))
    assert not any("winograd" in s for s in schedules(False, False))
