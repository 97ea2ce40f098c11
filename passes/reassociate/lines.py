"""Convolutions and pools of lines of open length, as those of images of one row.

    conv1d(x [n, c, l], w)              ->    reshape(conv2d(reshape(x, [n, c, 1, l]), w of one row), [n, o, l])
    relu(reshape(x, [n, c, l]))         ->    reshape(relu(x), [n, c, l])

Images of open size have kernels of several kinds, by the size of the run: Winograd's algorithm where it pays, register
tiles for what is shorter. Lines had register tiles alone. What lies between convolutions is computed on images too, so
that views are left where a network begins and ends to be lines; lines of known length have all kernels as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tvm import relax

from ..simplify.graph import CONST, GraphNode, same_value
from ..simplify.patterns import BINARY, UNARY
from ..simplify.rule import RewriteBuilder

op = relax.op
Build = Callable[[RewriteBuilder], GraphNode]

LEAST_CHANNELS, MOST_TAPS = 16, 15  # of Winograd's algorithm
CONV, POOLS = "relax.nn.conv1d", {"relax.nn.max_pool1d": op.nn.max_pool2d, "relax.nn.avg_pool1d": op.nn.avg_pool2d}


def gains(nodes: Iterable[GraphNode]) -> bool:
    """True if some line's convolution may take Winograd's algorithm as an image's, and nothing is computed of bytes:
    quantised networks are found by what lies before and behind a convolution, and have kernels of their own."""
    every = list(nodes)
    if any(n.op == "relax.astype" and n.inputs[0].dtype in ("int8", "uint8") for n in every):
        return False
    return any(n.op == CONV and _is_line(n) and _has_transform(n) for n in every)


def line_as_image(node: GraphNode) -> Build | None:
    """What builds ``node``, a convolution or a pool of lines of open length, or behind one an elementwise operator, a
    concatenation or a slice of channels, on images of one row; None if it is none of these."""
    if not _is_line(node):
        return None
    if node.op == CONV and str(node.attr("data_layout")) == "NCW" and node.inputs[1].op == CONST:
        return lambda b: _line(b, _conv(b, node))
    if node.op in POOLS and str(node.attr("layout")) == "NCW":
        return lambda b: _line(b, _pool(b, node))
    if not any(map(_is_squeezed, node.inputs)):
        return None
    if node.op in UNARY and len(node.inputs) == 1:
        return lambda b: _line(b, b.same(node, _image(b, node.inputs[0])))
    if node.op in BINARY and all(map(_fits, node.inputs)):
        return lambda b: _line(b, b.same(node, *(_image(b, i) for i in node.inputs)))
    if node.op == "relax.strided_slice" and [int(a) % 3 for a in node.raw(1) or ()] == [1]:
        return lambda b: _line(b, b.same(node, _image(b, node.inputs[0])))
    if node.op == "relax.concat" and int(node.attr("axis") or 0) % 3 == 1 and all(map(_is_squeezed, node.inputs)):
        return lambda b: _line(b, b.call(op.concat, [_image(b, i) for i in node.inputs], axis=1))
    return None


def _is_line(node: GraphNode) -> bool:
    """True for a tensor [batch, channels, length] of float32 whose length is open."""
    shape = node.shape if node.is_tensor and node.rank == 3 and node.dtype == "float32" else None
    return shape is not None and isinstance(shape[1], int) and not isinstance(shape[2], int)


def _has_transform(conv: GraphNode) -> bool:
    if conv.inputs[1].op != CONST:
        return False
    outputs, channels, taps = conv.inputs[1].array.shape
    plain = [int(s) for s in conv.attr("strides")] == [1] and int(conv.attr("groups")) == 1
    return plain and 1 < taps <= MOST_TAPS and min(outputs, channels) >= LEAST_CHANNELS


def _is_squeezed(node: GraphNode) -> bool:
    """True for an image of one row as a line."""
    if node.op != "relax.reshape" or not _is_line(node):
        return False
    line, image = node.shape or (), node.inputs[0].shape or ()
    return len(image) == 4 and image[1:3] == (line[1], 1) and same_value(line[0], image[0])


def _fits(operand: GraphNode) -> bool:
    """True for an operand that has a row's axis for sure: a line, one number for each channel, or one for all."""
    if operand.op == CONST:
        return operand.rank in (0, 1, 2, 3) and operand.static
    return operand.is_tensor and operand.rank == 3 and operand.dtype == "float32" and operand.shape is not None


def _image(b: RewriteBuilder, operand: GraphNode) -> GraphNode:
    """A line as an image of one row; a constant as it broadcasts to one."""
    if _is_squeezed(operand):
        return operand.inputs[0]
    if operand.op == CONST:
        array = operand.array
        return b.const(array[..., None, :]) if array.ndim > 1 else operand
    batch, channels, length = operand.shape or ()
    return b.call(op.reshape, operand, [batch, channels, 1, length])


def _line(b: RewriteBuilder, image: GraphNode) -> GraphNode:
    batch, channels, _, length = image.shape or ()
    return b.call(op.reshape, image, [batch, channels, length])


def _conv(b: RewriteBuilder, node: GraphNode) -> GraphNode:
    data, weight = node.inputs
    (stride,), (dilation,), (before, after) = (node.attr(n) for n in ("strides", "dilation", "padding"))
    return b.call(
        op.nn.conv2d, _image(b, data), b.const(weight.array[:, :, None, :]), strides=[1, int(stride)],
        padding=[0, int(before), 0, int(after)], dilation=[1, int(dilation)], groups=int(node.attr("groups")),
    )  # fmt: skip


def _pool(b: RewriteBuilder, node: GraphNode) -> GraphNode:
    names = ("pool_size", "strides", "dilation", "padding")
    (size,), (stride,), (dilation,), (before, after) = (node.attr(n) for n in names)
    return b.call(
        POOLS[node.op], _image(b, node.inputs[0]), pool_size=[1, int(size)], strides=[1, int(stride)],
        dilation=[1, int(dilation)], padding=[0, int(before), 0, int(after)], ceil_mode=bool(node.attr("ceil_mode")),
        count_include_pad=bool(node.attr("count_include_pad")),
    )  # fmt: skip
