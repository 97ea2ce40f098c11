"""Winograd convolutions whose products run on the matrix unit: against float64, in boxes, equal bits however tasks run;
which plans there are and when they are chosen, and how weights are packed, without the unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, machine, module_of, staged, weight
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation
from halotile.benchmarks.layers import conv as layer
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose as choose
from halotile.schedules.conv.winograd import plan as winograd_plan
from halotile.schedules.conv.winograd.amx_products import pack_parts, terms_of
from halotile.schedules.conv.winograd.transform import F2, F4, F6, S2, S4, Transform, error_bound
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.schedules.instructions.bf16_parts import SIX, THREE, parts_of
from halotile.schedules.tiled import TiledKernel
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax
from winograd_layers import ONES, Pads, conv, convolution, facts_of, plans_of, random

R = relax.op
NEEDS = pytest.mark.skipif(not has_matrix_unit(machine()), reason="NOT RUN: this machine has no matrix unit")

# batch, input channels, output channels, height, width, padding, dilation
SHAPES: dict[str, tuple[int, int, int, int, int, Pads, tuple[int, int]]] = {
    "even": (1, 64, 32, 16, 16, ONES, (1, 1)),
    "prime": (1, 17, 23, 13, 19, ONES, (1, 1)),
    "odd_blocks": (2, 40, 50, 9, 11, ONES, (1, 1)),
    "unpadded": (1, 48, 16, 11, 14, (0, 0, 0, 0), (1, 1)),
    "asymmetric": (1, 33, 37, 9, 10, (2, 0, 1, 3), (1, 1)),
    "one_tile": (1, 100, 64, 6, 6, ONES, (1, 1)),
    "few_channels": (1, 5, 3, 8, 12, ONES, (1, 1)),
    "many_tiles": (1, 16, 80, 37, 41, ONES, (1, 1)),
    "dilated": (1, 33, 20, 19, 23, (2, 3, 2, 3), (2, 3)),
}
STRIDED = ("prime", "odd_blocks", "many_tiles")
BOUND = {2: 5e-5, 4: 2e-5, 6: 4e-5}  # of outputs of about one: three products of parts leave the most

MANY = {
    "F2": (F2, 0),
    "F2-other-plans": (F2, 37),
    "F4": (F4, 1),
    "F4-other-plans": (F4, 50),
    "F6": (F6, 2),
    "S2": (S2, 3),
    "S4": (S4, 4),
}


@pytest.fixture(scope="module", params=MANY.values(), ids=MANY.keys())
def forced(request: pytest.FixtureRequest) -> tuple[Transform, int]:
    return request.param


@pytest.fixture(scope="module")
def suite(forced: tuple[Transform, int]) -> Suite:
    """The shapes that the transform can compute, with a bias, and what follows in many networks."""
    suite, transform = Suite(machine()), forced[0]
    for i, (name, (n, cin, cout, h, w, pads, dilation)) in enumerate(SHAPES.items()):
        if transform.across.stride == 2:
            if name not in STRIDED:
                continue
            h, w = 2 * h, 2 * w
        x, k = random((n, cin, h, w), i), random((cout, cin, 3, 3), 100 + i) / np.float32(3 * np.sqrt(cin))
        y = convolution(x, k, pads, dilation, transform.across.stride)
        b, r = random((1, cout, 1, 1), 200 + i), random(y.shape, 300 + i)

        def body(x: Any, r: Any, k: Any = k, b: Any = b, pads: Any = pads, dilation: Any = dilation) -> Any:
            found = R.nn.conv2d(x, weight(k), strides=transform.across.stride, padding=list(pads), dilation=dilation)
            return R.nn.relu(found + weight(b) + r)

        suite.add(name, [x, r], body, np.maximum(y + b + r, 0).astype(np.float32), 0, BOUND[transform.across.m])
    if transform.across.stride == 1:
        add_depth(suite, BOUND[transform.across.m])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(winograd_algorithm, "choose_plan", plans_of(*forced, parts=True))
        suite.compile()
    return suite


def add_depth(suite: Suite, bound: float) -> None:
    """Three planes of channels that fill no blocks."""
    x, k = random((1, 21, 4, 13, 14), 7), random((24, 21, 3, 3, 3), 8) / np.float32(9 * np.sqrt(7))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0)))
    planes = [sum(convolution(padded[:, :, z + t], k[:, :, t], ONES) for t in range(3)) for z in range(4)]
    y = np.stack(planes, 2).astype(np.float32)
    suite.add("deep", [x], lambda x: R.nn.conv3d(x, weight(k), padding=[1] * 6), y, 0, bound)


@NEEDS
def test_equals_float64(suite: Suite, forced: tuple[Transform, int]) -> None:
    transform = forced[0]
    for name in suite.cases:
        suite.check(name)
        (found,) = [s for s in suite.schedules(name) if "winograd" in s]
        assert "matrix products" in found, found
        assert f"F({transform.across.m}x{transform.across.m}," in found or name in ("dilated", "one_tile"), found


@NEEDS
def test_the_bits_do_not_depend_on_the_tasks(suite: Suite) -> None:
    arrays = [a for case in suite.cases.values() for a in case.arrays]
    assert suite.compiled is not None
    once = suite.compiled.run(arrays, tasks=1)
    for tasks, poison in ((2, 0xFF), (3, 0x7F), (64, 0)):
        for a, b in zip(once, suite.compiled.run(arrays, tasks=tasks, poison=poison)):
            np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


@NEEDS
@pytest.mark.parametrize("t", [F2, F4, F6], ids=["F2", "F4", "F6"])
def test_error_bound(t: Transform, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the stated bound where signs follow the largest rows of BT and G; on random data within 2e-5 (F2) and what
    transforms in float32 keep to (F4, F6) of the largest output."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", plans_of(t, 0, parts=True))
    rng, cases = np.random.default_rng(9), []
    for _ in range(3):
        row, column = rng.integers(0, t.across.extent, 2)
        x = np.outer(sign(t.across.data[row]), sign(t.across.data[column]))
        x = np.pad(x, (0, 14 - t.across.extent), mode="wrap")
        w = np.outer(sign(t.across.weights[row]), sign(t.across.weights[column]))
        flips = rng.choice([-1.0, 1.0], (1, 64, 1, 1)), rng.choice([-1.0, 1.0], (32, 64, 1, 1))
        noise = 1 - 1e-3 * rng.random((1, 64, 14, 14)), 1 - 1e-3 * rng.random((32, 64, 3, 3))
        cases.append(((x * flips[0] * noise[0]).astype(np.float32), (w * flips[1] * noise[1]).astype(np.float32)))
    cases.append((random((1, 64, 14, 14), 5), random((32, 64, 3, 3), 6) / np.float32(24)))
    cases.append((random((1, 64, 14, 14), 7) + 3, random((32, 64, 3, 3), 8) / np.float32(24)))
    arrays = [x for x, _ in cases]
    module = module_of(arrays, lambda *xs: [conv(x, w, (0, 0, 0, 0)) for x, (_, w) in zip(xs, cases)])
    bound = error_bound(t, 64, len(winograd_plan.products_for(t))) * 64
    for i, ((x, w), y) in enumerate(zip(cases, Compiled(staged(module, machine())).run(arrays))):
        exact = convolution(x, w, (0, 0, 0, 0))
        error = np.abs(y - exact).max()
        assert 0 < error <= bound * np.abs(x).max() * np.abs(w).max()
        if i >= 3:
            assert error <= {2: 2e-5, 4: 2e-5, 6: 4e-5}[t.across.m] * np.abs(exact).max()


def sign(row: np.ndarray) -> np.ndarray:
    return np.where(row == 0, 1.0, np.sign(row))


@NEEDS
@pytest.mark.parametrize("t", [F2, F4], ids=["F2", "F4"])
@pytest.mark.parametrize("shape", [(12, None), (24, 40)])
def test_boxes(t: Transform, shape: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of a tile group, whose boxes configure the unit themselves, compute what whole layers do."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", plans_of(t, 5, parts=True))
    g = ModelGraph("residual", ExportForm(opset=17))
    x = activation(g, layer(g, g.input("x", (1, 40, 61, 67)), 40, 3), "relu")
    y = activation(g, layer(g, x, 40, 3), "relu")
    model = g.finish(y=layer(g, g.op("Add", layer(g, y, 40, 3), x), 40, 3))
    data = random((1, 40, 61, 67), 5)
    found = []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(model, Options(machine(), stop_after="plan", threads=1, tile=tile))
        kernels = [p for k in build.kernels for p in (k.parts if isinstance(k, TiledKernel) else [k])]
        assert sum("matrix products" in k.schedule for k in kernels) >= 3, [k.schedule for k in kernels]
        assert any(isinstance(k, TiledKernel) for k in build.kernels) is (tile != "off")
        found.append(Compiled(build).run([data])[0])
    build = run_pipeline(model, Options(machine(), stop_after="plan", threads=1, tile="off", exact=True))
    (wanted,) = Compiled(build).run([data])
    for got in found:
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


# -- without the unit -----------------------------------------------------------------------------


@pytest.mark.parametrize("planes", [1, 3])
@pytest.mark.parametrize("t", [F2, S4], ids=["F2", "S4"])
def test_packed_weights_are_the_transformed_ones(t: Transform, planes: int) -> None:
    outputs, channels = 37, 19
    w = random((outputs, channels, planes, 3, 3), 3)
    packed = pack_parts(w, t, (2, 2), terms_of(channels, planes), 3)
    assert packed.shape == (2, t.matrices, planes, 3, 2, 256)  # of 2 planes blocks, a step takes two
    halves = packed.view(np.uint16).reshape(2, t.matrices, planes, 3, 2, 16, 16, 2)  # pair, column, half
    parts = (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64).sum(3)
    got = parts.transpose(1, 2, 6, 4, 0, 3, 5).reshape(t.matrices, planes * 2, 16, 64)  # [matrix][block][lane][output]
    taps = w.transpose(2, 1, 0, 3, 4).astype(np.float64)  # [plane][channel][output]
    exact = np.einsum("ay,pioyx,bx->abpio", t.across.weights, taps, t.across.weights)
    exact = exact.reshape(t.matrices, planes, channels, outputs)
    blocks = got.reshape(t.matrices, planes, 32, 64)
    np.testing.assert_allclose(blocks[:, :, :channels, :outputs], exact, rtol=2.0**-22, atol=1e-18)
    assert not blocks[:, :, channels:].any() and not blocks[..., outputs:].any()


def server(**other: Any) -> Target:
    return replace(resolve("x86_64-linux-gnu+sapphirerapids"), cores=1, l3_bytes=64 << 20, **other)


def test_parts_follow_the_transform() -> None:
    assert [winograd_plan.products_for(t) for t in (F2, S2, F4, S4, F6)] == [THREE, THREE, SIX, SIX, SIX]


def test_plans_cover_every_tile_and_channel() -> None:
    for facts in (facts_of(64, 64, 56, 56, batch=2), facts_of(40, 16, 9, 33), facts_of(512, 512, 14, 14)):
        for t in (F2, F4, F6):
            for plan in choose._plans(server(), winograd_plan.Layer.of(facts), t, winograd_plan.products_for(t)):
                total = facts.batch * plan.tiles[0] * plan.tiles[1]
                assert plan.rows == 16 and 1 <= plan.vectors <= 4
                assert plan.strip * (plan.strips - 1) < total <= plan.strip * plan.strips
                assert plan.chunks * plan.vectors * 16 >= facts.outputs
                data, _ = winograd_plan.scratch_bytes(16, facts.channels, plan)
                assert data >= t.products * parts_of(plan.products) * facts.channels * plan.strip * 2


@pytest.mark.parametrize("shape", [(128, 128, 28, 28), (256, 256, 14, 14), (128, 128, 128, 128)])
def test_chosen_where_products_dominate(shape: tuple[int, int, int, int]) -> None:
    plan = choose.choose_plan(server(), facts_of(*shape), split=True)
    assert plan is not None and plan.products == THREE and plan.transform is F2


def test_only_where_it_may_be() -> None:
    """Not for other processors, ``exact``, the option, nor weights of half the bytes; and never where nobody asked."""
    x, k = random((1, 128, 28, 28), 1), random((128, 128, 3, 3), 2)
    module = module_of([x], lambda x: conv(x, k))
    plain = choose.choose_plan(server(), facts_of(128, 128, 28, 28))
    assert plan_text(module, server()) and plain is not None and not plain.products
    assert not plan_text(module, server(), exact=True)
    assert not plan_text(module, replace(server(), features=("-amx-bf16",)))
    assert not plan_text(module, replace(resolve("x86-64-v4"), cores=1))


def plan_text(module: Any, target: Target, exact: bool = False) -> bool:
    kernels = staged(module, target, tiled=False, exact=exact).kernels
    return any("matrix products" in k.schedule for k in kernels)
