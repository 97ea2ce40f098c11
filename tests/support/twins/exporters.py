"""What exporters leave of means, masks, positions, windows and grids whose sizes are open: lengths read off a Shape."""

from __future__ import annotations

from typing import Any

from exports import END, Raw
from onnx import TensorProto

from .base import Dims, twin
from .masks import LOW, filled, positions
from .slices import length


def as_float(g: Raw, value: str) -> str:
    return g("Cast", value, to=TensorProto.FLOAT)


@twin("a mean as a sum over rows by the Shape")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Div", g("ReduceSum", x, g.const([1]), keepdims=0), as_float(g, g.size(x, 1)))


@twin("a mean as a sum over an image by H * W")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    return g("Div", g("ReduceSum", x, g.const([2, 3]), keepdims=0), as_float(g, g("Mul", g.size(x, 2), g.size(x, 3))))


@twin("a mean as a sum over a flat image times a reciprocal")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g.view(x, g.size(x, 0), 4, -1)
    inv = g("Div", g.f(1), as_float(g, g.size(y, 2)))
    return g("Mul", g("ReduceSum", y, g.const([2]), keepdims=1), inv)


@twin("a mean as a sum of all by the Size")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Div", g("ReduceSum", x, keepdims=0), as_float(g, g("Size", x)))


@twin("a mean as a sum of all by the product of the Shape")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Div", g("ReduceSum", x, keepdims=0), as_float(g, g("ReduceProd", g("Shape", x), keepdims=0)))


@twin("a mean of what a mask leaves")
def _(g: Raw, d: Dims) -> Any:
    x, m = g.input("x", (d.b, d.n, 4)), g.input("m", (d.b, d.n), TensorProto.INT64)
    wide = as_float(g, g("Expand", g.unsqueeze(m, 2), g("Shape", x)))
    return g(
        "Div",
        g("ReduceSum", g("Mul", x, wide), g.const([1]), keepdims=0),
        g("Clip", g("ReduceSum", wide, g.const([1]), keepdims=0), g.f(1e-9)),
    )


@twin("a variance by one less than the length", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    c = g("Sub", x, g.mean(x, [1]))
    s = g("ReduceSum", g("Mul", c, c), g.const([1]), keepdims=0)
    return g("Div", s, as_float(g, g("Sub", g.size(x, 1), g.const(1))))


@twin("a causal mask of i - j >= 0")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    r = positions(g, x, 2)
    diff = g("Sub", g.unsqueeze(r, 1), g.unsqueeze(r, 0))
    keep = g("GreaterOrEqual", diff, g.const(0))
    return g("Where", keep, x, g.f(LOW))


@twin("a causal mask of two Ranges")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    keep = g("LessOrEqual", g.unsqueeze(positions(g, x, 3), 0), g.unsqueeze(positions(g, x, 2), 1))
    return g("Where", keep, x, g.f(LOW))


@twin("a causal mask of j < i + 1")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    r = positions(g, x, 3)
    keep = g("Less", r, g("Reshape", g("Add", r, g.const(1)), g.const([-1, 1])))
    return g("Where", g.unsqueeze(keep, 0, 1), x, g.f(LOW))


@twin("a causal mask of i - j, expanded, inverted and scaled")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    r = positions(g, x, 3)
    keep = as_float(g, g("GreaterOrEqual", g("Sub", g.unsqueeze(r, 1), g.unsqueeze(r, 0)), g.const(0)))
    wide = g("Expand", g.unsqueeze(keep, 0, 1), g("Shape", x))
    return g("Add", x, g("Mul", g("Sub", g.f(1), wide), g.f(LOW)))


@twin("a mask of a window, |i - j| < 3")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    r = positions(g, x, 3)
    diff = g("Abs", g("Sub", g.unsqueeze(r, 1), g.unsqueeze(r, 0)))
    return g("Where", g("Less", diff, g.const(3)), x, g.f(LOW))


@twin("i - j above the negated length is always true")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    r = positions(g, x, 3)
    diff = g("Sub", g.unsqueeze(r, 1), g.unsqueeze(r, 0))
    return g("Where", g("Greater", diff, g("Neg", g.size(x, 2))), x, g.f(LOW))


@twin("i - j below the length is always true")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, d.n))
    r = positions(g, x, 3)
    diff = g("Sub", g.unsqueeze(r, 1), g.unsqueeze(r, 0))
    return g("Where", g("Less", diff, g.size(x, 2)), x, g.f(LOW))


