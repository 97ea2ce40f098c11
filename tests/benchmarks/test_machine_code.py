"""Kernels disassembled: instructions with their bytes, loops without those within them, what goes to the stack."""

from __future__ import annotations

import pytest
from halotile.benchmarks import machine_code as m
from halotile.errors import ToolchainError

LISTING = """
0000000000000000 <kernel>:
       0: c5 f8 57 c0                  \tvxorps\t%xmm0, %xmm0, %xmm0
       4: b8 05 00 00 00               \tmovl\t$0x5, %eax
       9: 62 f2 7d 48 18 8b 24 f9 ff ff ff\tvbroadcastss\t-0x6dc(%rbx), %zmm1
      14: c4 e2 75 b8 07               \tvfmadd231ps\t(%rdi), %ymm1, %ymm0      # comment
      19: c4 e2 75 b8 44 24 20         \tvfmadd231ps\t0x20(%rsp), %ymm1, %ymm0
      20: c5 fc 29 44 24 40            \tvmovaps\t%ymm0, 0x40(%rsp)
      26: 89 44 24 08                  \tmovl\t%eax, 0x8(%rsp)
      2a: ff c8                        \tdecl\t%eax
      2c: 75 db                        \tjne\t0x9 <kernel+0x9>
      2e: c4 e2 75 b8 07               \tvfmadd231ps\t(%rdi), %ymm1, %ymm0
      33: ff c9                        \tdecl\t%ecx
      35: 75 cd                        \tjne\t0x4 <kernel+0x4>
      37: c3                           \tretq

0000000000000040 <other>:
      40: 4fa21020     \tfmla\tv0.4s, v1.4s, v2.s[1]
      44: 8b030841     \tadd\tx1, x2, x3, lsl #2
      48: 3dc003e0     \tldr\tq0, [sp]
      4c: ad400be1     \tldp\tq1, q2, [sp, #0x10]
      50: f94003e4     \tldr\tx4, [sp]
      54: 0d40c820     \tld1r\t{ v0.4s }, [x1]
      58: 54ffff41     \tb.ne\t0x40 <other>
"""


def test_instructions_have_their_bytes() -> None:
    found = m.functions(LISTING)
    assert list(found) == ["kernel", "other"]
    kernel, other = found["kernel"], found["other"]
    assert [i.address for i in kernel[:4]] == [0, 4, 9, 0x14]
    for code in (kernel, other):
        assert all(a.address + len(a.code) == b.address for a, b in zip(code, code[1:]))
    assert kernel[2].text == "vbroadcastss -0x6dc(%rbx), %zmm1"
    assert kernel[3].text == "vfmadd231ps (%rdi), %ymm1, %ymm0"
    assert other[1].code == bytes.fromhex("4108038b"), "in the order of memory"


def test_an_outer_loop_has_what_its_inner_one_has_not() -> None:
    inner, outer = m.loops(m.functions(LISTING)["kernel"])
    assert [i.address for i in inner.instructions] == [0x9, 0x14, 0x19, 0x20, 0x26, 0x2A, 0x2C]
    assert [i.address for i in outer.instructions] == [0x4, 0x2E, 0x33, 0x35]
    assert inner.lines[-1] == "jne .Lloop" == outer.lines[-1]
    assert (inner.multiply_adds, outer.multiply_adds) == (2, 1)


def test_vectors_on_the_stack_are_spills_and_numbers_are_not() -> None:
    inner, outer = m.loops(m.functions(LISTING)["kernel"])
    assert (inner.spills, inner.loads) == (2, 2)
    assert (outer.spills, outer.loads) == (0, 1)
    (arm,) = m.loops(m.functions(LISTING)["other"])
    assert (arm.multiply_adds, arm.spills, arm.loads) == (1, 2, 1)
    assert arm.lines[-1] == "b.ne .Lloop"


def test_missing_programs_are_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(m.shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match="apt-get install llvm"):
        m.tools()
