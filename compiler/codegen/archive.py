"""A static library: one relocatable object whose only global names are the model's own functions.

Everything else becomes local, so that any number of models (each with its copy of the runtime) can be linked into one
program, and so that no helper of the compiler meets another of the same name.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Collection
from pathlib import Path

import numpy as np

_SYMTAB, _RELA, _REL, _GROUP, _SHNDX = 2, 4, 9, 17, 18
_MEMBER = b"model.o/"


def localise(path: Path, keep: Collection[str]) -> None:
    """Makes every symbol that ``path`` (a relocatable object) defines local, but for those in ``keep``.

    Local symbols come first in an ELF symbol table, so the table is reordered and every reference to it follows. Works
    in place on the mapped file: the weights are never read.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        sections = _Sections(data)
        table = sections.only(_SYMTAB)
        symbols = sections.view(table, sections.symbol)
        names = sections.rows[table.link]
        bound = np.array(
            [s["shndx"] != 0 and _name(data, names.offset + int(s["name"])) not in keep for s in symbols]
        )
        symbols["info"][bound] &= 0x0F
        symbols["other"][bound] &= 0xFC
        is_global = (symbols["info"] >> 4) != 0
        order = np.argsort(is_global, kind="stable")
        symbols[:] = symbols[order]
        moved = np.empty(len(order), np.uint64)
        moved[order] = np.arange(len(order), dtype=np.uint64)
        sections.set_info(table, int((~is_global).sum()))
        for section in sections.rows:
            if section.kind in (_RELA, _REL) and section.link == table.index:
                _renumber(sections.view(section, sections.relocation(section.kind)), moved, sections.shift)
            elif section.kind == _GROUP and section.link == table.index:
                sections.set_info(section, int(moved[section.info]))
            elif section.kind == _SHNDX and section.link == table.index:
                extended = sections.view(section, np.dtype("<u4"))
                extended[:] = extended[order]
        del symbols  # a view of the mapping would keep it open


def write_archive(path: Path, member: Path, functions: Collection[str]) -> None:
    """Writes an archive of one object, with the index by which linkers find ``functions`` in it."""
    strings = b"".join(name.encode() + b"\0" for name in sorted(functions))
    strings += b"\0" * (len(strings) % 2)
    index_size = 4 + 4 * len(functions) + len(strings)
    start = 8 + 60 + index_size
    index = struct.pack(f">I{len(functions)}I", len(functions), *[start] * len(functions)) + strings
    size = member.stat().st_size
    with path.open("wb") as out, member.open("rb") as source:
        out.write(b"!<arch>\n" + _member_header(b"/", index_size) + index + _member_header(_MEMBER, size))
        shutil.copyfileobj(source, out, 1 << 20)
        out.write(b"\n" * (size % 2))


def _member_header(name: bytes, size: int) -> bytes:
    """No time, no owner: the same object gives the same archive."""
    return b"%-16s%-12d%-6d%-6d%-8o%-10d`\n" % (name, 0, 0, 0, 0o644, size)


class _Section:
    def __init__(self, index: int, fields: tuple[int, ...]) -> None:
        self.index = index
        _, self.kind, _, _, self.offset, self.size, self.link, self.info, _, _ = fields


class _Sections:
    """The section headers of a mapped ELF object, and typed views of what they point to."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.wide = data[4] == 2
        self.shift = 32 if self.wide else 8
        self.layout = "<IIQQQQIIQQ" if self.wide else "<10I"
        (self.start,) = struct.unpack_from("<Q" if self.wide else "<I", data, 40 if self.wide else 32)
        self.each, count = struct.unpack_from("<HH", data, 58 if self.wide else 46)
        self.rows = [self._read(0)]
        # More sections than the header's field can say: the first section header has their number.
        for i in range(1, count or struct.unpack_from(self.layout, data, self.start)[5]):
            self.rows.append(self._read(i))

    def _read(self, index: int) -> _Section:
        return _Section(index, struct.unpack_from(self.layout, self.data, self.start + self.each * index))

    @property
    def symbol(self) -> np.dtype:
        if self.wide:
            return np.dtype(
                [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"), ("rest", "V16")]
            )
        return np.dtype([("name", "<u4"), ("rest", "V8"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2")])

    def relocation(self, kind: int) -> np.dtype:
        word = "<u8" if self.wide else "<u4"
        fields = [("offset", word), ("info", word)]
        return np.dtype([*fields, ("addend", word)] if kind == _RELA else fields)

    def only(self, kind: int) -> _Section:
        return next(section for section in self.rows if section.kind == kind)

    def view(self, section: _Section, dtype: np.dtype) -> np.ndarray:
        return np.frombuffer(self.data, dtype, section.size // dtype.itemsize, section.offset)

    def set_info(self, section: _Section, value: int) -> None:
        offset = 44 if self.wide else 28
        struct.pack_into("<I", self.data, self.start + self.each * section.index + offset, value)


def _renumber(relocations: np.ndarray, moved: np.ndarray, shift: int) -> None:
    info = relocations["info"].astype(np.uint64)
    kept = info & np.uint64((1 << shift) - 1)
    relocations["info"] = (moved[info >> np.uint64(shift)] << np.uint64(shift)) | kept


def _name(data: mmap.mmap, start: int) -> str:
    return data[start : data.find(b"\0", start)].decode()
