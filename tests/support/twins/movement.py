"""Gathers, tiles and windows along open dims."""

from __future__ import annotations

from typing import Any

import numpy as np
from exports import END, Raw
from onnx import TensorProto

from .base import Dims, twin
from .slices import length


@twin("bytes transposed as numbers")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w), TensorProto.UINT8)
    scale, zero = g.f(0.037), g.const(131, "uint8")
    y = g("Transpose", g("DequantizeLinear", x, scale, zero), perm=[0, 2, 3, 1])
    return g("Cast", g("QuantizeLinear", y, scale, zero), to=TensorProto.FLOAT)


@twin("bytes viewed, sliced and joined as numbers", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12), TensorProto.UINT8)
    scale, zero = g.f(0.037), g.const(131, "uint8")
    y = g.slice(g.view(g("DequantizeLinear", x, scale, zero), g.size(x, 0), g.size(x, 1), 3, 4), 1, 1, -1)
    return g("Cast", g("QuantizeLinear", y, scale, zero), to=TensorProto.FLOAT)


@twin("Gather of a table, projected")
def _(g: Raw, d: Dims) -> Any:
    ids = g.input("ids", (d.b, d.n), TensorProto.INT64)
    return g("MatMul", g("Gather", g.weight(8, 6), ids), g.weight(6, 4))


@twin("embedding: Gather, Reshape, Reshape")
def _(g: Raw, d: Dims) -> Any:
    ids = g.input("ids", (d.b, d.n), TensorProto.INT64)
    y = g("Gather", g.weight(8, 6), g("Reshape", ids, g.const([-1])))
    return g("Reshape", y, g("Concat", g("Shape", ids), g.const([6]), axis=0))


@twin("Tile feeding two chains")
def _(g: Raw, d: Dims) -> Any:
    t = g("Tile", g.input("x", (d.b, d.n, 4)), g.const([1, 2, 1]))
    return g("Add", g("Exp", t), g("Tanh", t))


@twin("Tile, Mul and Add by constants")
def _(g: Raw, d: Dims) -> Any:
    t = g("Tile", g.input("x", (d.b, d.n, 4)), g.const([1, 2, 1]))
    return g("Add", g("Mul", t, g.weight(4)), g.f(2))


@twin("Expand sinks past a transpose and a function")
def _(g: Raw, d: Dims) -> Any:
    x, z = g.input("x", (1, d.n, 4)), g.input("z", (d.b, d.n, 4))
    return g("Mul", g("Cos", g("Transpose", g("Expand", x, g("Shape", z)), perm=[0, 2, 1])),
             g("Transpose", z, perm=[0, 2, 1]))  # fmt: skip


@twin("a grid of two Ranges joined (meshgrid of inputs)")
def _(g: Raw, d: Dims) -> Any:
    a, b = g.input("a", (d.h,)), g.input("b", (d.w,))
    shape = g("Concat", length(g, a, 0), length(g, b, 0), axis=0)
    rows, columns = (g("Expand", g.unsqueeze(v, k), shape) for v, k in ((a, 1), (b, 0)))
    return g("Add", rows, columns)


@twin("unfold: patches by Reshape and Transpose", sizes={"h": 8, "w": 12}, least=4, multiple=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    b, h, w = (g.size(x, a) for a in (0, 2, 3))
    hh, ww = g("Div", h, g.const(4)), g("Div", w, g.const(4))
    y = g("Transpose", g.view(x, b, 3, hh, 4, ww, 4), perm=[0, 2, 4, 3, 5, 1])
    return g.view(y, b, g("Mul", hh, ww), 48)


@twin("roll by halves", least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 3))
    y = g("Concat", g.slice(x, 1, -2, END), g.slice(x, 1, 0, -2), axis=1)
    return g("Concat", g.slice(y, 2, -2, END), g.slice(y, 2, 0, -2), axis=2)


@twin("stack and unstack")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 4)), g.input("y", (d.b, d.n, 4))
    both = g("Concat", g.unsqueeze(x, 2), g.unsqueeze(y, 2), axis=2)
    return g("Add", g("Gather", both, g.const(0), axis=2), g("Gather", both, g.const(1), axis=2))


@twin("interleave by stack and view")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 4)), g.input("y", (d.b, d.n, 4))
    both = g("Concat", g.unsqueeze(x, 3), g.unsqueeze(y, 3), axis=3)
    return g.view(both, g.size(x, 0), g.size(x, 1), 8)


@twin("Gather of all positions in order, constant")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 6, d.n))
    return g("Relu", g("Gather", x, g.const(np.arange(6)), axis=1))


@twin("Gather of constant positions in a row", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 6, d.n))
    return g("Gather", x, g.const([2, 3, 4]), axis=1)


@twin("Concat of Shape's parts of two inputs")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 4)), g.input("y", (d.b, 1, 4))
    shape = g("Concat", length(g, y, 0), length(g, x, 1), g.const([4]), axis=0)
    return g("Mul", g("Expand", y, shape), g("Expand", x, shape))


@twin("max of an Expand over the batch")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (1, d.n, 4)), g.input("y", (d.b, d.n, 4))
    return g("ReduceMax", g("Expand", x, g("Shape", y)), g.const([2]), keepdims=0), g("Relu", y)


@twin("Softmax of an Expand")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (1, d.n, 4)), g.input("y", (d.b, d.n, 4))
    return g("Mul", g("Softmax", g("Expand", x, g("Shape", y)), axis=-1), y)


@twin("LayerNorm of an Expand")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (1, d.n, 4)), g.input("y", (d.b, d.n, 4))
    return g("Mul", g.layer_norm(g("Expand", x, g("Shape", y)), 4), y)


@twin("a constant repeated and joined with a Tile", {"b": 1, "n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    t = g("Tile", g.weight(1, 1, 4), g("Concat", length(g, x, 0), length(g, x), g.const([1]), axis=0))
    return g("Concat", x, t, axis=2)


@twin("MaxPool of a Pad by computed widths")
def _(g: Raw, d: Dims) -> Any:
    x = g("Relu", g.input("x", (d.b, 3, d.h, d.w)))
    return g("MaxPool", g("Pad", x, g.const([0, 0, 1, 1, 0, 0, 1, 1])), kernel_shape=[3, 3], strides=[2, 2])


@twin("DepthToSpace written out")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 8, d.h, d.w))
    b, h, w = (g.size(x, a) for a in (0, 2, 3))
    y = g("Transpose", g.view(x, b, 2, 2, 2, h, w), perm=[0, 1, 4, 2, 5, 3])
    return g.view(y, b, 2, g("Mul", h, g.const(2)), g("Mul", w, g.const(2)))


@twin("a norm of a flat view and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g.layer_norm(g("Reshape", x, g.const([-1, 4])), 4)
    return g("Reshape", y, g("Shape", x))


@twin("a Gather of rows of an open table by Range and modulo")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    at = g("Mod", g("Range", g.const(0), g.size(x, 1), g.const(1)), g.size(x, 1))
    return g("Relu", g("Gather", x, at, axis=1))
