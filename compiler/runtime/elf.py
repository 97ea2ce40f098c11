"""The little of ELF that a loader must know before it maps a file: is it whole, for this machine, and one of ours?

Mapping a file that was cut short succeeds and kills the process at the first page beyond its end, so the check comes
first.
"""

from __future__ import annotations

import platform
import re
import struct
import sys
from pathlib import Path

from ...errors import OutputError

MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
_HOSTS = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "i686": "i386",
    "armv7l": "arm",
    "armv8l": "arm",
    "armv6l": "arm",
}
_SHARED, _NOBITS, _STRINGS = 3, 8, 3


def host_machine() -> str:
    """The machine that this Python runs on, as ELF files name it; a 32-bit Python on a 64-bit kernel is 32-bit."""
    machine = _HOSTS.get(platform.machine().lower(), platform.machine().lower())
    if sys.maxsize <= 2**32:
        return {"x86_64": "i386", "aarch64": "arm"}.get(machine, machine)
    return machine


def check_library(path: Path) -> str:
    """Checks that ``path`` is a whole shared library for this machine; returns the prefix of its ``*_describe``.

    Raises OutputError with the reason when it is not.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(64)
            machine, wide, offset, entry, count = _parse_header(path, header)
            if machine != host_machine():
                raise OutputError(
                    f"{path} is for {machine}, this machine is {host_machine()}: run it there (`halotile run DIR --on "
                    f"ssh://user@host`) or in an emulator (--on qemu-{machine}-static), or build it for this machine"
                )
            if count == 0 or offset + entry * count > size:
                raise OutputError(f"{path} is cut short ({size} bytes); build it again")
            file.seek(offset)
            tables = file.read(entry * count)
            names = b""
            for kind, start, length in _sections(tables, wide, entry, count):
                if kind != _NOBITS and start + length > size:
                    raise OutputError(
                        f"{path} is damaged: a section lies outside of the file; build it again"
                    )
                if kind == _STRINGS:
                    file.seek(start)
                    names += file.read(length)
    except (OSError, struct.error) as error:
        reason = error.strerror if isinstance(error, OSError) else "the header is damaged"
        raise OutputError(f"can't read {path}: {reason}") from error
    found = re.search(rb"\0([A-Za-z0-9_]+)_describe\0", names)
    if not found:
        raise OutputError(f"{path} is a shared library, but not one that Halotile made")
    return found[1].decode()


def _parse_header(path: Path, header: bytes) -> tuple[str, bool, int, int, int]:
    """(machine, 64-bit, offset of the section headers, bytes of one, their number)."""
    if header[:4] == b"\0asm":
        raise OutputError(f"{path} is a WebAssembly module: {path.stem}.mjs beside it loads it in a browser or Node.js")
    for start, system in ((b"MZ", "Windows"), (b"\xcf\xfa\xed\xfe", "macOS")):
        if header.startswith(start):
            raise OutputError(f"{path} is for {system}, and this machine runs Linux: programs load it there, in C")
    if len(header) < 64 or header[:4] != b"\x7fELF" or header[5] != 1:
        raise OutputError(f"{path} is not a shared library")
    wide = header[4] == 2
    kind, number = struct.unpack_from("<HH", header, 16)
    (offset,) = struct.unpack_from("<Q" if wide else "<I", header, 40 if wide else 32)
    entry, count = struct.unpack_from("<HH", header, 58 if wide else 46)
    if kind != _SHARED or entry < (64 if wide else 40):
        raise OutputError(f"{path} is not a shared library")
    return MACHINES.get(number, f"machine {number}"), wide, offset, entry, count


def _sections(tables: bytes, wide: bool, entry: int, count: int) -> list[tuple[int, int, int]]:
    layout = "<4xI16xQQ" if wide else "<4xI8xII"
    return [struct.unpack_from(layout, tables, entry * i) for i in range(count)]
