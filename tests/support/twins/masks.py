"""Masks and positions made of Shape, Range, comparisons, Where, Trilu and Expand."""

from __future__ import annotations

from typing import Any

import numpy as np
from exports import Raw
from onnx import TensorProto, numpy_helper

from .base import Dims, twin
from .slices import length

LOW = -3e38


def filled(g: Raw, shape: str, value: Any, dtype: str = "float32") -> str:
    return g("ConstantOfShape", shape, value=numpy_helper.from_array(np.array([value], dtype)))


def positions(g: Raw, x: str, axis: int = 1) -> str:
    return g("Range", g.const(0), g.size(x, axis), g.const(1))


@twin("zeros of a Shape added")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Add", g("Relu", x), g("Mul", filled(g, g("Shape", x), 0.0), g.f(2)))


@twin("ones of a Shape multiplied")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Mul", g("Relu", x), filled(g, g("Shape", x), 1.0))


@twin("a mask of ones: (1 - mask) * low")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    ones = filled(g, g("Concat", length(g, x, 0), length(g, x, 2), axis=0), 1.0)
    mask = g("Mul", g("Sub", g.f(1), g.unsqueeze(ones, 1, 2)), g.f(LOW))
    return g("Softmax", g("Add", x, mask), axis=-1)


@twin("a Where of zeros and ones of a Shape")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    ones, zeros = filled(g, g("Shape", x), 1.0), filled(g, g("Shape", x), 0.0)
    return g("Mul", g("Relu", x), g("Where", g("Equal", zeros, g.f(0)), ones, zeros))


@twin("Range less than the length is always true")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    inside = g("Less", positions(g, x), g.size(x, 1))
    return g("Where", g.unsqueeze(inside, 1), g("Relu", x), g.f(LOW))


@twin("Range at least zero is always true")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    inside = g("GreaterOrEqual", positions(g, x), g.const(0))
    return g("Where", g.unsqueeze(inside, 1), g("Relu", x), g.f(LOW))


@twin("Range clipped to its own bounds")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    place = g("Min", g("Max", positions(g, x), g.const(0)), g("Sub", g.size(x, 1), g.const(1)))
    return g("Relu", g("Gather", x, place, axis=1))


@twin("Gather of a Range of the length")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Gather", x, positions(g, x), axis=1))


