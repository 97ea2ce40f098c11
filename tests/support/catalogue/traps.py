"""Models on which a careless rule fires and changes values; ``left`` is what must remain, exactly."""

from __future__ import annotations

import math

import numpy as np

from .base import BOOL, END, F32, FLAGS, I32, I64, IMAGE, X2, X3, B, Emit, Entry, c, k
from .movement import PIXELS, SIGNED, focus, numbers, quantised
from .steps import STEPS

F16 = [((B, 4), "float16")]


def layer_norm(e: Emit, x, mean_axis=-1, variance_axis=-1, centre=None):
    d = e.subtract(x, e.mean(x if centre is None else centre, [mean_axis], True))
    return e.divide(d, e.sqrt(e.add(e.mean(e.multiply(d, d), [variance_axis], True), k(1e-5))))


def half(e: Emit, x, value):
    return e.multiply(e.matmul(x, k(np.full((4, 5), 300.0), "float16")), k(value, "float16"))


NORM = "mean subtract multiply mean add sqrt divide"
SPECIAL = [
    Entry(
        "Not(Less) of floats: NaN", X2 * 2, lambda e, a, b: e.logical_not(e.less(a, b)), "less logical_not"
    ),
    Entry("x == x of floats: NaN", X2, lambda e, x: e.equal(x, x), "equal"),
    Entry("x >= x of floats: NaN", X2, lambda e, x: e.greater_equal(x, x), "greater_equal"),
    Entry("x - x of floats: inf - inf", X2, lambda e, x: e.subtract(x, x), "subtract"),
    Entry("x * 0 of floats: NaN", X2, lambda e, x: e.multiply(x, k(0)), "multiply"),
    Entry("Sum / another count", X3, lambda e, x: e.divide(e.sum(x, [1], True), k(4)), "sum multiply"),
    Entry(
        "i - j >= 0 of data: overflow",
        [((B, 4), I64)] * 2,
        lambda e, a, b: e.greater_equal(e.subtract(a, b), k(0, I64)),
        "subtract greater_equal",
    ),
    Entry("x + inf", X2, lambda e, x: e.add(e.add(x, k(np.inf)), k(1)), "add add"),
    Entry("Pow(x,.5): -inf", X2, lambda e, x: e.power(x, k(0.5)), "power"),
    Entry("Pow(x,-.5): -inf", X2, lambda e, x: e.power(x, k(-0.5)), "power"),
    Entry("Log(Softmax): a vanished probability", X2, lambda e, x: e.log(e.softmax(x, -1)), "nn.softmax log"),
    Entry(
        "Exp/Sum without the maximum: overflow",
        X2,
        lambda e, x: e.divide(t := e.exp(x), e.sum(t, [-1], True)),
        "exp sum divide",
    ),
    Entry("Log(1+Exp): overflow", X2, lambda e, x: e.log(e.add(k(1), e.exp(x))), "exp add log"),
    Entry("1/(x+0): the sign of zero", X2, lambda e, x: e.divide(k(1), e.add(x, k(0))), "add divide"),
    Entry(
        "x * 1e30 * 1e-30: overflow",
        X2,
        lambda e, x: e.multiply(e.multiply(x, k(1e30)), k(1e-30)),
        "multiply multiply",
    ),
    Entry("x + 1e8 - 1e8: rounding", X2, lambda e, x: e.subtract(e.add(x, k(1e8)), k(1e8)), "add add"),
    Entry("x / 1e-39: no normal reciprocal", X2, lambda e, x: e.divide(x, k(1e-39)), "divide"),
    Entry("float16 weights that overflow", F16, lambda e, x: half(e, x, 300.0), "matmul multiply"),
    Entry(
        "-0.0 and 0.0 are two constants",
        X2,
        lambda e, x: [e.divide(x, k(0.0)), e.divide(x, k(-0.0))],
        "divide divide",
    ),
]

