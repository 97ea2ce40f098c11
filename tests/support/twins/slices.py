"""Slices of slices, of concatenations, of pads; pads of pads."""

from __future__ import annotations

from typing import Any

from exports import END, Raw

from .base import Dims, twin

BACK = -(2**63) + 1


def length(g: Raw, x: str, axis: int = 1, plus: int = 0) -> str:
    found = g.unsqueeze(g.size(x, axis), 0)
    return g("Add", found, g.const([plus])) if plus else found


def half(g: Raw, x: str, axis: int = 1, up: int = 0) -> str:
    size = g.size(x, axis)
    return g.unsqueeze(g("Div", g("Add", size, g.const(up)) if up else size, g.const(2)), 0)


TWICE: list[tuple[tuple, tuple]] = [
    ((0, -2, 2), (0, -2, 2)), ((0, END, 2), (0, END, 3)), ((2, END, 1), (3, END, 1)), ((1, END, 1), (0, -1, 1)),
    ((1, -1, 2), (2, END, 3)), ((1, 9, 1), (1, 4, 1)), ((-5, END, 1), (-2, END, 1)), ((-5, END, 1), (0, 2, 1)),
    ((-7, -1, 2), (-2, 9, 1)), ((3, -3, 1), (-4, -1, 2)), ((0, 1000, 1), (2, END, 1)), ((0, 2**31 - 1, 1), (1, 4, 1)),
    ((-1000, END, 1), (1, END, 1)), ((-9, -2, 1), (1, -1, 2)), ((0, -1, 1), (-3, END, 1)), ((1, END, 2), (-3, -1, 1)),
]  # fmt: skip
for _first, _second in TWICE:
    twin(f"x[{':'.join(map(str, _first))}][{':'.join(map(str, _second))}]", least=10)(
        lambda g, d, a=_first, b=_second: g("Relu", g.slice(g.slice(g.input("x", (d.b, d.n)), 1, *a), 1, *b))
    )


#: What walks backwards along an open axis is a gather by computed positions, where nothing else is left of it.
TURNED: list[tuple[tuple, tuple]] = [
    ((-1, BACK, -1), (-1, BACK, -1)), ((-1, BACK, -1), (0, 4, 1)), ((-1, BACK, -2), (-1, BACK, -3)),
    ((1, END, 1), (-1, BACK, -1)), ((-1, BACK, -1), (1, END, 1)), ((-1, BACK, -1), (0, END, 2)),
    ((-2, BACK, -1), (1, -1, 1)), ((-1, 2, -1), (-1, BACK, -1)), ((END, BACK, -1), (0, -2, 1)),
    ((-1, BACK, -1), (-1, 0, -1)), ((0, -3, 2), (-2, BACK, -1)), ((5, BACK, -1), (0, 3, 1)), ((5, 1, -2), (0, 1, 1)),
]  # fmt: skip
for _first, _second in TURNED:
    _extra = {"n": 0 if _first == _second == (-1, BACK, -1) else int(_first[2] < 0 and _second[2] < 0)}
    twin(f"x[{':'.join(map(str, _first))}][{':'.join(map(str, _second))}]", _extra, least=10)(
        lambda g, d, a=_first, b=_second: g("Relu", g.slice(g.slice(g.input("x", (d.b, d.n)), 1, *a), 1, *b))
    )


@twin("three slices of an axis", least=12)
def _(g: Raw, d: Dims) -> Any:
    return g.slice(g.slice(g.slice(g.input("x", (d.b, d.n, 3)), 1, 1, END), 1, 0, -2, 2), 1, -4, -1)


@twin("slices of three axes", least=8)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.slice(g.slice(g.slice(g.slice(x, 2, 1, -1), 3, 1, -1), 1, 0, 2), 2, 0, END, 2)


@twin("a slice to its own length")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g.slice(x, 1, 0, length(g, x)))


@twin("a slice from zero to the length of another input")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.n))
    return g("Relu", g.slice(x, 1, 0, length(g, y)))


