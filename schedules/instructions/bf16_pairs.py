"""Products of bfloat16 in vectors: pairs of them summed into float32 by one instruction, where the target has it.

    sums[lane] += data[0] * weights[2 lane] + data[1] * weights[2 lane + 1]          ``vdpbf16ps``, ``bfdot``

It starts as often as a multiply-add of float32, and does two (Zen 5: two in a cycle, of 512 bits; Neoverse V1: four, of
128, by LLVM's model, as on V2, N2 and A510). A pair is a word, an int32: one of data, the same for all lanes, meets one
of weights in each, as with bytes (:mod:`.int8_dot`). Numbers below 2**-126, data, weights or sums, are taken for zero.
On x86 the second product of a pair is added first, and each sum is rounded to the nearest, even where ties are; on ARM
the products are added to each other, then to the sum, and both are rounded to odd.

Taken with precision ``bfloat16`` where the target has no matrix unit, which would do eight times as much: by products
with constants (schedules/matmul/pairs.py) and direct convolutions (schedules/conv/direct/pairs.py).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from tvm import tirx

from ...targets import llvm
from ...targets.target import Target
from ..math.bfloat16 import NAME, rounded_array
from ..words.policy import Policy
from ..words.tvm_types import Expr, PrimFunc
from .amx import has_matrix_unit

PAIR = 2
#: What a processor of so many bits a vector needs for these instructions.
NEEDED = {("x86_64", 512): {"avx512bf16", "avx512vl"}, ("aarch64", 128): {"bf16", "neon"}}
LATENCY = 6  # cycles of x86-64's until the same sums may be added to again; bfdot's are those of ARM's multiply-adds
ATTRIBUTE = "halotile.pairs"  # of a function with such products, which compiler/codegen/pair_products.py writes
CALL = "halotile_pairs"


@cache
def has_pairs(target: Target) -> bool:
    """True if ``target`` multiplies bfloat16 in vectors, rounds to it by an instruction, and has no matrix unit."""
    return not has_matrix_unit(target) and narrows(target)


@cache
def narrows(target: Target) -> bool:
    """True if ``target`` rounds vectors to bfloat16 by an instruction, with which come those that multiply pairs."""
    needed = NEEDED.get((target.triple.split("-")[0], target.vector_bits))
    if needed is None:
        return False
    return needed <= llvm.features(llvm.architecture(target.triple), target.cpu, target.features)


def multiplies_faster(target: Target, matrix: bool) -> bool:
    """True if ``target`` multiplies bfloat16 faster than float32: in vectors, or by a unit, if it may (``matrix``)."""
    return matrix and has_matrix_unit(target) or has_pairs(target)


def may_pair(target: Target, policy: Policy) -> bool:
    """True if float32 may be multiplied so: precision bfloat16, on such a target, unless weights are to take less."""
    return policy.precision == NAME and policy.weights != "int8" and has_pairs(target)


def pair_target(target: Target) -> Target:
    """``target`` as its products of pairs have it."""
    return target if target.is_aarch64 else replace(target, fma_latency=LATENCY)


def dot(sums: Expr, data: Expr, weights: Expr) -> Expr:
    """``sums``, a vector of float32, and the products of a word in each lane of two of int32. The function that has it
    takes :data:`ATTRIBUTE`."""
    return tirx.call_extern(f"float32x{sums.ty.dtype.lanes}", CALL, sums, data, weights)


def words(weights: np.ndarray) -> np.ndarray:
    """float32 [K, N] rounded to pairs along K: int32 [ceil(K / 2), N], the first number the lower half; a zero fills
    the last one."""
    bits = rounded_array(np.pad(weights, ((0, len(weights) % PAIR), (0, 0))))
    pairs = bits.reshape(-1, PAIR, weights.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(pairs).view("<i4")[:, :, 0]


def multiplies_pairs(function: PrimFunc) -> bool:
    """Whether a finished function has such products."""
    return ATTRIBUTE in (function.attrs or {})
