"""Rows through windows: convolutions, pools, transposed convolutions and resizing, computed without padding of rows.

    y[o] needs rows o * stride - begin .. + reach of x       reach = (kernel - 1) * dilation + 1

Of a step these are count * stride - stride + reach rows, of which the first come from the state. With s the stride and
D the delay of x, the least delay is the least one for which the last of them is there:

    s * delay >= D + reach - s - begin
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from tvm import relax

from ...schedules.operators.regions.attributes import ints
from ...schedules.operators.registry import attributes, call
from ...schedules.words.group import Node, Value
from ...schedules.words.tvm_types import Expr
from .rules import Arguments, Global, Planned, Read, Rows, Rule, StreamRows, carried, written
from .words import Gather


def conv(node: Node, stream: StreamRows) -> Planned:
    """A convolution; what it reads outside is zero."""
    attrs = node.call.attrs
    data, weight = node.inputs[:2]
    _only(node, stream, data)
    if stream.rows[data].axis == 0 and str(attrs.data_layout).startswith("NC"):
        return carried(node, stream, lambda v: 0)
    a = _spatial(node, stream, str(attrs.data_layout))
    rank = len(data.shape) - 2
    padding = ints(attrs.padding)
    before, after = padding[a], padding[a + rank]
    read, rows = _windows(
        node, stream, data, weight.shape[2 + a], ints(attrs.strides)[a], ints(attrs.dilation)[a], before, after, 0.0
    )
    padding[a] = padding[a + rank] = 0
    function = getattr(relax.op.nn, f"conv{rank}d")

    def emit(arguments: Arguments) -> Expr:
        return function(
            arguments[data], arguments[weight], strides=ints(attrs.strides), padding=padding,
            dilation=ints(attrs.dilation), groups=int(attrs.groups), data_layout=str(attrs.data_layout),
            kernel_layout=str(attrs.kernel_layout), out_layout=str(attrs.out_layout), out_dtype=attrs.out_dtype,
        )  # fmt: skip

    return Planned({data: read}, [rows], emit)


def pool(node: Node, stream: StreamRows) -> Planned:
    """The largest or the mean of a window. What exists counts for the largest, and for the mean where it says so."""
    attrs = node.call.attrs
    (data,) = node.inputs
    if stream.rows[data].axis == 0:
        return carried(node, stream, lambda v: 0)
    a = _spatial(node, stream, str(attrs.layout))
    rank = len(data.shape) - 2
    padding = ints(attrs.padding)
    kernel, stride, dilation = (ints(n)[a] for n in (attrs.pool_size, attrs.strides, attrs.dilation))
    before, after = padding[a], padding[a + rank]
    largest = "max" in node.operator
    fill = _lowest(data.dtype) if largest else 0.0
    read, rows = _windows(node, stream, data, kernel, stride, dilation, before, after, fill)
    padding[a] = padding[a + rank] = 0
    function = getattr(relax.op.nn, node.operator.rsplit(".", 1)[-1])

    def emit(arguments: Arguments) -> Expr:
        return function(
            arguments[data], pool_size=ints(attrs.pool_size), strides=ints(attrs.strides),
            dilation=ints(attrs.dilation), padding=padding, ceil_mode=False,
            count_include_pad=bool(attrs.count_include_pad), layout=str(attrs.layout), out_layout=str(attrs.out_layout),
        )  # fmt: skip

    counted = not largest and not bool(attrs.count_include_pad) and (before or after)
    return Planned({data: read}, [rows], emit, (kernel, stride, dilation, before) if counted else None)


def conv_transpose(node: Node, stream: StreamRows) -> Planned:
    """y[o] sums over rows i with o = i * stride - begin + k * dilation; rows that do not exist are zero."""
    attrs = attributes(node.call)
    data, weight = node.inputs[:2]
    _only(node, stream, data)
    a = _spatial(node, stream, "NC")
    s, d = int(attrs["strides"][a]), int(attrs["dilations"][a])
    begin, reach = int(attrs["begin"][a]), (weight.shape[2 + a] - 1) * d
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    delay = max(least, s * rows.delay + begin)
    first = -((delay - begin + reach) // s)  # ceil((begin - reach - delay) / s)
    last = (count - delay - 1 + begin) // s
    above = math.ceil(Fraction(begin - reach, s)) < 0
    # The last row that exists reads behind the end of x exactly if what is cut at the end is less than what is beyond.
    ends = (rows.height.steps * s * height.period) == (height.steps * rows.height.period)
    cut = rows.height.rest[0] * s - s + reach + 1 - begin - height.rest[0] if ends else 0
    below = reach - cut >= s
    out = [int(o) if isinstance(o, int) else o for o in node.results[0].shape[2:]]
    out[a] = count
    starts = [int(b) for b in attrs["begin"]]
    starts[a] = -delay - s * first + begin

    def emit(arguments: Arguments) -> Expr:
        return call(
            "halotile.conv_transpose", arguments[data], arguments[weight], strides=list(attrs["strides"]),
            dilations=list(attrs["dilations"]), begin=starts, groups=int(attrs["groups"]), output=out,
        )  # fmt: skip

    read = Read(-first, last - first + 1, 0.0 if above or below else None)
    return Planned({data: read}, [Rows(axis, count, delay, height)], emit)


def upsample(node: Node, stream: StreamRows) -> Planned:
    """Rows repeated."""
    (data,) = node.inputs
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    factor = int(attributes(node.call)["factors"][rows.axis])
    delay = max(factor * rows.delay, -(-least // factor) * factor)
    read = Read(delay // factor, rows.count)
    return Planned({data: read}, [Rows(axis, count, delay, height)], lambda a: written(node, a))


def resize(node: Node, stream: StreamRows) -> Planned:
    """Interpolation at a fixed scale: windows that begin with a whole period are resized, and their middle is taken.
    Rows above the first are the first, rows below the last the last."""
    attrs = node.call.attrs
    (data,) = node.inputs[:1]
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    if axis != 2 or str(attrs.layout) != "NCHW":
        raise Global("streams have no rule for it along this axis")
    mode = str(attrs.coordinate_transformation_mode)
    scale = Fraction(height.steps * rows.height.period, height.period * rows.height.steps)
    even = all(height.at(n) == scale * rows.height.at(n) for n in range(64 * height.period, 66 * height.period))
    if mode not in ("half_pixel", "asymmetric") or not even:
        raise Global(f"the place of its rows depends on the height of the whole image ({mode})")
    low, high = {"nearest_neighbor": (0, 1), "linear": (0, 1), "cubic": (-1, 2)}[str(attrs.method)]
    half = Fraction(1, 2) if mode == "half_pixel" else Fraction(0)
    period = scale.denominator

    def place(y: int) -> int:
        return math.floor((y + half) / scale - half)

    delay = max(least, 0)
    while True:
        end = (rows.count - rows.delay) // period * period  # of the window, in rows from t * count on
        if place(count - delay - 1) + high < end:
            break
        delay += 1
    back = -(place(-delay) + low) + 1
    back = -(-back // period) * period
    length = end + back
    skip = int(scale * back) - delay
    out = [int(scale * length), *node.results[0].shape[3:]]

    def emit(arguments: Arguments) -> Expr:
        whole = relax.op.image.resize2d(
            arguments[data], relax.ShapeExpr(out), layout="NCHW", method=str(attrs.method),
            coordinate_transformation_mode=mode, rounding_method=str(attrs.rounding_method),
            cubic_alpha=float(attrs.cubic_alpha),
        )  # fmt: skip
        return relax.op.strided_slice(whole, [2], [skip], [skip + count])

    read = Read(back, length, None, Gather(), (rows.count, back, length, rows.height))
    return Planned({data: read}, [Rows(axis, count, delay, height)], emit)


def _windows(
    node: Node, stream: StreamRows, data: Value, kernel: int, stride: int, dilation: int, before: int, after: int,
    fill: float,
) -> tuple[Read, Rows]:  # fmt: skip
    rows, (axis, count, height, least) = stream.rows[data], stream.result(node.results[0])
    reach = (kernel - 1) * dilation + 1
    delay = max(least, math.ceil(Fraction(rows.delay + reach - stride - before, stride)))
    read = Read(stride * delay + before, (count - 1) * stride + reach, fill if before or after else None)
    return read, Rows(axis, count, delay, height)


def _only(node: Node, stream: StreamRows, data: Value) -> None:
    if stream.streaming(node) != [data]:
        raise Global("its weights depend on the image")


def _spatial(node: Node, stream: StreamRows, layout: str) -> int:
    """Which of the spatial axes streams."""
    axis = stream.rows[node.inputs[0]].axis
    if not layout.startswith("NC") or axis < 2:
        raise Global(f"it needs all {node.inputs[0].shape[axis]} rows at once")
    return axis - 2


def _lowest(dtype: str) -> float:
    return -np.inf if "float" in dtype else float(np.iinfo(dtype).min)


RULES: dict[str, Rule] = {
    **{f"relax.nn.conv{n}d": conv for n in (1, 2, 3)},
    **{f"relax.nn.{kind}_pool{n}d": pool for kind in ("max", "avg") for n in (1, 2, 3)},
    "halotile.conv_transpose": conv_transpose,
    "halotile.upsample": upsample,
    "relax.image.resize2d": resize,
}
