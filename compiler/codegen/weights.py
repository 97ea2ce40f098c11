"""Weights as a section of their own: an ELF object whose bytes are streamed, never held, and mapped at run time.

The object is written here rather than by an assembler: an assembler keeps all of it in memory and writes it twice.
On x86-64 the section is a *large* one (``.lrodata``), which linkers place behind everything else, and its address is
reached through a pointer in data: so weights beyond 2 GB do not push code and data out of each other's reach. They are
cut into sections of one name, which a linker copies one by one and joins in order: it holds a piece, not the whole.
A linker that removes sections nobody refers to (zig's does by default) would keep the first one alone, so the first
refers to all others, by relocations that do nothing.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import ToolchainError
from .toolchain import machine_of

ALIGNMENT = 64
PIECE = 16 << 20
SYMBOL = "halotile_weights"

# machine -> (ELF machine number, 64-bit, e_flags)
_MACHINES = {
    "x86_64": (62, True, 0),
    "i386": (3, False, 0),
    "aarch64": (183, True, 0),
    "arm": (40, False, 0x05000000),  # EABI version 5
    "riscv64": (243, True, 0x5),  # compressed instructions, double floats
}
_PROGBITS, _SYMTAB, _STRTAB, _RELA, _REL = 1, 2, 3, 4, 9
_ALLOC, _INFO_LINK, _X86_64_LARGE = 0x2, 0x40, 0x10000000
_OBJECT_GLOBAL, _SECTION_LOCAL, _HIDDEN = 0x11, 0x03, 2


def write_weights(path: Path, triple: str, chunks: Iterable[Any]) -> tuple[int, str]:
    """Writes an object that defines :data:`SYMBOL` (hidden) over the chunks, and returns (bytes, digest).

    ``chunks`` are bytes-like and lie one behind the other; each is written and forgotten. Raises ToolchainError for a
    machine whose objects are unknown, OSError as it comes.
    """
    machine = machine_of(triple)
    if machine not in _MACHINES:
        raise ToolchainError(f"no object format is known for {triple}")
    number, wide, flags = _MACHINES[machine]
    digest = hashlib.sha256()
    with open(path, "wb", buffering=0) as file:
        file.write(bytes(ALIGNMENT))  # room for the header
        total = 0
        for chunk in chunks:
            if not memoryview(chunk).nbytes:
                continue  # a view of nothing can't be cast
            view = memoryview(chunk).cast("B")
            digest.update(view)
            _write_all(file, view)
            total += len(view)
        _write_all(file, memoryview(_tables(machine, wide, total)))
        file.seek(0)
        file.write(_header(number, wide, flags, total))
    return total, digest.hexdigest()


def _write_all(file: BinaryIO, view: memoryview) -> None:
    while len(view):
        view = view[file.write(view) :]


def _padding(total: int) -> int:
    return -total % 16


_SECTION_NAMES = (
    b"\0.rela.lrodata\0.note.GNU-stack\0.symtab\0.strtab\0.shstrtab\0.rela.halotile_weights\0.rel.halotile_weights\0"
)
_SYMBOL_NAMES = b"\0" + SYMBOL.encode() + b"\0"
_OTHERS = 6  # sections beside those of the weights: the empty one, the note, references, symbols, and two of names


def _pieces(total: int) -> list[tuple[int, int]]:
    """(offset, size) of the sections that hold the weights: one behind the other, joined again by the linker."""
    return [(start, min(PIECE, total - start)) for start in range(0, total, PIECE)] or [(0, 0)]


def _header(number: int, wide: bool, flags: int, total: int) -> bytes:
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    word = "Q" if wide else "I"
    size, entry = (64, 64) if wide else (52, 40)
    count = len(_pieces(total)) + _OTHERS
    return ident + struct.pack(
        f"<HHI{word}{word}{word}IHHHHHH",
        1, number, 1, 0, 0, ALIGNMENT + total + _padding(total), flags, size, 0, 0, entry, count, count - 1,
    )  # fmt: skip


def _tables(machine: str, wide: bool, total: int) -> bytes:
    """What follows the weights: padding, section headers, symbols and names."""
    large = machine == "x86_64"
    entry = 64 if wide else 40
    pieces = _pieces(total)
    headers_at = ALIGNMENT + total + _padding(total)
    sections = [_symbol(wide, 0, 0, _SECTION_LOCAL, 1 + i) for i in range(1, len(pieces))]
    symbols = b"".join(
        [_symbol(wide, 0, 0, 0, 0), *sections, _symbol(wide, 1, total, _OBJECT_GLOBAL, 1)]
    )
    symbols_at = headers_at + (len(pieces) + _OTHERS) * entry
    references = b"".join(_reference(wide, 1 + i) for i in range(len(sections)))
    references_at = symbols_at + len(symbols)
    names_at = references_at + len(references)
    section_names_at = names_at + len(_SYMBOL_NAMES)

    def section(name: bytes, kind: int, flags: int, at: int, size: int, *rest: int) -> bytes:
        offset = _SECTION_NAMES.index(name + b"\0")
        link, info, align, each = rest or (0, 0, 1, 0)
        layout = "<IIQQQQIIQQ" if wide else "<IIIIIIIIII"
        return struct.pack(layout, offset, kind, flags, 0, at, size, link, info, align, each)

    name = b".lrodata" if large else b".halotile_weights"
    flags = _ALLOC | (_X86_64_LARGE if large else 0)
    names_index = len(pieces) + _OTHERS - 2
    headers = [
        bytes(entry),
        *(section(name, _PROGBITS, flags, ALIGNMENT + at, size, 0, 0, ALIGNMENT, 0) for at, size in pieces),
        section(b".note.GNU-stack", _PROGBITS, 0, headers_at, 0),
        section(
            (b".rela" if wide else b".rel") + name, _RELA if wide else _REL, _INFO_LINK, references_at,
            len(references), names_index - 1, 1, 8 if wide else 4, 24 if wide else 8,
        ),
        section(
            b".symtab", _SYMTAB, 0, symbols_at, len(symbols), names_index, 1 + len(sections), 8 if wide else 4,
            24 if wide else 16,
        ),
        section(b".strtab", _STRTAB, 0, names_at, len(_SYMBOL_NAMES)),
        section(b".shstrtab", _STRTAB, 0, section_names_at, len(_SECTION_NAMES)),
    ]
    return bytes(_padding(total)) + b"".join(headers) + symbols + references + _SYMBOL_NAMES + _SECTION_NAMES


def _reference(wide: bool, symbol: int) -> bytes:
    """A relocation of type NONE, which is 0 on every machine, at the first byte against a symbol."""
    return struct.pack("<QQq", 0, symbol << 32, 0) if wide else struct.pack("<II", 0, symbol << 8)


def _symbol(wide: bool, name: int, size: int, info: int, section: int) -> bytes:
    other = _HIDDEN if info == _OBJECT_GLOBAL else 0
    if wide:
        return struct.pack("<IBBHQQ", name, info, other, section, 0, size)
    return struct.pack("<IIIBBH", name, 0, size, info, other, section)
