"""Constants that go into weights, and pads that go into windows."""

from __future__ import annotations

import numpy as np

from .base import F32, IMAGE, X2, X3, B, Entry, c, k

ENTRIES = [
    Entry(
        "Add before unpadded Conv, with bias",
        IMAGE,
        lambda e, x: e.add(e.conv2d(e.add(x, c(1, 3, 1, 1)), c(4, 3, 3, 3)), c(1, 4, 1, 1)),
        "nn.conv2d add",
    ),
    Entry(
        "Mul before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.multiply(x, c(1, 3, 1, 1)), c(4, 3, 3, 3), padding=(1,) * 4),
        "nn.conv2d",
    ),
    Entry(
        "(x-mean)/std before unpadded Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.divide(e.subtract(x, c(1, 3, 1, 1)), k(0.3)), c(4, 3, 3, 3)),
        "nn.conv2d add",
    ),
    Entry("Conv+BN", IMAGE, lambda e, x: e.norm(e.conv2d(x, c(4, 3, 3, 3)), 4), "nn.conv2d add"),
    Entry(
        "Conv+Add+Mul",
        IMAGE,
        lambda e, x: e.multiply(e.add(e.conv2d(x, c(4, 3, 3, 3)), c(1, 4, 1, 1)), c(1, 4, 1, 1)),
        "nn.conv2d add",
    ),
    Entry(
        "BN before unpadded Conv", IMAGE, lambda e, x: e.conv2d(e.norm(x, 3), c(4, 3, 3, 3)), "nn.conv2d add"
    ),
    Entry("Gemm+BN", X2, lambda e, x: e.norm(e.add(e.linear(x), c(5)), 5), "matmul add"),
    Entry(
        "ConvTranspose+BN",
        IMAGE,
        lambda e, x: e.norm(e.conv2d_transpose(x, c(3, 4, 2, 2), strides=(2, 2)), 4),
        "nn.conv2d_transpose add",
    ),
    Entry(
        "Mul after a depthwise convolution",
        IMAGE,
        lambda e, x: e.multiply(e.conv2d(x, c(3, 1, 3, 3), groups=3), c(1, 3, 1, 1)),
        "nn.conv2d",
    ),
    Entry("negation after Conv", IMAGE, lambda e, x: e.negative(e.conv2d(x, c(4, 3, 3, 3))), "nn.conv2d"),
    Entry(
        "Conv1d and its scale",
        [((B, 3, 9), F32)],
        lambda e, x: e.multiply(e.conv1d(x, c(4, 3, 3)), c(1, 4, 1)),
        "nn.conv1d",
    ),
    Entry(
        "LayerNorm and what follows",
        X3,
        lambda e, x: e.add(
            e.multiply(e.layer_norm(x, k(np.ones(4)), k(np.zeros(4)), axes=[-1]), c(4)), c(4, seed=2)
        ),
        "nn.layer_norm",
    ),
    Entry(
        "RMSNorm and its scale",
        X3,
        lambda e, x: e.multiply(e.rms_norm(x, k(np.ones(4)), axes=[-1]), c(4)),
        "nn.rms_norm",
    ),
    Entry(
        "Pad(0) of what is never negative, then MaxPool",
        IMAGE,
        lambda e, x: e.max_pool2d(e.pad(e.relu(x), [0] * 4 + [1] * 4), (3, 3)),
        "nn.relu nn.max_pool2d",
    ),
    Entry(
        "Pad(Pad)",
        IMAGE,
        lambda e, x: e.pad(e.pad(x, [0] * 4 + [1] * 4), [0] * 4 + [0, 2] * 2),
        "nn.pad",
        "exact",
    ),
    Entry("constants of constants", X3, lambda e, x: e.add(x, e.exp(e.multiply(k(2), k(3)))), "add"),
    Entry("a constant that repeats", X3, lambda e, x: e.add(x, k(np.full((3, 4), 0.5))), "add", "exact"),
    Entry(
        "Add before unpadded Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.add(x, c(1, 3, 1, 1)), c(4, 3, 3, 3)),
        "nn.conv2d add",
    ),
    Entry(
        "(x-mean)/std before a padded Conv: the scale goes",
        IMAGE,
        lambda e, x: e.conv2d(
            e.divide(e.subtract(x, c(1, 3, 1, 1)), k([[[0.2]], [[0.3]], [[0.4]]])), c(4, 3, 3, 3), padding=(1,) * 4
        ),
        "add nn.conv2d",
    ),
    Entry("Add before MatMul", X3, lambda e, x: e.linear(e.add(x, c(4))), "matmul add"),
    Entry(
        "Add before MatMul, weights first", X3, lambda e, x: e.matmul(c(5, 3), e.add(x, c(3, 1))), "matmul add"
    ),
    Entry("Add before MatMul of vectors", [((4,), F32)], lambda e, x: e.linear(e.add(x, c(4))), "matmul add"),
    Entry(
        "channels in another order before Conv",
        IMAGE,
        lambda e, x: e.conv2d(e.take(x, k([2, 1, 0], "int64"), axis=1, mode="clip"), c(4, 3, 3, 3)),
        "nn.conv2d",
    ),
    Entry(
        "channels in reverse order before Conv",
        [((2, 3, 8, 8), F32)],
        lambda e, x: e.conv2d(
            e.own("slice", x, begin=[0, 2, 0, 0], step=[1, -1, 1, 1], shape=[2, 3, 8, 8]), c(4, 3, 3, 3)
        ),
        "nn.conv2d",
        dynamic="the operator has a known shape",
    ),
    Entry(
        "Conv+BN before a rounding: a sum has no last bit",
        IMAGE,
        lambda e, x: e.round(e.norm(e.conv2d(x, c(4, 3, 3, 3)), 4)),
        "nn.conv2d add round",
    ),
]
