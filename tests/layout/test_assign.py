"""Layouts of whole graphs: no conversion inside, margins instead of padding, plain ends, free views stay free."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, narrow, staged, weight
from halotile.compiler.state import Build
from halotile.schedules.words.group import Value
from halotile.schedules.words.layout import Layout
from tvm import relax

R = relax.op
F = "float32"
RANDOM = np.random.default_rng(4)
TARGET = narrow(512)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F) * np.float32(0.2)


def conv(emit: Any, x: Any, inputs: int, outputs: int, kernel: int = 3, **options: Any) -> Any:
    options = {"padding": kernel // 2, **options}
    y = R.nn.conv2d(x, weight(normal(outputs, inputs, kernel, kernel)), **options)
    return emit(R.add(emit(y), weight(normal(1, outputs, 1, 1))))


def built(body: Any, *arrays: np.ndarray, layout: bool = True) -> Build:
    params = [relax.Var(f"p{i}", relax.TensorType(a.shape, F)) for i, a in enumerate(arrays)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            made = body(builder.emit, *params)
            out = builder.emit_output(relax.Tuple(made if isinstance(made, list) else [made]))
        builder.emit_func_output(out)
    return staged(builder.get(), TARGET, layout=layout)


def conversions(build: Build) -> list[str]:
    return [g.name for g in build.groups if g.name.startswith(("convert_", "view_"))]


def layout_of(build: Build, value: Value) -> Layout:
    return build.layouts.get(value, Layout.plain(value.shape))


def resnet(emit: Any, x: Any) -> Any:
    """Stem with stride 2, pool, two residual blocks (the second with a projection), head."""
    y = emit(R.nn.relu(conv(emit, x, 3, 24, 7, strides=2)))
    y = emit(R.nn.max_pool2d(y, (3, 3), (2, 2), (1, 1)))
    for outputs, stride in ((24, 1), (40, 2)):
        short = y if stride == 1 else conv(emit, y, 24, outputs, 1, strides=stride)
        z = emit(R.nn.relu(conv(emit, y, 24, outputs, strides=stride)))
        z = conv(emit, z, outputs, outputs)
        y = emit(R.nn.relu(emit(R.add(z, short))))
    y = emit(R.mean(y, axis=(2, 3), keepdims=True))
    return emit(R.matmul(emit(R.reshape(y, (1, 40))), weight(normal(40, 10))))


IMAGE = normal(1, 3, 33, 35)


@pytest.fixture(scope="module")
def network() -> Build:
    return built(resnet, IMAGE)


def test_no_conversion_inside_a_residual_network(network: Build) -> None:
    """At most the model's input (margins) and the features at the end change their form."""
    kinds = [g.operators[-1] if not g.name.startswith(("convert_", "view_")) else "conversion" for g in network.groups]
    inside = kinds[1:]  # the first may give the image its margins
    body = inside[: inside.index("relax.mean")]
    assert "conversion" not in body, kinds
    assert len(conversions(network)) <= 2


def test_everything_between_is_blocked(network: Build) -> None:
    for group in network.groups:
        if group.anchor is not None and "conv" in group.anchor.operator:
            assert layout_of(network, group.outputs[0]).block == 16


def test_margins_are_the_largest_padding_that_a_consumer_asks_for(network: Build) -> None:
    """The stem's pooled output meets a 3 x 3 (1 + 1), a strided 3 x 3 (1 + 1 or 1 + 0) and a 1 x 1."""
    pool = next(g for g in network.groups if g.operators[-1] == "relax.nn.max_pool2d")
    assert layout_of(network, pool.outputs[0]).margins == ((0, 0), (0, 0), (1, 1), (1, 1))

    def body(emit: Any, x: Any) -> Any:
        y = emit(R.nn.relu(conv(emit, x, 16, 16, 1)))
        wide = conv(emit, y, 16, 16, 5, padding=(2, 1, 2, 3))
        tall = conv(emit, y, 16, 16, 3, padding=(3, 0, 1, 0))
        return [emit(R.sum(wide, axis=(2, 3))), emit(R.sum(tall, axis=(2, 3)))]

    build = built(body, normal(1, 16, 9, 9))
    first = next(g for g in build.groups if g.anchor is not None and "conv" in g.anchor.operator)
    assert layout_of(build, first.outputs[0]).margins == ((0, 0), (0, 0), (3, 2), (1, 3))


def test_ends_are_plain(network: Build) -> None:
    for value in (*network.graph.inputs, *network.graph.outputs):
        assert layout_of(network, value).is_plain