@twin("slices by halves that rejoin", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", g.slice(x, 1, 0, half(g, x)), g.slice(x, 1, half(g, x), END), axis=1))


@twin("slices by halves that rejoin with the rest counted", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", g.slice(x, 1, 0, half(g, x)), g.slice(x, 1, half(g, x), length(g, x)), axis=1))


@twin("three pieces by negative bounds that rejoin, from four on", {"n": 4}, least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", g.slice(x, 1, 0, 2), g.slice(x, 1, 2, -2), g.slice(x, 1, -2, END), axis=1))


@twin("two pieces by a negative bound that rejoin", least=3)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", g.slice(x, 1, 0, -1), g.slice(x, 1, -1, END), axis=1))


@twin("pieces from the middle that join, from four on", {"n": 2}, least=8)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", g.slice(x, 1, 1, 3), g.slice(x, 1, 3, -1), axis=1))


@twin("slice of concat: the first of two open pieces")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g("Relu", g.slice(g("Concat", x, y, axis=1), 1, 0, length(g, x)))


@twin("slice of concat: the second of two open pieces")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g("Relu", g.slice(g("Concat", x, y, axis=1), 1, length(g, x), END))


@twin("slice of concat: the second by a negative length")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g("Relu", g.slice(g("Concat", x, y, axis=1), 1, g("Neg", length(g, y)), END))


@twin("slice of concat: everything but the last piece by a negative length")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g("Relu", g.slice(g("Concat", x, y, axis=1), 1, 0, g("Neg", length(g, y))))


@twin("slice of concat: a class token in front")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    y = g("Concat", g("Expand", g.weight(1, 1, 4), g("Concat", length(g, x, 0), g.const([1, 1]), axis=0)), x, axis=1)
    return g("Relu", g.slice(y, 1, 1, END))


@twin("slice of concat along another axis", least=4)
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, 4, d.n)), g.input("y", (d.b, 5, d.n))
    return g("Relu", g.slice(g.slice(g("Concat", x, y, axis=1), 2, 1, -1), 1, 4, END))


@twin("slice of concat: whole pieces in the middle")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g.slice(g("Concat", x, y, g("Neg", x), g("Abs", y), axis=1), 1, length(g, x), g("Neg", length(g, y)))


@twin("slice of concat: whole pieces and a slice of another axis", least=2)
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.n, 3))
    z = g("Concat", x, y, g("Neg", x), axis=1)
    return g("Slice", z, g("Concat", length(g, x), g.const([1]), axis=0), g.const([END, END]), g.const([1, 2]))


