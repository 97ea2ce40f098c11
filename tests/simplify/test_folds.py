"""Affine chains into weights: every anchor, every legal place of the constant, and the traps."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

op = relax.op
RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def norm(tools, emit, x, channels, axis=1):
    statistics = [f32(channels), f32(channels), f32(channels), np.abs(f32(channels)) + 0.1]
    out = emit(op.nn.batch_norm(x, *map(tools.const, statistics), axis=axis, training=False))
    return emit(out[0])


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_folds_into_the_convolution_before_it(check, tools, groups):
    weight = tools.const(f32(6, 4 // groups, 3, 3))
    bias = tools.const(f32(1, 6, 1, 1))

    def body(emit, x):
        y = emit(op.nn.conv2d(x, weight, padding=(1, 1, 1, 1), groups=groups))
        return norm(tools, emit, emit(op.add(y, bias)), 6)

    result = check([((2, 4, 7, 5), "float32")], body, ["nn.conv2d", "add"])
    assert result.details["applied"]["fold-affine-into-weights"] == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_batch_norm_folds_into_a_transposed_convolution(check, tools, groups):
    weight = tools.const(f32(4, 6 // groups, 3, 3))

    def body(emit, x):
        y = emit(op.nn.conv2d_transpose(x, weight, strides=(2, 2), padding=(1, 1, 1, 1), groups=groups))
        return norm(tools, emit, y, 6)

    check([((1, 4, 5, 3), "float32")], body, ["nn.conv2d_transpose", "add"])


def test_batch_norm_alone_becomes_one_multiply_and_one_add(check, tools):
    check([((2, 3, 4, 4), "float32")], lambda emit, x: norm(tools, emit, x, 3), ["multiply", "add"])


def test_batch_norm_with_symbolic_batch_and_space(check, tools):
    weight = tools.const(f32(6, 4, 3, 3))

    def body(emit, x):
        return norm(tools, emit, emit(op.nn.conv2d(x, weight)), 6)

    check([(("n", 4, "h", "w"), "float32")], body, ["nn.conv2d", "add"], n=2, h=5, w=6)


@pytest.mark.parametrize("shape", [(), (5,), (1, 1, 5)])
@pytest.mark.parametrize("last", ["multiply", "divide"])
def test_scale_after_matmul_and_bias(check, tools, shape, last):
    scale = tools.const(np.asarray(np.abs(f32(*shape)) + 0.5, "float32"))
    weight, bias = tools.const(f32(4, 5)), tools.const(f32(5))

    def body(emit, x):
        y = emit(op.add(emit(op.matmul(x, weight)), bias))
        return emit(getattr(op, last)(y, scale))

    check([((2, 3, 4), "float32")], body, ["matmul", "add"])


def test_scale_before_matmul(check, tools):
    def body(emit, x):
        return emit(op.matmul(emit(op.multiply(x, tools.const(f32(4)))), tools.const(f32(4, 5))))

    check([((2, 3, 4), "float32")], body, ["matmul"])


def test_shift_before_and_after_matmul_become_one_bias(check, tools):
    def body(emit, x):
        y = emit(op.matmul(emit(op.add(x, tools.const(f32(4)))), tools.const(f32(4, 5))))
        return emit(op.add(y, tools.const(f32(5))))

    check([((2, 3, 4), "float32")], body, ["matmul", "add"])


def test_image_normalisation_folds_into_an_unpadded_convolution(check, tools):
    mean, std = tools.const(f32(1, 3, 1, 1)), tools.const(np.abs(f32(1, 3, 1, 1)) + 0.2)

    def body(emit, x):
        y = emit(op.divide(emit(op.subtract(x, mean)), std))
        return emit(op.nn.conv2d(y, tools.const(f32(8, 3, 3, 3))))

    check([((1, 3, 8, 8), "float32")], body, ["nn.conv2d", "add"])


def test_shift_before_a_padded_convolution_stays(check, tools):
    def body(emit, x):
        y = emit(op.add(x, tools.const(f32(1, 3, 1, 1))))
        y = emit(op.nn.conv2d(y, tools.const(f32(8, 3, 3, 3)), padding=(1,) * 4))
        return emit(op.add(y, tools.const(f32(1, 8, 1, 1))))

    check(
        [((1, 3, 8, 8), "float32")], body, ["add", "nn.conv2d", "add"], declined="zero padding sees no shift"
    )


def test_scale_before_a_padded_convolution_folds(check, tools):
    def body(emit, x):
        y = emit(op.multiply(x, tools.const(f32(1, 3, 1, 1))))
        return emit(op.nn.conv2d(y, tools.const(f32(8, 3, 3, 3)), padding=(1,) * 4))

    check([((1, 3, 8, 8), "float32")], body, ["nn.conv2d"])


def test_per_column_scale_stays_after_a_convolution(check, tools):
    def body(emit, x):
        y = emit(op.nn.conv2d(x, tools.const(f32(8, 3, 1, 1))))
        return emit(op.multiply(y, tools.const(f32(8))))

    check(
        [((1, 3, 8, 8), "float32")], body, ["nn.conv2d", "multiply"], declined="more than the output channels"
    )


def test_scale_that_overflows_float16_stays(check, tools):
    def body(emit, x):
        y = emit(op.matmul(x, tools.const(np.full((4, 4), 300, "float16"))))
        return emit(op.multiply(y, tools.const(np.float16(1000), "float16")))

    check([((2, 4), "float16")], body, ["matmul", "multiply"], declined="overflows or vanishes in float16")


def test_integer_division_does_not_enter_a_product(check, tools):
    def body(emit, x):
        y = emit(op.matmul(x, tools.const(np.arange(12, dtype="int32").reshape(4, 3))))
        return emit(op.divide(y, tools.const(7, "int32")))

    check([((2, 4), "int32")], body, ["matmul", "divide"])


def test_a_product_with_other_readers_keeps_its_weights(check, tools):
    def body(emit, x):
        y = emit(op.matmul(x, tools.const(f32(4, 4))))
        return emit(op.multiply(y, tools.const(np.float32(3)))), y

    check([((2, 4), "float32")], body, ["matmul", "multiply"])


def test_exact_mode_folds_nothing_that_rounds(check, tools):
    def body(emit, x):
        return norm(tools, emit, emit(op.nn.conv2d(x, tools.const(f32(6, 4, 1, 1)))), 6)

    check([((1, 4, 3, 3), "float32")], body, ["nn.conv2d", "nn.batch_norm", "item"], mode="exact")


def test_constant_chain_becomes_one_affine(check, tools):
    c = tools.const

    def body(emit, x):
        y = emit(op.add(x, c(f32(1, 3, 1, 1))))
        y = emit(op.subtract(y, c(np.float32(0.5))))
        y = emit(op.multiply(c(f32(1, 3, 1, 1)), y))
        return emit(op.divide(y, c(np.float32(3))))

    check([((1, 3, 4, 4), "float32")], body, ["multiply", "add"])


def test_integer_chain_wraps_exactly(check, tools):
    def body(emit, x):
        y = emit(op.add(x, tools.const(100, "int8")))
        y = emit(op.add(y, tools.const(100, "int8")))
        y = emit(op.multiply(y, tools.const(3, "int8")))
        return emit(op.add(y, tools.const(5, "int8")))

    check([((64,), "int8")], body, ["multiply", "add"], exact=True)


def test_extreme_factors_that_cancel_stay(check, tools):
    def body(emit, x):
        return emit(
            op.multiply(emit(op.multiply(x, tools.const(np.float32(1e30)))), tools.const(np.float32(1e-30)))
        )

    check([((64,), "float32")], body, ["multiply", "multiply"], special=True, declined="move an overflow")


def test_rounding_by_a_large_constant_stays(check, tools):
    magic = tools.const(np.float32(12582912.0))

    def body(emit, x):
        return emit(op.subtract(emit(op.add(x, magic)), magic))

    check([((64,), "float32")], body, ["add", "add"], declined="meant to round")


def test_infinite_constant_stays(check, tools):
    def body(emit, x):
        y = emit(op.add(x, tools.const(np.float32(np.inf))))
        return emit(op.add(y, tools.const(np.float32(0.5))))

    check([((16,), "float32")], body, ["add", "add"], special=True, declined="not finite")
