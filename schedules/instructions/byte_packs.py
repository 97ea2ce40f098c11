"""Four vectors of int32 narrowed to one of bytes, each number to the nearest byte: x86-64 from AVX2 on, 64-bit ARM."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from ...targets import llvm
from ...targets.target import Target
from ..words.tvm_types import Expr

TOGETHER = 4  # vectors of int32 that make one of bytes
NEON = 4  # lanes of int32 of 64-bit ARM
_X86 = {16: ("avx512bw", "avx512", ".512"), 8: ("avx2", "avx2", "")}  # feature, names of instructions, by lanes
_NARROW = {"uint8": ("packuswb", "sqxtun"), "int8": ("packsswb", "sqxtn")}


def packs(target: Target, dtype: str, lanes: int) -> bool:
    """True if :func:`packed` makes bytes of ``dtype`` from vectors of ``lanes`` numbers on this target."""
    if dtype not in _NARROW or target.vector_bits != 32 * lanes:
        return False
    features = llvm.features(llvm.architecture(target.triple), target.cpu, target.features)
    if target.is_aarch64:
        return lanes == NEON and "neon" in features
    return target.triple.startswith("x86_64") and lanes in _X86 and _X86[lanes][0] in features


def packs_rows(lanes: int) -> bool:
    """True if vectors that are not neighbours in a row are better narrowed together than each for itself; not measured
    where one store takes a vector of int32 as bytes (AVX-512)."""
    return lanes < 16


def packed(dtype: str, vectors: Sequence[Expr], lanes: int) -> Expr:
    """The numbers of four vectors of ``lanes`` int32, one after the other, as bytes of ``dtype``; what is beyond its
    ends is the nearer end. On x86-64 both steps narrow within 128 bits, so that fours of each vector come in turns."""
    x86, arm = _NARROW[dtype]
    if lanes == NEON:
        short = [tirx.call_llvm_pure_intrin("int16x4", "llvm.aarch64.neon.sqxtn", v) for v in vectors]
        pairs = [_joined(short[i : i + 2], 4) for i in (0, 2)]
        return _joined([tirx.call_llvm_pure_intrin(f"{dtype}x8", f"llvm.aarch64.neon.{arm}", p) for p in pairs], 8)
    _, level, bits = _X86[lanes]
    words, name = f"llvm.x86.{level}.packssdw{bits}", f"llvm.x86.{level}.{x86}{bits}"
    wide, parts = TOGETHER * lanes, lanes // 4
    first, second = (
        tirx.call_llvm_pure_intrin(f"int16x{2 * lanes}", words, *vectors[i : i + 2]) for i in (0, 2)
    )
    made = tirx.reinterpret(f"int32x{lanes}", tirx.call_llvm_pure_intrin(f"{dtype}x{wide}", name, first, second))
    order = [tirx.IntImm("int32", 4 * (i % parts) + i // parts) for i in range(lanes)]
    return tirx.reinterpret(f"{dtype}x{wide}", tirx.Shuffle([made], order))


def _joined(vectors: Sequence[Expr], lanes: int) -> Expr:
    """Vectors of ``lanes`` numbers, one after the other."""
    return tirx.Shuffle(list(vectors), [tirx.IntImm("int32", i) for i in range(len(vectors) * lanes)])