@twin("i - i is always zero")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n))
    r = positions(g, x, 2)
    return g("Where", g("Equal", g("Sub", r, positions(g, x, 2)), g.const(0)), x, g.f(LOW))


@twin("i + 1 lies always within 1 and the length")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n))
    r = g("Add", positions(g, x, 2), g.const(1))
    ok = g("And", g("Greater", r, g.const(0)), g("LessOrEqual", r, g.size(x, 2)))
    return g("Where", ok, x, g.f(LOW))


@twin("2 i < 2 n and i / 2 >= 0 are always true")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n))
    r = positions(g, x, 2)
    ok = g(
        "And",
        g("Less", g("Mul", r, g.const(2)), g("Mul", g.size(x, 2), g.const(2))),
        g("GreaterOrEqual", g("Div", r, g.const(2)), g.const(0)),
    )
    return g("Where", ok, x, g.f(LOW))


@twin("positions as a CumSum of ones less one, gathered", {"n": 1})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    ones = filled(g, g("Concat", length(g, x, 0), length(g, x, 1), axis=0), 1, "int64")
    ids = g("Sub", g("CumSum", ones, g.const(1)), g.const(1))
    return g("Add", x, g("Gather", g.weight(40, 4), ids))


@twin("a flat view by the product of three sizes")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, 2, 3))
    y = g.view(x, g.size(x, 0), g("Mul", g("Mul", g.size(x, 1), g.size(x, 2)), g.size(x, 3)))
    return g.linear(y, 24, 5)


@twin("Resize to the size of another tensor, by a quotient of sizes")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g("MaxPool", x, kernel_shape=[1, 1])
    sc = [g.unsqueeze(g("Div", as_float(g, g.size(x, a)), as_float(g, g.size(y, a))), 0) for a in (2, 3)]
    return g(
        "Resize",
        y,
        "",
        g("Concat", g.f([1, 1]), *sc, axis=0),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


@twin("Resize to the floor of twice the size, in floats", sizes={"h": 8, "w": 12})
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    s = [
        g.unsqueeze(g("Cast", g("Floor", g("Mul", as_float(g, g.size(x, a)), g.f(2.0))), to=TensorProto.INT64), 0)
        for a in (2, 3)
    ]
    return g(
        "Resize",
        x,
        "",
        "",
        g("Concat", g("Slice", g("Shape", x), g.const([0]), g.const([2]), g.const([0])), *s, axis=0),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )


@twin("Resize of a pooled image to the size before", sizes={"h": 8, "w": 12}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    s = g(
        "Concat",
        g("Slice", g("Shape", y), g.const([0]), g.const([2]), g.const([0])),
        g("Slice", g("Shape", x), g.const([2]), g.const([4]), g.const([0])),
        axis=0,
    )
    return g(
        "Add",
        x,
        g("Resize", y, "", "", s, mode="nearest", nearest_mode="floor", coordinate_transformation_mode="asymmetric"),
    )


@twin("heads by a quotient of the width, and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    y = g("Transpose", g.view(x, g.size(x, 0), -1, 3, g("Div", g.size(x, 2), g.const(3))), perm=[0, 2, 1, 3])
    z = g("Transpose", g("Relu", y), perm=[0, 2, 1, 3])
    return g.view(z, g.size(x, 0), -1, g("Mul", g.size(y, 1), g.size(y, 3)))


def windows(g: Raw, x: str, side: int, width: int) -> str:
    batch, rows, columns = (g.size(x, a) for a in range(3))
    down, across = (g("Div", v, g.const(side)) for v in (rows, columns))
    y = g.view(x, batch, down, side, across, side, width)
    return g.view(g("Transpose", y, perm=[0, 1, 3, 2, 4, 5]), -1, side * side, width)


def undone(g: Raw, y: str, rows: str, columns: str, side: int) -> str:
    per = g("Div", g("Div", as_float(g, g("Mul", rows, columns)), g.f(side)), g.f(side))
    batch = g("Cast", g("Div", as_float(g, g.size(y, 0)), per), to=TensorProto.INT64)
    z = g.view(y, batch, g("Div", rows, g.const(side)), g("Div", columns, g.const(side)), side, side, -1)
    return g.view(g("Transpose", z, perm=[0, 1, 3, 2, 4, 5]), batch, rows, columns, -1)


@twin("windows, a product, and undone by a quotient in floats", sizes={"h": 8, "w": 12}, least=4, multiple=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 6))
    return undone(g, g.linear(windows(g, x, 4, 6), 6, 6), g.size(x, 1), g.size(x, 2), 4)


@twin("windows undone by a quotient of whole numbers", sizes={"h": 8, "w": 12}, least=4, multiple=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 6))
    y = g("Relu", windows(g, x, 4, 6))
    h, wd = g.size(x, 1), g.size(x, 2)
    b = g("Div", g.size(y, 0), g("Div", g("Mul", h, wd), g.const(16)))
    z = g.view(y, b, g("Div", h, g.const(4)), g("Div", wd, g.const(4)), 4, 4, -1)
    return g.view(g("Transpose", z, perm=[0, 1, 3, 2, 4, 5]), b, h, wd, -1)


@twin("a pixel shuffle of views of computed sizes")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 8, d.h, d.w))
    y = g.view(x, g.size(x, 0), g("Div", g.size(x, 1), g.const(4)), 2, 2, g.size(x, 2), g.size(x, 3))
    y = g("Transpose", y, perm=[0, 1, 4, 2, 5, 3])
    return g("Relu", g.view(y, g.size(x, 0), 2, g("Mul", g.size(x, 2), g.const(2)), g("Mul", g.size(x, 3), g.const(2))))