@twin("Gather of a Range of a part", least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    at = g("Range", g.const(2), g("Sub", g.size(x, 1), g.const(1)), g.const(1))
    return g("Gather", x, at, axis=1)


@twin("Gather of every second position", least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Gather", x, g("Range", g.const(0), g.size(x, 1), g.const(2)), axis=1)


@twin("Gather of a Range of positions plus one", least=3)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    at = g("Add", g("Range", g.const(0), g("Sub", g.size(x, 1), g.const(1)), g.const(1)), g.const(1))
    return g("Gather", x, at, axis=1)


@twin("a table of positions gathered by Range", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Add", x, g("Gather", g.weight(40, 4), positions(g, x)))


@twin("a table of positions gathered by an expanded Range", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    at = g("Expand", g.unsqueeze(positions(g, x), 0), g("Concat", length(g, x, 0), length(g, x, 1), axis=0))
    return g("Add", x, g("Gather", g.weight(40, 4), at))


@twin("a table sliced, scaled, projected, normed", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    part = g.slice(g.weight(1, 40, 6), 1, 0, length(g, x))
    y = g("MatMul", g("Mul", part, g.f(0.5)), g.weight(6, 4))
    return g("Add", x, g.layer_norm(y, 4))


@twin("a table sliced from an offset", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Add", x, g("Sin", g.slice(g.weight(1, 40, 4), 1, 2, length(g, x, 1, 2))))


@twin("two tables sliced by one length and added", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    parts = [g.slice(g.weight(1, 40, 4), 1, 0, length(g, x)) for _ in range(2)]
    return g("Add", x, g("Add", *parts))


@twin("a table of rows and one of columns", {"h": 2, "w": 2})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 4))
    rows = g.slice(g.weight(40, 1, 4), 0, 0, length(g, x, 1))
    columns = g.slice(g.weight(1, 40, 4), 1, 0, length(g, x, 2))
    return g("Add", g("Add", x, rows), columns)


@twin("a table of rows and one of columns, added first", {"h": 1, "w": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 4))
    rows = g.slice(g.weight(40, 1, 4), 0, 0, length(g, x, 1))
    columns = g.slice(g.weight(1, 40, 4), 1, 0, length(g, x, 2))
    return g("Add", x, g("Add", rows, columns))


@twin("a causal mask of the largest size, cut", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    mask = g.const(np.triu(np.full((1, 1, 40, 40), LOW), 1), "float32")
    return g("Add", x, g.slice(g.slice(mask, 2, 0, length(g, x, 2)), 3, 0, length(g, x, 3)))


@twin("a causal mask of flags, cut, inverted and filled", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    mask = g.const(np.tril(np.ones((1, 1, 40, 40))), "bool")
    part = g.slice(g.slice(mask, 2, 0, length(g, x, 2)), 3, 0, length(g, x, 3))
    return g("Add", x, g("Where", g("Not", part), g.f(LOW), g.f(0)))


@twin("a causal mask of Range and Less")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    row, column = g.unsqueeze(positions(g, x, 2), 1), g.unsqueeze(positions(g, x, 2), 0)
    mask = g("Where", g("Greater", column, row), g.f(LOW), g.f(0))
    return g("Add", x, g.unsqueeze(mask, 0, 1))


@twin("a causal mask of Trilu")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    square = g("Concat", length(g, x, 2), length(g, x, 2), axis=0)
    mask = g("Trilu", filled(g, square, LOW), g.const(1), upper=1)
    return g("Add", x, g.unsqueeze(mask, 0, 1))


@twin("a causal mask of Trilu of ones and Where")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    square = g("Concat", length(g, x, 2), length(g, x, 2), axis=0)
    ones = g("Trilu", filled(g, square, 1.0), upper=0)
    return g("Where", g("Equal", g.unsqueeze(ones, 0, 1), g.f(0)), g.f(LOW), x)


@twin("a causal mask of a Mul with Cast")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    row = positions(g, x, 2)
    later = g("Greater", row, g("Reshape", row, g.const([-1, 1])))
    square = g("Concat", length(g, x, 2), length(g, x, 2), axis=0)
    mask = g("Trilu", filled(g, square, LOW), g.const(1), upper=1)
    mask = g("Mul", mask, g("Cast", later, to=TensorProto.FLOAT))
    return g("Add", x, g.expand(g.unsqueeze(mask, 0, 1), g.size(x, 0), 1, -1, -1))


@twin("a key padding mask expanded to the scores")
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, 2, d.n, d.n)), g.input("m", (d.b, d.n), TensorProto.INT64)
    shape = g("Concat", length(g, m, 0), g.const([1]), length(g, m), length(g, m), axis=0)
    wide = g("Expand", g.unsqueeze(m, 1, 2), shape)
    inverted = g("Sub", g.f(1), g("Cast", wide, to=TensorProto.FLOAT))
    mask = g("Where", g("Cast", inverted, to=TensorProto.BOOL), g.f(LOW), inverted)
    return g("Add", x, mask)


@twin("a key padding mask viewed, compared and expanded")
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, 2, d.n, d.n)), g.input("m", (d.b, d.n), TensorProto.INT64)
    off = g.view(g("Equal", m, g.const(0)), g.size(m, 0), 1, 1, g.size(x, 3))
    off = g("Expand", off, g("Shape", x))
    return g("Where", g("Cast", off, to=TensorProto.BOOL), g.f(LOW), x)


@twin("a key padding mask and ones of the queries")
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, 2, d.n, d.n)), g.input("m", (d.b, d.n), TensorProto.BOOL)
    queries = filled(g, g("Concat", length(g, m, 0), g.const([1]), length(g, m), g.const([1]), axis=0), 1, "bool")
    both = g("And", g.unsqueeze(m, 1, 2), queries)
    return g("Where", both, x, g.f(LOW))


@twin("a mask of all true and a key padding mask")
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, 2, d.n, d.n)), g.input("m", (d.b, d.n), TensorProto.BOOL)
    square = g("Concat", length(g, x, 2), length(g, x, 3), axis=0)
    true = g("Not", g("Cast", filled(g, square, 0.0), to=TensorProto.BOOL))
    return g("Where", g("And", g.unsqueeze(true, 0, 1), g.unsqueeze(m, 1, 2)), x, g.f(LOW))


@twin("padding by lengths: Range < lengths", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, d.n, 3)), g.input("m", (d.b,), TensorProto.INT64)
    inside = g("Less", g.unsqueeze(positions(g, x), 0), g.unsqueeze(m, 1))
    ones = g("Expand", inside, g("Concat", length(g, x, 0), length(g, x), axis=0))
    return g("Mul", x, g("Cast", g.unsqueeze(ones, 2), to=TensorProto.FLOAT))


