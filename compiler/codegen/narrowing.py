"""Whole vectors of float32 rounded to bfloat16 by the processor's instruction, in lowered code.

    b[ramp] = uint16(select(x is a number, bits(x) + 0x7fff + odd, ...) >> 16)      ->      vcvtneps2bf16, bfcvtn b, x

Kernels say in integers what they store (schedules/math/bfloat16.py): eight instructions a vector, where these targets
have one for just that. (On x86 it takes numbers below 2**-126 for zero, as their matrix unit does.) TVM has no call for
it; after vectorising, its integers are easily told apart: a store of uint16 vectors in a function that has the
attribute.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir.prim import expr as prim

from ...schedules.math.bfloat16 import ATTRIBUTE, BITS
from ...schedules.words.tvm_types import Expr, PrimFunc, Stmt
from ...targets.target import Target
from .imported_ir import importing

NAME = "halotile_narrow"
LANES = (8, 16, 32)  # of vectors that are rounded so, and four where vectors have no more

# These are inlined.
X86 = f"""
define i32 @{NAME}_8(ptr %place, <8 x float> %x) alwaysinline {{
  %r = call <8 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.256(<8 x float> %x)
  store <8 x bfloat> %r, ptr %place, align 2
  ret i32 0
}}
define i32 @{NAME}_16(ptr %place, <16 x float> %x) alwaysinline {{
  %r = call <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float> %x)
  store <16 x bfloat> %r, ptr %place, align 2
  ret i32 0
}}
define i32 @{NAME}_32(ptr %place, <32 x float> %x) alwaysinline {{
  %a = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{", ".join(f"i32 {i}" for i in range(16))}>
  %b = shufflevector <32 x float> %x, <32 x float> poison, <16 x i32> <{", ".join(f"i32 {i}" for i in range(16, 32))}>
  %r = call <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float> %b, <16 x float> %a)
  store <32 x bfloat> %r, ptr %place, align 2
  ret i32 0
}}
declare <8 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.256(<8 x float>)
declare <16 x bfloat> @llvm.x86.avx512bf16.cvtneps2bf16.512(<16 x float>)
declare <32 x bfloat> @llvm.x86.avx512bf16.cvtne2ps2bf16.512(<16 x float>, <16 x float>)
"""


ARM = "".join(
    f"""
define i32 @{NAME}_{lanes}(ptr %place, <{lanes} x float> %x) alwaysinline {{
  %r = fptrunc <{lanes} x float> %x to <{lanes} x bfloat>
  store <{lanes} x bfloat> %r, ptr %place, align 2
  ret i32 0
}}
"""
    for lanes in (4, *LANES)
)


def narrow(function: PrimFunc, target: Target) -> PrimFunc:
    """The lowered ``function``, whose stores of whole vectors of bfloat16 are the instruction of ``target``."""
    if ATTRIBUTE not in (function.attrs or {}):
        return function
    text, lanes = (X86, LANES) if target.triple.startswith("x86_64-") else (ARM, (4, *LANES))
    found: list[Stmt] = []
    body = _rewritten(function.body, found, lanes)
    if not found:
        return function
    return tirx.PrimFunc(function.params, importing(body, text), function.ret_type, function.attrs)


def _rewritten(s: Stmt, found: list[Stmt], able: Sequence[int]) -> Stmt:
    if isinstance(s, tirx.SeqStmt):
        return tirx.SeqStmt([_rewritten(each, found, able) for each in s.seq])
    if isinstance(s, tirx.For):
        body = _rewritten(s.body, found, able)
        return tirx.For(s.loop_var, s.min, s.extent, s.kind, body, s.thread_binding, s.annotations, s.step)
    if isinstance(s, tirx.AttrStmt):
        return tirx.AttrStmt(s.node, s.attr_key, s.value, _rewritten(s.body, found, able))
    if isinstance(s, tirx.While):
        return tirx.While(s.condition, _rewritten(s.body, found, able))
    if isinstance(s, tirx.IfThenElse):
        otherwise = None if s.else_case is None else _rewritten(s.else_case, found, able)
        return tirx.IfThenElse(s.condition, _rewritten(s.then_case, found, able), otherwise)
    numbers = _numbers(s, able) if isinstance(s, tirx.BufferStore) else None
    if numbers is None:
        return s
    found.append(s)
    lanes = int(s.indices[0].lanes)
    place = tirx.address_of(s.buffer[s.indices[0].base])
    return tirx.Evaluate(tirx.call_extern("int32", f"{NAME}_{lanes}", place, numbers))


def _numbers(store: Stmt, able: Sequence[int]) -> Expr | None:
    """The float32 vector that ``store`` rounds, of so many lanes as there are functions for; None for any other
    store."""
    at = store.indices[0]
    if not str(store.buffer.dtype).startswith(BITS) or not isinstance(at, tirx.Ramp) or int(at.stride) != 1:
        return None
    lanes = int(at.lanes)
    shifted = store.value.value if isinstance(store.value, prim.Cast) and lanes in able else None
    chosen = shifted.a if isinstance(shifted, prim.RShift) else None
    kept = chosen.false_value if isinstance(chosen, prim.Select) else None  # bits of what is no number, and one more
    for bits in (kept.a, kept.b) if isinstance(kept, prim.BitwiseOr) else ():
        if getattr(getattr(bits, "op", None), "name", "") == "tirx.reinterpret":
            return bits.args[0] if str(bits.args[0].ty.dtype) == f"float32x{lanes}" else None
    return None
