"""Rewrites of reshapes, slices, casts and pads."""

from __future__ import annotations

import numpy as np

from .base import END, F32, FLAGS, I32, IMAGE, X3, B, Entry, c

ENTRIES = [
    Entry(
        "Reshape(Reshape)",
        X3,
        lambda e, x: e.reshape(e.reshape(x, [x.ty.shape[0], 12]), [x.ty.shape[0], 4, 3]),
        "reshape",
    ),
    Entry(
        "x[0:-2:2][0:-2:2], L=16",
        [((B, 16), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, -2, 2)), (1, 0, -2, 2)),
        "strided_slice",
    ),
    Entry(
        "x[0:-2:2][0:-2:2], L=17",
        [((B, 17), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, -2, 2)), (1, 0, -2, 2)),
        "strided_slice",
    ),
    Entry(
        "x[::2][::2]",
        [((B, 17), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, END, 2)), (1, 0, END, 2)),
        "strided_slice",
    ),
    Entry(
        "x[2:10][1:5]",
        [((B, 16), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 2, 10, 1)), (1, 1, 5, 1)),
        "strided_slice",
    ),
    Entry(
        "slices of different axes",
        X3,
        lambda e, x: e.cut(e.cut(x, (1, 0, 2, 1)), (2, 1, 3, 1)),
        "strided_slice",
    ),
    Entry("x[0:INT_MAX]", X3, lambda e, x: e.cut(x, (1, 0, END, 1)), ""),
    Entry("Slice(Concat)", X3 * 2, lambda e, x, y: e.cut(e.concat([x, y], 1), (1, 3, 6, 1)), ""),
    Entry("Split+Concat", X3, lambda e, x: e.concat([e.cut(x, (2, j, j + 2, 1)) for j in (0, 2)], 2), ""),
    Entry("Concat(Concat)", X3 * 2, lambda e, x, y: e.concat([e.concat([x, y], 1), x], 1), "concat"),
    Entry("Cast f32->f64->f32", X3, lambda e, x: e.astype(e.astype(x, "float64"), F32), ""),
    Entry("Cast i32->i64->i32", [((B, 4), I32)], lambda e, x: e.astype(e.astype(x, "int64"), I32), ""),
    Entry(
        "Pad(0)+Conv", IMAGE, lambda e, x: e.conv2d(e.pad(x, [0] * 4 + [1] * 4), c(4, 3, 3, 3)), "nn.conv2d"
    ),
    Entry(
        "Pad(-inf)+MaxPool",
        IMAGE,
        lambda e, x: e.max_pool2d(e.pad(x, [0] * 4 + [1] * 4, "constant", -np.inf), (3, 3)),
        "nn.max_pool2d",
    ),
    Entry(
        "Pad(0)+AveragePool",
        IMAGE,
        lambda e, x: e.avg_pool2d(e.pad(x, [0] * 4 + [1] * 4), (3, 3)),
        "nn.avg_pool2d",
    ),
    Entry("Reshape to its own shape", X3, lambda e, x: e.reshape(x, list(x.ty.shape)), "", "exact"),
    Entry("Unsqueeze and Squeeze", X3, lambda e, x: e.squeeze(e.expand_dims(x, [1]), [1]), "", "exact"),
    Entry(
        "Flatten and Reshape",
        IMAGE,
        lambda e, x: e.reshape(e.reshape(x, [x.ty.shape[0], 192]), [x.ty.shape[0], 3, 64]),
        "reshape",
        "exact",
    ),
    Entry(
        "mean kept, then its dims dropped",
        IMAGE,
        lambda e, x: e.squeeze(e.max(x, [2, 3], True), [2, 3]),
        "max",
        "exact",
    ),
    Entry(
        "mean dropped, then its dims put back",
        IMAGE,
        lambda e, x: e.reshape(e.sum(x, [2, 3]), [x.ty.shape[0], 3, 1, 1]),
        "sum",
    ),
    Entry(
        "Pad by nothing, Tile by one",
        IMAGE,
        lambda e, x: e.tile(e.pad(x, [0] * 8), [1, 1, 1, 1]),
        "",
        "exact",
    ),
    Entry("Concat of one", X3, lambda e, x: e.concat([x], 1), "", "exact"),
    Entry("Cast to its own type", X3, lambda e, x: e.astype(x, F32), "", "exact"),
    Entry("Cast bool->i32->f32", FLAGS, lambda e, x: e.astype(e.astype(x, I32), F32), "astype", "exact"),
    Entry(
        "neighbouring slices joined",
        [((B, 9), F32)],
        lambda e, x: e.concat([e.cut(x, (1, 1, 4, 1)), e.cut(x, (1, 4, 7, 1))], 1),
        "strided_slice",
        "exact",
    ),
    Entry(
        "slices of an open axis",
        [((3, B), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, -2, 2)), (1, 0, END, 3)),
        "strided_slice",
        "exact",
    ),
    Entry(
        "x[:6][:-2] of open length",
        [((3, B), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 0, 6, 1)), (1, 0, -2, 1)),
        "strided_slice",
        "exact",
    ),
    Entry(
        "x[-5:][1:] of open length",
        [((3, B), F32)],
        lambda e, x: e.cut(e.cut(x, (1, -5, END, 1)), (1, 1, END, 1)),
        "strided_slice",
        "exact",
    ),
    Entry(
        "x[1:][-2:] of open length",
        [((3, B), F32)],
        lambda e, x: e.cut(e.cut(x, (1, 1, END, 1)), (1, -2, END, 1)),
        "strided_slice",
        "exact",
    ),
    Entry(
        "Slice of Concat before an open piece",
        [((3, 2), F32), ((3, B), F32)],
        lambda e, x, y: e.cut(e.concat([x, y], 1), (1, 1, 2, 1)),
        "strided_slice",
        "exact",
    ),
    Entry(
        "Slice of Concat that is the open piece",
        [((3, 2), F32), ((3, B), F32)],
        lambda e, x, y: e.cut(e.concat([x, y], 1), (1, 2, END, 1)),
        "",
        "exact",
    ),
    Entry(
        "Slice of Concat counted from the end",
        [((3, B), F32), ((3, 2), F32)],
        lambda e, x, y: e.cut(e.concat([x, y], 1), (1, -1, END, 1)),
        "strided_slice",
        "exact",
    ),
    Entry(
        "Slice of Concat that takes whole pieces",
        X3 * 2,
        lambda e, x, y: e.cut(e.concat([x, y, e.abs(x)], 1), (1, 3, 9, 1)),
        "abs concat",
        "exact",
    ),
    Entry(
        "x[::-1][::-1]",
        [((2, 9), F32)],
        lambda e, x: e.own(
            "slice", e.own("slice", x, begin=[0, 8], step=[1, -1], shape=[2, 9]),
            begin=[0, 8], step=[1, -1], shape=[2, 9],
        ),
        "",
        "exact",
        "the operator has a known shape",
    ),
    Entry(
        "x[8::-2][1:3:-1]",
        [((2, 9), F32)],
        lambda e, x: e.own(
            "slice", e.own("slice", x, begin=[0, 8], step=[1, -2], shape=[2, 5]),
            begin=[0, 3], step=[1, -1], shape=[2, 3],
        ),
        "strided_slice",
        "exact",
        "the operator has a known shape",
    ),
]
