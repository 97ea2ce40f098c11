"""Products of bytes: four of them summed into 32 bits by one instruction, where the target has one.

    sums[lane] += data[0] * weights[4 lane] + ... + data[3] * weights[4 lane + 3]

Kernels take four neighbouring bytes for one word, an int32: a word of data, the same for all lanes, meets a word of
weights in each. So a product of bytes is the kernel of float32 over a quarter of the depth, with another
multiply-add. Sums are exact modulo 2**32.

x86-64 (VNNI) multiplies unsigned data by signed weights, 64-bit ARM (dotprod) signed by signed; its i8mm has the mixed
form too, but every core with it has dotprod.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from ..targets import llvm
from ..targets.target import Target

WORD = 4  # bytes


def data_dtype(target: Target) -> str | None:
    """The type of the data that :func:`dot` takes on this target: "uint8", "int8", or None where there is no such
    instruction. Weights are int8."""
    if not _instruction(target):
        return None
    return "int8" if target.is_aarch64 else "uint8"


def dot(target: Target, sums: Any, data: Any, weights: Any) -> Any:
    """``sums`` and the products of four bytes in each lane. All are vectors of int32, as wide as the target's."""
    lanes = target.lanes("int32")
    wide, narrow = f"int32x{lanes}", f"int8x{WORD * lanes}"
    data, weights = (tirx.reinterpret(narrow, vector) for vector in (data, weights))
    return tirx.call_llvm_pure_intrin(wide, _instruction(target), sums, data, weights)


def words(weights: np.ndarray) -> np.ndarray:
    """int8 [..., bytes] as int32 [..., words], the first byte the lowest; zeros fill the last word."""
    rest = -weights.shape[-1] % WORD
    padded = np.pad(weights.astype(np.int8), [(0, 0)] * (weights.ndim - 1) + [(0, rest)])
    return np.ascontiguousarray(padded).view("<i4")


def _instruction(target: Target) -> str:
    """LLVM's name for it, empty where the target has none."""
    features = llvm.features(llvm.architecture(target.triple), target.cpu, target.features)
    if target.is_aarch64:
        return "llvm.aarch64.neon.sdot" if "dotprod" in features else ""
    wanted = {512: ({"avx512vnni"},), 256: ({"avxvnni"}, {"avx512vnni", "avx512vl"})}.get(target.vector_bits, ())
    fits = target.triple.startswith("x86_64") and any(names <= features for names in wanted)
    return f"llvm.x86.avx512.vpdpbusd.{target.vector_bits}" if fits else ""
