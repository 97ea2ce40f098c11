"""Products of pairs of bfloat16 by the processor's instruction, in lowered code.

    halotile_pairs(sums, data, weights)      ->      vdpbf16ps or bfdot sums, data, weights

Kernels call a function (schedules/instructions/bf16_pairs.py), which comes here as LLVM has it: TVM has no name for
LLVM's vectors of bfloat16, which the instruction's own function takes.
"""

from __future__ import annotations

from tvm import tirx

from ...schedules.instructions.bf16_pairs import CALL, multiplies_pairs
from ...schedules.words.tvm_types import PrimFunc
from ...targets.target import Target
from .imported_ir import importing

INSTRUCTIONS = {512: "x86.avx512bf16.dpbf16ps.512", 128: "aarch64.neon.bfdot.v4f32.v8bf16"}  # by bits of the vectors


def text_of(bits: int) -> str:
    """The function for vectors of so many ``bits``, which is inlined."""
    instruction, sums, words, pairs = (
        f"@llvm.{INSTRUCTIONS[bits]}", f"<{bits // 32} x float>", f"<{bits // 32} x i32>", f"<{bits // 16} x bfloat>"
    )  # fmt: skip
    return f"""
define {sums} @{CALL}({sums} %sums, {words} %data, {words} %weights) alwaysinline {{
  %a = bitcast {words} %data to {pairs}
  %b = bitcast {words} %weights to {pairs}
  %r = call {sums} {instruction}({sums} %sums, {pairs} %a, {pairs} %b)
  ret {sums} %r
}}
declare {sums} {instruction}({sums}, {pairs}, {pairs})
"""


def with_pairs(function: PrimFunc, target: Target) -> PrimFunc:
    """The lowered ``function``, where its calls find the instruction of ``target``."""
    if not multiplies_pairs(function):
        return function
    body = importing(function.body, text_of(target.vector_bits))
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
