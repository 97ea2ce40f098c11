"""How often each instruction of a kernel runs, counted under an emulator: also for processors that are not at hand.

    pip install unicorn
    executions(code, target, pointers)      the kernel called once, on memory that is all zero

What vectors hold decides nothing about where a kernel goes, so those instructions that only compute with vectors are
left out of the run, and so are their loads and stores: x86 with AVX-512 can be emulated so. Calls are left out as well:
of the C library, which come back at once, and those for memory, which get some.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from ..errors import HalotileError, ToolchainError
from ..targets.target import Target
from .machine_code import Instruction

CODE, STACK, MEMORY = 0x10_0000, 0x4000_0000, 0x1_0000_0000
STACK_BYTES, BYTES = 1 << 24, 1 << 30  # of memory behind each pointer; what is not written takes none
PAGE = 4096
_X86_NOPS = ("", "90", "6690", "0f1f00", "0f1f4000", "0f1f440000", "660f1f440000", "0f1f8000000000", "0f1f840000000000")
_ARM_NOP = "1f2003d5"
_X86_VECTORS = re.compile(r"^(v|kmov|kor|kxnor|kshift|prefetch)")
# what has a vector's register first, and neither moves an address on behind a load or store nor makes a number that may
# be on its way to the others
_ARM_VECTORS = re.compile(r"^(prfm\s|(?!fmov)\w+\s+\{?\s*[vqdshb]\d+\b(?!.*(\]!|\],)))")


def executions(code: Sequence[Instruction], target: Target, pointers: int) -> dict[int, int]:
    """How often each instruction runs, by address, in one call with so many pointers. HalotileError if the
    emulator stops before the kernel has returned."""
    try:
        import unicorn
    except ImportError:
        raise ToolchainError("unicorn is missing: pip install unicorn, then try again") from None
    machine = _Machine(unicorn, target, code)
    machine.call(pointers)
    counts: Counter[int] = Counter()
    at = {i.address: n for n, i in enumerate(code)}
    for (first, size), times in machine.blocks.items():
        place = at[first]
        while place < len(code) and code[place].address < first + size:
            counts[code[place].address] += times
            place += 1
    return dict(counts)


class _Machine:
    """An emulated core with the code, a stack, and memory for every pointer."""

    def __init__(self, unicorn: ModuleType, target: Target, code: Sequence[Instruction]) -> None:
        self.arch = "aarch64" if target.is_aarch64 else "x86_64"
        self.unicorn, self.code = unicorn, code
        self.blocks: Counter[tuple[int, int]] = Counter()
        names: ModuleType = import_module("unicorn.arm64_const" if target.is_aarch64 else "unicorn.x86_const")
        self.link: int | None = None
        if target.is_aarch64:
            self.engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
            self.engine.reg_write(names.UC_ARM64_REG_CPACR_EL1, 3 << 20)  # vectors are allowed
            self.arguments = [getattr(names, f"UC_ARM64_REG_X{i}") for i in range(8)]
            self.stack, self.result = names.UC_ARM64_REG_SP, names.UC_ARM64_REG_X0
            self.link, self.at = names.UC_ARM64_REG_X30, names.UC_ARM64_REG_PC
        else:
            self.engine = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
            self.arguments = [getattr(names, f"UC_X86_REG_{r}") for r in ("RDI", "RSI", "RDX", "RCX", "R8", "R9")]
            self.stack, self.result = names.UC_X86_REG_RSP, names.UC_X86_REG_RAX
            self.at = names.UC_X86_REG_RIP
        begin, end = code[0].address, code[-1].address + len(code[-1].code)
        self.engine.mem_map(CODE, (end - begin + PAGE - 1) & -PAGE)
        self.offset = CODE - begin
        for instruction in code:
            self.engine.mem_write(instruction.address + self.offset, self._kept(instruction))
            if instruction.is_call:
                place = instruction.address + self.offset
                self.engine.hook_add(unicorn.UC_HOOK_CODE, self._called, begin=place, end=place)
        self.engine.mem_map(STACK, STACK_BYTES)
        self.engine.hook_add(unicorn.UC_HOOK_BLOCK, self._block)
        data = unicorn.UC_HOOK_MEM_READ_UNMAPPED | unicorn.UC_HOOK_MEM_WRITE_UNMAPPED
        self.engine.hook_add(data, self._missing)

    def _kept(self, instruction: Instruction) -> bytes:
        """The instruction, or one as long that does nothing."""
        pattern = _ARM_VECTORS if self.arch == "aarch64" else _X86_VECTORS
        if instruction.is_call or pattern.match(instruction.text):
            return nothing(self.arch, len(instruction.code))
        return instruction.code

    def _called(self, engine: Any, address: int, size: int, data: object) -> None:
        engine.reg_write(self.result, MEMORY)  # memory that was asked for; the C library's results nobody reads

    def _block(self, engine: object, address: int, size: int, data: object) -> None:
        self.blocks[address - self.offset, size] += 1

    def _missing(self, engine: Any, access: int, address: int, size: int, value: int, data: Any) -> bool:
        """Memory for an address that vectors hold, which were left out: what lies there matters as little."""
        first = address & -PAGE
        for page in {first, (address + size - 1) & -PAGE}:
            engine.mem_map(page, PAGE)
        return True

    def call(self, pointers: int) -> None:
        """Runs the function; the first stretch of memory is what calls return, the others are the pointers'."""
        top, width = STACK + STACK_BYTES // 2, 8
        for i in range(pointers + 1):
            self.engine.mem_map(MEMORY + i * BYTES, BYTES)
        places = [MEMORY + i * BYTES for i in range(1, pointers + 1)]
        here, there = places[: len(self.arguments)], places[len(self.arguments) :]
        for register, place in zip(self.arguments, here):
            self.engine.reg_write(register, place)
        if self.link is not None:
            self.engine.reg_write(self.link, STACK)
        else:
            self.engine.mem_write(top, STACK.to_bytes(width, "little"))
        for i, place in enumerate(there):
            self.engine.mem_write(top + width * (i + (self.link is None)), place.to_bytes(width, "little"))
        self.engine.reg_write(self.stack, top)
        try:
            self.engine.emu_start(CODE, STACK)
        except self.unicorn.UcError as error:
            at = self.engine.reg_read(self.at) - self.offset
            text = next((i.text for i in self.code if i.address == at), "an unknown place")
            raise HalotileError(f"the emulated kernel stopped at {at:#x} ({text}): {error}") from None


def nothing(arch: str, size: int) -> bytes:
    """One instruction of so many bytes that does nothing."""
    if arch == "aarch64":
        return bytes.fromhex(_ARM_NOP)
    most = len(_X86_NOPS) - 1
    return b"\x66" * max(0, size - most) + bytes.fromhex(_X86_NOPS[min(size, most)])
