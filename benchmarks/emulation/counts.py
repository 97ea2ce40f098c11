"""What ran, as the emulator's plugin counted it (count_blocks.c), and its instructions by class.

    counts = read(path)                          blocks, how often each ran, lines that it missed in two caches
    texts = disassembled(words, tools.mc)        instruction words -> what the assembler calls them
    by_class(counts.blocks, texts)               {"multiply-adds": ..., "loads": ...}
"""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ToolchainError

# An order in which tables show them.
CLASSES = (
    "multiply-adds", "multiply-adds of halves", "products of bytes", "other arithmetic", "moves", "loads", "stores",
    "to and from the stack", "integers", "branches", "hints",
)  # fmt: skip
FEATURES = "+v8.6a,+fullfp16,+fp16fml,+dotprod,+i8mm,+bf16,+sve2,+sha3,+sm4,+aes"
NOTHING = "nop"  # for words that are no instruction
_VECTOR = re.compile(r"\b([vqdshb]\d+|z\d+\.[bhsd])\b|\bv\d+\.|\{ *v\d")
_FIRST_VECTOR = re.compile(r"^\{?\s*[vqdshbz]\d+\b")
_BRANCH = re.compile(r"^(b|bl|br|blr|ret|cbn?z|tbn?z|b\..*)$")
_BYTES = ("sdot", "udot", "usdot", "sudot", "smmla", "ummla", "usmmla")
_MOVES = {
    "dup", "ins", "mov", "fmov", "movi", "mvni", "umov", "smov", "zip1", "zip2", "uzp1", "uzp2", "trn1", "trn2", "ext",
    "tbl", "tbx", "rev64", "rev32", "rev16", "fcsel",
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Instructions that follow each other: they ran ``runs`` times, and missed so many lines in each level."""

    address: int
    runs: int
    missed: tuple[int, int]
    code: bytes

    @property
    def words(self) -> tuple[int, ...]:
        return struct.unpack(f"<{len(self.code) // 4}I", self.code)

    @property
    def executed(self) -> int:
        return self.runs * (len(self.code) // 4)


@dataclass(frozen=True)
class Counts:
    """All that ran between marks, and where files lay: (first address, end, offset in the file, path)."""

    blocks: tuple[Block, ...]
    maps: tuple[tuple[int, int, int, str], ...] = ()

    @property
    def executed(self) -> int:
        return sum(b.executed for b in self.blocks)

    @property
    def missed(self) -> tuple[int, int]:
        """Lines that the first level missed, and of these the second one."""
        return sum(b.missed[0] for b in self.blocks), sum(b.missed[1] for b in self.blocks)

    def file_at(self, address: int) -> str:
        """The name of the file that an address of the program lies in; empty if it lies in none."""
        return next((Path(path).name for first, end, _, path in self.maps if first <= address < end), "")


def read(path: Path) -> Counts:
    """The counts that the plugin left in ``path``; ToolchainError if it did not end, or the program marked nothing."""
    blocks, maps, shift, marks, ended = [], [], 0, 0, False
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        kind, _, rest = line.partition(" ")
        if kind == "block":
            address, runs, first, second, code = rest.split()
            blocks.append(Block(int(address, 16), int(runs), (int(first), int(second)), bytes.fromhex(code)))
        elif kind == "shift":
            shift = int(rest, 16)
        elif kind == "marks":
            marks = int(rest)
        elif kind == "map":
            span, _, offset, _, _, file = rest.split(None, 5)
            begin, end = (int(n, 16) for n in span.split("-"))
            maps.append((begin, end, int(offset, 16), file))
        ended = ended or kind == "end"
    if not ended:
        raise ToolchainError(f"the emulator's plugin left no counts in {path}; did the program end?")
    if marks < 2:
        raise ToolchainError(f"the program marked nothing ({marks} calls of getppid): no run lies between two marks")
    return Counts(tuple(joined(blocks)), tuple((a - shift, z - shift, offset, f) for a, z, offset, f in maps))


def joined(blocks: Collection[Block]) -> list[Block]:
    """The same instructions with blocks in one piece that the emulator cut where nothing branches, at a page's end or
    for their length: what ends so always goes on with the block behind it, which ran that often less by itself."""
    found = {b.address: b for b in blocks}
    twice = [a for a, n in Counter(b.address for b in blocks).items() if n > 1]
    others = [b for b in blocks if b.address in twice]
    for address in twice:  # begun there, and cut in different places: which of them goes on is not known
        del found[address]
    for address in sorted(found, reverse=True):
        b = found[address]
        behind = found.get(address + len(b.code))
        if behind is not None and b.runs <= behind.runs and not _branches(b.words[-1]):
            found[address] = replace(b, code=b.code + behind.code)
            found[behind.address] = replace(behind, runs=behind.runs - b.runs)
    return sorted((*found.values(), *others), key=lambda b: b.address)


def _branches(word: int) -> bool:
    """True for the encodings of 64-bit ARM that may go elsewhere (branches, calls, exceptions, system)."""
    return word >> 26 & 7 == 0b101


def disassembled(words: Collection[int], mc: str) -> dict[int, str]:
    """The text of each word; NOTHING for those that are no instruction."""
    order = sorted(set(words))
    source = "\n".join(" ".join(f"0x{byte:02x}" for byte in struct.pack("<I", w)) for w in order)
    command = [mc, "--disassemble", "-triple=aarch64-linux-gnu", f"-mattr={FEATURES}"]
    done = subprocess.run(command, input=source + "\n", capture_output=True, text=True, check=False)
    wrong = {int(n) - 1 for n in re.findall(r"^<stdin>:(\d+):\d+: warning", done.stderr, re.MULTILINE)}
    lines = [" ".join(t.split()) for t in done.stdout.splitlines() if t.strip() and not t.strip().startswith(".")]
    if done.returncode or len(lines) + len(wrong) != len(order):
        last = (done.stderr.strip().splitlines() or [f"{len(lines)} lines for {len(order)} instructions"])[-1]
        raise ToolchainError(f"{mc} can't read what ran: {last[:200]}")
    texts = iter(lines)
    return {word: NOTHING if i in wrong else next(texts) for i, word in enumerate(order)}


def class_of(text: str) -> str:
    """One of CLASSES."""
    name, _, operands = text.partition(" ")
    if name.startswith("prfm"):
        return "hints"
    if _BRANCH.match(name):
        return "branches"
    if name in _BYTES:
        return "products of bytes"
    if name in ("fmla", "fmls", "fmadd", "fmsub", "fnmadd", "fnmsub", "bfdot", "bfmmla", "fmlal", "fmlal2"):
        halves = name.startswith("bf") or re.search(r"\.[48]?h\b|^h\d", operands)
        return "multiply-adds of halves" if halves else "multiply-adds"
    moves_vectors = bool(_FIRST_VECTOR.match(operands))
    if name.startswith(("ld", "st")):
        if moves_vectors and "[sp" in operands:
            return "to and from the stack"
        return "loads" if name.startswith("ld") else "stores"
    if _VECTOR.search(operands):
        return "moves" if name in _MOVES else "other arithmetic"
    return "integers"


def by_class(blocks: Sequence[Block], texts: Mapping[int, str]) -> dict[str, int]:
    """How many instructions of each class ran."""
    words: Counter[int] = Counter()
    for block in blocks:
        for word in block.words:
            words[word] += block.runs
    found: Counter[str] = Counter()
    for word, runs in words.items():
        found[class_of(texts[word])] += runs
    return {name: found[name] for name in CLASSES if found[name]}
