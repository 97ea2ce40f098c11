"""A byte looked up in a table of 256, in every lane, by instructions that permute registers.

x86-64 with vectors of 512 bits has a table in four registers and looks up words of int32; with AVX2, and on 64-bit ARM,
it has sixteen, and whole vectors of bytes are looked up, behind their narrowing.
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


AVX512, AVX2, NEON = "avx512f", "avx2", "neon"


def lookup(target: Target) -> str | None:
    """The feature by whose instructions ``target`` looks bytes up in registers; None if it has none."""
    features = llvm.features(llvm.architecture(target.triple), target.cpu, target.features)
    if target.is_aarch64:
        return NEON if NEON in features and target.vector_bits == 128 else None
    name = {512: AVX512, 256: AVX2}.get(target.vector_bits, "") if target.triple.startswith("x86_64") else ""
    return name if name in features else None


def has_lookup(target: Target) -> bool:
    """True if ``target`` looks bytes up in registers."""
    return lookup(target) is not None


def looks_words_up(target: Target) -> bool:
    """True if int32 are looked up as they are, False if bytes are, many together."""
    return lookup(target) == AVX512


def looked_up(byte: Expr, words: Sequence[int]) -> Expr:
    """The table's byte, from 0 to 255 in int32, for the low byte of an int32, or of each in a vector."""
    table = [tirx.IntImm("int64", int(word)) for word in words]
    return tirx.call_llvm_pure_intrin(str(byte.ty.dtype), MARK, byte, *table)


def table_words(table: np.ndarray) -> list[int]:
    """256 bytes as 64 bits each, the first byte the lowest."""
    return [int(word) for word in np.ascontiguousarray(table).view(np.uint8).view("<i8")]
