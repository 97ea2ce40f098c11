"""Convolution and pooling: what windows read.

    output [a, b) of one axis  ->  input [a * stride - begin, (b - 1) * stride - begin + dilation * (kernel - 1) + 1)

The end is that of the last window, not the start of the next one; with a stride larger than the kernel, boxes of
neighbours do not touch. Outputs that ceil_mode adds are ordinary windows here: the number of outputs is the whole
tensor's, and what a window finds outside is fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...words.group import Node
from .attributes import ints, once, own
from .box import Box, BoxRefusal, Fill, Needs, Span, need
from .pads import constant_fill

if TYPE_CHECKING:
    from ...words.tvm_types import Expr


def window(span: Span, kernel: int, stride: int, dilation: int, begin: int) -> Span:
    """The positions that the windows of outputs ``span`` cover, unclipped."""
    lo, hi = span
    return lo * stride - begin, (hi - 1) * stride - begin + dilation * (kernel - 1) + 1


def windows(
    box: Sequence[Span],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
) -> list[Span]:
    return [window(*axis) for axis in zip(box, kernel, strides, dilations, begin)]


def conv(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """All channels of the groups that the output channels belong to, and the weights of those channels."""
    data, weight = node.inputs[:2]
    found = _conv(node)
    if isinstance(found, BoxRefusal):
        return found
    strides, dilation, begin, groups = found
    spatial = windows(box[2:], weight.shape[2:], strides, dilation, begin)
    channels = group_channels(box[1], weight.shape[0] // groups, data.shape[1] // groups)
    taps = [(0, n) for n in weight.shape[1:]]
    return need(data, [box[0], channels, *spatial], "zero"), need(weight, [box[1], *taps])


@once
def _conv(node: Node) -> tuple[list[int], list[int], list[int], int] | BoxRefusal:
    """Strides, dilation, padding before, and groups."""
    attrs = node.call.attrs
    if not str(attrs.data_layout).startswith("NC") or not str(attrs.kernel_layout).startswith("OI"):
        return BoxRefusal(f"{node.operator} in layout {attrs.data_layout}, {attrs.kernel_layout}")
    rank = len(node.inputs[0].shape) - 2
    return ints(attrs.strides), ints(attrs.dilation), ints(attrs.padding)[:rank], int(attrs.groups)


def group_channels(span: Span, out: int, into: int) -> Span:
    """The input channels of the groups of output channels ``span``, with ``out`` and ``into`` channels a group."""
    lo, hi = span
    return lo // out * into, ((hi - 1) // out + 1) * into


def _relax_pool(fill: Fill) -> Callable[..., Expr]:
    def pool(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
        found = _pool(node)
        if isinstance(found, BoxRefusal):
            return found
        spatial = windows(box[2:], *found)
        return (need(node.inputs[0], [*box[:2], *spatial], fill),)

    return pool


@once
def _pool(node: Node) -> tuple[list[int], list[int], list[int], list[int]] | BoxRefusal:
    """Kernel, strides, dilation and padding before."""
    attrs = node.call.attrs
    if not str(attrs.layout).startswith("NC"):
        return BoxRefusal(f"{node.operator} in layout {attrs.layout}")
    rank = len(node.inputs[0].shape) - 2
    return ints(attrs.pool_size), ints(attrs.strides), ints(attrs.dilation), ints(attrs.padding)[:rank]


def _own_pool(fill: Fill) -> Callable[..., Expr]:
    def pool(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
        a = own(node)
        spatial = windows(box[2:], a["kernel"], a["strides"], a["dilations"], a["begin"])
        return (need(node.inputs[0], [*box[:2], *spatial], fill),)

    return pool


def channel_window(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """``size`` neighbouring channels, zero outside."""
    size = int(own(node)["size"])
    channels = window(box[1], size, 1, 1, (size - 1) // 2)
    return (need(node.inputs[0], [box[0], channels, *box[2:]], "zero"),)


def dot_conv(node: Node, _output: int, box: Box) -> Needs | BoxRefusal:
    """The needs of a convolution of bytes, outside of whose data a byte stands for zero."""
    (data, weight), a = node.inputs[:2], own(node)
    spatial = windows(box[2:], weight.shape[2:], a["strides"], a["dilations"], a["begin"])
    groups, taps = int(a["groups"]), [(0, n) for n in weight.shape[1:]]
    channels = group_channels(box[1], weight.shape[0] // groups, data.shape[1] // groups)
    fill, number = constant_fill(float(a["fill"]))
    return need(data, [box[0], channels, *spatial], fill, number), need(weight, [box[1], *taps])


RULES = {
    "halotile.dot_conv": dot_conv,
    **{f"relax.nn.conv{d}d": conv for d in (1, 2, 3)},
    **{f"relax.nn.max_pool{d}d": _relax_pool("-inf") for d in (1, 2, 3)},
    **{f"relax.nn.avg_pool{d}d": _relax_pool("zero") for d in (1, 2, 3)},
    "halotile.window_sum": _own_pool("zero"),
    "halotile.max_pool_with_indices": _own_pool("-inf"),
    "halotile.channel_window_sum": channel_window,
}
