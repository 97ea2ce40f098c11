"""What a DLL of Windows says about itself: machine, kind, needed libraries, exports.

    facts = read_pe(path)
    facts.needed, facts.exports

Objects that LLVM wrote for kernels ask the linker to export every function; :func:`hide` takes that out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ToolchainError

_DLL, _WIDE, _CODE = 0x2000, 0x20B, 0x20
_NAMES = {0x8664: "x86_64", 0xAA64: "aarch64", 0x14C: "i386"}
_ASKED = b".drectve"


@dataclass(frozen=True)
class PeFacts:
    machine: str
    library: bool
    needed: tuple[str, ...]
    exports: frozenset[str]
    code_bytes: int


def read_pe(path: Path) -> PeFacts:
    """The facts of a file; ToolchainError for what is no whole file of 64-bit Windows."""
    data = path.read_bytes()
    try:
        return _read(data)
    except (struct.error, ValueError, IndexError) as error:
        raise ToolchainError(f"{path.name} is not a whole file of 64-bit Windows: {error}") from None


def _read(data: bytes) -> PeFacts:
    (head,) = struct.unpack_from("<I", data, 60)
    if data[:2] != b"MZ" or data[head : head + 4] != b"PE\0\0":
        raise ValueError("its first bytes are others")
    machine, count, _, _, _, optional, flags = struct.unpack_from("<HHIIIHH", data, head + 4)
    start = head + 24
    if struct.unpack_from("<H", data, start)[0] != _WIDE:
        raise ValueError("it has 32 bits")
    sections = [struct.unpack_from("<8sIIII12xI", data, start + optional + 40 * i) for i in range(count)]

    def place(address: int) -> int:
        for _, size, begin, raw, at, _ in sections:
            if begin <= address < begin + max(size, raw):
                return int(address - begin + at)
        raise ValueError(f"nothing is at {address:#x}")

    def text(address: int) -> str:
        at = place(address)
        return data[at : data.index(b"\0", at)].decode()

    exports, imports = (struct.unpack_from("<I", data, start + 112 + 8 * i)[0] for i in range(2))
    names = set()
    if exports:
        number, _, table = struct.unpack_from("<III", data, place(exports) + 24)
        names = {text(struct.unpack_from("<I", data, place(table) + 4 * i)[0]) for i in range(number)}
    needed, at = [], place(imports) if imports else 0
    while imports and (name := struct.unpack_from("<I", data, at + 12)[0]):
        needed.append(text(name))
        at += 20
    code = sum(size for _, size, _, _, _, kind in sections if kind & _CODE)
    return PeFacts(_NAMES.get(machine, f"machine {machine}"), bool(flags & _DLL), tuple(needed), frozenset(names), code)


def without_times(data: bytes) -> bytes:
    """A file whose header and tables of exports and of debuggers say no time, so that equal builds have equal bytes."""
    out = bytearray(data)
    (head,) = struct.unpack_from("<I", data, 60)
    count, optional = struct.unpack_from("<H12xH", data, head + 6)
    start = head + 24
    out[head + 8 : head + 12] = bytes(4)
    for directory, each in ((0, 0), (6, 28)):
        address, size = struct.unpack_from("<II", data, start + 112 + 8 * directory)
        for i in range(count if address else 0):
            _, length, begin, raw, at, _ = struct.unpack_from("<8sIIII12xI", data, start + optional + 40 * i)
            if begin <= address < begin + max(length, raw):
                first = address - begin + at
                for entry in range(first, first + (size if each else 1), each or 1):
                    out[entry + 4 : entry + 8] = bytes(4)
    return bytes(out)


def _sections(code: bytes | bytearray) -> Iterator[tuple[bytes, int, int]]:
    """(name, place, bytes) of an object's sections."""
    _, count, _, _, _, optional, _ = struct.unpack_from("<HHIIIHH", code)
    for i in range(count):
        name, _, _, size, at = struct.unpack_from("<8sIIII", code, 20 + optional + 40 * i)
        yield name.rstrip(b"\0"), at, size


def hide(code: bytes) -> bytes:
    """An object that asks the linker for nothing."""
    data = bytearray(code)
    for name, at, size in _sections(code):
        if name == _ASKED:
            data[at : at + size] = b" " * size
    return bytes(data)
