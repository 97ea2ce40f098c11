"""Values of Halotile's own operators on constants, in numpy: those whose every bit follows from what they mean, which
is what shape arithmetic and the movement of weights consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .graph import GraphNode

Arrays = Sequence[np.ndarray]


def _quotient(node: GraphNode, x: Arrays) -> np.ndarray:
    """Towards zero; nothing is divided by zero."""
    a, b = x
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    rounded = quotient + ((np.remainder(a, safe) != 0) & ((a < 0) != (b < 0)))
    return np.where(b == 0, np.zeros_like(a), rounded).astype(a.dtype)


def _remainder(node: GraphNode, x: Arrays) -> np.ndarray | None:
    a, b = x
    if a.dtype.kind not in "iu":
        return None
    safe = np.where(b == 0, np.ones_like(b), b)
    found = (np.fmod if node.attr("truncate") else np.mod)(a, safe)
    return np.where(b == 0, np.zeros_like(a), found)


def _shifted(node: GraphNode, x: Arrays) -> np.ndarray:
    a, b = x
    bits = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < bits)
    amount = np.where(inside, b, np.zeros_like(b)).astype(a.dtype)
    fill = (
        np.where(a < 0, -1, 0).astype(a.dtype)
        if not node.attr("left") and a.dtype.kind == "i"
        else a.dtype.type(0)
    )
    return np.where(
        inside, np.left_shift(a, amount) if node.attr("left") else np.right_shift(a, amount), fill
    )


def _power(node: GraphNode, x: Arrays) -> np.ndarray:
    """By squaring, modulo the type's width; of a negative exponent what is left of the inverse."""
    a, b = np.broadcast_arrays(*x)
    result, base, left = np.ones_like(a), a.copy(), np.where(b < 0, np.zeros_like(b), b)
    while left.any():
        result = np.where(left & 1 != 0, result * base, result)
        base, left = base * base, left >> 1
    inverse = np.where(
        a == 1, 1, np.where((a == -1) if a.dtype.kind == "i" else False, np.where(b & 1, -1, 1), 0)
    )
    return np.where(b < 0, inverse.astype(a.dtype), result)


def _places(indices: np.ndarray, length: int) -> np.ndarray:
    """Negative positions count from the end; none lies outside."""
    wide = indices.astype("int64")
    return np.clip(np.where(wide < 0, wide + length, wide), 0, length - 1)


def _gather(node: GraphNode, x: Arrays) -> np.ndarray:
    axis = int(node.attr("axis"))
    return np.take(x[0], _places(x[1], x[0].shape[axis]), axis)


def _gather_elements(node: GraphNode, x: Arrays) -> np.ndarray:
    axis = int(node.attr("axis"))
    index: list[np.ndarray] = list(np.indices(x[1].shape, sparse=True))
    index[axis] = _places(x[1], x[0].shape[axis])
    return x[0][tuple(index)]


def _gather_nd(node: GraphNode, x: Arrays) -> np.ndarray:
    batch = int(node.attr("batch_dims"))
    outer = x[1].shape[:-1]
    index: list[np.ndarray] = list(np.indices(outer, sparse=True))[:batch]
    index += [_places(x[1][..., d], x[0].shape[batch + d]) for d in range(x[1].shape[-1])]
    return x[0][tuple(index)]


def _slice(node: GraphNode, x: Arrays) -> np.ndarray:
    out = x[0]
    for axis, (begin, step, length) in enumerate(zip(*(node.attr(n) for n in ("begin", "step", "shape")))):
        if (begin, step, length) != (0, 1, out.shape[axis]):
            out = np.take(out, begin + step * np.arange(length), axis)
    return out


def _pad(node: GraphNode, x: Arrays) -> np.ndarray:
    return np.pad(x[0], [*zip(node.attr("begin"), node.attr("end"))], constant_values=x[1].reshape(())[()])


def _running(function: Callable[..., np.ndarray]) -> Callable[[GraphNode, Arrays], np.ndarray | None]:
    def apply(node: GraphNode, x: Arrays) -> np.ndarray | None:
        if x[0].dtype.kind not in "iu":
            return None
        axis = int(node.attr("axis"))
        ordered = np.flip(x[0], axis) if node.attr("reverse") else x[0]
        total = function(ordered, axis, dtype=x[0].dtype)
        if node.attr("exclusive"):
            total = np.roll(total, 1, axis)
            total[(slice(None),) * axis + (slice(0, 1),)] = function is np.cumprod
        return np.flip(total, axis) if node.attr("reverse") else total

    return apply


def _saturated(node: GraphNode, x: Arrays) -> np.ndarray:
    """Within limits, NaN at the low one."""
    a, low, high = x[0], node.attr("low"), node.attr("high")
    with np.errstate(invalid="ignore"):
        held = np.where(a > low, np.minimum(a, a.dtype.type(high)), a.dtype.type(low))
    return held.astype(node.dtype)


def _divided(node: GraphNode, x: Arrays) -> np.ndarray:
    """The bits of a division."""
    return np.asarray(x[0] / x[1])


def _whole(node: GraphNode, x: Arrays) -> np.ndarray:
    """The nearest whole number and the zero point, within limits; the least of them for NaN."""
    held = np.clip(np.rint(x[0]) + node.attr("zero"), node.attr("low"), node.attr("high"))
    return np.where(np.isnan(held), node.attr("low"), held).astype(node.dtype)


def _looked_up(node: GraphNode, x: Arrays) -> np.ndarray:
    table = np.array(node.attr("words"), "<i8").view(node.dtype)
    return np.asarray(table[x[0].view(np.uint8)])


OWN: dict[str, Callable[[GraphNode, Arrays], np.ndarray | None]] = {
    "halotile.integer_divide": _quotient,
    "halotile.modulo": _remainder,
    "halotile.bit_shift": _shifted,
    "halotile.integer_power": _power,
    "halotile.saturated": _saturated,
    "halotile.quotient": _divided,
    "halotile.rounded": _whole,
    "halotile.byte_table": _looked_up,
    "halotile.bitcast": lambda node, x: np.asarray(x[0], order="C").view(node.dtype),
    "halotile.gather": _gather,
    "halotile.gather_elements": _gather_elements,
    "halotile.gather_nd": _gather_nd,
    "halotile.slice": _slice,
    "halotile.pad": _pad,
    "halotile.cumsum": _running(np.cumsum),
    "halotile.cumprod": _running(np.cumprod),
}
