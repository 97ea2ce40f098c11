"""Winograd convolutions: transforms, results and error bound, equal bits however tasks run, and when it is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, native, staged, weight
from halotile.benchmarks.graph import Form, Graph
from halotile.benchmarks.layers import activation
from halotile.benchmarks.layers import conv as conv_layer
from halotile.compiler import pipeline
from halotile.compiler.pipeline import Build, Options, run_pipeline
from halotile.schedules import operators  # noqa: F401  (defines them)
from halotile.schedules.conv import build as conv_build
from halotile.schedules.conv import winograd_choose as choose
from halotile.schedules.conv import winograd_weights
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd import STACK_BYTES
from halotile.schedules.conv.winograd_math import F2, F4, F6, S2, S4, Transform, error_bound
from halotile.schedules.conv.winograd_weights import pack_taps, pack_weights
from halotile.schedules.group import Packed, Scratch, Value
from halotile.targets.target import Target
from tvm import relax

R = relax.op
Pads = tuple[int, int, int, int]  # top, left, bottom, right

# batch, input channels, output channels, height, width, padding: primes, tails of vectors, extents near the tile's
SHAPES: dict[str, tuple[int, int, int, int, int, Pads]] = {
    "even": (1, 32, 32, 16, 16, (1, 1, 1, 1)),
    "prime": (1, 17, 23, 13, 19, (1, 1, 1, 1)),
    "unpadded": (1, 48, 16, 11, 14, (0, 0, 0, 0)),
    "asymmetric": (1, 20, 37, 9, 10, (2, 0, 1, 3)),
    "one_sided": (1, 16, 16, 10, 10, (0, 2, 2, 0)),
    "batch": (2, 33, 50, 7, 9, (1, 1, 1, 1)),
    "batch_of_tiles": (3, 16, 48, 4, 4, (1, 1, 1, 1)),
    "one_tile": (1, 100, 64, 4, 4, (1, 1, 1, 1)),
    "long": (1, 16, 16, 5, 83, (1, 1, 1, 1)),
    "deep": (1, 100, 96, 6, 7, (1, 1, 1, 1)),
    "few_channels": (1, 5, 3, 8, 12, (1, 1, 1, 1)),
    "five_blocks": (1, 16, 80, 12, 12, (1, 1, 1, 1)),
}


def convolution(x: np.ndarray, w: np.ndarray, pads: Pads) -> np.ndarray:
    """The exact result, in float64."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("nihwyx,oiyx->nohw", windows, w.astype(np.float64), optimize=True)


def conv(x: Any, w: np.ndarray, pads: Pads = (1, 1, 1, 1)) -> Any:
    return R.nn.conv2d(x, weight(w), padding=list(pads))


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def plans_of(transform: Transform, pick: int, made: bool = False) -> Callable[..., Any]:
    """A choice that always takes ``transform``, with strips, groups and register tiles that differ by shape.
    ``made``: weights are transformed by the kernel, for one or two vectors of channels at a time."""

    def choice(target: Any, facts: ConvFacts) -> Any:
        plans = [p for p in choose._plans(target, facts, transform) if p.strip > 1 or p.strips == 1]
        plan = plans[(7 * facts.channels + 5 * facts.outputs + pick) % len(plans)]
        return replace(plan, made=target.lanes() * (1 + facts.outputs % 2) if made else 0)

    return choice


MANY = {
    "F4": (F4, 0, False),
    "F4-other-plans": (F4, 11, False),
    "F2": (F2, 3, False),
    "F6": (F6, 1, False),
    "F6-other-plans": (F6, 6, False),
    "F4-made": (F4, 5, True),
    "F2-made": (F2, 7, True),
    "F6-made": (F6, 4, True),
}
UNSTRIDED = pytest.mark.parametrize("t", [F2, F4, F6], ids=["F2", "F4", "F6"])


@pytest.fixture(scope="module", params=MANY.values(), ids=MANY.keys())
def forced(request) -> tuple[Transform, int, bool]:
    return request.param


@pytest.fixture(scope="module")
def suite(forced: tuple[Transform, int, bool]) -> Suite:
    """Every shape, alone and with epilogues, compiled by one transform and compared with float64; extents of less than
    a tile of it are one."""
    suite = Suite()
    for i, (name, (n, cin, cout, h, w, pads)) in enumerate(SHAPES.items()):
        h, w = max(h, forced[0].m), max(w, forced[0].m)
        x, k = random((n, cin, h, w), i), random((cout, cin, 3, 3), 100 + i) / np.float32(3 * np.sqrt(cin))
        y = convolution(x, k, pads)
        suite.add(name, [x], lambda x, k=k, pads=pads: conv(x, k, pads), y.astype(np.float32), 0, 1e-4)
    add_epilogues(suite)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conv_build, "choose_plan", plans_of(*forced))
        suite.compile()
    return suite


