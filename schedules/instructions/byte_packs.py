"""Four vectors of int32 narrowed to one of bytes, each number to the nearest byte: x86-64 with vectors of 512 bits."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

from ...targets import llvm
from ...targets.target import Target
from ..words.tvm_types import Expr

TOGETHER = 4  # vectors of int32 that make one of bytes
_BYTES = {"uint8": "llvm.x86.avx512.packuswb.512", "int8": "llvm.x86.avx512.packsswb.512"}
_WORDS = "llvm.x86.avx512.packssdw.512"


def packs(target: Target, dtype: str, lanes: int) -> bool:
    """True if :func:`packed` makes bytes of ``dtype`` from vectors of ``lanes`` numbers on this target."""
    if dtype not in _BYTES or target.vector_bits != 512 or lanes != 16 or not target.triple.startswith("x86_64"):
        return False
    return "avx512bw" in llvm.features(llvm.architecture(target.triple), target.cpu, target.features)


def packed(dtype: str, vectors: Sequence[Expr]) -> Expr:
    """The numbers of four vectors of 16 int32, one after the other, as bytes of ``dtype``; what is beyond its ends is
    the nearer end. Both steps narrow within 128 bits, so that fours of each vector come in turns."""
    first, second = (tirx.call_llvm_pure_intrin("int16x32", _WORDS, *vectors[i : i + 2]) for i in (0, 2))
    made = tirx.reinterpret("int32x16", tirx.call_llvm_pure_intrin(f"{dtype}x64", _BYTES[dtype], first, second))
    order = [tirx.IntImm("int32", 4 * (i % 4) + i // 4) for i in range(16)]
    return tirx.reinterpret(f"{dtype}x64", tirx.Shuffle([made], order))
