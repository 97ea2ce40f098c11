"""LLVM functions that look up whole vectors of bytes in a table of sixteen registers.

64-bit ARM has an instruction for a quarter of a table, four registers: what is outside of it stays as it was.

AVX2 permutes sixteen bytes. All rows of the table are permuted by the low half of each byte, those of the upper half of
the table (and the lower) as zero where the highest bit says so; the other three bits choose among what is left. That is
50 instructions for 32 bytes; gathers would be 16, of up to forty steps each, and slow ones on mended processors.
"""

from __future__ import annotations

from ...schedules.instructions.byte_tables import AVX2, NEON

LANES_OF = {NEON: (16, 8), AVX2: (32, 16)}  # that are looked up together, the most first
ROWS, ROW = 16, 16
DECLARED = {
    NEON: "".join(
        f"declare <{n} x i8> @llvm.aarch64.neon.tbl4.v{n}i8({', '.join(['<16 x i8>'] * 4)}, <{n} x i8>)\n"
        f"declare <{n} x i8> @llvm.aarch64.neon.tbx4.v{n}i8(<{n} x i8>, {', '.join(['<16 x i8>'] * 4)}, <{n} x i8>)\n"
        for n in LANES_OF[NEON]
    ),
    AVX2: "declare <32 x i8> @llvm.x86.avx2.pshuf.b(<32 x i8>, <32 x i8>)\n"
    "declare <32 x i8> @llvm.x86.avx2.pblendvb(<32 x i8>, <32 x i8>, <32 x i8>)\n",
}  # fmt: skip


def vector_of_bytes(form: str, name: str, lanes: int) -> str:
    """The function of ``lanes`` int32, whose low bytes are looked up in the table ``name``; empty for one lane."""
    if lanes == 1:
        return ""
    body = _neon(name, lanes) if form == NEON else _avx2(name, lanes)
    return (
        f"define <{lanes} x i32> @{name}_{lanes}(<{lanes} x i32> %x) alwaysinline {{\n"
        f"  %b = trunc <{lanes} x i32> %x to <{lanes} x i8>\n"
        + "".join(f"  {line}\n" for line in body)
        + f"  %r = zext <{lanes} x i8> %found to <{lanes} x i32>\n  ret <{lanes} x i32> %r\n}}\n"
    )


def _rows(name: str) -> list[str]:
    lines = []
    for i in range(ROWS):
        lines.append(f"%p{i} = getelementptr i8, ptr @{name}, i64 {ROW * i}")
        lines.append(f"%t{i} = load <16 x i8>, ptr %p{i}, align 16")
    return lines


def _neon(name: str, lanes: int) -> list[str]:
    v, lines = f"<{lanes} x i8>", _rows(name)
    quarters = [", ".join(f"<16 x i8> %t{4 * q + i}" for i in range(4)) for q in range(4)]
    lines.append(f"%q0 = call {v} @llvm.aarch64.neon.tbl4.v{lanes}i8({quarters[0]}, {v} %b)")
    for q in range(1, 4):
        lines.append(f"%b{q} = xor {v} %b, {_splat(64 * q, lanes)}")
        made = "%found" if q == 3 else f"%q{q}"
        lines.append(f"{made} = call {v} @llvm.aarch64.neon.tbx4.v{lanes}i8({v} %q{q - 1}, {quarters[q]}, {v} %b{q})")
    return lines


def _avx2(name: str, lanes: int) -> list[str]:
    v, lines = "<32 x i8>", _rows(name)
    twice = ", ".join(f"i32 {i % ROW}" for i in range(2 * ROW))
    for i in range(ROWS):
        lines.append(f"%d{i} = shufflevector <16 x i8> %t{i}, <16 x i8> poison, <32 x i32> <{twice}>")
    wide = ", ".join(f"i32 {min(i, lanes - 1)}" for i in range(32))
    lines += [
        f"%all = shufflevector <{lanes} x i8> %b, <{lanes} x i8> poison, <32 x i32> <{wide}>",
        f"%low = and {v} %all, {_splat(0x8F, 32)}",
        f"%high = xor {v} %low, {_splat(0x80, 32)}",
        f"%words = bitcast {v} %all to <16 x i16>",
    ]
    for i in range(8):
        for half, row in (("low", i), ("high", i + 8)):
            lines.append(f"%{half}{i} = call {v} @llvm.x86.avx2.pshuf.b({v} %d{row}, {v} %{half})")
        lines.append(f"%s0_{i} = or {v} %low{i}, %high{i}")
    for step, shift in enumerate((3, 2, 1)):  # bits 4, 5 and 6 as the highest of their byte
        lines.append(f"%w{step} = shl <16 x i16> %words, <{', '.join([f'i16 {shift}'] * 16)}>")
        lines.append(f"%m{step} = bitcast <16 x i16> %w{step} to {v}")
        for i in range(4 >> step):
            pair = f"{v} %s{step}_{2 * i}, {v} %s{step}_{2 * i + 1}"
            lines.append(f"%s{step + 1}_{i} = call {v} @llvm.x86.avx2.pblendvb({pair}, {v} %m{step})")
    some = ", ".join(f"i32 {i}" for i in range(lanes))
    return [*lines, f"%found = shufflevector {v} %s3_0, {v} poison, <{lanes} x i32> <{some}>"]


def _splat(value: int, lanes: int) -> str:
    return f"<{', '.join([f'i8 {value - 256 * (value > 127)}'] * lanes)}>"
