"""What a WebAssembly module says about itself: imports, exports, code bytes.

    facts = read_wasm(path)
    facts.imports, facts.exports, facts.code_bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import ToolchainError

_IMPORT, _EXPORT, _CODE, _DATA = 2, 7, 10, 11
_HEADER = b"\0asm\1\0\0\0"


@dataclass(frozen=True)
class WasmFacts:
    """``imports`` are module.name, ``data_bytes`` those of constants and initial values."""

    imports: tuple[str, ...]
    exports: frozenset[str]
    code_bytes: int
    data_bytes: int


def read_wasm(path: Path) -> WasmFacts:
    """The facts of a module; ToolchainError for what is none."""
    data = path.read_bytes()
    if data[:8] != _HEADER:
        raise ToolchainError(f"{path.name} is not a WebAssembly module")
    imports: tuple[str, ...] = ()
    exports: frozenset[str] = frozenset()
    sizes = {_CODE: 0, _DATA: 0}
    try:
        for kind, start, end in _sections(data):
            if kind == _IMPORT:
                imports = tuple(_imports(data, start))
            elif kind == _EXPORT:
                exports = frozenset(_exports(data, start))
            elif kind in sizes:
                sizes[kind] = end - start
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise ToolchainError(f"{path.name} is damaged: {error}") from None
    return WasmFacts(imports, exports, sizes[_CODE], sizes[_DATA])


def _number(data: bytes, at: int) -> tuple[int, int]:
    """(value, place behind it) of an unsigned LEB128."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _text(data: bytes, at: int) -> tuple[str, int]:
    length, at = _number(data, at)
    return data[at : at + length].decode(), at + length


def _sections(data: bytes) -> Iterator[tuple[int, int, int]]:
    at = len(_HEADER)
    while at < len(data):
        kind = data[at]
        size, start = _number(data, at + 1)
        if start + size > len(data):
            raise ValueError("a section lies outside of the file")
        yield kind, start, start + size
        at = start + size


def _limits(data: bytes, at: int) -> int:
    flags = data[at]
    _, at = _number(data, at + 1)
    return _number(data, at)[1] if flags & 1 else at


def _imports(data: bytes, at: int) -> Iterator[str]:
    count, at = _number(data, at)
    for _ in range(count):
        module, at = _text(data, at)
        name, at = _text(data, at)
        kind = data[at]
        at += 1
        if kind == 0:  # function: its type
            at = _number(data, at)[1]
        elif kind == 1:  # table
            at = _limits(data, at + 1)
        elif kind == 2:  # memory
            at = _limits(data, at)
        else:  # global: type and whether it varies
            at += 2
        yield f"{module}.{name}"


def _exports(data: bytes, at: int) -> Iterator[str]:
    count, at = _number(data, at)
    for _ in range(count):
        name, at = _text(data, at)
        at = _number(data, at + 1)[1]
        yield name
