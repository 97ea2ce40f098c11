"""More models on which a careless rule fires: where rounding decides, where a bound is open, where a value may wrap."""

from __future__ import annotations

import math

import numpy as np

from .base import BOOL, F32, I32, IMAGE, X2, X3, B, Entry, c, k

STEPS = [
    Entry("Floor(x/49): 49 * (1/49) is below one", X2, lambda e, x: e.floor(e.divide(x, k(49))), "divide floor"),
    Entry(
        "Cast((x+1)*3) to integers: where it rounds decides",
        X2,
        lambda e, x: e.astype(e.multiply(e.add(e.clip(x, -9.0, 9.0), k(0.1)), k(3)), I32),
        "clip add multiply astype",
    ),
    Entry("x/3 == 1", X2, lambda e, x: e.equal(e.divide(x, k(3)), k(1)), "divide equal"),
    Entry(
        "Floor of a sum by way of a transpose",
        X3,
        lambda e, x: e.floor(e.permute_dims(e.divide(x, k(10)), [0, 2, 1])),
        "divide permute_dims floor",
    ),
    Entry(
        "1/Pow(relu(x),.5): the sign of zero",
        X2,
        lambda e, x: e.divide(k(1), e.power(e.relu(x), k(0.5))),
        "nn.relu power divide",
    ),
    Entry(
        "1e30 after MatMul: overflow", X3, lambda e, x: e.multiply(e.linear(x), k(1e30)), "matmul multiply"
    ),
    Entry(
        "1e30 before MatMul: overflow", X3, lambda e, x: e.linear(e.multiply(x, k(1e30))), "multiply matmul"
    ),
    Entry("Mul by rows after MatMul", X3, lambda e, x: e.multiply(e.linear(x), c(3, 1)), "matmul multiply"),
    Entry(
        "Mul by rows of a product whose left operand is no product",
        [*X3, ((B, 4, 4), F32)],
        lambda e, x, z: e.multiply(e.matmul(x, e.linear(z)), c(3, 1)),
        "matmul matmul multiply",
    ),
    Entry(
        "Mul by heads that broadcast the heads",
        X3,
        lambda e, x: e.multiply(e.reshape(e.linear(x, 4, 4), [x.ty.shape[0], 1, 3, 4]), c(2, 1, 1)),
        "matmul reshape multiply",
    ),
    Entry(
        "transposes around a mean, bit for bit",
        IMAGE,
        lambda e, x: e.permute_dims(e.mean(e.permute_dims(x, [0, 2, 3, 1]), [1, 2], True), [0, 3, 1, 2]),
        "permute_dims mean reshape",
        "exact",
    ),
    Entry(
        "Pad(0) before MaxPool: a cast that wraps",
        [((B, 3, 8, 8), I32)],
        lambda e, x: e.max_pool2d(e.pad(e.astype(e.astype(e.abs(x), "int8"), F32), [0] * 4 + [1] * 4), (3, 3)),
        "abs astype astype nn.pad nn.max_pool2d",
    ),
    Entry(
        "Pad(0) of what is never negative before a MaxPool with ceil_mode",
        IMAGE,
        lambda e, x: e.max_pool2d(e.pad(e.abs(x), [0] * 4 + [1] * 4), (3, 3), (4, 4), ceil_mode=True),
        "abs nn.pad nn.max_pool2d",
    ),
    Entry(
        "Add before a transposed Conv",
        IMAGE,
        lambda e, x: e.conv2d_transpose(e.add(x, c(1, 3, 1, 1)), c(3, 4, 2, 2), strides=(2, 2)),
        "add nn.conv2d_transpose",
    ),
    Entry(
        "Slice of Concat that may lie behind an open piece",
        [((3, B), F32), ((3, 2), F32)],
        lambda e, x, y: e.cut(e.concat([x, y], 1), (1, 0, 3, 1)),
        "concat strided_slice",
        dynamic="the fixed length composes",
    ),
    Entry(
        "(1 - m) * c where m is no flag",
        [((B, 4), I32)],
        lambda e, m: e.astype(e.subtract(k(1), e.astype(m, F32)), BOOL),
        "astype subtract astype",
    ),
    Entry(
        "(1 - m) of flags that the constant broadcasts",
        [((4,), BOOL)],
        lambda e, m: e.subtract(k(np.ones((3, 1))), e.astype(m, F32)),
        "astype subtract",
    ),
    Entry(
        "Not(Less) of a float sum",
        X2,
        lambda e, x: e.logical_not(e.less(e.add(e.astype(e.isnan(x), F32), x), k(1))),
        "isnan astype add less logical_not",
    ),
    Entry(
        "SiLU of two tensors, as a quotient",
        X3 * 2,
        lambda e, x, y: e.divide(y, e.add(e.exp(e.negative(x)), k(1))),
        "negative exp add divide",
    ),
    Entry(
        "GELU with a half too many",
        X3,
        lambda e, x: e.multiply(
            e.multiply(x, k(0.5)), e.add(e.multiply(e.erf(e.multiply(x, k(math.sqrt(0.5)))), k(0.5)), k(0.5))
        ),
        "multiply erf multiply add multiply multiply",
    ),
    Entry(
        "Gather by strides that overlap",
        [((B, 6), F32)],
        lambda e, x: e.take(x, k([[0, 1, 2], [1, 2, 3]], "int64"), axis=1, mode="clip"),
        "take",
    ),
    Entry(
        "Gather of a part into two axes",
        [((B, 6), F32)],
        lambda e, x: e.take(x, k([[0, 1], [2, 3]], "int64"), axis=1, mode="clip"),
        "take",
    ),
    Entry(
        "Gather backwards",
        [((B, 6), F32)],
        lambda e, x: e.take(x, k([5, 4, 3, 2, 1, 0], "int64"), axis=1, mode="clip"),
        "take",
    ),
    Entry(
        "Transpose of split axes that part",
        [((B, 6, 4), F32)],
        lambda e, x: e.reshape(
            e.permute_dims(e.reshape(x, [x.ty.shape[0], 2, 3, 4]), [0, 2, 1, 3]), [x.ty.shape[0], 6, 4]
        ),
        "reshape permute_dims reshape",
    ),
    Entry(
        "LayerNorm between reshapes that change its axis",
        X3,
        lambda e, x: e.reshape(
            e.layer_norm(e.reshape(x, [x.ty.shape[0], 12]), c(12), c(12, seed=2), axes=[-1]), list(x.ty.shape)
        ),
        "reshape nn.layer_norm reshape",
    ),
    Entry(
        "channels that are chosen twice before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.take(x, k([2, 2, 0], "int64"), axis=1, mode="clip"), c(4, 3, 3, 3)),
        "take nn.conv2d",
    ),
    Entry(
        "a scale on one side of a product only",
        [((B, 3, 4), F32), ((B, 4, 5), F32)],
        lambda e, q, z: e.matmul(e.multiply(q, k(0.7)), z),
        "multiply matmul",
    ),
]
