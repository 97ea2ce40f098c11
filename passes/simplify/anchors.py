"""Linear operators with constant weights: how a scale of their output or input enters the weights.

Each function gives new weights in float64, or a sentence that says why the constant can't be folded.
"""

from __future__ import annotations

import numpy as np

from .graph import CONST, GraphNode
from .patterns import squeeze_leading

CONVOLUTIONS = frozenset(f"relax.nn.conv{d}d" for d in (1, 2, 3))
TRANSPOSED = frozenset(f"relax.nn.conv{d}d_transpose" for d in (1, 2, 3)) | {"halotile.conv_transpose"}
ANCHORS = CONVOLUTIONS | TRANSPOSED | {"relax.matmul"}


def weight_index(node: GraphNode) -> int | None:
    """Which input of the anchor is its constant weight; None when there is none or both are."""
    if node.op in CONVOLUTIONS | TRANSPOSED:
        kernel, data = node.attr("kernel_layout") or "IO", node.attr("data_layout") or "NC"
        wanted = "IO" if node.op in TRANSPOSED else "OI"
        usual = kernel.startswith(wanted) and data.startswith("NC")
        return 1 if usual and node.inputs[1].op == CONST and node.inputs[0].op != CONST else None
    if node.op == "relax.matmul":
        constant = [i.op == CONST for i in node.inputs]
        return constant.index(True) if sum(constant) == 1 else None
    return None


def per_channel(array: np.ndarray, rank: int, channels: int) -> np.ndarray | None:
    """A constant that varies along axis 1 of an NC... tensor at most, as a vector over channels; None otherwise."""
    if array.size == 1:
        return np.full(channels, array.reshape(()), array.dtype)
    if array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(d != 1 for k, d in enumerate(shape) if k != 1) or shape[1] != channels:
        return None
    return array.reshape(-1)


def scale_output(node: GraphNode, scale: np.ndarray) -> np.ndarray | str:
    """Weights W' with ``anchor(x, W') = scale * anchor(x, W)``."""
    index = weight_index(node)
    if index is None:
        return "the weights are not constant"
    weight = node.inputs[index].array.astype(np.float64)
    if node.op == "relax.matmul":
        return _scale_matmul_output(node, weight, scale, index)
    groups = int(node.attrs.groups)
    transposed = node.op in TRANSPOSED
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    vector = per_channel(scale, node.rank, channels)
    if vector is None:
        return "the constant varies along more than the output channels"
    tail = (1,) * (weight.ndim - 2)
    if not transposed:
        return weight * vector.reshape(-1, 1, *tail)
    blocks = vector.reshape(groups, 1, weight.shape[1], *tail)
    return (weight.reshape(groups, -1, *weight.shape[1:]) * blocks).reshape(weight.shape)


def _scale_matmul_output(node: GraphNode, weight: np.ndarray, scale: np.ndarray, index: int) -> np.ndarray | str:
    s = squeeze_leading(scale)
    if weight.ndim < 2:
        return weight * s if s.ndim == 0 else "the weights are a vector and the constant is not one number"
    if node.inputs[1 - index].rank < 2 and s.ndim > 0:
        return "the other operand is a vector and the constant is not one number"
    if index == 1 and s.ndim >= 2 and s.shape[-2] != 1:
        return "the constant varies along the rows of the product"
    if index == 0 and s.ndim >= 1 and s.shape[-1] != 1:
        return "the constant varies along the columns of the product"
    if s.ndim > weight.ndim or np.broadcast_shapes(s.shape, weight.shape) != weight.shape:
        return "the constant varies along a batch dim that the weights lack"
    return weight * s


def scale_input(node: GraphNode, scale: np.ndarray) -> np.ndarray | str:
    """Weights W' with ``anchor(x, W') = anchor(scale * x, W)``."""
    index = weight_index(node)
    if index is None:
        return "the weights are not constant"
    weight = node.inputs[index].array.astype(np.float64)
    x = node.inputs[1 - index]
    if node.op == "relax.matmul":
        return _scale_matmul_input(weight, scale, index)
    groups = int(node.attrs.groups)
    transposed = node.op in TRANSPOSED
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    vector = per_channel(scale, x.rank, channels)
    if vector is None:
        return "the constant varies along more than the input channels"
    tail = (1,) * (weight.ndim - 2)
    if transposed:
        return weight * vector.reshape(-1, 1, *tail)
    blocks = vector.reshape(groups, 1, weight.shape[1], *tail)
    return (weight.reshape(groups, -1, *weight.shape[1:]) * blocks).reshape(weight.shape)


def _scale_matmul_input(weight: np.ndarray, scale: np.ndarray, index: int) -> np.ndarray | str:
    s = squeeze_leading(scale)
    if s.ndim == 0:
        return weight * s
    if index == 1:
        if s.ndim > 1:
            return "the constant varies along more than the columns of the operand"
        return weight * (s if weight.ndim == 1 else s[:, None])
    if s.ndim != 2 or s.shape[1] != 1:
        return "the constant varies along more than the rows of the operand"
    return weight * s[:, 0] if weight.ndim > 1 else "the weights are a vector"


def shift_input(node: GraphNode, shift: np.ndarray) -> np.ndarray | str:
    """The constant B, broadcast against the result, with ``anchor(x + shift, W) = anchor(x, W) + B``.

    Zero padding does not see the shift, so a padded convolution declines.
    """
    index = weight_index(node)
    if index is None:
        return "the weights are not constant"
    weight = node.inputs[index].array.astype(np.float64)
    x = node.inputs[1 - index]
    if node.op == "relax.matmul":
        if weight.ndim != 2 or not x.rank:
            return "the constant operand is not a matrix"
        if index == 0:
            column = squeeze_leading(shift)
            if x.rank < 2 or column.ndim not in (0, 2) or column.ndim == 2 and column.shape[1] != 1:
                return "the constant varies along more than the rows of the operand"
            return weight @ np.broadcast_to(column, (weight.shape[1], 1))
        full = np.broadcast_to(shift, np.broadcast_shapes(shift.shape, (weight.shape[0],)))
        if full.size > 4 * full.shape[-1] and full.ndim > 1:
            return "the constant varies along the rows of the operand"
        return full @ weight
    if node.op in TRANSPOSED:
        return "borders of a transposed convolution see fewer taps"
    if any(int(p) for p in node.attrs.padding):
        return "zero padding sees no shift"
    groups = int(node.attrs.groups)
    vector = per_channel(shift, x.rank, weight.shape[1] * groups)
    if vector is None:
        return "the constant varies along more than the input channels"
    taps = weight.reshape(*weight.shape[:2], -1).sum(axis=2)
    per_group = vector.reshape(groups, 1, weight.shape[1])
    bias = (taps.reshape(groups, -1, weight.shape[1]) * per_group).sum(axis=2).reshape(-1)
    return bias.reshape(-1, *(1,) * (weight.ndim - 2))
