"""Products of pairs of bfloat16 by the processor's instruction, in lowered code.

    halotile_pairs(sums, data, weights)      ->      vdpbf16ps sums, data, weights

Kernels call a function (schedules/instructions/bf16_pairs.py), which comes here as LLVM has it: TVM has no name for
LLVM's vectors of bfloat16, which the instruction's own function takes.
"""

from __future__ import annotations

from tvm import tirx

from ...schedules.instructions.bf16_pairs import CALL, multiplies_pairs
from ...schedules.words.tvm_types import PrimFunc
from .imported_ir import importing

# It is inlined.
IR = f"""
define <16 x float> @{CALL}(<16 x float> %sums, <16 x i32> %data, <16 x i32> %weights) alwaysinline {{
  %a = bitcast <16 x i32> %data to <32 x bfloat>
  %b = bitcast <16 x i32> %weights to <32 x bfloat>
  %r = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %sums, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %r
}}
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
"""


def with_pairs(function: PrimFunc) -> PrimFunc:
    """The lowered ``function``, where its calls find the instruction."""
    if not multiplies_pairs(function):
        return function
    return tirx.PrimFunc(function.params, importing(function.body, IR), function.ret_type, function.attrs)
