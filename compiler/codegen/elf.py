"""What an ELF file says about itself: machine, needed libraries and versions, exports, text relocations.

    facts = read_elf(path)
    facts.machine, facts.wide, facts.needed, facts.exports, facts.highest("GLIBC")
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ToolchainError
from ..runtime.elf import MACHINES

_DYNAMIC, _INTERPRETER = 2, 3  # program headers
_DYNSYM, _VERNEED = 11, 0x6FFFFFFE  # sections
_NEEDED, _TEXTREL, _FLAGS = 1, 22, 30  # entries of the dynamic section
_DF_TEXTREL = 4


@dataclass(frozen=True)
class ElfFacts:
    """``versions`` are those that the file needs of its libraries, such as ``GLIBC_2.17``."""

    machine: str
    wide: bool
    dynamic: bool
    interpreter: str
    needed: tuple[str, ...]
    versions: tuple[str, ...]
    exports: frozenset[str]
    text_relocations: bool
    code_bytes: int

    def highest(self, family: str) -> str:
        """The highest version of a family of symbols: ``"2.34"`` for GLIBC; empty when it needs none."""
        found = [v.removeprefix(f"{family}_") for v in self.versions if v.startswith(f"{family}_")]
        return max(filter(lambda v: v[0].isdigit(), found), key=version_key, default="")


def version_key(text: str) -> tuple[int, ...]:
    """``"2.4"`` comes before ``"2.28"``."""
    return tuple(int(part) if part.isdigit() else 0 for part in text.split("."))


def read_elf(path: Path) -> ElfFacts:
    """Reads a little-endian ELF file; raises ToolchainError when it isn't a whole one."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _ElfFile(data).facts()
    except (OSError, ValueError, struct.error, IndexError) as error:
        raise ToolchainError(f"{path.name} is not a whole ELF file: {error}") from None


class _ElfFile:
    def __init__(self, data: mmap.mmap) -> None:
        if data[:4] != b"\x7fELF" or data[5] != 1:
            raise ValueError("wrong first bytes")
        self.data = data
        self.wide = data[4] == 2
        (number,) = struct.unpack_from("<H", data, 18)
        self.machine = MACHINES.get(number, f"machine {number}")
        word = "Q" if self.wide else "I"
        program_at, section_at = struct.unpack_from(f"<{word}{word}", data, 32 if self.wide else 28)
        each, count, width, sections = struct.unpack_from("<4H", data, 54 if self.wide else 42)
        self.programs = [self._program(program_at + each * i) for i in range(count)]
        layout = "<IIQQQQIIQQ" if self.wide else "<10I"
        if not sections and section_at:  # more of them than the field can say
            sections = struct.unpack_from(layout, data, section_at)[5]
        self.sections = [struct.unpack_from(layout, data, section_at + width * i) for i in range(sections)]

    def _program(self, at: int) -> tuple[int, int, int, int]:
        """(kind, flags, offset, bytes in the file) of a program header."""
        if self.wide:
            kind, flags, offset, _, _, size = struct.unpack_from("<IIQQQQ", self.data, at)
        else:
            kind, offset, _, _, size, _, flags = struct.unpack_from("<7I", self.data, at)
        return kind, flags, offset, size

    def facts(self) -> ElfFacts:
        interpreter = next((self._bytes(o, n) for k, _, o, n in self.programs if k == _INTERPRETER), b"")
        dynamic = next(((o, n) for k, _, o, n in self.programs if k == _DYNAMIC), None)
        entries = list(self._dynamic(*dynamic)) if dynamic else []
        names = self._dynamic_names()
        return ElfFacts(
            machine=self.machine,
            wide=self.wide,
            dynamic=dynamic is not None,
            interpreter=interpreter.rstrip(b"\0").decode(),
            needed=tuple(self._name(names, value) for tag, value in entries if tag == _NEEDED),
            versions=tuple(sorted(set(self._versions()))),
            exports=frozenset(self._exports()),
            text_relocations=any(t == _TEXTREL or (t == _FLAGS and v & _DF_TEXTREL) for t, v in entries),
            code_bytes=sum(size for kind, flags, _, size in self.programs if kind == 1 and flags & 1),
        )

    def _bytes(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def _name(self, table: int, offset: int) -> str:
        start = table + offset
        return self.data[start : self.data.find(b"\0", start)].decode()

    def _dynamic(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        layout = "<qQ" if self.wide else "<iI"
        for at in range(offset, offset + size, struct.calcsize(layout)):
            tag, value = struct.unpack_from(layout, self.data, at)
            if tag == 0:
                return
            yield tag, value

    def _dynamic_names(self) -> int:
        """Where the names of the dynamic section lie in the file."""
        for section in self.sections:
            if section[1] == _DYNSYM:
                return int(self.sections[section[6]][4])
        return 0

    def _versions(self) -> Iterator[str]:
        for section in self.sections:
            if section[1] != _VERNEED:
                continue
            names, at = self.sections[section[6]][4], section[4]
            for _ in range(section[7]):
                _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
                entry = at + first
                for _ in range(count):
                    _, _, _, name, step = struct.unpack_from("<IHHII", self.data, entry)
                    yield self._name(names, name)
                    entry += step
                at += following

    def _exports(self) -> Iterator[str]:
        for section in self.sections:
            if section[1] != _DYNSYM:
                continue
            names = self.sections[section[6]][4]
            step = 24 if self.wide else 16
            for at in range(section[4], section[4] + section[5], step):
                if self.wide:
                    name, info, other, index = struct.unpack_from("<IBBH", self.data, at)
                else:
                    name, _, _, info, other, index = struct.unpack_from("<IIIBBH", self.data, at)
                if index and info >> 4 and other & 3 in (0, 3):
                    yield self._name(names, name)