def add_epilogues(suite: Suite) -> None:
    x, k = random((1, 24, 10, 13), 50), random((40, 24, 3, 3), 51) / np.float32(15)
    r, b = random((1, 40, 10, 13), 52), random((1, 40, 1, 1), 53)
    y = convolution(x, k, (1, 1, 1, 1)) + b
    f32 = np.float32
    suite.add(
        "residual",
        [x, r],
        lambda x, r: R.nn.relu(conv(x, k) + weight(b) + r),
        np.maximum(y + r, 0).astype(f32),
        0,
        1e-4,
    )
    suite.add(
        "silu", [x], lambda x: R.nn.silu(conv(x, k) + weight(b)), (y / (1 + np.exp(-y))).astype(f32), 0, 1e-4
    )
    second = random((16, 40, 3, 3), 54) / np.float32(20)
    inner = np.maximum(y, 0)
    suite.add(
        "margins",
        [x],
        lambda x: conv(R.nn.relu(conv(x, k) + weight(b)), second, (2, 1, 0, 1)),
        convolution(inner, second, (2, 1, 0, 1)).astype(f32),
        0,
        2e-4,
    )


CASES = [*SHAPES, "residual", "silu", "margins"]


@pytest.mark.parametrize("name", CASES)
def test_equals_float64(suite: Suite, forced: tuple[Transform, int, bool], name: str) -> None:
    suite.check(name)
    m, made = forced[0].m, forced[2]
    fitting = [s for s in suite.schedules(name) if f"winograd F({m}x{m},3x3)" in s]
    assert fitting and all(("weights made" in s) is made for s in fitting), suite.schedules(name)


def test_the_bits_do_not_depend_on_the_tasks(suite: Suite) -> None:
    arrays = [a for case in suite.cases.values() for a in case.arrays]
    assert suite.compiled is not None
    once = suite.compiled.run(arrays, tasks=1)
    for tasks, poison in ((2, 0xFF), (3, 0x7F), (64, 0)):
        for a, b in zip(once, suite.compiled.run(arrays, tasks=tasks, poison=poison)):
            np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_the_plan_has_scratch_for_every_core(suite: Suite) -> None:
    """Large scratch lies in the arena (which the other tests poison and guard), a part for each core; none is taken
    beside it."""
    assert suite.compiled is not None
    kernels = [k for k in suite.compiled.build.kernels if "winograd" in k.schedule]
    assert kernels and all(k.workspace == 0 for k in kernels)
    scratch = [(k, o) for k in kernels for o in k.operands if isinstance(o, Scratch)]
    assert scratch and all(o.bytes > STACK_BYTES for _, o in scratch)
    memory = suite.compiled.build.memory
    assert memory is not None and all(memory.offsets[o] + o.bytes <= memory.planned_bytes for _, o in scratch)


# -- transforms and the bound --------------------------------------------------------------------


@UNSTRIDED
def test_the_matrices_convolve(t: Transform) -> None:
    d, w = random((t.extent, t.extent), 1).astype(np.float64), random((3, 3), 2).astype(np.float64)
    y = t.result @ ((t.weights @ w @ t.weights.T) * (t.data @ d @ t.data.T)) @ t.result.T
    np.testing.assert_allclose(y, convolution(d[None, None], w[None, None], (0, 0, 0, 0))[0, 0], atol=1e-12)


@UNSTRIDED
def test_the_short_chains_are_the_matrices(t: Transform) -> None:
    d = list(np.eye(t.extent))
    number: Callable[[float], float] = float
    np.testing.assert_array_equal(np.array(t.apply_data(d, number, lambda v: v)), t.data)
    np.testing.assert_array_equal(np.array(t.apply_result(d, number, lambda v: v)), t.result)


@pytest.mark.parametrize("t", [F2, F4, F6, S2, S4], ids=["F2", "F4", "F6", "S2", "S4"])
def test_the_short_chains_make_the_weights(t: Transform) -> None:
    number: Callable[[float], float] = float
    made = np.array(t.apply_weights(list(np.eye(3)), number, lambda v: v))
    np.testing.assert_allclose(made, t.weights, rtol=1e-15)