@twin("Expand of a constant, computed with")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g("Mul", g("Add", g("Expand", g.weight(4), g("Shape", x)), g.f(1)), g.f(3))
    return g("Add", x, y)


@twin("NonZero-free token types: zeros gathered")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    kinds = filled(g, g("Concat", length(g, x, 0), length(g, x), axis=0), 0, "int64")
    return g("Add", x, g("Gather", g.weight(2, 4), kinds))


@twin("token types from a buffer, expanded and gathered", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    part = g.slice(g.const(np.zeros((1, 40))), 1, 0, length(g, x))
    kinds = g("Expand", part, g("Concat", length(g, x, 0), length(g, x), axis=0))
    return g("Add", x, g("Gather", g.weight(2, 4), kinds))


@twin("a CumSum of ones is the positions", {"n": 2})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    ones = filled(g, g("Concat", g.const([1]), length(g, x), g.const([1]), axis=0), 1.0)
    return g("Add", x, g("CumSum", ones, g.const(1)))


@twin("rotary: a table of cosines by an outer product", {"n": 3})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, 4))
    place = g("Cast", positions(g, x, 2), to=TensorProto.FLOAT)
    angles = g("Einsum", place, g.f([1.0, 0.1]), equation="i,j->ij")
    cos = g("Cos", g("Concat", angles, angles, axis=1))
    return g("Mul", x, g.unsqueeze(cos, 0, 1))


@twin("rotary: cached tables cut and gathered", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, 4))
    table = g.slice(g.weight(40, 4), 0, 0, length(g, x, 2))
    at = g.unsqueeze(positions(g, x, 2), 0)
    return g("Mul", x, g.unsqueeze(g("Gather", table, at), 1))


@twin("rotate_half by half of a fixed width")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, 4))
    middle = g.unsqueeze(g("Div", g.size(x, 3), g.const(2)), 0)
    left, right = g.slice(x, 3, 0, middle), g.slice(x, 3, middle, 2**63 - 1)
    return g("Concat", g("Neg", right), left, axis=-1)


@twin("relative positions: a table sliced about the middle", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    n = length(g, x)
    middle = g.const([40])
    part = g.slice(g.weight(1, 80, 4), 1, g("Sub", middle, n), middle)
    return g("Add", x, g("Tanh", part))


@twin("a grid of Range, Expand and Concat")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 2))
    rows, columns = g.unsqueeze(positions(g, x, 1), 1), g.unsqueeze(positions(g, x, 2), 0)
    shape = g("Concat", length(g, x, 1), length(g, x, 2), axis=0)
    both = [g.unsqueeze(g("Expand", v, shape), 2) for v in (columns, rows)]
    return g("Add", x, g("Cast", g("Concat", *both, axis=2), to=TensorProto.FLOAT))


@twin("a sum of an Expand")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, 1, 4)), g.input("y", (d.b, d.n, 4))
    wide = g("Expand", x, g("Shape", y))
    return g("ReduceMax", wide, g.const([1]), keepdims=1), g("Relu", y)


@twin("a mean of an Expand")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, 1, 4)), g.input("y", (d.b, d.n, 4))
    wide = g("Expand", x, g("Shape", y))
    return g("ReduceMean", wide, g.const([1]), keepdims=1), g("Relu", y)


@twin("an EyeLike of a square")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.n, d.n))
    return g("Add", x, g("EyeLike", x))


@twin("an attention mask added in two layers")
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, 2, d.n, d.n)), g.input("m", (d.b, d.n), TensorProto.INT64)

    def mask() -> str:
        wide = g("Cast", g.unsqueeze(m, 1, 2), to=TensorProto.FLOAT)
        return g("Mul", g("Sub", g.f(1), wide), g.f(LOW))

    return g("Softmax", g("Add", g("Softmax", g("Add", x, mask()), axis=-1), mask()), axis=-1)


@twin("Size of a tensor, a mean by a division")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    total = g("ReduceSum", x, g.const([1]), keepdims=1)
    return g("Div", total, g("Cast", g.size(x, 1), to=TensorProto.FLOAT))


@twin("Gather of a Range that walks backwards", least=3)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    at = g("Range", g("Sub", g.size(x, 1), g.const(1)), g.const(-1), g.const(-1))
    return g("Gather", x, at, axis=1)