SHAPES = [
    Entry(
        "And(x, true) that broadcasts x",
        [((4,), BOOL)],
        lambda e, x: e.logical_and(x, k(np.ones((2, 4)), BOOL)),
        "logical_and",
    ),
    Entry(
        "Where(true,x,y) that broadcasts x",
        [((1, 4), F32), *X2],
        lambda e, x, y: e.where(k(True, BOOL), x, y),
        "broadcast_to",
    ),
    Entry(
        "x * ones that broadcast x", [((4,), F32)], lambda e, x: e.multiply(x, k(np.ones((3, 1)))), "multiply"
    ),
    Entry(
        "x + zeros that broadcast x", [((4,), F32)], lambda e, x: e.subtract(x, k(np.zeros((3, 1)))), "add"
    ),
    Entry(
        "Cast f32->i32->f32",
        X2,
        lambda e, x: e.astype(e.astype(e.clip(x, -9.0, 9.0), I32), F32),
        "clip astype astype",
    ),
    Entry("Cast f32->f16->f32", X2, lambda e, x: e.astype(e.astype(x, "float16"), F32), "astype astype"),
    Entry(
        "Cast i64->i32->i64", [((B, 4), I64)], lambda e, x: e.astype(e.astype(x, I32), I64), "astype astype"
    ),
    Entry(
        "Cast i32->f32->i32", [((B, 4), I32)], lambda e, x: e.astype(e.astype(x, F32), I32), "astype astype"
    ),
    Entry(
        "Slice across the pieces of a Concat",
        X3 * 2,
        lambda e, x, y: e.cut(e.concat([x, y], 1), (1, 2, 5, 1)),
        "concat strided_slice",
    ),
    Entry(
        "Concat of slices out of order",
        X3,
        lambda e, x: e.concat([e.cut(x, (2, 2, 4, 1)), e.cut(x, (2, 0, 2, 1))], 2),
        "strided_slice strided_slice concat",
    ),
    Entry(
        "Concat of slices along another axis",
        X3,
        lambda e, x: e.concat([e.cut(x, (2, 0, 2, 1)), e.cut(x, (2, 2, 4, 1))], 1),
        "strided_slice strided_slice concat",
    ),
    Entry(
        "Concat of slices that overlap",
        X3,
        lambda e, x: e.concat([e.cut(x, (2, 0, 3, 1)), e.cut(x, (2, 2, 4, 1))], 2),
        "strided_slice strided_slice concat",
    ),
    Entry(
        "a true repeat added to its source",
        X3,
        lambda e, x: e.add(e.tile(x, [1, 2, 1]), e.concat([x, x], 1)),
        "tile concat add",
    ),
    Entry(
        "a sum over the repeated axis",
        [((B, 1, 4), F32)],
        lambda e, x: e.sum(e.broadcast_to(x, [x.ty.shape[0], 3, 4]), [1]),
        "broadcast_to sum",
    ),
    Entry(
        "Softmax over the repeated axis",
        [((B, 1, 4), F32)],
        lambda e, x: e.softmax(e.broadcast_to(x, [x.ty.shape[0], 3, 4]), 1),
        "broadcast_to nn.softmax",
    ),
    Entry(
        "Expand that gives the result its shape",
        [((1, 4), F32), *X2],
        lambda e, x, z: e.add(e.broadcast_to(x, [z.ty.shape[0], 4]), e.exp(x)),
        "exp add broadcast_to",
    ),
    Entry(
        "Reshape that mixes the repeated dim",
        [((B, 1, 4), F32)],
        lambda e, x: e.reshape(e.broadcast_to(x, [x.ty.shape[0], 3, 4]), [x.ty.shape[0], 12]),
        "broadcast_to reshape",
    ),
    Entry(
        "Concat along the repeated axis",
        [((B, 1, 4), F32)],
        lambda e, x: e.concat([t := e.broadcast_to(x, [x.ty.shape[0], 3, 4]), e.exp(t)], 1),
        "exp broadcast_to concat",
    ),
    Entry(
        "Focus with a phase twice",
        IMAGE,
        lambda e, x: e.concat(
            [e.cut(x, (2, a, END, 2), (3, b, END, 2)) for a, b in ((0, 0), (1, 0), (0, 1), (0, 1))], 1
        ),
        "strided_slice strided_slice strided_slice concat",
    ),
    Entry(
        "transposes around a product",
        X3,
        lambda e, x: e.permute_dims(e.linear(e.permute_dims(x, [0, 2, 1]), 3, 3), [0, 2, 1]),
        "permute_dims matmul permute_dims",
    ),
]

