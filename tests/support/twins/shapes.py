"""Reshapes, transposes, squeezes and expands computed from Shape, Gather and Concat."""

from __future__ import annotations

from typing import Any

from exports import END, Raw
from onnx import TensorProto

from .base import Dims, twin
from .slices import half, length


@twin("view of two dims and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    y = g.view(x, g.size(x, 0), g.size(x, 1), 3, 4)
    return g("Relu", g.view(y, g.size(y, 0), g.size(y, 1), 12))


@twin("heads split, moved, moved back, merged")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    y = g.heads(x, 3, 4)
    return g("Relu", g.merge(y, 12))


@twin("heads of a flat view")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    flat = g.view(x, -1, 12)
    return g("Relu", g.view(flat, g.size(x, 0), -1, 12))


@twin("flat product and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    flat = g.view(x, -1, 12)
    return g.view(g("Relu", flat), g.size(x, 0), g.size(x, 1), -1)


@twin("an image as tokens and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Transpose", g.view(x, g.size(x, 0), 3, -1), perm=[0, 2, 1])
    y = g("Transpose", g("Relu", y), perm=[0, 2, 1])
    return g.view(y, g.size(x, 0), 3, g.size(x, 2), g.size(x, 3))


@twin("Flatten(2), Transpose, and Reshape to the Shape")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Reshape", x, g.const([0, 0, -1]))
    return g("Relu", g("Reshape", y, g("Shape", x)))


@twin("Reshape to H*W computed")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    area = g("Mul", g.size(x, 2), g.size(x, 3))
    y = g.view(x, g.size(x, 0), 3, area)
    return g("Relu", g.view(y, g.size(x, 0), 3, g.size(x, 2), g.size(x, 3)))


@twin("Unsqueeze, Expand by one, Squeeze")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    shape = g("Concat", length(g, x, 0), g.const([1]), length(g, x, 1), g.const([3]), axis=0)
    y = g("Expand", g.unsqueeze(x, 1), shape)
    return g("Relu", g("Squeeze", y, g.const([1])))


@twin("Expand to the own Shape")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Expand", x, g("Shape", x)))


@twin("Expand to the Shape of what broadcasts with it")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, 1, 3))
    return g("Mul", g("Expand", y, g("Shape", x)), x)


@twin("Expand by -1 (expand of torch) before a product")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (1, d.n, 3))
    return g("Add", x, g.expand(y, g.size(x, 0), -1, -1))


@twin("Expand of an Expand")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (1, d.n, 1))
    y = g.input("y", (d.b, d.n, 3))
    z = g("Expand", g("Expand", x, g("Concat", length(g, y, 0), length(g, y, 1), g.const([1]), axis=0)), g("Shape", y))
    return g("Neg", z), g("Relu", y)


@twin("Tile by one, computed")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    one = g("Div", length(g, x), length(g, g("Abs", x)))
    return g("Relu", g("Tile", x, g("Concat", g.const([1]), one, g.const([1]), axis=0)))


@twin("Tile of a dim of one to the length of another")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, 1, 3)), g.input("y", (d.b, d.n, 3))
    return g("Add", g("Tile", x, g("Concat", g.const([1]), length(g, y), g.const([1]), axis=0)), y)


@twin("Tile sunk past a product and a sum", least=2)
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, 1, 4)), g.input("y", (d.b, d.n))
    z = g("Tile", x, g("Concat", g.const([1]), length(g, y), g.const([1]), axis=0))
    return g("Add", g("Mul", z, g.weight(4)), g.weight(4)), g("Relu", y)


@twin("Tile of an open axis, twice")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Exp", g("Tile", g("Tile", x, g.const([1, 2, 1])), g.const([1, 1, 3])))


@twin("Shape of Reshape, Gather, arithmetic that cancels")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    n = g.size(x, 1)
    m = g("Sub", g("Add", g("Mul", n, g.const(2)), g.const(4)), g.const(4))
    return g("Relu", g.view(x, g.size(x, 0), g("Div", m, g.const(2)), 12))


@twin("Reshape by Shape sliced and joined with -1")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3, 4))
    shape = g("Concat", g("Slice", g("Shape", x), g.const([0]), g.const([2]), g.const([0])), g.const([-1]), axis=0)
    y = g("Reshape", x, shape)
    return g("Relu", g("Reshape", y, g("Shape", x)))


@twin("Squeeze and Unsqueeze around a convolution of one dim")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.n))
    y = g("Relu", g.unsqueeze(x, 2))
    return g("Squeeze", y, g.const([2]))


@twin("four transposes around elementwise operators")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Relu", g("Transpose", x, perm=[0, 2, 3, 1]))
    y = g("Transpose", g("Add", y, g.weight(3)), perm=[0, 3, 1, 2])
    return g("Transpose", g("Tanh", g("Transpose", y, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2])


@twin("a transpose of a dim of one")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 1, d.n, 4))
    return g("Transpose", g("Transpose", x, perm=[0, 2, 1, 3]), perm=[0, 2, 1, 3])


@twin("merged batch and heads around a transpose")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 4, d.n, 6))
    y = g("Reshape", x, g("Concat", g.const([-1]), length(g, x, 2), g.const([6]), axis=0))
    y = g("Transpose", y, perm=[0, 2, 1])
    return g("Reshape", y, g("Concat", length(g, x, 0), g.const([4, 6]), length(g, x, 2), axis=0))


@twin("windows made and undone", sizes={"h": 8, "w": 12}, least=4, multiple=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 3))
    b, h, w = (g.size(x, a) for a in (0, 1, 2))
    hh, ww = g("Div", h, g.const(4)), g("Div", w, g.const(4))
    y = g("Transpose", g.view(x, b, hh, 4, ww, 4, 3), perm=[0, 1, 3, 2, 4, 5])
    y = g.view(y, -1, 16, 3)
    y = g("Transpose", g.view(y, b, hh, ww, 4, 4, 3), perm=[0, 1, 3, 2, 4, 5])
    return g("Relu", g.view(y, b, h, w, 3))


