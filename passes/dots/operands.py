"""What is multiplied: data that was a byte before it was a float, and weights that are whole multiples of a step.

    x = (byte - zero) * scale              whatever was folded into what
    w[m] = q[m] * step[m]                  q whole, at most 128

Neither needs to know how the model said so. A step is found by trying how often it fits into the largest weight of an
output: weights that were quantised meet one within rounding, and any others don't.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..simplify.graph import CONST, Node

NEAR = 2e-4  # of a step: what a few roundings of float32 make of 128 of them, and a margin
SAMPLE = 64  # weights of an output that are tried first
BYTES = ("uint8", "int8")


@dataclass(frozen=True)
class Data:
    """``(byte - zero) * scale``."""

    byte: Node
    zero: int
    scale: float


def byte_data(node: Node) -> Data | None:
    """How a tensor of float32 or int32 is made of bytes; None if it is not."""
    if node.op == "relax.astype" and node.dtype in ("float32", "int32"):
        (source,) = node.inputs
        return Data(source, 0, 1.0) if source.dtype in BYTES else byte_data(source)
    if node.op not in ("relax.add", "relax.subtract", "relax.multiply") or node.dtype not in ("float32", "int32"):
        return None
    first, second = node.inputs
    if first.op == CONST and node.op != "relax.subtract":
        first, second = second, first
    number = _number(second)
    data = byte_data(first) if number is not None else None
    if data is None or number is None or first.shape != node.shape:
        return None
    if node.op == "relax.multiply":
        return Data(data.byte, data.zero, data.scale * number)
    zero = data.zero + (number if node.op == "relax.subtract" else -number) / data.scale
    return Data(data.byte, round(zero), data.scale) if zero == round(zero) else None


def _number(node: Node) -> float | None:
    """The one number of a constant, not zero or beyond a float's whole numbers."""
    if node.op != CONST or node.array.size != 1:
        return None
    number = float(node.array.reshape(()))
    return number if np.isfinite(number) and abs(number) < 1 << 24 else None


def whole_steps(weights: np.ndarray, exact: bool = False) -> tuple[np.ndarray, np.ndarray] | None:
    """int8 numbers and float64 steps [outputs] whose products are ``weights`` [outputs, ...]; None where there are
    none. ``exact``: only those whose step is one."""
    rows = weights.reshape(len(weights), -1).astype(np.float64)
    if not rows.size or not np.isfinite(rows).all():
        return None
    if (rows == np.rint(rows)).all() and rows.min() >= -128 and rows.max() <= 127:
        return rows.astype(np.int8).reshape(weights.shape), np.ones(len(rows))
    if exact:
        return None
    most = np.abs(rows).max(axis=1)
    steps = np.where(most > 0, 0.0, 1.0)
    sample = rows[:, :: max(1, rows.shape[1] // SAMPLE)]
    for times in (*range(127, 0, -1), 128):
        open_rows = np.flatnonzero(steps == 0)
        if not open_rows.size:
            break
        step = most[open_rows] / times
        likely = _fits(sample[open_rows], step)
        open_rows, step = open_rows[likely], step[likely]
        fits = _fits(rows[open_rows], step)
        steps[open_rows[fits]] = step[fits]
    if not steps.all():
        return None
    numbers = np.rint(rows / steps[:, None])
    return numbers.astype(np.int8).reshape(weights.shape), steps


def _fits(rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Which rows are whole multiples of their step, and bytes."""
    numbers = rows / steps[:, None]
    whole = np.rint(numbers)
    near = np.abs(numbers - whole).max(axis=1, initial=0) <= NEAR
    return np.asarray(near & (whole.max(axis=1, initial=0) <= 127))
