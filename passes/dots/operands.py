"""What is multiplied: data that was a byte before it was a float, and weights that are whole multiples of a step.

    x = (byte - zero) * scale              whatever was folded into what, and moved where
    w[m] = q[m] * step[m]                  q whole, at most 128

Neither needs to know how the model said so. A step is found by trying how often it fits into the largest weight of an
output: weights that were quantised meet one within rounding, and any others don't.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...schedules.operators.open_shapes import same_dim
from ..simplify.graph import CONST, GraphNode
from ..simplify.identity import RESHAPES
from ..simplify.patterns import INTEGERS, split_constant
from ..simplify.rule import RewriteBuilder

NEAR = 1.6e-6  # of the largest weight: a few roundings of float32, and a margin
SAMPLE = 64  # weights of an output that are tried first
BYTES = ("uint8", "int8")
RANGE = 255  # of bytes
LARGEST = (1 << 31) - 1  # that int32 holds
MOVES = RESHAPES | {"relax.permute_dims", "relax.strided_slice"}
FARTHEST = 1 << 15  # a zero point: so int32 holds all that is computed with it
WHOLE = 1e-5  # of a zero point that was multiplied by a scale


@dataclass(frozen=True)
class Data:
    """``(moves(byte) - zero - offset) * scale * factor``. ``moves`` begin with the one next to the bytes. ``offset`` is
    a whole number of run time: one for all, or one for each row. ``factor`` is one of run time, for all."""

    byte: GraphNode
    zero: int
    scale: float
    moves: tuple[GraphNode, ...] = ()
    offset: GraphNode | None = None
    factor: GraphNode | None = None

    def moved(self, b: RewriteBuilder, byte: GraphNode) -> GraphNode:
        """``byte`` with the data's moves made again on it."""
        for move in self.moves:
            byte = b.same(move, byte)
        return byte


def has_elements(node: GraphNode) -> bool:
    """True for a tensor of known rank that is not always empty."""
    return node.shape is not None and not any(isinstance(d, int) and d == 0 for d in node.shape)


def byte_data(value: GraphNode, through: bool = False) -> Data | None:
    """How ``value``, a tensor of float32 or int32, is made of bytes; None if it is not. With ``through`` also by way of
    moves, less offsets and times a factor."""
    scale, shift, node = 1.0, 0.0, value
    moves: list[GraphNode] = []
    offset: tuple[GraphNode, float] | None = None
    factor: GraphNode | None = None
    while node.dtype not in BYTES:
        if node.dtype not in ("float32", "int32") or not node.inputs:
            return None
        first = node.inputs[0]
        pair = split_constant(node)
        number = _number(pair[1]) if pair is not None and alike(pair[0], node) else None
        if node.op == "relax.astype" and first.dtype in INTEGERS:
            node = first
        elif through and node.op in MOVES and len(node.inputs) == 1:
            moves.insert(0, node)
            node = first
        elif through and node.op == "relax.subtract" and offset is None and _is_offset(node, bool(moves)):
            offset, node = (node.inputs[1], scale), first
        elif through and factor is None and offset is None and (product := _times(node)) is not None:
            node, factor = product
        elif pair is None or number is None:
            return None
        elif node.op == "relax.add":
            shift, node = shift + scale * number, pair[0]
        elif node.op == "relax.subtract" and pair[0] is first:
            shift, node = shift - scale * number, first
        elif node.op == "relax.multiply" and node.dtype == "float32":
            scale, node = scale * number, pair[0]
        else:
            return None
    if not 0 < abs(scale) < float("inf") or (offset is not None and offset[1] != scale):
        return None
    zero = -shift / scale
    if not abs(zero) <= FARTHEST or abs(zero - round(zero)) > WHOLE * max(1.0, abs(zero)):
        return None
    return Data(node, round(zero), scale, tuple(moves), None if offset is None else offset[0], factor)


