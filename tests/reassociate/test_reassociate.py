"""Linear maps in another order: what is rewritten, what is left alone, and that the numbers stay."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.passes.reassociate import Reassociate
from halotile.schedules.operators.registry import call
from relax_modules import const, f32, module, operators, values
from tvm import relax

op = relax.op


def rewritten(mod) -> tuple[list[str], dict[str, int]]:
    """The operators and the rewrites, after comparing the values."""
    result = Reassociate().apply(mod)
    for a, b in zip(values(mod), values(result.module), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4 * np.abs(a).max())
    assert not Reassociate().apply(result.module).changed
    return operators(result.module), result.details.get("applied", {})


def linear_resize(emit, x, factor: int):
    """Bilinear, half-pixel, by ``factor`` along both axes, as the importer writes it."""
    for axis in (2, 3):
        size = int(x.ty.shape.values[axis])
        place = (np.arange(size * factor) + 0.5) / factor - 0.5
        low = np.floor(place)
        index = np.clip(np.stack([low, low + 1], 1), 0, size - 1).astype("int32")
        weight = np.stack([low + 1 - place, place - low], 1).astype("float32")
        x = emit(call("halotile.resample", x, const(index), const(weight), axis=axis))
    return x


def repeat(emit, x, factor: int):
    return emit(call("halotile.upsample", x, factors=[1, 1, factor, factor]))


@pytest.mark.parametrize("resize", [linear_resize, repeat])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_convolution_goes_before_the_resize(resize, batch):
    def body(emit, x):
        y = emit(op.nn.conv2d(resize(emit, x, 2), const(f32(5, 96, 1, 1))))
        return emit(op.add(y, const(f32(1, 5, 1, 1))))

    ops, applied = rewritten(module(body, (batch, 96, 5, 7)))
    assert ops[0] == "conv2d" and ops[-1] == "add" and applied == {"resize-later": 1}


def test_a_convolution_of_joined_maps_is_a_sum():
    """Two enlarged parts among four, in between: the others stay together."""

    def body(emit, a, b, c, d):
        parts = [linear_resize(emit, a, 4), b, linear_resize(emit, c, 2), d]
        y = emit(op.nn.conv2d(emit(op.concat(parts, axis=1)), const(f32(67, 64 + 33 + 96 + 7, 1, 1))))
        return emit(op.nn.relu(y))

    ops, applied = rewritten(module(body, (2, 64, 3, 5), (2, 33, 12, 20), (2, 96, 6, 10), (2, 7, 12, 20)))
    assert applied == {"resize-later": 1}
    assert ops.count("conv2d") == 3 and ops.count("concat") == 1 and ops.count("add") == 2 and ops[-1] == "relu"


def test_all_parts_may_be_enlarged():
    def body(emit, a, b):
        joined = emit(op.concat([linear_resize(emit, a, 4), repeat(emit, b, 2)], axis=1))
        return emit(op.nn.conv2d(joined, const(f32(64, 128, 1, 1))))

    ops, _ = rewritten(module(body, (1, 64, 3, 5), (1, 64, 6, 10)))
    assert "concat" not in ops and ops.count("conv2d") == 2


@pytest.mark.parametrize(
    "case", ["3x3", "stride", "padding", "groups", "shrinks", "read twice", "few channels", "channels resized"]
)
def test_resizes_that_stay(case):
    channels, outputs = (2, 3) if case == "few channels" else (96, 96)
    size = 8

    def body(emit, x):
        if case == "shrinks":
            index, weight = np.arange(0, size, 2)[:, None].astype("int32"), np.ones((size // 2, 1), "float32")
            y = emit(call("halotile.resample", x, const(index), const(weight), axis=2))
        elif case == "channels resized":
            y = emit(call("halotile.upsample", x, factors=[1, 2, 2, 2]))
        else:
            y = linear_resize(emit, x, 2)
        inputs = int(y.ty.shape.values[1])
        groups = 2 if case == "groups" else 1
        kernel = 3 if case == "3x3" else 1
        weight = f32(outputs, inputs // groups, kernel, kernel)
        z = emit(op.nn.conv2d(
            y,
            const(weight),
            strides=(2, 2) if case == "stride" else (1, 1),
            padding=(1, 1, 1, 1) if case == "padding" else (0, 0, 0, 0),
            groups=groups,
        ))
        return (z, y) if case == "read twice" else z

    assert not Reassociate().apply(module(body, (1, channels, size, size))).changed


def test_products_are_one_where_that_is_less():
    def body(emit, x):
        y = emit(op.add(emit(op.matmul(x, const(f32(8, 24)))), const(f32(24))))
        y = emit(op.subtract(y, const(f32(1, 24))))
        return emit(op.matmul(y, const(f32(24, 16))))

    assert rewritten(module(body, (2, 5, 8))) == (["matmul", "add"], {"compose": 1})


def test_a_bottleneck_stays():
    def body(emit, x):
        return emit(op.matmul(emit(op.matmul(x, const(f32(24, 4)))), const(f32(4, 24))))

    assert not Reassociate().apply(module(body, (2, 5, 24))).changed


def test_a_product_on_tokens_joins_the_convolution_of_their_image():
    """The moves stay where there are fewer channels: before the product that widens."""

    def body(emit, x):
        y = emit(op.add(emit(op.matmul(x, const(f32(8, 32)))), const(f32(32))))
        y = emit(op.reshape(emit(op.permute_dims(y, [0, 2, 1])), [2, 32, 3, 5]))
        return emit(op.nn.conv2d(y, const(f32(24, 32, 1, 1))))

    ops, applied = rewritten(module(body, (2, 15, 8)))
    assert ops == ["permute_dims", "reshape", "conv2d", "add"] and applied == {"compose": 1}


def test_moves_stay_behind_a_product_that_narrows():
    def body(emit, x):
        y = emit(op.matmul(x, const(f32(32, 48))))
        y = emit(op.reshape(emit(op.permute_dims(y, [0, 2, 1])), [2, 48, 3, 5]))
        return emit(op.nn.conv2d(y, const(f32(7, 48, 1, 1))))

    ops, _ = rewritten(module(body, (2, 15, 32)))
    assert ops == ["matmul", "permute_dims", "reshape"]


@pytest.mark.parametrize("padding", [0, 1])
def test_a_pointwise_convolution_joins_the_one_before(padding):
    """The bias is added after the first one's padding, so it passes."""

    def body(emit, x):
        y = emit(op.nn.conv2d(x, const(f32(16, 4, 3, 3)), padding=[padding] * 4, strides=(2, 2)))
        y = emit(op.add(y, const(f32(1, 16, 1, 1))))
        return emit(op.nn.conv2d(y, const(f32(5, 16, 1, 1))))

    assert rewritten(module(body, (2, 4, 9, 7)))[0] == ["conv2d", "add"]