@twin("split in two and joined", sizes={"n": 14}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Relu", g("Concat", *g("Split", x, outputs=2, axis=2, num_outputs=2), axis=2))


@twin("split of an open axis in two and joined", sizes={"n": 14}, least=2, multiple=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    return g("Relu", g("Concat", *g("Split", x, outputs=2, axis=1, num_outputs=2), axis=1))


@twin("split by computed sizes and joined", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    first = half(g, x)
    sizes = g("Concat", first, g("Sub", length(g, x), first), axis=0)
    return g("Relu", g("Concat", *g("Split", x, sizes, outputs=2, axis=1), axis=1))


@twin("one of a split of an open axis, sliced", least=8)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 4))
    sizes = g("Concat", g.const([2]), length(g, x, 1, -2), axis=0)
    return g.slice(g("Split", x, sizes, outputs=2, axis=1)[1], 1, 1, -1)


@twin("concat of concats of open pieces")
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g("Concat", g("Concat", x, y, axis=1), g("Concat", y, x, axis=1), axis=1)


@twin("slices of the same, found twice", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Add", g.slice(x, 1, 1, END), g.slice(x, 1, 1, length(g, x)))


@twin("slices of the same, from the end and from the front", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Add", g.slice(x, 1, 0, -2), g.slice(x, 1, 0, length(g, x, 1, -2)))


@twin("pad of pad")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g("Pad", g("Pad", x, g.const([0, 0, 1, 0, 0, 0, 2, 1])), g.const([0, 0, 0, 2, 0, 0, 1, 1]))


@twin("pad of pad by another number", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Pad", x, g.const([0, 0, 1, 0, 0, 0, 2, 1]), g.f(1.5))
    return g("Pad", y, g.const([0, 0, 0, 2, 0, 0, 1, 1]), g.f(1.5))


@twin("pad by nothing, computed")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    gap = g("Sub", length(g, x), length(g, g("Abs", x)))
    return g("Relu", g("Pad", x, g("Concat", g.const([0]), gap, g.const([0, 0, 0, 0]), axis=0)))


@twin("pad, then the padding cut off")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Pad", x, g.const([0, 0, 1, 2, 0, 0, 1, 2]))
    return g("Relu", g.slice(g.slice(y, 2, 1, -1), 3, 2, -2))


@twin("pad, then a part of the padding cut off")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.slice(g("Pad", x, g.const([0, 0, 2, 0, 0, 0, 2, 0])), 2, 1, -1)


@twin("pad, then more than the padding cut off", least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.slice(g("Pad", x, g.const([0, 0, 1, 0, 0, 0, 1, 0])), 2, 2, -3)


@twin("a negative pad as a slice", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g("Pad", g("Pad", x, g.const([0, 0, 2, 2, 0, 0, 2, 2])), g.const([0, 0, -1, -1, 0, 0, -1, -1]))


@twin("a negative pad and a slice", least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.slice(g("Pad", x, g.const([0, 0, -1, -1, 0, 0, -1, -1])), 2, 1, -1)


@twin("pad to a computed multiple of nothing")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    rest = g("Mod", length(g, x), g.const([1]))
    return g("Relu", g("Pad", x, g("Concat", g.const([0, 0, 0, 0]), rest, g.const([0]), axis=0)))


@twin("pad to a multiple and the pad cut off")
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    rest = g("Mod", g("Sub", g.const([4]), g("Mod", length(g, x), g.const([4]))), g.const([4]))
    y = g("Pad", x, g("Concat", g.const([0, 0, 0, 0]), rest, g.const([0]), axis=0))
    return g("Relu", g.slice(y, 1, 0, length(g, x)))


@twin("slice after an elementwise operator and a concat", least=4)
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, d.n, 3)), g.input("y", (d.b, d.m, 3))
    return g.slice(g.slice(g("Relu", g("Concat", x, y, axis=1)), 1, 1, -1), 1, 1, -1)


@twin("windows cut and put back (Swin shift)", {"n": 5}, least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    y = g("Concat", g.slice(x, 1, 2, END), g.slice(x, 1, 0, 2), axis=1)
    return g("Relu", g("Concat", g.slice(y, 1, -2, END), g.slice(y, 1, 0, -2), axis=1))


@twin("a slice of a transpose and its slice", least=6)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    y = g.slice(g("Transpose", g.slice(x, 1, 1, END), perm=[0, 2, 1]), 2, 1, -1)
    return g("Transpose", y, perm=[0, 2, 1])


@twin("Gather of one position, then Unsqueeze, against a slice", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Add", g.unsqueeze(g("Gather", x, g.const(0), axis=1), 1), g.slice(x, 1, 0, 1))


@twin("Gather of the last position, then Unsqueeze, against a slice", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Add", g.unsqueeze(g("Gather", x, g.const(-1), axis=1), 1), g.slice(x, 1, -1, END))


@twin("slices of several axes at once, of which some turn", {"h": 2, "w": 3}, least=8)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g("Slice", x, g.const([0, -1]), g.const([-2, BACK]), g.const([2, 3]), g.const([2, -1]))
    return g("Slice", y, g.const([-1, 0]), g.const([BACK, END]), g.const([3, 2]), g.const([-1, 1]))


@twin("a turn of one axis and a slice of the other", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    return g.slice(g.slice(x, 3, -1, BACK, -1), 2, 1, END)


@twin("turned twice on two axes", least=4)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, 3, d.h, d.w))
    y = g.slice(g.slice(x, 3, -1, BACK, -1), 2, -1, BACK, -1)
    return g("Relu", g.slice(g.slice(y, 2, -1, BACK, -1), 3, -1, BACK, -1))


@twin("slice of concat: a part of a piece, turned", least=6)
def _(g: Raw, d: Dims) -> Any:
    x, y = g.input("x", (d.b, 4, 3)), g.input("y", (d.b, d.n, 3))
    return g("Relu", g.slice(g("Concat", x, y, axis=1), 1, -1, 3, -1))


@twin("a slice of nothing joined", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", x, g.slice(x, 1, length(g, x), END), axis=1))


@twin("a slice of nothing, from zero to zero, joined", least=2)
def _(g: Raw, d: Dims) -> Any:
    x = g.input("x", (d.b, d.n, 3))
    return g("Relu", g("Concat", g.slice(x, 1, 0, 0), x, axis=1))