def test_an_output_inside_is_plain_too() -> None:
    """A convolution that is a model output and feeds another one."""

    def body(emit: Any, x: Any) -> Any:
        y = conv(emit, x, 16, 24)
        return [y, emit(R.sum(conv(emit, y, 24, 16), axis=(1, 2, 3)))]

    x = normal(2, 16, 7, 9)
    build = built(body, x)
    assert all(layout_of(build, v).is_plain for v in build.graph.outputs)


@pytest.mark.parametrize("channels", [24, 32])
def test_a_mean_that_leaves_the_model_reads_vectors_of_channels(channels: int) -> None:
    """Its sums are made in channel blocks, and put in order afterwards: the few of them, not the image."""

    def body(emit: Any, x: Any) -> Any:
        return emit(R.mean(emit(R.nn.relu(conv(emit, x, 16, channels))), axis=(2, 3), keepdims=True))

    global RANDOM
    x = normal(2, 16, 7, 9)
    RANDOM = np.random.default_rng(5)
    build = built(body, x)
    mean = next(g for g in build.groups if "relax.mean" in g.operators)
    assert layout_of(build, mean.outputs[0]).block == 16
    assert build.groups[-1].operators == ("halotile.copy",) and build.groups[-1].inputs == mean.outputs
    kernel = next(k for k in build.kernels if k.outputs == mean.outputs)
    assert kernel.schedule.endswith("lanes 16")
    RANDOM = np.random.default_rng(5)
    (wanted,) = Compiled(built(body, x, layout=False)).run([x])
    np.testing.assert_allclose(Compiled(build).run([x])[0], wanted, 1e-5, 1e-6)


def test_numbers_do_not_depend_on_layouts(network: Build) -> None:
    """The same weights, once more and all plain, on the general generator."""
    global RANDOM
    RANDOM = np.random.default_rng(4)
    image = normal(1, 3, 33, 35)
    blocked = built(resnet, image)
    RANDOM = np.random.default_rng(4)
    normal(1, 3, 33, 35)
    plain = built(resnet, image, layout=False)
    assert not plain.layouts and blocked.layouts
    for a, b in zip(Compiled(blocked).run([image]), Compiled(plain).run([image]), strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


@pytest.mark.parametrize("channels, free", [(32, True), (40, False)])
def test_views_of_pooled_features(channels: int, free: bool) -> None:
    """(1, C, 1, 1) in whole blocks is the same memory as (1, C): no copy. With a tail it is not."""

    def body(emit: Any, x: Any) -> Any:
        y = conv(emit, x, 16, channels)
        y = emit(R.nn.relu(emit(R.mean(y, axis=(2, 3), keepdims=True))))
        y = emit(R.nn.relu(conv(emit, y, channels, channels, 1)))
        return emit(R.matmul(emit(R.reshape(y, (1, channels))), weight(normal(channels, 10))))

    build = built(body, normal(1, 16, 5, 5))
    assert any(name.startswith("view_") for name in conversions(build)) != free


def test_depthwise_chains_stay_blocked() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(R.clip(conv(emit, x, 3, 24, 3, strides=2), 0, 6))
        w = weight(normal(24, 1, 3, 3))
        y = emit(R.clip(emit(R.nn.conv2d(y, w, padding=1, groups=24)), 0, 6))
        y = conv(emit, y, 24, 16, 1)
        return emit(R.mean(y, axis=(2, 3)))

    build = built(body, normal(1, 3, 17, 19))
    assert len(conversions(build)) <= 1
    assert [k.schedule.split(" C")[0] for k in build.kernels if "conv" in k.schedule] == [
        "direct conv",
        "depthwise conv",
        "direct conv",
    ]


def test_a_conversion_says_why() -> None:
    build = built(lambda emit, x: conv(emit, x, 16, 16), normal(1, 16, 5, 5))
    notes = [note for g in build.groups if g.name.startswith("convert_") for note in g.notes]
    assert len(notes) == len(conversions(build)) > 0
    assert all("convolution" in note or "plain" in note or "blocks" in note for note in notes), notes


@pytest.mark.parametrize("margins", [(), ((0, 0), (0, 0), (1, 0), (2, 3))])
@pytest.mark.parametrize("channels", [1, 16, 17])
def test_packing_and_back(channels: int, margins: tuple[tuple[int, int], ...]) -> None:
    x = normal(2, channels, 3, 4)
    layout = Layout.blocked(x.shape, 16, margins)
    packed = layout.pack(x)
    assert packed.shape == layout.physical_shape and packed.size == layout.elements
    np.testing.assert_array_equal(layout.unpack(packed), x)
    assert np.count_nonzero(packed) == np.count_nonzero(x)
    for index in ((0, 0, 0, 0), (1, channels - 1, 2, 3)):
        assert packed.reshape(-1)[layout.offset(index)] == x[index]