@twin("a pixel unshuffle of views and a convolution", sizes={"h": 8, "w": 12}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.h, d.w))
    y = g.view(x, g.size(x, 0), 2, g("Div", g.size(x, 2), g.const(2)), 2, g("Div", g.size(x, 3), g.const(2)), 2)
    y = g("Transpose", y, perm=[0, 1, 3, 5, 2, 4])
    y = g.view(y, g.size(x, 0), 8, g("Div", g.size(x, 2), g.const(2)), g("Div", g.size(x, 3), g.const(2)))
    return g.conv(y, 8, 4)


@twin("GroupNorm of a view, its mean and variance", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 6, d.h, d.w))
    y = g.view(x, g.size(x, 0), 2, -1)
    c = g("Sub", y, g.mean(y, [2]))
    v = g.mean(g("Mul", c, c), [2])
    y = g("Div", c, g("Sqrt", g("Add", v, g.f(1e-5))))
    y = g("Reshape", y, g("Shape", x))
    return g("Add", g("Mul", y, g.weight(1, 6, 1, 1)), g.weight(1, 6, 1, 1))


@twin("GroupNorm of a view of five dims", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 6, d.h, d.w))
    y = g.view(x, g.size(x, 0), 2, 3, g.size(x, 2), g.size(x, 3))
    c = g("Sub", y, g.mean(y, [2, 3, 4]))
    v = g.mean(g("Pow", c, g.f(2)), [2, 3, 4])
    y = g("Div", c, g("Sqrt", g("Add", v, g.f(1e-5))))
    y = g.view(y, g.size(x, 0), 6, g.size(x, 2), g.size(x, 3))
    return g("Add", g("Mul", y, g.weight(1, 6, 1, 1)), g.weight(1, 6, 1, 1))


@twin("rotary: positions times frequencies by a MatMul")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 2, d.n, 4))
    p = as_float(g, g.unsqueeze(positions(g, x, 2), 0))
    inv = g.f([[[1.0], [0.1]]])
    inv = g.expand(inv, 1, -1, 1)
    fr = g("Transpose", g("MatMul", inv, g.unsqueeze(p, 1)), perm=[0, 2, 1])
    emb = g("Concat", fr, fr, axis=-1)
    cos, sin = g.unsqueeze(g("Cos", emb), 1), g.unsqueeze(g("Sin", emb), 1)
    h = g("Div", g.size(x, 3), g.const(2))
    h = g.unsqueeze(h, 0)
    rot = g("Concat", g("Neg", g.slice(x, 3, h, END)), g.slice(x, 3, 0, h), axis=-1)
    return g("Add", g("Mul", x, cos), g("Mul", rot, sin))