@pytest.mark.parametrize("between", ["relu", "read twice", "bias per place", "mixed channels"])
def test_products_that_stay(between):
    def body(emit, x):
        y = emit(op.matmul(x, const(f32(8, 24))))
        inner = y
        if between == "relu":
            y = emit(op.nn.relu(y))
        elif between == "bias per place":
            y = emit(op.add(y, const(f32(6, 24))))
        elif between == "mixed channels":
            y = emit(op.reshape(y, [2, 24, 6]))
            return emit(op.matmul(y, const(f32(6, 6))))
        z = emit(op.matmul(y, const(f32(24, 16))))
        return (z, inner) if between == "read twice" else z

    assert not Reassociate().apply(module(body, (2, 6, 8))).changed


def decoder():
    """Two maps made equally large and joined, as segmentation models do; a residual at the small size."""
    from halotile.benchmarks.graph import ModelGraph
    from halotile.benchmarks.layers import activation, conv, linear, reshape, resize, transpose

    g = ModelGraph("decoder", None, 5)
    tokens, image = g.input("tokens", (2, 6 * 5, 19)), g.input("image", (2, 37, 12, 10))
    x = linear(g, tokens, 53, name="wide")
    x = reshape(g, transpose(g, x, 0, 2, 1), (2, 53, 6, 5))
    x = g.op("Concat", resize(g, x, 2, "linear"), image, axis=1)
    return g.finish(y=activation(g, conv(g, x, 41, 1, name="fuse"), "relu"))


def build(model, **options):
    from halotile.compiler.pipeline import run_pipeline
    from halotile.compiler.state import Options
    from halotile.targets.resolve import resolve

    return run_pipeline(model, Options(resolve("native"), threads=1, stop_after="schedule", tile="off", **options))


def test_the_compiler_does_it_unless_it_has_to_be_exact():
    loose, exact = build(decoder()), build(decoder(), exact=True)
    assert loose.details["reassociate"]["applied"] == {"compose": 1, "resize-later": 1, "image-of-tokens": 1}
    assert "reassociate" not in exact.details
    work = [sum(k.flops for k in b.kernels if "conv" in k.schedule) for b in (loose, exact)]
    assert 2 * work[0] < work[1]
    assert any("reassociate: compose 1x" in n for n in loose.notes["reassociate"])


def test_compiled_results_agree_with_onnx_runtime():
    import halotile
    import onnxruntime

    model = decoder()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(2)
    feeds = {i.name: rng.standard_normal(i.shape).astype("float32") for i in session.get_inputs()}
    wanted = session.run(None, feeds)[0]
    for options in ({"tile": "off"}, {}, {"exact": True}):
        got = next(iter(halotile.compile(model, threads=1, **options)(feeds).values()))
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_indices_that_all_lanes_share_are_read_once():
    """The resize in the epilogue of a convolution loads vectors, and gathers nothing."""
    built = build(decoder(), matrix=False)
    kernels = [k for g, k in zip(built.groups, built.kernels) if "halotile.resample" in g.operators]
    fused = [k for k in kernels if k.schedule.startswith("direct conv")]
    assert fused
    for kernel in fused:
        text = str(kernel.function)
        assert 'alloc_local((1,), "int32")' in text and 'alloc_local((16,), "int32")' not in text