def alike(a: GraphNode, b: GraphNode) -> bool:
    """True if both have one shape, whatever is open in it."""
    one, other = a.shape, b.shape
    if one is None or other is None or len(one) != len(other):
        return False
    return all(same_dim(x, y) for x, y in zip(one, other))


def _times(node: GraphNode) -> tuple[GraphNode, GraphNode] | None:
    """The data and the one number of run time that ``node`` is the product of."""
    if node.op != "relax.multiply" or node.dtype != "float32":
        return None
    for data, by in (node.inputs, node.inputs[::-1]):
        if alike(data, node) and by.op != CONST and by.static and all(s == 1 for s in by.shape or ()):
            return data, by
    return None


def _is_offset(node: GraphNode, moved: bool) -> bool:
    """True if what ``node`` subtracts is a whole number for each row, or for all if elements are moved since."""
    data, less = node.inputs
    if CONST in (data.op, less.op) or not alike(data, node) or not less.static or less.rank > node.rank:
        return False
    if less.dtype != "int32" and (less.op != "relax.astype" or less.inputs[0].dtype not in BYTES):
        return False
    shape = less.shape or ()
    return all(s == 1 for s in (shape if moved else shape[-1:]))


def _number(node: GraphNode) -> float | None:
    """The one number of a constant, not beyond a float's whole numbers."""
    if node.array.size != 1:
        return None
    number = float(node.array.reshape(()))
    return number if np.isfinite(number) and abs(number) < 1 << 24 else None


def whole_steps(weights: np.ndarray, exact: bool = False) -> tuple[np.ndarray, np.ndarray] | None:
    """int8 numbers and float64 steps [outputs] whose products are ``weights`` [outputs, ...]; None if there are none.
    Weights that are whole numbers have whole steps, so that their sums may become integers. ``exact``: only steps of
    one."""
    rows = weights.reshape(len(weights), -1).astype(np.float64)
    if not rows.size or not np.isfinite(rows).all():
        return None
    if (rows == np.rint(rows)).all() and rows.min() >= -128 and rows.max() <= 127:
        return rows.astype(np.int8).reshape(weights.shape), np.ones(len(rows))
    if exact:
        return None
    most = np.abs(rows).max(axis=1)
    steps = np.where(most > 0, 0.0, 1.0)
    integral = (rows == np.rint(rows)).all(axis=1)
    sample = rows[:, :: max(1, rows.shape[1] // SAMPLE)]
    for times in (*range(127, 0, -1), 128):
        open_rows = np.flatnonzero(steps == 0)
        if not open_rows.size:
            break
        step = most[open_rows] / times
        likely = _fits(sample[open_rows], step, times) & (~integral[open_rows] | (step == np.rint(step)))
        open_rows, step = open_rows[likely], step[likely]
        fits = _fits(rows[open_rows], step, times)
        steps[open_rows[fits]] = step[fits]
    if not steps.all():
        return None
    numbers = np.rint(rows / steps[:, None]).astype(np.int8)
    shared = np.where(integral, 1, _odd(numbers))
    return (numbers // shared[:, None]).astype(np.int8).reshape(weights.shape), steps * shared


def _odd(numbers: np.ndarray) -> np.ndarray:
    """The largest odd divisor that all numbers of a row share. Few taps leave rows that fit finer steps than the
    model's: a third or a fifth of it, by which products would round where the model's are exact."""
    shared = np.maximum(1, np.gcd.reduce(np.abs(numbers.astype(np.int64)), axis=1))
    return np.asarray(shared // (shared & -shared))


def _fits(rows: np.ndarray, steps: np.ndarray, times: int) -> np.ndarray:
    """Which rows are whole multiples of their step, ``times`` at most, and bytes."""
    numbers = rows / steps[:, None]
    whole = np.rint(numbers)
    near = np.abs(numbers - whole).max(axis=1, initial=0) <= NEAR * times
    return np.asarray(near & (whole.max(axis=1, initial=0) <= 127))
