"""Convolution of bytes, summed in 32 bits: what the dot-product instructions compute
(:mod:`..instructions.int8_dot`)."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx

from ..words.tvm_types import Attributes, Expr
from .common import shape_of, window_extents
from .open_shapes import Shape
from .registry import define


def _convolved(shapes: list[Shape], a: Attributes) -> list[Shape]:
    (batch, _, *size), (outputs, _, *kernel) = shapes
    if a.get("output") is not None:
        return [[batch, outputs, *a["output"]]]
    spans = (a["strides"], a["dilations"], a["begin"], a["end"])
    return [[batch, outputs, *window_extents(size, kernel, *spans)]]


@define("halotile.dot_conv", shapes=_convolved, dtypes=["int32"])
def dot_conv(
    x: te.Tensor,
    w: te.Tensor,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    groups: int,
    fill: int,
    output: Sequence[int] | None = None,
    end: Sequence[int] | None = None,
) -> te.Tensor:
    """y[n, m, o] = sum over c and taps k of x[n, g(m) + c, o * stride + k * dilation - begin] * w[m, c, k] in int32.

    x: uint8 or int8 [N, C, ...], w: int8 [M, C / groups, K...] -> int32 [N, M, output...]. Outside of x lies ``fill``,
    the byte that stands for zero. Of an open image the output is as many as fit with ``end`` places behind it.
    """
    n, _, *size = shape_of(x)
    outputs, inner, *kernel = shape_of(w)
    output = output or window_extents(size, kernel, strides, dilations, begin, end or [0] * len(size))
    per_group = outputs // groups
    channel = te.reduce_axis((0, inner), "c")
    taps = [te.reduce_axis((0, k), "k") for k in kernel]

    def element(b: Expr, m: Expr, *o: Expr) -> Expr:
        at = [p * s + k * d - a for p, s, k, d, a in zip(o, strides, taps, dilations, begin)]
        value = x(b, tirx.floordiv(m, per_group) * inner + channel if groups > 1 else channel, *at)
        inside = [c for p, s in zip(at, size) for c in (p >= 0, p < s)]
        value = tirx.if_then_else(tirx.all(*inside), value, tirx.const(fill, x.dtype))
        return te.sum(value.astype("int32") * w(m, channel, *taps).astype("int32"), axis=[channel, *taps])

    return te.compute((n, outputs, *output), element, name="dot_conv")
