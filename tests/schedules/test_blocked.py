"""The general generator in channel blocks: right numbers, and zeros in padding lanes and margins whatever was there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, narrow, native, staged, weight
from halotile.compiler.state import Build
from halotile.schedules.general.channel_lanes import preserves_channels
from halotile.schedules.words.group import Value
from halotile.schedules.words.layout import Layout
from tvm import relax

R = relax.op
F = "float32"
BATCH, HEIGHT, WIDTH = 2, 6, 9  # 9: two rounds of interleaved chains, and one over
CHANNELS = (5, 16, 17, 31, 48)
MARGINS = ((0, 0), (0, 0), (1, 2), (3, 1))


def data(channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(channels + seed).standard_normal((BATCH, channels, HEIGHT, WIDTH)).astype(F) + 0.5


def sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-x.astype("float64")))).astype(F)


def mean(x: np.ndarray, axes: Any) -> np.ndarray:
    return x.astype("float64").mean(axes, keepdims=True).astype(F)


def per_channel(channels: int) -> np.ndarray:
    return np.linspace(1, 2, channels, dtype=F).reshape(1, channels, 1, 1)


def max_pool(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=-np.inf)
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max((-1, -2))


def instance(x: Any) -> Any:
    centred = R.subtract(x, R.mean(x, axis=(2, 3), keepdims=True))
    variance = R.mean(R.multiply(centred, centred), axis=(2, 3), keepdims=True)
    return R.multiply(centred, R.rsqrt(R.add(variance, weight(np.float32(1e-3)))))


def instance_numpy(x: np.ndarray) -> np.ndarray:
    c = x.astype("float64") - x.astype("float64").mean((2, 3), keepdims=True)
    return (c / np.sqrt((c**2).mean((2, 3), keepdims=True) + 1e-3)).astype(F)


Case = tuple[Callable[..., Any], Callable[..., np.ndarray]]

# sigmoid, exp and 1 / x of a zero lane are not zero: they show whether padding lanes are written as zeros
MAPS: dict[str, Case] = {
    "sigmoid": (lambda x, y: R.sigmoid(x), lambda x, y: sigmoid(x)),
    "add": (lambda x, y: R.add(x, y), lambda x, y: x + y),
    "bias": (
        lambda x, y: R.add(x, weight(per_channel(x.ty.shape[1].value))),
        lambda x, y: x + per_channel(x.shape[1]),
    ),
    "divide": (lambda x, y: R.divide(x, y), lambda x, y: x / y),
    "max_pool": (
        lambda x, y: R.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        lambda x, y: max_pool(x),
    ),
    "global_mean": (lambda x, y: R.mean(x, axis=(2, 3), keepdims=True), lambda x, y: mean(x, (2, 3))),
    "mean_of_rows": (lambda x, y: R.mean(x, axis=(3,), keepdims=True), lambda x, y: mean(x, 3)),
    "excite": (
        lambda x, y: R.multiply(x, R.sigmoid(R.mean(x, axis=(2, 3), keepdims=True))),
        lambda x, y: x * sigmoid(mean(x, (2, 3))),
    ),
    "instance": (lambda x, y: instance(x), lambda x, y: instance_numpy(x)),
    "flip_rows": (lambda x, y: R.flip(x, 2), lambda x, y: x[:, :, ::-1].copy()),
    "crop": (
        lambda x, y: R.strided_slice(x, [2, 3], [1, 0], [6, 9], [2, 3]),
        lambda x, y: x[:, :, 1:6:2, ::3].copy(),
    ),
}


def layouts(block: int, inputs: bool, outputs: bool, margins: bool) -> Callable[[Build], dict[Value, Layout]]:
    def choose(build: Build) -> dict[Value, Layout]:
        chosen = {}
        ends = {*build.graph.inputs, *build.graph.outputs}
        values = {v for g in build.groups for v in (*g.inputs, *g.outputs) if v.constant is None}
        for value in values:
            wanted = inputs if value in build.graph.inputs else outputs if value in build.graph.outputs else True
            if wanted and len(value.shape) == 4:
                edge = MARGINS if margins and value in ends else ()
                chosen[value] = Layout.blocked(value.shape, block, edge)
        return chosen

    return choose


def modules(channels: int) -> Any:
    x, y = data(channels), data(channels, 1) + 3
    return module_of([x, y], lambda x, y: [body(x, y) for body, _ in MAPS.values()]), (x, y)


@pytest.mark.parametrize(
    "channels, bits, margins",
    [*((c, 512, True) for c in CHANNELS), (17, 512, False), (17, 256, True), (31, 128, True)],
)
def test_blocked_to_blocked(channels: int, bits: int, margins: bool) -> None:
    module, arrays = modules(channels)
    target = narrow(bits)
    block = target.lanes()
    build = staged(module, target, layouts=layouts(block, True, True, margins))
    for group in build.groups:
        assert preserves_channels(group, {v: block for v in group.inputs if v in build.layouts}, block)
    results = Compiled(build).run(arrays)
    for (name, (_, reference)), value, got in zip(MAPS.items(), build.graph.outputs, results):
        layout = build.layouts[value]
        wanted = reference(*arrays)
        np.testing.assert_allclose(layout.unpack(got), wanted, 1e-4, 1e-5, err_msg=name)
        np.testing.assert_array_equal(got[layout.pack(np.ones(value.shape, bool)) == 0], 0, err_msg=f"{name}: padding")


@pytest.mark.sampled
@pytest.mark.parametrize("inwards", [False, True], ids=["unpack", "pack"])
@pytest.mark.parametrize("channels", CHANNELS)
def test_conversions(channels: int, inwards: bool) -> None:
    """A copy between plain and blocked, either way; in blocked form padding lanes and margins are zeros."""
    x = data(channels)
    block = native().lanes()
    body = module_of([x], lambda x: R.negative(x))
    build = staged(body, layouts=layouts(block, not inwards, inwards, inwards))
    (got,) = Compiled(build).run([x])
    layout = build.layouts.get(build.graph.outputs[0], Layout.plain(x.shape))
    assert layout.is_plain != inwards
    np.testing.assert_array_equal(layout.unpack(got), -x)
    np.testing.assert_array_equal(got[layout.pack(np.ones(x.shape, bool)) == 0], 0)


@pytest.mark.parametrize("what", ["norm", "max"])
@pytest.mark.parametrize("channels, bits", [(128, 512), (83, 512), (83, 256)])
def test_rows_of_channels_in_blocks(channels: int, bits: int, what: str) -> None:
    """A row of channels lies in pieces, one a block: it is reduced along those, not across columns by gathers."""
    x, scale = data(channels) * 3 + 1, np.linspace(1, 2, channels, dtype=F)
    axes = x.transpose(0, 2, 3, 1).astype("float64")

    def body(x: Any) -> Any:
        rows = R.permute_dims(x, (0, 2, 3, 1))
        if what == "max":
            return R.max(rows, axis=3)
        return R.nn.layer_norm(rows, weight(scale), weight(scale - 1), axes=[-1], epsilon=1e-3)

    centred = axes - axes.mean(3, keepdims=True)
    norm = centred / np.sqrt((centred**2).mean(3, keepdims=True) + 1e-3) * scale + scale - 1
    lanes = narrow(bits).lanes()
    build = staged(module_of([x], body), narrow(bits), layouts=layouts(lanes, True, False, True))
    (got,) = Compiled(build).run([x])
    np.testing.assert_allclose(got, norm if what == "norm" else axes.max(3), 1e-4, 1e-5)
    (kernel,) = build.kernels
    accumulators = (4 if channels >= 8 * lanes else 1) * lanes
    assert f" = T.alloc_local(({accumulators},))" in str(kernel.function), "no vectors along the channels"
    assert "prefix 3" in kernel.schedule or what == "max"


@pytest.mark.parametrize("sizes", [(16, 16), (32, 16, 5), (16, 3)])
def test_concat_of_whole_blocks(sizes: tuple[int, ...]) -> None:
    """Parts that begin at whole blocks are joined lane by lane."""
    parts = [data(c) + 10 * i for i, c in enumerate(sizes)]
    module = module_of(parts, lambda *p: R.sigmoid(R.concat(p, 1)))
    build = staged(module, narrow(512), layouts=layouts(16, True, True, True))
    (group,) = build.groups
    assert preserves_channels(group, {v: 16 for v in group.inputs}, 16)
    (got,) = Compiled(build).run(parts)
    layout = build.layouts[build.graph.outputs[0]]
    np.testing.assert_allclose(layout.unpack(got), sigmoid(np.concatenate(parts, 1)), 1e-5, 1e-6)
    np.testing.assert_array_equal(got[layout.pack(np.ones(layout.shape, bool)) == 0], 0)


@pytest.mark.parametrize(
    "name, body",
    [
        ("softmax over a row: its phases differ in rank", lambda x: R.nn.softmax(x, 3)),
        ("softmax over channels", lambda x: R.nn.softmax(x, 1)),
        ("channels flipped", lambda x: R.flip(x, 1)),
        ("channels shuffled", lambda x: R.strided_slice(x, [1], [3], [19])),
        ("channels summed", lambda x: R.mean(x, axis=(1,), keepdims=True)),
        ("transposed", lambda x: R.permute_dims(x, (0, 2, 1, 3))),
    ],
)
def test_what_crosses_lanes_is_declined(name: str, body: Callable[[Any], Any]) -> None:
    build = staged(module_of([data(32)], body))
    (group,) = build.groups
    assert not preserves_channels(group, {v: 16 for v in group.inputs}, 16), name


@pytest.mark.parametrize("channels", [1000, 41, 7])
def test_equal_channels_have_equal_sums(channels: int) -> None:
    """Vectors side by side and the ones that are left over add in one order: what a softmax makes of large numbers
    that differ in the last bit is far from even."""
    x = np.random.default_rng(2).standard_normal((1, 32, 13, 13)).astype("float32") * np.float32(1e6)
    row = np.random.default_rng(3).standard_normal((1, 32, 1, 1)).astype("float32")

    def body(x: Any) -> Any:
        y = R.nn.relu(R.nn.conv2d(x, weight(np.repeat(row, channels, 0))))
        return R.nn.softmax(R.reshape(R.mean(y, axis=(2, 3), keepdims=True), (1, channels)), axis=1)

    (found,) = Compiled(staged(module_of([x], body))).run([x])
    assert len(np.unique(found)) == 1
