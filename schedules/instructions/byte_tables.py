"""A byte looked up in a table of 256, in every lane: x86-64 with vectors of 512 bits has a table in four registers.

Kernels say so by a call of an intrinsic that has the table as operands, 64 bits each: what makes vectors of calls
handles it as any other. compiler/codegen/byte_tables.py writes the instructions in its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import tirx

from ...targets import llvm
from ...targets.target import Target
from ..words.tvm_types import Expr

MARK = "llvm.x86.avx512.vpermi2var.qi.512"  # which nothing else is made of: its operands are a byte and WORDS
WORDS = 32  # of 64 bits


def has_lookup(target: Target) -> bool:
    """True if ``target`` looks bytes up in registers."""
    if target.vector_bits != 512 or not target.triple.startswith("x86_64"):
        return False
    return "avx512f" in llvm.features(llvm.architecture(target.triple), target.cpu, target.features)


def looked_up(byte: Expr, words: Sequence[int]) -> Expr:
    """The table's byte, from 0 to 255 in int32, for the low byte of an int32."""
    return tirx.call_llvm_pure_intrin("int32", MARK, byte, *(tirx.IntImm("int64", int(word)) for word in words))


def table_words(table: np.ndarray) -> list[int]:
    """256 bytes as 64 bits each, the first byte the lowest."""
    return [int(word) for word in np.ascontiguousarray(table).view(np.uint8).view("<i8")]
