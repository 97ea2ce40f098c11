"""Bytes as the target multiplies them: those of the other sign are moved by 128, and their zero with them; where it
multiplies pairs of int16, the zero is taken off."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ...schedules.instructions.int8_dot import PAIRS
from ..simplify.graph import GraphNode
from ..simplify.patterns import split_constant
from ..simplify.rule import RewriteBuilder
from .operands import BYTES, MOVES, RANGE, Data

HALF = 128
op = relax.op


def turned(b: RewriteBuilder, data: Data, dtype: str) -> tuple[GraphNode, int]:
    """The bytes of ``data`` as ``dtype`` (uint8, int8 or int16), and the number that stands for zero among them.
    Whatever makes the bytes converts them once, with what is fused behind it."""
    if data.byte.dtype == dtype:
        return data.byte, data.zero
    move = _move(data, dtype)
    for user in data.byte.users:  # moved already, for another layer
        if move == 0 and user.op == "relax.astype" and user.dtype == dtype:
            return user, data.zero
        for behind in user.users if user.op == "relax.astype" and user.dtype == "int32" else ():
            if _moves(behind, user, move):
                for last in behind.users:
                    if last.op == "relax.astype" and last.dtype == dtype:
                        return last, data.zero + move
    if move == 0:
        return b.call(op.astype, data.byte, dtype), data.zero
    wide = b.call(op.add, b.call(op.astype, data.byte, "int32"), b.const(np.array(move, np.int32)))
    return b.call(op.astype, wide, dtype), data.zero + move


def outside(data: Data, dtype: str) -> int:
    """The number that stands for zero among the bytes of ``data`` as ``dtype``."""
    return data.zero if data.byte.dtype == dtype else data.zero + _move(data, dtype)


def data_range(node: GraphNode) -> tuple[int, int]:
    """The least and the largest number that a result of :func:`turned`, or of moves behind it, may hold."""
    move = 0
    while node.dtype not in BYTES:
        pair = split_constant(node) if node.op == "relax.add" else None
        if pair is not None and pair[1].array.size == 1:
            move, node = move + int(pair[1].array.reshape(())), pair[0]
        elif node.op == "relax.astype" or node.op in MOVES:
            node = node.inputs[0]
        else:
            return -RANGE, RANGE
    low = -HALF if node.dtype == "int8" else 0
    return low + move, low + RANGE + move


def _move(data: Data, dtype: str) -> int:
    """What is added to bytes of another type. A zero far from all bytes stays: int16 would not hold what is left."""
    if dtype == PAIRS:
        return -data.zero if abs(data.zero) <= RANGE else 0
    return HALF if dtype == "uint8" else -HALF


def _moves(node: GraphNode, source: GraphNode, move: int) -> bool:
    """True for ``source + move``."""
    if node.op != "relax.add" or node.inputs[0] is not source:
        return False
    other = node.inputs[1]
    return other.op == "const" and other.array.size == 1 and int(other.array.reshape(())) == move