FOLDS = [
    Entry(
        "Pad(0) before MaxPool: negative elements",
        IMAGE,
        lambda e, x: e.max_pool2d(e.pad(x, [0] * 4 + [1] * 4), (3, 3)),
        "nn.pad nn.max_pool2d",
    ),
    Entry(
        "Pad(-inf) wider than the window of MaxPool",
        IMAGE,
        lambda e, x: e.max_pool2d(e.pad(x, [0] * 4 + [3] * 4, "constant", -np.inf), (3, 3)),
        "nn.pad nn.max_pool2d",
    ),
    Entry(
        "Pad(1) before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.pad(x, [0] * 4 + [1] * 4, "constant", 1.0), c(4, 3, 3, 3)),
        "nn.pad nn.conv2d",
    ),
    Entry(
        "Pad(reflect) before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.pad(x, [0] * 4 + [1] * 4, "reflect"), c(4, 3, 3, 3)),
        "nn.pad nn.conv2d",
    ),
    Entry(
        "Pad of the channels before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.pad(x, [0, 0, 1, 0] + [1] * 4), c(4, 4, 3, 3)),
        "nn.pad nn.conv2d",
    ),
    Entry(
        "Pad before a pool that does not count its own",
        IMAGE,
        lambda e, x: e.avg_pool2d(e.pad(x, [0] * 4 + [1] * 4), (3, 3), padding=(1,) * 4),
        "nn.pad nn.avg_pool2d",
    ),
    Entry(
        "Pads of two fills",
        IMAGE,
        lambda e, x: e.pad(e.pad(x, [0] * 4 + [1] * 4), [0] * 4 + [1] * 4, "constant", 2.0),
        "nn.pad nn.pad",
    ),
    Entry(
        "Add before a padded Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.add(x, c(1, 3, 1, 1)), c(4, 3, 3, 3), padding=(1,) * 4),
        "add nn.conv2d",
    ),
    Entry(
        "Mul by columns after Conv",
        IMAGE,
        lambda e, x: e.multiply(e.conv2d(x, c(4, 3, 3, 3)), c(1, 1, 1, 6)),
        "nn.conv2d multiply",
    ),
    Entry("Mul by rows before MatMul", X3, lambda e, x: e.linear(e.multiply(x, c(3, 1))), "multiply matmul"),
    Entry(
        "Mul of a Conv with other readers",
        IMAGE,
        lambda e, x: [e.multiply(t := e.conv2d(x, c(4, 3, 3, 3)), c(1, 4, 1, 1)), e.exp(t)],
        "nn.conv2d multiply exp",
    ),
    Entry(
        "Mul of a product that is an output",
        X3,
        lambda e, x: [t := e.linear(x), e.multiply(t, c(5))],
        "matmul multiply",
    ),
    Entry(
        "a bias between an output and two Adds",
        X3,
        lambda e, x: [
            t := e.add(e.linear(x), c(5)),
            e.exp(e.add(t, c(5, seed=2))),
            e.tanh(e.add(t, c(5, seed=3))),
        ],
        "matmul add add exp add tanh",
    ),
    Entry(
        "integers divided after a product",
        [((B, 4), I32)],
        lambda e, x: e.own("integer_divide", e.matmul(x, k(np.arange(20).reshape(4, 5), I32)), k(2, I32)),
        "matmul halotile.integer_divide",
    ),
    Entry(
        "integers floor-divided by a power of two",
        [((B, 4), I32)],
        lambda e, x: e.floor_divide(x, k(4, I32)),
        "floor_divide",
    ),
    Entry(
        "Div of two products of variables",
        X3 * 2,
        lambda e, q, z: e.divide(e.matmul(q, e.permute_dims(z, [0, 2, 1])), k(3)),
        "permute_dims matmul multiply",
    ),
    Entry(
        "BatchNorm that trains",
        IMAGE,
        lambda e, x: e.emit(
            e.batch_norm(
                x, k(np.ones(3)), k(np.zeros(3)), k(np.zeros(3)), k(np.ones(3)), axis=1, training=True
            )[0]
        ),
        "nn.batch_norm item",
    ),
    Entry(
        "LayerNorm scaled by rows",
        X3,
        lambda e, x: e.multiply(e.layer_norm(x, k(np.ones(4)), k(np.zeros(4)), axes=[-1]), c(3, 1)),
        "nn.layer_norm multiply",
    ),
    Entry(
        "Focus before a dilated Conv",
        IMAGE,
        lambda e, x: e.conv2d(focus(e, x), c(4, 12, 2, 2), dilation=(2, 2)),
        "reshape permute_dims reshape nn.conv2d",
    ),
    Entry(
        "Gather whose product would be larger",
        [((B, 3), I32)],
        lambda e, i: e.linear(e.own("gather", c(600, 2), e.clip(i, 0, 5), axis=0), 2, 64),
        "clip halotile.gather matmul",
    ),
]

