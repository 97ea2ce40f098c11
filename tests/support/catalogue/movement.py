"""Repeats, transposes, and what is known before run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import BOOL, END, F32, I32, IMAGE, X2, X3, B, Emit, Entry, c, k

PIXELS = [((B, 3, 8, 8), "uint8")]
SIGNED = [((B, 3, 8, 8), "int8")]


def numbers(e: Emit, x: Any, scale: float, zero: int) -> Any:
    return e.multiply(e.astype(e.add(e.astype(x, I32), k(-zero, I32)), F32), k(scale))


def quantised(e: Emit, x: Any, scale: float, zero: int, dtype: str) -> Any:
    limits = np.iinfo(dtype)
    whole = e.add(e.round(e.divide(x, k(scale))), k(zero))
    return e.astype(e.clip(whole, float(limits.min), float(limits.max)), dtype)


def focus(e: Emit, x: Any) -> Any:
    phases = [(0, 0), (1, 0), (0, 1), (1, 1)]
    return e.concat([e.cut(e.cut(x, (2, a, END, 2)), (3, b, END, 2)) for a, b in phases], 1)


def causal(e: Emit, s: Any) -> Any:
    row, column = (e.reshape(e.arange(0, 6, 1, "int64"), shape) for shape in ([6, 1], [1, 6]))
    mask = e.where(e.less_equal(column, row), k(0), k(-np.inf))
    return e.add(s, e.reshape(mask, [1, 6, 6]))


ENTRIES = [
    Entry(
        "Expand before a broadcasting operator",
        [((1, 4), F32), *X2],
        lambda e, x, z: e.add(e.broadcast_to(x, z.ty.shape), z),
        "add",
    ),
    Entry(
        "Tile of a dim of one",
        [((B, 1, 4), F32), *X3],
        lambda e, x, z: e.multiply(e.tile(x, [1, 3, 1]), z),
        "multiply",
    ),
    Entry(
        "Tile->Mul->Add",
        X3,
        lambda e, x: e.add(e.multiply(e.tile(x, [1, 2, 1]), c(4)), k(1)),
        "multiply add tile",
    ),
    Entry(
        "Tile feeding two chains",
        X3,
        lambda e, x: e.add(e.exp(t := e.tile(x, [1, 2, 1])), e.tanh(t)),
        "exp tanh add tile",
    ),
    Entry(
        "bytes transposed as numbers",
        PIXELS,
        lambda e, x: quantised(e, e.permute_dims(numbers(e, x, 0.037, 131), [0, 2, 3, 1]), 0.037, 131, "uint8"),
        "permute_dims",
        "exact",
    ),
    Entry(
        "the largest of bytes as numbers, cut",
        SIGNED,
        lambda e, x: quantised(
            e, e.cut(e.max_pool2d(numbers(e, x, 0.11, -7), [3, 3], padding=[1] * 4), (2, 1, 6, 1)), 0.11, -7, "int8"
        ),
        "nn.max_pool2d strided_slice",
        "exact",
    ),
    Entry("Tile before a unary operator", X3, lambda e, x: e.exp(e.tile(x, [1, 2, 1])), "exp tile"),
    Entry(
        "Transposes around elementwise operators",
        IMAGE,
        lambda e, x: e.permute_dims(e.relu(e.add(e.permute_dims(x, [0, 2, 3, 1]), c(3))), [0, 3, 1, 2]),
        "add nn.relu",
    ),
    Entry(
        "Transpose(Transpose)",
        IMAGE,
        lambda e, x: e.permute_dims(e.permute_dims(x, [0, 2, 3, 1]), [0, 3, 1, 2]),
        "",
    ),
    Entry("Focus", IMAGE, focus, "reshape permute_dims reshape"),
    Entry(
        "Focus+Conv", IMAGE, lambda e, x: e.conv2d(focus(e, x), c(4, 12, 3, 3), padding=(1,) * 4), "nn.conv2d"
    ),
    Entry(
        "MatMul(Gather(const),W)",
        [((B, 3), BOOL)],
        lambda e, i: e.linear(e.take(c(6, 4), e.astype(i, I32), axis=0, mode="clip"), 4, 3),
        "astype take",
    ),
    Entry("causal mask", [((B, 6, 6), F32)], causal, "add"),
    Entry(
        "Expand(Expand)",
        [((1, 4), F32), ((B, 4), F32)],
        lambda e, x, z: [e.broadcast_to(e.broadcast_to(x, z.ty.shape), [5, z.ty.shape[0], 4]), z],
        "broadcast_to",
        "exact",
    ),
    Entry(
        "Expand sinks past a transpose",
        [((1, 3, 4), F32), *X3],
        lambda e, x, z: e.exp(e.permute_dims(e.broadcast_to(x, z.ty.shape), [0, 2, 1])),
        "permute_dims exp broadcast_to",
        "exact",
    ),
    Entry(
        "Expand of positions before a Gather",
        [((1, 3), I32), *X3],
        lambda e, i, z: e.add(z, e.own("gather", c(6, 4), e.broadcast_to(i, [z.ty.shape[0], 3]), axis=0)),
        "halotile.gather add",
    ),
    Entry(
        "Expand along the batch of a product",
        [((1, 3, 2), F32), *X3],
        lambda e, x, z: e.add(z, e.matmul(e.broadcast_to(x, [z.ty.shape[0], 3, 2]), c(1, 2, 4))),
        "matmul add",
    ),
    Entry(
        "Expand dropped in a batched product",
        [((1, 3, 4), F32), ((B, 4, 3), F32)],
        lambda e, x, z: e.matmul(e.broadcast_to(x, [z.ty.shape[0], 3, 4]), z),
        "matmul",
    ),
    Entry(
        "Expand of a table joined to itself",
        [((1, 3, 2), F32), *X3],
        lambda e, x, z: e.multiply(z, e.concat([t := e.broadcast_to(x, [z.ty.shape[0], 3, 2]), t], 2)),
        "concat multiply",
        "exact",
    ),
    Entry(
        "Expand before a function",
        [((1, 3, 4), F32), *X3],
        lambda e, x, z: e.multiply(z, e.cos(e.broadcast_to(x, z.ty.shape))),
        "cos multiply",
    ),
    Entry(
        "Transpose of dims of one",
        [((B, 1, 4, 3), F32)],
        lambda e, x: e.permute_dims(x, [0, 2, 1, 3]),
        "reshape",
        "exact",
    ),
    Entry(
        "three transposes in a row",
        IMAGE,
        lambda e, x: e.permute_dims(
            e.permute_dims(e.permute_dims(x, [0, 2, 3, 1]), [0, 1, 3, 2]), [0, 1, 3, 2]
        ),
        "permute_dims",
        "exact",
    ),
    Entry(
        "patch merging (space to depth, NHWC)",
        [((B, 8, 6, 3), F32)],
        lambda e, x: e.concat([e.cut(x, (1, a, END, 2), (2, b, END, 2)) for b in (0, 1) for a in (0, 1)], 3),
        "reshape permute_dims reshape",
        "exact",
    ),
    Entry(
        "MatMul(Slice(const),W)",
        X3,
        lambda e, x: e.add(x, e.linear(e.cut(c(8, 6), (0, 0, 3, 1)), 6, 4, 3)),
        "add",
    ),
    Entry(
        "positions: a range made a table",
        X3,
        lambda e, x: e.add(
            x, e.reshape(e.take(c(9, 4), e.arange(0, 3, 1, "int64"), axis=0, mode="clip"), [1, 3, 4])
        ),
        "add",
    ),
    Entry(
        "MatMul(Slice(const, :n),W)",
        [((B, 3), F32)],
        lambda e, x: e.add(x, e.linear(e.strided_slice(c(8, 6), [0], [0], [x.ty.shape[0]]), 6, 3, 3)),
        "add",
        open_left="strided_slice add",
    ),
    Entry(
        "sine of a part of a table",
        [((B, 4), F32)],
        lambda e, x: e.add(x, e.sin(e.strided_slice(c(8, 4), [0], [0], [x.ty.shape[0]]))),
        "add",
        open_left="strided_slice add",
    ),
    Entry(
        "Gather of everything in order",
        [((B, 6), F32)],
        lambda e, x: e.take(x, k(np.arange(6).reshape(2, 3), "int64"), axis=1, mode="clip"),
        "reshape",
        "exact",
    ),
    Entry(
        "Gather of a Gather",
        [((B, 6), F32)],
        lambda e, x: e.take(
            e.take(x, k([4, 0, 2, 5], "int64"), axis=1, mode="fast"), k([3, 1, 0], "int64"), axis=1, mode="fast"
        ),
        "take",
        "exact",
    ),
    Entry(
        "Gather of a range",
        [((B, 6), F32)],
        lambda e, x: e.take(x, k(np.arange(2, 5), "int64"), axis=1, mode="clip"),
        "strided_slice",
        "exact",
    ),
    Entry(
        "Gather by the arithmetic of strides (as_strided)",
        [((B, 6), F32)],
        lambda e, x: e.own(
            "gather",
            e.reshape(x, [x.ty.shape[0] * 6]),
            e.add(
                e.reshape(e.multiply(e.arange(0, x.ty.shape[0], 1, "int64"), k(6, "int64")), [x.ty.shape[0], 1]),
                k([[0, 1, 2, 3, 4, 5]], "int64"),
            ),
            axis=0,
        ),
        "",
        "exact",
    ),
    Entry(
        "Transpose of merged axes (keys, as one batch)",
        [((B, 2, 3, 4), F32)],
        lambda e, x: e.reshape(
            e.permute_dims(e.reshape(x, [x.ty.shape[0] * 2, 3, 4]), [0, 2, 1]), [x.ty.shape[0], 2, 4, 3]
        ),
        "permute_dims",
        "exact",
    ),
    Entry(
        "Transpose of split axes that stay together",
        [((B, 6, 4), F32)],
        lambda e, x: e.reshape(
            e.permute_dims(e.reshape(x, [x.ty.shape[0], 2, 3, 4]), [0, 3, 1, 2]), [x.ty.shape[0], 4, 6]
        ),
        "permute_dims",
        "exact",
    ),
    Entry(
        "LayerNorm between reshapes",
        [((B, 1, 1, 4), F32)],
        lambda e, x: e.reshape(
            e.layer_norm(e.reshape(x, [x.ty.shape[0], 1, 4]), c(4), c(4, seed=2), axes=[-1]), [x.ty.shape[0], 4]
        ),
        "reshape nn.layer_norm",
        "exact",
    ),
    Entry(
        "Tanh between reshapes",
        X3,
        lambda e, x: e.reshape(e.tanh(e.reshape(x, [x.ty.shape[0] * 3, 4])), list(x.ty.shape)),
        "tanh",
        "exact",
    ),
]