@twin("pixel shuffle there and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 8, d.h, d.w))
    y = g("DepthToSpace", x, blocksize=2, mode="CRD")
    b, h, w = (g.size(y, a) for a in (0, 2, 3))
    y = g.view(y, b, 2, g("Div", h, g.const(2)), 2, g("Div", w, g.const(2)), 2)
    y = g("Transpose", y, perm=[0, 1, 3, 5, 2, 4])
    return g("Relu", g.view(y, b, 8, g("Div", h, g.const(2)), g("Div", w, g.const(2))))


@twin("channel shuffle there and back")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 6, d.h, d.w))
    b, h, w = (g.size(x, a) for a in (0, 2, 3))
    y = g.view(g("Transpose", g.view(x, b, 2, 3, h, w), perm=[0, 2, 1, 3, 4]), b, 6, h, w)
    return g("Relu", g.view(g("Transpose", g.view(y, b, 3, 2, h, w), perm=[0, 2, 1, 3, 4]), b, 6, h, w))


@twin("Focus", sizes={"h": 8, "w": 12}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, 8, 12))
    parts = [g.slice(g.slice(x, 2, a, END, 2), 3, c, END, 2) for c in (0, 1) for a in (0, 1)]
    return g("Concat", *parts, axis=1)


@twin("Focus of an open image", sizes={"h": 8, "w": 12}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    parts = [g.slice(g.slice(x, 2, a, END, 2), 3, c, END, 2) for c in (0, 1) for a in (0, 1)]
    return g("Concat", *parts, axis=1)


@twin("Focus and Conv of an open image", sizes={"h": 8, "w": 12}, least=4, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    parts = [g.slice(g.slice(x, 2, a, END, 2), 3, c, END, 2) for c in (0, 1) for a in (0, 1)]
    return g.conv(g("Concat", *parts, axis=1), 12, 4)


@twin("patch merging of tokens", sizes={"h": 8, "w": 12}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.h, d.w, 3))
    parts = [g.slice(g.slice(x, 1, a, END, 2), 2, c, END, 2) for c in (0, 1) for a in (0, 1)]
    return g("Concat", *parts, axis=3)


@twin("Resize to twice the Shape, as numbers")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    sizes = [g("Floor", g("Mul", g("Cast", g.size(x, a), to=TensorProto.FLOAT), g.f(2))) for a in (2, 3)]
    target = g("Concat", *(g.unsqueeze(g("Cast", s, to=TensorProto.INT64), 0) for s in sizes), axis=0)
    kept = g("Slice", g("Shape", x), g.const([0]), g.const([2]), g.const([0]))
    return g("Resize", x, "", "", g("Concat", kept, target, axis=0), mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric")  # fmt: skip


@twin("Resize to the size it has")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Abs", x)
    return g("Relu", g("Resize", y, "", "", g("Shape", x), mode="linear", coordinate_transformation_mode="half_pixel"))


@twin("Min of a length and its double")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    n = length(g, x)
    return g("Relu", g.slice(x, 1, 0, g("Min", n, g("Mul", n, g.const([2])))))


@twin("Max of a length and one")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g.slice(x, 1, 0, g("Max", length(g, x), g.const([1]))))


@twin("a half and the other half, sliced again", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    y = g.slice(x, 1, 0, half(g, x))
    return g.slice(g.slice(y, 1, 0, half(g, x)), 1, 1, END)


@twin("Reshape that Where chooses the -1 of")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 12))
    n = g.size(x, 1)
    chosen = g("Where", g("Equal", n, g.const(-1)), g.const(1), n)
    return g("Relu", g.view(x, g.size(x, 0), chosen, 12))


def branches(g: Raw, x: str, condition: str) -> str:
    from onnx import ValueInfoProto, helper

    graphs = [
        helper.make_graph([helper.make_node(o, [x], [f"y_{o}"])], o, [], [ValueInfoProto(name=f"y_{o}")])
        for o in ("Tanh", "Exp")
    ]
    return g("If", condition, then_branch=graphs[0], else_branch=graphs[1])


@twin("If on the rank")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return branches(g, x, g("Equal", g("Squeeze", g("Shape", g("Shape", x))), g.const(3)))


@twin("If on a length that is never negative")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return branches(g, x, g("GreaterOrEqual", g.size(x, 1), g.const(0)))


@twin("If on two lengths that are one")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g("Relu", x)
    return branches(g, y, g("Equal", g.size(x, 1), g.size(y, 1)))


@twin("If on a remainder that is always less")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return branches(g, x, g("Less", g("Mod", g.size(x, 1), g.const(4)), g.const(4)))


@twin("two names of one length, told by a sum")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 4)), g.input("y", (d.b, d.n, 4))
    z = g("Add", x, y)
    return g("Add", g("Expand", g.weight(1, 1, 4), g("Shape", y)), z)


@twin("Shape of Conv with same padding is the Shape of its input")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g.conv(x, 3, 3)
    return g("Add", y, g("Expand", g.weight(1, 3, 1, 1), g("Shape", x)))


@twin("Crop to the size of a skip", sizes={"h": 8, "w": 12}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    y = g("Resize", y, "", g.f([1, 1, 2, 2]), mode="nearest", coordinate_transformation_mode="asymmetric",
          nearest_mode="floor")  # fmt: skip
    y = g.slice(g.slice(y, 2, 0, length(g, x, 2)), 3, 0, length(g, x, 3))
    return g("Add", x, y)