FORMS = [
    Entry(
        "GELU with another root",
        X3,
        lambda e, x: e.multiply(e.multiply(x, e.add(e.erf(e.divide(x, k(1.5))), k(1))), k(0.5)),
        "multiply erf add multiply multiply",
    ),
    Entry(
        "GELU of two tensors",
        X3 * 2,
        lambda e, x, y: e.multiply(
            e.multiply(y, e.add(e.erf(e.multiply(x, k(math.sqrt(0.5)))), k(1))), k(0.5)
        ),
        "multiply erf add multiply multiply",
    ),
    Entry("LayerNorm with the mean of another axis", X3, lambda e, x: layer_norm(e, x, mean_axis=1), NORM),
    Entry(
        "LayerNorm with the variance of another axis",
        X3,
        lambda e, x: layer_norm(e, x, variance_axis=1),
        NORM,
    ),
    Entry(
        "LayerNorm around another tensor's mean",
        X3 * 2,
        lambda e, x, y: layer_norm(e, x, centre=y),
        "mean subtract nn.rms_norm",
    ),
    Entry("SiLU of two tensors", X3 * 2, lambda e, x, y: e.multiply(x, e.sigmoid(y)), "sigmoid multiply"),
    Entry(
        "Mish of two tensors",
        X3 * 2,
        lambda e, x, y: e.multiply(x, e.tanh(e.own("softplus", y))),
        "halotile.softplus tanh multiply",
    ),
    Entry(
        "HardSwish with another limit",
        X3,
        lambda e, x: e.multiply(x, e.multiply(e.clip(e.add(x, k(3)), 0.0, 5.0), k(1 / 6))),
        "add clip multiply multiply",
    ),
    Entry(
        "HardSwish of two tensors",
        X3 * 2,
        lambda e, x, y: e.multiply(y, e.multiply(e.clip(e.add(x, k(3)), 0.0, 6.0), k(1 / 6))),
        "halotile.hard_sigmoid multiply",
    ),
    Entry(
        "Min(Max(x,6),0): crossed bounds",
        X3,
        lambda e, x: e.minimum(e.maximum(x, k(6)), k(0)),
        "maximum minimum",
    ),
    Entry(
        "Softmax with the maximum of another axis",
        X3,
        lambda e, x: e.divide(t := e.exp(e.subtract(x, e.max(x, [1], True))), e.sum(t, [2], True)),
        "max subtract exp sum divide",
    ),
    Entry(
        "Einsum with a letter twice",
        [((B, 4, 4), F32)] * 2,
        lambda e, a, b: e.own("einsum", a, b, equation="bii,bij->bj"),
        "halotile.einsum",
    ),
    Entry(
        "Relu(Tanh), Floor(Exp)",
        X3,
        lambda e, x: e.relu(e.tanh(e.floor(e.exp(x)))),
        "exp floor tanh nn.relu",
    ),
    Entry(
        "a mean reshaped otherwise",
        IMAGE,
        lambda e, x: e.reshape(e.mean(x, [2, 3], True), [x.ty.shape[0], 1, 3]),
        "mean reshape",
    ),
    Entry(
        "bytes moved into another scale",
        PIXELS,
        lambda e, x: quantised(e, e.permute_dims(numbers(e, x, 0.037, 131), [0, 2, 3, 1]), 0.036, 131, "uint8"),
        "add add astype astype astype clip divide multiply permute_dims round",
    ),
    Entry(
        "the largest of bytes that count down",
        SIGNED,
        lambda e, x: quantised(e, e.max_pool2d(numbers(e, x, -0.11, 0), [3, 3]), -0.11, 0, "int8"),
        "astype astype clip divide multiply nn.max_pool2d round",
    ),
    Entry(
        "Where(Not) whose flags have other readers",
        [*FLAGS, *X2],
        lambda e, f, x: [t := e.logical_not(f), e.where(t, x, k(0))],
        "logical_not where",
    ),
]

ENTRIES = [*SPECIAL, *SHAPES, *FOLDS, *FORMS, *STEPS]
