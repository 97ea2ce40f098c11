"""Products of narrow whole numbers: a word of them summed into 32 bits by one instruction, where the target has one.

    sums[lane] += data[0] * weights[4 lane] + ... + data[3] * weights[4 lane + 3]      bytes
    sums[lane] += data[0] * weights[2 lane] + data[1] * weights[2 lane + 1]            pairs of int16

Kernels take the neighbours in a word, an int32, together: a word of data, the same for all lanes, meets a word of
weights in each. So a product of bytes is the kernel of float32 over a quarter or half of the depth, with another
multiply-add. Sums are exact modulo 2**32.

x86-64 with VNNI multiplies unsigned data by signed weights, 64-bit ARM (dotprod) signed by signed; its i8mm has the
mixed form too, but every core with it has dotprod. Any other x86-64 multiplies pairs of int16 (pmaddwd): data are bytes
of either sign, less what stands for zero. Their sum is one more instruction, for which cores have ports beside those
that multiply; with vectors of 512 bits it is the same two, so nothing would be won there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from tvm import tirx

from ...targets import llvm
from ...targets.target import Target
from ..words.tvm_types import Analyzer, Buffer, Expr
from .opaque_numbers import fence

WORD = 4  # bytes
FEW = 4  # channels of a block, where there are no more
PAIRS = "int16"  # the type of data that is no byte
ROWS = 4  # registers for words of rows
SUMMED = 1.25  # times the cycles of multiply-adds of pairs: sums take slots of the ports that multiply (Zen 3)


def data_dtype(target: Target) -> str | None:
    """The type of the data that :func:`dot` takes on this target: "uint8", "int8", "int16" (bytes less their zero), or
    None where there is no such instruction. Weights are int8."""
    if target.is_aarch64:
        return "int8" if _instruction(target) else None
    return None if not _instruction(target) else PAIRS if "pmadd" in _instruction(target) else "uint8"


def per_word(dtype: str) -> int:
    """Elements of ``dtype`` in a word."""
    return WORD // np.dtype(dtype).itemsize


def multiplier(target: Target, dtype: str) -> Target:
    """``target`` as its multiply-add of words of ``dtype`` has it: the products of pairs take registers before they are
    summed (two are under way at a time), and only the sum waits for the one before."""
    if dtype != PAIRS:
        return target
    return replace(target, vector_registers=target.vector_registers - 2, fma_latency=1)


def row_multiplier(target: Target, dtype: str) -> Target:
    """The same for products of matrices: lanes that words of ``dtype`` come from are of registers that hold four words
    of each of some rows. With more sums, weights would be loaded for each three of nine rows anew (ViT: 184
    instructions for 108 multiply-adds; 123 for 96 in tiles of eight)."""
    found = multiplier(target, dtype)
    if not target.is_aarch64 or dtype != data_dtype(target):
        return found
    return replace(found, vector_registers=found.vector_registers - ROWS)


def dot(target: Target, sums: Expr, data: Expr, weights: Expr, wraps: bool = False) -> Expr:
    """``sums`` and the products of a word in each lane. All are vectors of int32, as wide as the target's. ``wraps``:
    sums may leave 32 bits; of pairs they are right modulo 2**32 then."""
    lanes, dtype = target.lanes("int32"), data_dtype(target)
    assert dtype is not None
    wide, narrow = f"int32x{lanes}", f"int{32 // per_word(dtype)}x{per_word(dtype) * lanes}"
    data, weights = (tirx.reinterpret(narrow, vector) for vector in (data, weights))
    if dtype == PAIRS:
        product = tirx.call_llvm_pure_intrin(wide, _instruction(target), data, weights)
        if not wraps:
            return _fenced(sums + product, lanes)
        total = tirx.Cast(f"int64x{lanes}", sums) + tirx.Cast(f"int64x{lanes}", product)
        return _fenced(tirx.Cast(wide, total), lanes)
    if target.is_aarch64:  # the word may lie in any lane of the second
        data, weights = weights, data
    return tirx.call_llvm_pure_intrin(wide, _instruction(target), sums, data, weights)


def _fenced(sums: Buffer, lanes: int) -> Expr:
    """``sums``, whose order LLVM leaves as it is: it would add products of several steps to each other first, which
    takes a register for each."""
    return tirx.reinterpret(f"int32x{lanes}", fence(tirx.reinterpret(f"float32x{lanes}", sums)))


def columns_together(data: Buffer, places: Sequence[Expr], lanes: int, analyzer: Analyzer) -> Expr:
    """Words of up to four columns of ``lanes`` channels, a word of int32 in each lane: the columns begin at ``places``
    of ``data``, and what a word has no column for is zero."""
    dtype = str(data.dtype)
    apart = [analyzer.simplify(place - places[0]) for place in places]
    order = [tirx.IntImm("int32", i % WORD * lanes + i // WORD) for i in range(WORD * lanes)]
    if len(places) == WORD and all(isinstance(d, tirx.IntImm) and d.value == i * lanes for i, d in enumerate(apart)):
        parts = [data[tirx.Ramp(places[0], 1, WORD * lanes)]]
    else:
        parts = [data[tirx.Ramp(place, 1, lanes)] for place in places]
        parts += [tirx.Broadcast(tirx.const(0, dtype), lanes)] * (WORD - len(places))
        joined = tirx.Shuffle(parts, [tirx.IntImm("int32", i) for i in range(WORD * lanes)])
        # LLVM would turn each part by itself
        parts = [tirx.reinterpret(f"{dtype}x{WORD * lanes}", fence(tirx.reinterpret(f"float32x{lanes}", joined)))]
    return tirx.reinterpret(f"int32x{lanes}", tirx.Shuffle(parts, order))


def words(weights: np.ndarray, dtype: str) -> np.ndarray:
    """int8 [..., n] as int32 [..., words] for data of ``dtype``, the first element the lowest; zeros fill the last
    word."""
    rest = -weights.shape[-1] % per_word(dtype)
    padded = np.pad(weights.astype(np.int8), [(0, 0)] * (weights.ndim - 1) + [(0, rest)])
    return np.ascontiguousarray(padded.astype(f"<i{WORD // per_word(dtype)}")).view("<i4")


def _instruction(target: Target) -> str:
    """LLVM's name for it, empty where the target has none."""
    features = llvm.features(llvm.architecture(target.triple), target.cpu, target.features)
    if target.is_aarch64:
        return "llvm.aarch64.neon.sdot" if "dotprod" in features else ""
    if not target.triple.startswith("x86_64"):
        return ""
    wanted = {512: ({"avx512vnni"},), 256: ({"avxvnni"}, {"avx512vnni", "avx512vl"})}.get(target.vector_bits, ())
    if any(names <= features for names in wanted):
        return f"llvm.x86.avx512.vpdpbusd.{target.vector_bits}"
    pairs = {256: ("avx2", "llvm.x86.avx2.pmadd.wd"), 128: ("sse2", "llvm.x86.sse2.pmadd.wd")}
    feature, name = pairs.get(target.vector_bits, ("", ""))
    return name if feature in features else ""