@twin("keys shared by pairs of heads, expanded to computed sizes")
def _(g: Raw, d: Dims) -> Any:
    q, k = g.input("q", (d.b, 4, d.n, 6)), g.input("k", (d.b, 2, d.n, 6))
    w = g.expand(g.unsqueeze(k, 2), g.size(k, 0), 2, 2, g.size(k, 2), 6)
    w = g.view(w, g.size(k, 0), 4, g.size(k, 2), 6)
    return g("MatMul", q, g("Transpose", w, perm=[0, 1, 3, 2]))


@twin("rows repeated by Tile and a view")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g("Tile", g.unsqueeze(x, 2), g.const([1, 1, 2, 1]))
    return g("Relu", g.view(y, g.size(x, 0), g("Mul", g.size(x, 1), g.const(2)), 4))


@twin("a crop to a multiple", {"h": 1, "w": 1}, sizes={"h": 8, "w": 12}, least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    for a in (2, 3):
        x = g.slice(x, a, 0, g.unsqueeze(g("Mul", g("Div", g.size(x, a), g.const(4)), g.const(4)), 0))
    return g("Relu", x)


@twin("two chunks of half the length, rounded up", sizes={"n": 14}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    c = g("Div", g("Add", g.size(x, 1), g.const(1)), g.const(2))
    c1 = g.unsqueeze(c, 0)
    a = g.slice(x, 1, 0, c1)
    b = g.slice(x, 1, c1, g.unsqueeze(g("Mul", c, g.const(2)), 0))
    return g("Concat", a, b, axis=1)


@twin("batch and rows as one, a product, back, and a mean by a quotient")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g.view(x, g("Mul", g.size(x, 0), g.size(x, 1)), 4)
    y = g.view(g("Relu", g.linear(y, 4, 4)), g.size(x, 0), g.size(x, 1), 4)
    return g("Div", g("ReduceSum", y, g.const([1]), keepdims=0), as_float(g, g.size(y, 1)))


@twin("nearest upsampling by Unsqueeze, Expand and a view")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g.unsqueeze(x, 3, 5)
    y = g.expand(y, g.size(x, 0), 4, g.size(x, 2), 2, g.size(x, 3), 2)
    return g("Relu", g.view(y, g.size(x, 0), 4, g("Mul", g.size(x, 2), g.const(2)), g("Mul", g.size(x, 3), g.const(2))))


@twin("a channel shuffle by a quotient of channels, and a convolution")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 8, d.h, d.w))
    y = g(
        "Transpose",
        g.view(x, g.size(x, 0), 2, g("Div", g.size(x, 1), g.const(2)), g.size(x, 2), g.size(x, 3)),
        perm=[0, 2, 1, 3, 4],
    )
    return g.conv(g.view(y, g.size(x, 0), -1, g.size(x, 2), g.size(x, 3)), 8, 4)


@twin("the last position by the Shape less one")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Relu", g("Gather", x, g("Sub", g.size(x, 1), g.const(1)), axis=1))


@twin("InstanceNorm of sums by H * W", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    n = as_float(g, g("Mul", g.size(x, 2), g.size(x, 3)))
    m = g("Div", g("ReduceSum", x, g.const([2, 3]), keepdims=1), n)
    c = g("Sub", x, m)
    v = g("Div", g("ReduceSum", g("Mul", c, c), g.const([2, 3]), keepdims=1), n)
    return g("Div", c, g("Sqrt", g("Add", v, g.f(1e-5))))


@twin("a mean over heads by their number")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.n, d.n))
    return g("Div", g("ReduceSum", x, g.const([1]), keepdims=0), as_float(g, g.size(x, 1)))


@twin("a mean over columns, then rows, by quotients, and a product")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.h, d.w))
    y = g("Div", g("ReduceSum", x, g.const([3]), keepdims=1), as_float(g, g.size(x, 3)))
    y = g("Div", g("ReduceSum", y, g.const([2]), keepdims=1), as_float(g, g.size(x, 2)))
    return g.linear(g.view(y, g.size(y, 0), -1), 4, 3)
