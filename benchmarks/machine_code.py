"""Kernels as LLVM writes them for a processor: their instructions, and the loops that these form.

    code = machine_code(kernel, target, tools)        one kernel, disassembled
    loops(code)                                       its loops, outer ones without what lies in inner ones
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from ..compiler.codegen.module import C_CALL
from ..compiler.codegen.objects import build_object
from ..errors import ToolchainError
from ..schedules.words.group import Kernel
from ..schedules.words.tvm_types import Stmt
from ..targets.target import Target

NAME = "kernel"  # of the function
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+([0-9a-f]{2}(?: [0-9a-f]{2})*|[0-9a-f]{8}) *\t\s*(\S.*)$")
_COMMENT = re.compile(r"\s(//|# ).*$")
_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]*)>:$")
_BRANCH = re.compile(r"^(j\w+|b(\.\w+)?|cbn?z|tbn?z)\b.*?(?:0x)?([0-9a-f]+) <")
_CALL = re.compile(r"^(callq?|blr?)\b")
_FMA = re.compile(r"^(vfn?m(add|sub)\d+p[sd]|fml[as])\b")
_VECTOR = re.compile(r"^(st|ld|str|ldr|stp|ldp|ldur|stur|ld1r?|st1)\s.*\b[qv]\d|^v\w+\s")  # it moves vectors
_LOAD = re.compile(r"^ld")
_STACK = re.compile(r"\[sp[],]|\(%[er]sp\)")
_STORE = re.compile(r"^st|^vmov\w*\s+%[xyz]mm\d+,\s*\S*\(|^vextract\S*\s.*\)$")


@dataclass(frozen=True)
class Instruction:
    """One instruction as the disassembler writes it, with its bytes."""

    address: int
    code: bytes
    text: str

    @property
    def target(self) -> int | None:
        """Where it branches to within its function; None if it doesn't."""
        match = _BRANCH.match(self.text)
        return int(match[3], 16) if match else None

    @property
    def is_call(self) -> bool:
        return bool(_CALL.match(self.text))

    @property
    def is_multiply_add(self) -> bool:
        """A fused multiply-add of vectors."""
        return bool(_FMA.match(self.text))

    @property
    def is_spill(self) -> bool:
        """A vector that is stored to the stack, or comes back from there."""
        return bool(_STACK.search(self.text) and _VECTOR.match(self.text))

    @property
    def loads(self) -> bool:
        """It reads vectors or numbers of memory other than the stack, or repeats one in all lanes."""
        if _STACK.search(self.text) or _STORE.match(self.text):
            return False
        return bool(_LOAD.match(self.text)) or ("(" in self.text and self.text.startswith("v"))

    @property
    def assembly(self) -> str:
        """As the assembler takes it: branches go to a label, everything else stays."""
        if self.target is not None:
            return re.sub(r"(?:0x)?[0-9a-f]+ <[^>]*>", ".Lloop", self.text)
        return self.text


@dataclass(frozen=True)
class MachineLoop:
    """The instructions of a loop that belong to no loop within it, its branch last."""

    instructions: tuple[Instruction, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """As the assembler reads them; without calls, which an analyser of one loop can't follow."""
        return tuple(i.assembly for i in self.instructions if not i.is_call)

    @property
    def multiply_adds(self) -> int:
        return sum(i.is_multiply_add for i in self.instructions)

    @property
    def loads(self) -> int:
        return sum(i.loads for i in self.instructions)

    @property
    def spills(self) -> int:
        """Vectors that go to the stack or come from there in an iteration."""
        return sum(i.is_spill for i in self.instructions)


@dataclass(frozen=True)
class Tools:
    """The names of LLVM's programs."""

    mca: str
    objdump: str


def tools() -> Tools:
    """llvm-mca and llvm-objdump, the newest that are installed; ToolchainError says how to get them."""
    for version in (*(f"-{v}" for v in range(30, 13, -1)), ""):
        names = [f"llvm-mca{version}", f"llvm-objdump{version}"]
        if all(shutil.which(n) for n in names):
            return Tools(*names)
    raise ToolchainError("llvm-mca or llvm-objdump is missing: apt-get install llvm-19 (or llvm), then try again")


def object_of(kernel: Kernel, target: Target) -> bytes:
    """The object file of one kernel, on one core: iterations that cores would share follow each other."""
    function = tirx.PrimFunc(
        kernel.function.params, _serial(kernel.function.body), kernel.function.ret_type, kernel.function.attrs
    )
    named = function.with_attrs({"global_symbol": NAME, "calling_conv": C_CALL})
    return build_object(tvm.IRModule({NAME: named}), target)


def _serial(statement: Stmt) -> Stmt:
    """A statement whose parallel loops are plain ones."""
    s = statement
    if isinstance(s, tirx.SeqStmt):
        return tirx.SeqStmt([_serial(part) for part in s.seq])
    if isinstance(s, tirx.For):
        kind = tirx.ForKind.SERIAL if s.kind == tirx.ForKind.PARALLEL else s.kind
        return tirx.For(s.loop_var, s.min, s.extent, kind, _serial(s.body), s.thread_binding, s.annotations, s.step)
    if isinstance(s, tirx.AttrStmt):
        return tirx.AttrStmt(s.node, s.attr_key, s.value, _serial(s.body))
    if isinstance(s, tirx.IfThenElse):
        otherwise = None if s.else_case is None else _serial(s.else_case)
        return tirx.IfThenElse(s.condition, _serial(s.then_case), otherwise)
    return s


def disassembly(objects: Sequence[bytes], target: Target, objdump: str) -> str:
    """What the disassembler prints of all functions, bytes included."""
    text = []
    with tempfile.TemporaryDirectory(prefix="halotile-mca-") as folder:
        for i, code in enumerate(objects):
            path = Path(folder) / f"{i}.o"
            path.write_bytes(code)
            command = [objdump, "-d", "--no-leading-headers", f"--mcpu={target.cpu}", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise ToolchainError(f"{objdump} can't read code for {target.cpu}: {done.stderr.strip()[:200]}")
            text.append(done.stdout)
    return "\n".join(text)


def functions(text: str) -> dict[str, list[Instruction]]:
    """The instructions of every function that was disassembled, by its name."""
    found: dict[str, list[Instruction]] = {}
    current: list[Instruction] = []
    for line in text.splitlines():
        begins, match = _FUNCTION.match(line), _LINE.match(line)
        if begins:
            current = found.setdefault(begins[1], [])
        elif match:
            words = match[2].split()
            code = bytes.fromhex("".join(words)) if len(words[0]) == 2 else bytes.fromhex(words[0])[::-1]
            current.append(Instruction(int(match[1], 16), code, _plain(match[3])))
    return found


def _plain(text: str) -> str:
    return " ".join(_COMMENT.sub("", text).split())


def loops(code: Sequence[Instruction]) -> Iterator[MachineLoop]:
    """All loops of a function, from the target of a backward branch to the last branch there; an inner loop's
    instructions are none of the outer one's."""
    if not code:
        return
    ends: dict[int, int] = {}
    for instruction in code:
        target = instruction.target
        if target is not None and code[0].address <= target <= instruction.address:
            ends[target] = max(ends.get(target, 0), instruction.address)
    spans = sorted(ends.items(), key=lambda span: (span[1] - span[0], span))  # inner ones first
    taken: set[int] = set()
    for first, last in spans:
        own = tuple(i for i in code if first <= i.address <= last and i.address not in taken)
        taken.update(i.address for i in own)
        if own:
            yield MachineLoop(own)
