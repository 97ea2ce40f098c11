"""Algebra, folds and recognised forms along open dims."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from exports import Raw
from onnx import TensorProto

from .base import Dims, twin
from .slices import length


@twin("GELU erf")
def _(g: Raw, d: Dims) -> Any:
    return g.gelu(g.input("x", (d.b, d.n, 4)))


@twin("GELU tanh")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    inner = g("Mul", g.f(math.sqrt(2 / math.pi)), g("Add", x, g("Mul", g.f(0.044715), g("Pow", x, g.f(3)))))
    return g("Mul", g("Mul", g.f(0.5), x), g("Add", g.f(1), g("Tanh", inner)))


@twin("LayerNorm in pieces")
def _(g: Raw, d: Dims) -> Any:
    return g.layer_norm(g.input("x", (d.b, d.n, 4)), 4)


@twin("LayerNorm in pieces over channels of an image")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    c = g("Sub", x, g.mean(x, [1]))
    y = g("Div", c, g("Sqrt", g("Add", g.mean(g("Mul", c, c), [1]), g.f(1e-5))))
    return g("Add", g("Mul", y, g.weight(4, 1, 1)), g.weight(4, 1, 1))


@twin("LayerNorm in pieces between transposes")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g.layer_norm(g("Transpose", x, perm=[0, 2, 3, 1]), 4)
    return g("Transpose", g("Relu", y), perm=[0, 3, 1, 2])


@twin("RMSNorm in pieces")
def _(g: Raw, d: Dims) -> Any:
    return g.rms_norm(g.input("x", (d.b, d.n, 4)), 4)


@twin("InstanceNorm in pieces over an open image", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    c = g("Sub", x, g.mean(x, [2, 3]))
    return g("Div", c, g("Sqrt", g("Add", g.mean(g("Mul", c, c), [2, 3]), g.f(1e-5))))


@twin("GroupNorm: Reshape, InstanceNormalization, Reshape, Mul, Add", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 6, d.h, d.w))
    y = g("Reshape", x, g.const([0, 2, -1]))
    y = g("InstanceNormalization", y, g.f([1, 1]), g.f([0, 0]))
    y = g("Reshape", y, g("Shape", x))
    return g("Add", g("Mul", y, g.weight(6, 1, 1)), g.weight(6, 1, 1))


@twin("SiLU, HardSwish, Mish, Softplus and Sigmoid")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    silu = g("Mul", x, g("Sigmoid", x))
    swish = g("Div", g("Mul", x, g("Clip", g("Add", x, g.f(3)), g.f(0), g.f(6))), g.f(6))
    mish = g("Mul", x, g("Tanh", g("Softplus", x)))
    sigmoid = g("Div", g.f(1), g("Add", g.f(1), g("Exp", g("Neg", x))))
    return silu, swish, mish, sigmoid


@twin("Softmax in pieces over an open axis")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.n))
    e = g("Exp", g("Sub", x, g("ReduceMax", x, g.const([-1]), keepdims=1)))
    return g("Div", e, g("ReduceSum", e, g.const([-1]), keepdims=1))


@twin("global pool: ReduceMean of both and of GlobalAveragePool")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    return g("Flatten", g("GlobalAveragePool", x)), g.mean(x, [2, 3], 0)


@twin("ReduceMean over rows, then over columns")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    return g.mean(g.mean(x, [3], 0), [2], 0)


@twin("Conv and BatchNormalization")
def _(g: Raw, d: Dims) -> Any:
    return g.batch_norm(g.conv(g.input("x", (d.b, 3, d.h, d.w)), 3, 4), 4)


@twin("Conv1d and BatchNormalization")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.n))
    return g.batch_norm(g("Conv", x, g.weight(4, 3, 3), pads=[1, 1], kernel_shape=[3]), 4)


@twin("ConvTranspose and BatchNormalization")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.batch_norm(g("ConvTranspose", x, g.weight(3, 4, 2, 2), strides=[2, 2]), 4)


@twin("BatchNormalization before Conv, unpadded", least=3)
def _(g: Raw, d: Dims) -> Any:
    x = g.batch_norm(g.input("x", (d.b, 3, d.h, d.w)), 3)
    return g("Conv", x, g.weight(4, 3, 3, 3), kernel_shape=[3, 3])


@twin("an image's normalisation before Conv, padded")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Div", g("Sub", x, g.weight(1, 3, 1, 1)), g.f(np.array([2, 3, 4]).reshape(1, 3, 1, 1)))
    return g.conv(y, 3, 4)


@twin("Conv, Add, Mul and Relu")
def _(g: Raw, d: Dims) -> Any:
    y = g.conv(g.input("x", (d.b, 3, d.h, d.w)), 3, 4)
    return g("Relu", g("Mul", g("Add", y, g.weight(4, 1, 1)), g.weight(4, 1, 1)))


@twin("Pad and Conv")
def _(g: Raw, d: Dims) -> Any:
    x = g("Pad", g.input("x", (d.b, 3, d.h, d.w)), g.const([0, 0, 1, 1, 0, 0, 1, 1]))
    return g("Conv", x, g.weight(4, 3, 3, 3), kernel_shape=[3, 3])


@twin("Pad(-inf) and MaxPool; Pad(0) and AveragePool")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    width = g.const([0, 0, 1, 1, 0, 0, 1, 1])
    low = g("MaxPool", g("Pad", x, width, g.f(-np.inf)), kernel_shape=[3, 3])
    return low, g("AveragePool", g("Pad", x, width), kernel_shape=[3, 3])


@twin("a computed Pad and Conv")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    gap = g("Sub", length(g, x, 2, 1), length(g, x, 2))
    pads = g("Concat", g.const([0, 0]), gap, gap, g.const([0, 0]), gap, gap, axis=0)
    return g("Conv", g("Pad", x, pads), g.weight(4, 3, 3, 3), kernel_shape=[3, 3])


@twin("MatMul, Add, Mul and Div by constants")
def _(g: Raw, d: Dims) -> Any:
    y = g("Add", g("MatMul", g.input("x", (d.b, d.n, 6)), g.weight(6, 4)), g.weight(4))
    return g("Div", g("Mul", y, g.weight(4)), g.f(3))


@twin("Add and Mul before MatMul")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 6))
    return g("Add", g("MatMul", g("Mul", g("Add", x, g.weight(6)), g.weight(6)), g.weight(6, 4)), g.weight(4))


@twin("chains of constants")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 6))
    return g("Div", g("Mul", g("Sub", g("Add", x, g.weight(6)), g.weight(6)), g.weight(6)), g.f(2))


def attention(g: Raw, d: Dims, scale: str = "after") -> tuple[str, str]:
    x = g.input("x", (d.b, d.n, 12))
    q, k, v = (g.heads(g.linear(x, 12, 12), 3, 4) for _ in range(3))
    root = g("Sqrt", g("Cast", g.size(q, 3), to=TensorProto.FLOAT))
    if scale == "before":
        q = g("Div", q, root)
    s = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    return (s if scale == "before" else g("Div", s, root)), v


@twin("attention, scores divided")
def _(g: Raw, d: Dims) -> Any:
    s, v = attention(g, d)
    return g.linear(g.merge(g("MatMul", g("Softmax", s, axis=-1), v), 12), 12, 12)


@twin("attention, queries divided")
def _(g: Raw, d: Dims) -> Any:
    s, v = attention(g, d, "before")
    return g.linear(g.merge(g("MatMul", g("Softmax", s, axis=-1), v), 12), 12, 12)


@twin("attention, a padding mask")
def _(g: Raw, d: Dims) -> Any:
    s, v = attention(g, d)
    m = g.input("m", (d.b, d.n), TensorProto.INT64)
    mask = g("Mul", g("Sub", g.f(1), g("Cast", g.unsqueeze(m, 1, 2), to=TensorProto.FLOAT)), g.f(-1e9))
    return g.merge(g("MatMul", g("Softmax", g("Add", s, mask), axis=-1), v), 12)


@twin("attention of merged batch and heads")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))

    def heads() -> str:
        y = g("Transpose", g.view(g.linear(x, 12, 12), g.size(x, 0), g.size(x, 1), 3, 4), perm=[0, 2, 1, 3])
        return g.view(y, -1, g.size(x, 1), 4)

    q, k, v = heads(), heads(), heads()
    s = g("Softmax", g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 2, 1])), g.f(0.5)), axis=-1)
    y = g.view(g("MatMul", s, v), g.size(x, 0), 3, g.size(x, 1), 4)
    return g.merge(y, 12)


@twin("attention of a joined projection (Split)")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    y = g.view(g.linear(x, 12, 36), g.size(x, 0), g.size(x, 1), 3, 3, 4)
    y = g("Transpose", y, perm=[2, 0, 3, 1, 4])
    q, k, v = (g("Gather", y, g.const(j), axis=0) for j in range(3))
    s = g("Softmax", g("MatMul", g("Mul", q, g.f(0.5)), g("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
    return g.merge(g("MatMul", s, v), 12)


@twin("cross attention of two lengths")
def _(g: Raw, d: Dims) -> Any:
    x, z = g.input("x", (d.b, d.n, 12)), g.input("z", (d.b, d.m, 12))
    q, k, v = (g.heads(g.linear(t, 12, 12), 3, 4) for t in (x, z, z))
    s = g("Softmax", g("Div", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.f(2)), axis=-1)
    return g.merge(g("MatMul", s, v), 12)


@twin("cached keys joined")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 1, 12))
    past = [g.input(f"past{j}", (d.b, 3, d.n, 4)) for j in range(2)]
    q, k, v = (g.heads(g.linear(x, 12, 12), 3, 4) for _ in range(3))
    k, v = g("Concat", past[0], k, axis=2), g("Concat", past[1], v, axis=2)
    s = g("Softmax", g("Div", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), g.f(2)), axis=-1)
    return g.merge(g("MatMul", s, v), 12), k, v


@twin("keys shared by pairs of heads (repeat_kv)")
def _(g: Raw, d: Dims) -> Any:
    q, k = g.input("q", (d.b, 4, d.n, 6)), g.input("k", (d.b, 2, d.n, 6))
    wide = g.expand(g.unsqueeze(k, 2), g.size(k, 0), 2, 2, g.size(k, 2), 6)
    wide = g.view(wide, g.size(k, 0), 4, g.size(k, 2), 6)
    return g("MatMul", q, g("Transpose", wide, perm=[0, 1, 3, 2]))


@twin("Einsum of two open lengths")
def _(g: Raw, d: Dims) -> Any:
    q, k = g.input("q", (d.b, 2, d.n, 4)), g.input("k", (d.b, 2, d.m, 4))
    return g("Einsum", q, k, equation="bhid,bhjd->bhij")


@twin("Not of comparisons; De Morgan")
def _(g: Raw, d: Dims) -> Any:
    a, b = (g.input(n, (d.b, d.n), TensorProto.INT64) for n in "ab")
    c = g("Not", g("Less", a, b))
    return g("Not", g("Or", g("Not", c), g("Not", g("Equal", a, b))))


@twin("flags: Cast, Equal and Where")
def _(g: Raw, d: Dims) -> Any:
    m, x = g.input("m", (d.b, d.n), TensorProto.BOOL), g.input("x", (d.b, d.n))
    off = g("Equal", g("Cast", m, to=TensorProto.FLOAT), g.f(0))
    return g("Where", off, g.f(-np.inf), x)


@twin("Cast chains")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n), TensorProto.INT32)
    y = g("Cast", g("Cast", x, to=TensorProto.INT64), to=TensorProto.INT32)
    return g("Cast", g("Cast", g("Cast", y, to=TensorProto.FLOAT), to=TensorProto.DOUBLE), to=TensorProto.FLOAT)


@twin("common subexpressions of shapes that are one")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    views = [g("Tanh", g.view(x, g.size(x, 0), s, 3, 4)) for s in (g.size(x, 1), -1)]
    return g("Add", *views)


@twin("Pow(x, 2), Pow(x, .5) and division by constants")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g("Pow", g("Add", g.mean(g("Pow", x, g.f(2)), [2]), g.f(0.1)), g.f(0.5))
    return g("Div", y, g.f(3))


@twin("Relu(Relu), Abs(Neg), Min(Max)")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Relu", g("Relu", x)), g("Abs", g("Neg", x)), g("Min", g("Max", x, g.f(0)), g.f(6))


@twin("Dropout, Identity, Flatten")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Relu", g("Reshape", g("Dropout", g("Identity", x)), g("Shape", x)))


@twin("a product with an expanded operand")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (1, 3, 4)), g.input("y", (d.b, 4, d.n))
    shape = g("Concat", length(g, y, 0), g.const([3, 4]), axis=0)
    return g("MatMul", g("Expand", x, shape), y)


@twin("one weight expanded for each of the batch")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    shape = g("Concat", length(g, x, 0), g.const([4, 5]), axis=0)
    return g("MatMul", x, g("Expand", g.weight(1, 4, 5), shape))


@twin("Gemm of a flat view and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g("Gemm", g("Reshape", x, g.const([-1, 4])), g.weight(6, 4), g.weight(6), transB=1)
    return g.view(y, g.size(x, 0), g.size(x, 1), 6)


@twin("channels in another order before Conv")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.conv(g("Gather", x, g.const([2, 1, 0]), axis=1), 3, 4)


@twin("channels turned by a Slice before Conv")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.conv(g.slice(x, 1, -1, -(2**63) + 1, -1), 3, 4)


@twin("a sum of squares of what is viewed, normalised")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    norm = g("ReduceL2", x, g.const([-1]), keepdims=1)
    return g("Div", x, g("Expand", g("Clip", norm, g.f(1e-12)), g("Shape", x)))


@twin("Transpose of a product's operand, twice")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 4)), g.input("y", (d.b, d.m, 4))
    s = g("MatMul", x, g("Transpose", y, perm=[0, 2, 1]))
    return g("Transpose", g("Relu", g("Transpose", s, perm=[0, 2, 1])), perm=[0, 2, 1])


@twin("Where of a Shape's fact on a tensor")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Where", g("GreaterOrEqual", g.size(x, 1), g.const(0)), g("Relu", x), g("Exp", x))


@twin("x * (n / n)")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    n = g("Cast", g.size(x, 1), to=TensorProto.FLOAT)
    return g("Relu", g("Mul", x, g("Div", n, n)))


@twin("a learned token joined, normed and taken", {"b": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    token = g.expand(g.weight(1, 1, 4), g.size(x, 0), -1, -1)
    y = g.layer_norm(g("Concat", token, x, axis=1), 4)
    return g("Gather", y, g.const(0), axis=1)


@twin("ReduceMean over a view of both axes")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    return g.mean(g("Reshape", x, g.const([0, 0, -1])), [2], 0)


@twin("squeeze and excitation by Shape")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g.view(g.mean(x, [2, 3]), g.size(x, 0), 4)
    gate = g.view(g("Sigmoid", g.linear(y, 4, 4)), g.size(x, 0), 4, 1, 1)
    return g("Mul", x, g("Expand", gate, g("Shape", x)))
