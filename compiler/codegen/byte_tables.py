"""Lookups in tables of 256 bytes, in lowered code: registers hold a table.

    mark(byte, words ...)    ->    t = permute(words, byte / 4)[lane];  rotated by 8 (byte % 4), its lowest byte

With vectors of 512 bits a word of four neighbouring bytes is found by two permutations of two registers each, the
choice between them by the highest bit; rotations take their count modulo 32. AVX2 and 64-bit ARM look up vectors of
bytes (byte_tables_narrow.py). Few lanes read memory one by one. Kernels say a lookup as a call of an intrinsic that has
the table as operands (schedules/instructions/byte_tables.py), which TVM makes vectors of as of any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

from ...schedules.instructions.byte_tables import AVX512, MARK, WORDS, lookup
from ...schedules.words.tvm_types import Expr, Mutator, PrimFunc
from ...targets.target import Target
from .byte_tables_narrow import DECLARED, LANES_OF, vector_of_bytes
from .imported_ir import importing

NAME = "halotile_byte_table"
LANES = 16  # that are looked up together with vectors of 512 bits


def with_tables(function: PrimFunc, target: Target) -> PrimFunc:
    """The lowered ``function``, whose lookups are code."""
    texts: dict[str, str] = {}
    form = lookup(target) or ""
    mark = tirx.call_llvm_pure_intrin("int32", MARK, tirx.IntImm("int32", 0)).args[0].value

    def visit(call: Expr, mutator: Mutator) -> Expr:
        if len(call.args) != WORDS + 2 or not _is(call.args[0], mark):
            return mutator.default_mutate(call)
        byte = mutator.mutate(call.args[1])
        table = np.array([_number(word) for word in call.args[2:]], "<i8").view("<i4")
        dtype = str(call.ty.dtype)
        lanes = int(dtype.partition("x")[2] or 1)
        name = f"{NAME}_{hashlib.sha256(table.tobytes()).hexdigest()[:16]}"
        texts.setdefault(f"@{name}", f"@{name} = private constant [64 x i32] [{_numbers(map(int, table))}], align 64\n")
        part = next((n for n in LANES_OF.get(form, (LANES,)) if lanes % n == 0), 1)
        texts.setdefault("declared", DECLARED.get(form, _DECLARED))
        vector = _vector(name) if form == AVX512 else vector_of_bytes(form, name, part)
        texts.setdefault(f"@{name}_{part}", vector if part > 1 else _scalar(name))
        if lanes != part:
            texts.setdefault(f"@{name}_{lanes}", _in_parts(name, lanes, part))
        return tirx.call_pure_extern(dtype, f"{name}_{lanes}", byte)

    kept = ((tirx.Buffer, lambda buffer, _: buffer), (tirx.Var, lambda var, _: var))
    body = tvm_ffi.structural_mutate(function.body, ((Call, visit), *kept))
    if not texts:
        return function
    return tirx.PrimFunc(function.params, importing(body, "".join(texts.values())), function.ret_type, function.attrs)


_DECLARED = """declare <16 x i32> @llvm.x86.avx512.vpermi2var.d.512(<16 x i32>, <16 x i32>, <16 x i32>)
declare <16 x i32> @llvm.fshr.v16i32(<16 x i32>, <16 x i32>, <16 x i32>)
"""


def _is(argument: Expr, number: int) -> bool:
    return isinstance(argument, prim.IntImm) and argument.value == number


def _number(word: Expr) -> int:
    while isinstance(word, prim.Broadcast):
        word = word.value
    return int(word.value)


def _scalar(name: str) -> str:
    return f"""define i32 @{name}_1(i32 %x) alwaysinline {{
  %low = and i32 %x, 255
  %place = getelementptr i8, ptr @{name}, i32 %low
  %byte = load i8, ptr %place
  %r = zext i8 %byte to i32
  ret i32 %r
}}
"""


def _in_parts(name: str, lanes: int, part: int) -> str:
    """The function of vectors of ``lanes`` numbers, ``part`` of them at a time."""
    lines, made, whole = [], "poison", f"<{lanes} x i32>"
    some = f"<{part} x i32>"
    for i in range(0, lanes, part):
        if part == 1:
            lines += [f"%x{i} = extractelement {whole} %x, i32 {i}", f"%y{i} = call i32 @{name}_1(i32 %x{i})"]
            lines += [f"%r{i} = insertelement {whole} {made}, i32 %y{i}, i32 {i}"]
        else:
            own, spread = _numbers(range(i, i + part)), _numbers(min(j, part - 1) for j in range(lanes))
            taken = _numbers(j - i + lanes if i <= j < i + part else j for j in range(lanes))
            lines += [f"%x{i} = shufflevector {whole} %x, {whole} poison, {some} <{own}>"]
            lines += [f"%y{i} = call {some} @{name}_{part}({some} %x{i})"]
            lines += [f"%w{i} = shufflevector {some} %y{i}, {some} poison, {whole} <{spread}>"]
            lines += [f"%r{i} = shufflevector {whole} {made}, {whole} %w{i}, {whole} <{taken}>"]
        made = f"%r{i}"
    lines += [f"ret {whole} {made}"]
    return f"define {whole} @{name}_{lanes}({whole} %x) alwaysinline {{\n  " + "\n  ".join(lines) + "\n}\n"


def _numbers(values: Iterable[int]) -> str:
    """A list of LLVM's."""
    return ", ".join(f"i32 {i}" for i in values)


def _vector(name: str) -> str:
    """The function of a vector of the target's."""
    splat = {n: _numbers([n] * LANES) for n in (2, 3, 128, 255)}
    v = f"<{LANES} x i32>"
    loads = "".join(
        f"  %p{i} = getelementptr i32, ptr @{name}, i32 {LANES * i}\n  %t{i} = load {v}, ptr %p{i}, align 64\n"
        for i in range(4)
    )
    permute = "@llvm.x86.avx512.vpermi2var.d.512"
    return f"""define {v} @{name}_{LANES}({v} %x) alwaysinline {{
{loads}  %word = lshr {v} %x, <{splat[2]}>
  %low = call {v} {permute}({v} %t0, {v} %word, {v} %t1)
  %high = call {v} {permute}({v} %t2, {v} %word, {v} %t3)
  %bit = and {v} %x, <{splat[128]}>
  %is_high = icmp ne {v} %bit, zeroinitializer
  %four = select <{LANES} x i1> %is_high, {v} %high, {v} %low
  %count = shl {v} %x, <{splat[3]}>
  %turned = call {v} @llvm.fshr.v16i32({v} %four, {v} %four, {v} %count)
  %r = and {v} %turned, <{splat[255]}>
  ret {v} %r
}}
"""
