"""Transposed convolution, written as a gather so that no multiplication by a stuffed zero is ever done."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..words.dims import is_open
from ..words.tvm_types import Attribute, Expr
from .common import shape_of, transposed_extents
from .open_shapes import Shape
from .registry import define

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def _transposed(shapes: list[Shape], a: dict[str, Attribute]) -> list[Shape]:
    (batch, _, *size), (_, outputs, *kernel) = shapes
    if a.get("output") is not None:
        return [[batch, outputs * a["groups"], *a["output"]]]
    spans = (a["strides"], a["dilations"], a["begin"], a["end"])
    return [[batch, outputs * a["groups"], *transposed_extents(size, kernel, *spans)]]


@define("halotile.conv_transpose", shapes=_transposed)
def conv_transpose(
    x: te.Tensor,
    w: te.Tensor,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    groups: int,
    output: Sequence[int] | None = None,
    end: Sequence[int] | None = None,
) -> te.Tensor:
    """y[n, m, o] = sum over c and taps k with (o + begin - k * dilation) divisible by stride.

    For one output position only every (stride / g)-th tap meets an element, g = gcd(stride, dilation):

        t = (o + begin) / g,  s = stride / g,  d = dilation / g
        k = first(t) + s * j,  j = 0 .. ceil(K / s) - 1,  first(t) = t * inverse(d mod s) mod s
        i = (t - k * d) / s

    x: [N, C, ...], w: [C, M / groups, K...] -> [N, M, output...]. Of an open image the output is what is left of the
    full result without ``begin`` and ``end``. Both are padded with zeros first, so that the sum
    itself has no conditions (but for the one on g, where g > 1).
    """
    n, channels, *size = shape_of(x)
    _, per_group, *kernel = shape_of(w)
    output = output or transposed_extents(size, kernel, strides, dilations, begin, end or [0] * len(size))
    axes = [_Axis(*a) for a in zip(size, kernel, strides, dilations, begin, output)]
    low = [max(-a.first_read, 0) for a in axes]
    high = [max(a.last_read - (a.size - 1), 0) for a in axes]

    def padded(*i: Expr) -> Expr:
        inside = [c for p, a, pad in zip(i[2:], axes, low) for c in (p >= pad, p < pad + a.size)]
        return tirx.if_then_else(
            tirx.all(*inside), x(*i[:2], *[p - pad for p, pad in zip(i[2:], low)]), tirx.const(0, x.dtype)
        )

    data = x
    if any(low) or any(high):
        shape = [n, channels, *[a.size + first + last for a, first, last in zip(axes, low, high)]]
        data = te.compute(shape, padded, name="padded")
    taps = w
    if any(a.kernel % a.step for a in axes):

        def filled(*i: Expr) -> Expr:
            inside = [k < a.kernel for k, a in zip(i[2:], axes)]
            return tirx.if_then_else(tirx.all(*inside), w(*i), tirx.const(0, w.dtype))

        taps = te.compute([channels, per_group, *[a.taps * a.step for a in axes]], filled, name="filled")
    inner = te.reduce_axis((0, channels // groups), name="rc")
    steps = [te.reduce_axis((0, a.taps), name=f"rj{d}") for d, a in enumerate(axes)]

    def result(b: Expr, m: Expr, *o: Expr) -> Expr:
        group = tirx.floordiv(m, per_group) if groups > 1 else 0
        c = group * (channels // groups) + inner
        at, tap, meets = [], [], []
        for p, j, a, pad in zip(o, steps, axes, low):
            k = a.first_tap(p) + a.step * j
            tap.append(k)
            at.append(a.read(p, k) + pad)
            if a.divisor > 1:
                meets.append(tirx.floormod(p + a.begin, a.divisor) == 0)
        product = data(b, c, *at) * taps(c, tirx.floormod(m, per_group) if groups > 1 else m, *tap)
        if meets:
            product = tirx.if_then_else(tirx.all(*meets), product, tirx.const(0, x.dtype))
        return te.sum(product, axis=[inner, *steps])

    return te.compute([n, per_group * groups, *output], result, name="conv_transpose")


class _Axis:
    """The arithmetic of one spatial axis (see conv_transpose)."""

    def __init__(self, size: SizeLike, kernel: int, stride: int, dilation: int, begin: int, output: int) -> None:
        self.size, self.kernel, self.begin, self.output = size, kernel, begin, output
        self.divisor = math.gcd(stride, dilation)
        self.step = stride // self.divisor
        self.dilation = dilation // self.divisor
        self.inverse = pow(self.dilation, -1, self.step) if self.step > 1 else 0
        self.taps = -(-kernel // self.step)
        if is_open((size, output)):  # bounds that hold for every size
            self.first_read = (begin - (kernel - 1) * dilation) // stride
            self.last_read = size - 1 + (output - 1 + begin - (size - 1) * stride) // stride
            return
        reads = [
            self._read(o, j)
            for o in [
                *range(min(output, 2 * self.step * self.divisor)),
                *range(max(output - 2 * stride, 0), output),
            ]
            for j in (0, self.taps - 1)
        ]
        self.first_read, self.last_read = min(reads, default=0), max(reads, default=0)

    def _t(self, o: Expr) -> int:
        return (o + self.begin) // self.divisor

    def _read(self, o: int, j: int) -> int:
        k = (self._t(o) * self.inverse) % self.step + self.step * j if self.step > 1 else j
        return (self._t(o) - k * self.dilation) // self.step

    def first_tap(self, o: Expr) -> Expr:
        if self.step == 1:
            return 0
        t = tirx.floordiv(o + self.begin, self.divisor) if self.divisor > 1 else o + self.begin
        return tirx.floormod(t * self.inverse if self.inverse > 1 else t, self.step)

    def read(self, o: Expr, k: Expr) -> Expr:
        t = tirx.floordiv(o + self.begin, self.divisor) if self.divisor > 1 else o + self.begin
        return tirx.floordiv(t - k * self.dilation, self.step) if self.step > 1 else t - k * self.dilation
