"""What a Mach-O file of 64 bits says about itself: machine, kind, needed libraries, exports, oldest system, signature.

    facts = read_macho(path)
    facts.needed, facts.exports, facts.minimum

Objects that LLVM wrote for kernels export every function; :func:`hide` makes them the library's own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ToolchainError

_MAGIC, _ARM64, _DYLIB = 0xFEEDFACF, 0x0100000C, 6
_SEGMENT, _SYMTAB, _LOAD, _ID, _SIGNATURE, _BUILD = 0x19, 0x2, 0xC, 0xD, 0x1D, 0x32
_STAB, _PRIVATE, _TYPE, _EXTERN = 0xE0, 0x10, 0x0E, 0x01
_LINKERS = {"___dso_handle", "__mh_dylib_header"}  # names of the file itself, which every linker has
_NAMES = {_ARM64: "aarch64", 0x01000007: "x86_64"}


@dataclass(frozen=True)
class MachoFacts:
    """``name`` is that by which the system looks for it; ``minimum`` the oldest macOS, as 11.0."""

    machine: str
    library: bool
    name: str
    needed: tuple[str, ...]
    exports: frozenset[str]
    minimum: str
    signed: bool
    code_bytes: int


def read_macho(path: Path) -> MachoFacts:
    """The facts of a file; ToolchainError for what is no whole Mach-O file of 64 bits."""
    data = path.read_bytes()
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise ToolchainError(f"{path.name} is not a whole Mach-O file of 64 bits: {error}") from None


def _commands(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """(kind, place) of the load commands."""
    magic, _, _, _, count, _ = struct.unpack_from("<6I", data)
    if magic != _MAGIC:
        raise ValueError("its first bytes are others")
    at = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<2I", data, at)
        yield kind & 0x7FFFFFFF, at
        at += size


def _read(data: bytes) -> MachoFacts:
    _, machine, _, kind, _, _ = struct.unpack_from("<6I", data)
    needed, exports, name, minimum, signed, code = [], set(), "", "", False, 0
    for command, at in _commands(data):
        if command in (_LOAD, _ID):
            (offset,) = struct.unpack_from("<I", data, at + 8)
            text = data[at + offset : data.index(b"\0", at + offset)].decode()
            if command == _ID:
                name = text
            else:
                needed.append(text)
        elif command == _BUILD:
            (version,) = struct.unpack_from("<I", data, at + 12)
            minimum = f"{version >> 16}.{version >> 8 & 255}"
        elif command == _SIGNATURE:
            signed = True
        elif command == _SEGMENT:
            code += _text_bytes(data, at)
        elif command == _SYMTAB:
            exports = {
                text for text, flags, _ in _symbols(data, at)
                if flags & _EXTERN and flags & _TYPE and not flags & (_STAB | _PRIVATE)
            }  # fmt: skip
    return MachoFacts(
        _NAMES.get(machine, f"machine {machine}"), kind == _DYLIB, name, tuple(needed),
        frozenset(text.removeprefix("_") for text in exports - _LINKERS), minimum, signed, code,
    )  # fmt: skip


def _symbols(data: bytes | bytearray, at: int) -> Iterator[tuple[str, int, int]]:
    """(name, flags, place of the flags) of each symbol."""
    start, count, names, _ = struct.unpack_from("<4I", data, at + 8)
    for i in range(count):
        place = start + 16 * i
        (offset,) = struct.unpack_from("<I", data, place)
        begin = names + offset
        yield bytes(data[begin : data.index(b"\0", begin)]).decode(), data[place + 4], place + 4


def _text_bytes(data: bytes, at: int) -> int:
    """Bytes of code in a segment."""
    (count,) = struct.unpack_from("<I", data, at + 64)
    sections = (at + 72 + 80 * i for i in range(count))
    return sum(
        struct.unpack_from("<Q", data, s + 40)[0] for s in sections if data[s : s + 16].rstrip(b"\0") == b"__text"
    )


def hide(code: bytes) -> bytes:
    """An object whose definitions are seen within the library alone."""
    data = bytearray(code)
    for command, at in _commands(data):
        if command == _SYMTAB:
            for _, flags, place in list(_symbols(data, at)):
                if flags & _EXTERN and flags & _TYPE and not flags & _STAB:
                    data[place] = flags | _PRIVATE
    return bytes(data)