def test_packed_taps_lie_in_the_order_they_are_read() -> None:
    w = random((21, 5, 3, 3), 3)
    packed = pack_taps(w, chunks=2, width=16, lanes=8)
    assert packed.shape == (2, 5, 2, 9, 8)
    np.testing.assert_array_equal(packed[1, 4, 0, :, :5], w[16:21, 4].reshape(5, 9).T)
    assert not packed[1, :, 1].any()


@UNSTRIDED
def test_packed_weights_are_rounded_once(t: Transform) -> None:
    w = random((21, 5, 3, 3), 3)
    packed = pack_weights(w, t, chunks=2, width=16)
    exact = np.einsum("ay,oiyx,bx->iabo", t.weights, w.astype(np.float64), t.weights)
    exact = exact.reshape(5, t.products, 21).transpose(1, 0, 2)
    got = packed.transpose(1, 2, 0, 3).reshape(t.products, 5, 32)
    np.testing.assert_allclose(got[:, :, :21], exact, rtol=2.0**-24, atol=1e-18)
    assert not got[:, :, 21:].any()


def adversarial(
    t: Transform, channels: int, outputs: int, size: int, rng: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Data and weights whose signs follow the largest rows of BT and G, so that intermediate values are as large as
    they can be and cancel in the result."""
    row, column = rng.integers(0, t.extent, 2)
    sign = lambda v: np.where(v == 0, 1.0, np.sign(v))  # noqa: E731
    tile = np.outer(sign(t.data[row]), sign(t.data[column]))
    reps = -(-size // t.m) + 1
    x = np.tile(tile[: t.m, : t.m], (reps, reps))[:size, :size]
    x[: t.extent, : t.extent] = tile
    data = (
        x * rng.choice([-1.0, 1.0], (1, channels, 1, 1)) * (1 - 1e-3 * rng.random((1, channels, size, size)))
    )
    w = np.outer(sign(t.weights[row]), sign(t.weights[column])) * rng.choice(
        [-1.0, 1.0], (outputs, channels, 1, 1)
    )
    return data.astype(np.float32), (w * (1 - 1e-3 * rng.random((outputs, channels, 3, 3)))).astype(
        np.float32
    )


@pytest.mark.parametrize("made", [False, True], ids=["ready", "made"])
@UNSTRIDED
def test_error_bound(t: Transform, made: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the stated bound on adversarial data; on random data within 2e-6 (F2), 2e-5 (F4) and 4e-5 (F6) of the
    largest output, and not more than 3, 40 and 80 times a direct convolution's error."""
    monkeypatch.setattr(conv_build, "choose_plan", plans_of(t, 0, made))
    rng = np.random.default_rng(9)
    cases = [adversarial(t, 64, 32, 14, rng) for _ in range(4)]
    cases.append((random((1, 64, 14, 14), 5), random((32, 64, 3, 3), 6) / np.float32(24)))
    cases.append((random((1, 64, 14, 14), 7) + 3, random((32, 64, 3, 3), 8) / np.float32(24)))

    def body(*xs: Any) -> list[Any]:
        return [conv(x, w, (0, 0, 0, 0)) for x, (_, w) in zip(xs, cases)]

    arrays = [x for x, _ in cases]
    module = module_of(arrays, body)
    results = Compiled(staged(module)).run(arrays)
    monkeypatch.setattr(conv_build, "choose_plan", lambda target, facts: None)
    direct = Compiled(staged(module)).run(arrays)
    for i, ((x, w), y, z) in enumerate(zip(cases, results, direct)):
        exact = convolution(x, w, (0, 0, 0, 0))
        error, plain = np.abs(y - exact).max(), np.abs(z - exact).max()
        assert 0 < error <= error_bound(t, 64, made) * np.abs(x).max() * np.abs(w).max() * 64
        if i >= 4:
            share, times = {2: (2e-6, 3), 4: (2e-5, 40), 6: (4e-5, 80)}[t.m]
            assert error <= share * np.abs(exact).max()
            assert error <= times * plain


# -- when it is chosen ---------------------------------------------------------------------------


def facts_of(cin: int, cout: int, h: int, w: int, batch: int = 1, **other: Any) -> ConvFacts:
    kernel = other.pop("kernel", (3, 3))
    data, result = Value("x", (batch, cin, h, w), "float32"), Value("y", (batch, cout, h, w), "float32")
    taps = Value("w", (cout, cin // other.get("groups", 1), *kernel), "float32")
    plain = {"strides": (1, 1), "dilation": (1, 1), "before": (1, 1), "after": (1, 1), "groups": 1, **other}
    return ConvFacts(data, taps, result, kernel, **plain)


def server() -> Target:
    """A server core's facts, so that choices do not depend on where the tests run."""
    return replace(
        native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4,
        l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=32 << 20, cores=2,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(64, 64, 56, 56), (128, 128, 28, 28), (256, 256, 56, 56)])
@pytest.mark.parametrize("cores", [1, 2, 4])
def test_chosen_where_products_dominate(shape: tuple[int, int, int, int], cores: int) -> None:
    plan = choose.choose_plan(replace(server(), cores=cores), facts_of(*shape))
    assert plan is not None and plan.transform is F4
    assert plan.tasks >= cores


@pytest.mark.parametrize("ports", [1, 2])
def test_large_images_take_larger_tiles(ports: int) -> None:
    """Where 6 nearly divides the image, and the transformed weights stay near: 67 MB do not."""
    target = replace(server(), fma_ports=ports)
    for shape in ((64, 64, 360, 640), (32, 48, 511, 512), (64, 64, 112, 112)):
        plan = choose.choose_plan(target, facts_of(*shape))
        assert plan is not None and plan.transform is F6
    plan = choose.choose_plan(target, facts_of(512, 512, 360, 360))
    assert plan is not None and plan.transform is F4


def test_weights_from_memory_count_for_more() -> None:
    """At 7 x 7, 21 MB for F(4x4) take longer to arrive than F(2x2) takes to multiply by 9 MB, unless they stay."""
    facts = facts_of(384, 384, 7, 7)
    target = replace(server(), fma_ports=1)
    far, near = (choose.choose_plan(replace(target, l3_bytes=m << 20), facts) for m in (32, 512))
    assert far is not None and far.transform is F2
    assert near is not None and near.transform is F4


@pytest.mark.parametrize("row_tiles", [1, 2, 4])
def test_tiles_that_share_weights_ask_for_the_next_ones(row_tiles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint for each vector of a step; where register tiles share a matrix, each asks for its part of the next."""
    found = [
        p
        for p in choose._plans(server(), facts_of(64, 64, 16, 16), F4)
        if (p.row_tiles, p.vectors, p.made) == (row_tiles, 4, 0)
    ]
    monkeypatch.setattr(conv_build, "choose_plan", lambda target, facts: found[0])
    x, k = random((1, 64, 16, 16), 1), random((64, 64, 3, 3), 2)
    kernels = staged(module_of([x], lambda x: conv(x, k)), server(), tiled=False).kernels
    text = next(str(kernel.function) for kernel in kernels if "winograd" in kernel.schedule)
    assert text.count("T.prefetch") == 4 // row_tiles


@pytest.mark.parametrize("vectors,row_tiles", [(2, 2), (4, 2), (2, 4), (3, 2), (2, 3)])
def test_the_next_weights_are_asked_for_line_by_line(
    vectors: int, row_tiles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines of the next matrix, in order, at an even rate: a line's neighbour comes with it."""
    channels, lanes, asked = 10, 16, []
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
    ready = winograd_weights.Ready(conv, SimpleNamespace(vectors=vectors, row_tiles=row_tiles))  # type: ignore
    size = channels * vectors
    for panel in range(row_tiles):
        ask = ready.hints(None, None, panel, 3)  # type: ignore
        for channel in range(channels):
            ask(None, channel)
    lines = [at // lanes + i for at, count in asked for i in range(count)]
    assert set(range(4 * size, 5 * size)) <= set(lines) and max(lines) <= 5 * size
    done = [at // lanes - 4 * size for at, _ in asked]
    assert done == [step * size // (row_tiles * channels) for step in range(row_tiles * channels)]


def test_weights_are_made_where_they_arrive_slowly() -> None:
    """A core that starts 18 multiply-adds while a vector arrives makes transformed weights of layers with few tiles;
    one that starts five, or has many tiles for them, reads them. With 13, smaller tiles were faster wherever both were
    measured."""
    known = choose.choose_plan(replace(server(), far_bytes=10, cores=2), facts_of(512, 512, 14, 14))
    assert known is not None and known.transform is F2 and not known.made
    fast = replace(server(), far_bytes=7, cores=1)
    for shape in ((512, 512, 12, 12), (512, 512, 14, 14)):
        plan = choose.choose_plan(fast, facts_of(*shape))
        assert plan is not None and plan.made % 16 == 0 < plan.made
        assert choose.weight_bytes(16, shape[0], plan) == 4 * 9 * shape[0] * shape[1]
    assert not choose.makes(fast, F2) and not choose.makes(replace(fast, vector_bits=256), F4)
    slow = replace(fast, fma_ports=1, far_bytes=12)
    for target, shape in ((slow, (256, 256, 14, 14)), (fast, (64, 64, 56, 56)), (fast, (128, 128, 112, 112))):
        plan = choose.choose_plan(target, facts_of(*shape))
        assert plan is not None and not plan.made


def test_making_asks_for_the_next_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of taps for each step, which 36 products of two register tiles spread."""
    plans = choose._plans(server(), facts_of(64, 64, 16, 16), F4)
    plan = replace(next(p for p in plans if (p.row_tiles, p.vectors) == (2, 4)), made=32)
    monkeypatch.setattr(conv_build, "choose_plan", lambda target, facts: plan)
    x, k = random((1, 64, 16, 16), 1), random((64, 64, 3, 3), 2)
    kernels = staged(module_of([x], lambda x: conv(x, k)), server(), tiled=False).kernels
    (kernel,) = [kernel for kernel in kernels if "weights made for 32 channels" in kernel.schedule]
    assert str(kernel.function).count("T.prefetch") == 2  # the first segment's products, and those that add to them
    assert max(o.data.nbytes for o in kernel.operands if isinstance(o, Packed)) == 4 * 9 * 64 * 64


@pytest.mark.parametrize("shape", [(6, None), (5, 9)])
def test_boxes_make_weights_too(shape: tuple[int, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    forced = plans_of(F4, 2, made=True)
    room = lambda target, facts: forced(target, facts) if choose.least_phase(facts) >= F4.m else None  # noqa: E731
    monkeypatch.setattr(conv_build, "choose_plan", room)
    g = Graph("made", Form(opset=17))
    x = layer(g, g.input("x", (1, 32, 29, 31)), 40)
    model = g.finish(y=layer(g, x, 48))
    data, results = random((1, 32, 29, 31), 3), []
    for tile in ("off", {"shape": shape}):
        build = run_pipeline(model, Options(native(), stop_after="plan", threads=2, tile=tile))
        text = str([k.schedule for k in build.kernels])
        assert ("tiled" in text) is (tile != "off") and ("weights made" in text or tile != "off")
        results.append(Compiled(build).run([data])[0])
    np.testing.assert_allclose(*results, rtol=0, atol=1e-4)


def layer(g: Graph, x: str, outputs: int) -> str:
    return activation(g, conv_layer(g, x, outputs, 3), "relu")


@pytest.mark.parametrize(
    "facts",
    [
        facts_of(3, 64, 224, 224),
        facts_of(64, 1, 56, 56),
        facts_of(64, 64, 56, 56, strides=(2, 1)),
        facts_of(64, 64, 56, 56, dilation=(2, 2), strides=(2, 2)),
        facts_of(64, 64, 56, 56, dilation=(29, 1)),
        facts_of(64, 64, 56, 56, groups=4),
        facts_of(64, 64, 56, 56, kernel=(5, 5)),
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
        "5x5",
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
        for plan in choose._plans(target, facts_of(cin, cout, h, w, batch=2), transform):
            total = 2 * plan.tiles[0] * plan.tiles[1]
            assert plan.strip * (plan.strips - 1) < total <= plan.strip * plan.strips
            assert (
                plan.chunks_per_group * (plan.groups - 1) < plan.chunks <= plan.chunks_per_group * plan.groups
            )
            assert plan.chunks * plan.vectors * target.lanes() >= cout
            assert plan.rows * plan.vectors + plan.vectors + 1 <= target.vector_registers


def schedules(exact: bool, winograd: bool) -> list[str]:
    x, k = random((1, 32, 28, 28), 1), random((32, 32, 3, 3), 2)
    build = Build(None, Options(server(), exact=exact, winograd=winograd))
    build.module = module_of([x], lambda x: conv(x, k))
    for stage in (pipeline.fuse, pipeline.layout, pipeline.tile, pipeline.schedule):
        stage(build)
    return [kernel.schedule for kernel in build.kernels]


def test_off_when_exact_or_switched_off() -> None:
    assert any("winograd F(4x4,3x3)" in s for s in schedules(False, True))
    assert not any("winograd" in s for s in schedules(True, True))
    assert not any("winograd" in s for s in schedules(False, False))


@pytest.mark.parametrize("bits", [128, 256])
def test_shorter_vectors(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_build, "choose_plan", plans_of(F4, 5))
    target = replace(native(), vector_bits=bits, vector_registers=16)
    x, k = random((1, 18, 11, 13), 1), random((21, 18, 3, 3), 2) / np.float32(12)
    compiled = Compiled(staged(module_of([x], lambda x: conv(x, k)), target))
    np.testing.assert_allclose(compiled.run([x])[0], convolution(x, k, (1, 1, 1, 1)), rtol=0, atol=1e-4)
