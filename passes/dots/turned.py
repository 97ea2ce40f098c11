"""Bytes of the sign that the target multiplies: the other's are moved by 128, and their zero with them."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ..simplify.graph import Node
from ..simplify.rule import Builder
from .operands import Data

HALF = 128
op = relax.op


def turned(b: Builder, data: Data, dtype: str) -> tuple[Node, int]:
    """The bytes of ``data`` as ``dtype`` (uint8 or int8), and what stands for zero. Whoever makes them does so once,
    with what is fused behind it."""
    if data.byte.dtype == dtype:
        return data.byte, data.zero
    move = _move(dtype)
    for user in data.byte.users:  # moved already, for another layer
        for behind in user.users if user.op == "relax.astype" and user.dtype == "int32" else ():
            if _moves(behind, user, move):
                for last in behind.users:
                    if last.op == "relax.astype" and last.dtype == dtype:
                        return last, data.zero + move
    wide = b.call(op.add, b.call(op.astype, data.byte, "int32"), b.const(np.array(move, np.int32)))
    return b.call(op.astype, wide, dtype), data.zero + move


def outside(data: Data, dtype: str) -> int:
    """What stands for zero among the bytes of ``data`` as ``dtype``."""
    return data.zero if data.byte.dtype == dtype else data.zero + _move(dtype)


def _move(dtype: str) -> int:
    return HALF if dtype == "uint8" else -HALF


def _moves(node: Node, source: Node, move: int) -> bool:
    """True for ``source + move``."""
    if node.op != "relax.add" or node.inputs[0] is not source:
        return False
    other = node.inputs[1]
    return other.op == "const" and other.array.size == 1 and int(other.array.reshape(())) == move
