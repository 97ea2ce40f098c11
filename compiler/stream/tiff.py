"""TIFF files by rows: any that tifffile decodes as a source, strips or tiles; plain ones, of any size, as a target.

    source    (rows, columns), (rows, columns, samples), or (planes, rows, columns) of planes and pages that lie apart
    target    (rows, columns, samples), uncompressed, in strips one behind the other; BigTIFF from 4 GB on
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OutputError, RunError
from .files import PlainFile, room, try_open

if TYPE_CHECKING:
    from ..given import ArraysGiven

_STRIP = 1 << 20  # bytes of a strip, about
_JPEG = (6, 7, 33007, 34892)  # compressions whose tables lie beside the strips
_LONG, _LONG8, _SHORT = 4, 16, 3
_CODES = {_LONG: "I", _LONG8: "Q", _SHORT: "H"}


def tiff_source(path: Path) -> ArraysGiven:
    """The first image of a file, at full size. Raises RunError without tifffile and rasterio."""
    try:
        import tifffile
    except ImportError:
        return _by_rasterio(path)
    try:
        file = tifffile.TiffFile(path)
        source = TiffSource(path, file)
    except (OSError, ValueError, IndexError) as error:  # TiffFileError is a ValueError
        raise RunError(f"{path} can't be read as TIFF: {_first_line(error)}") from None
    if source.offset is None:
        return source
    file.close()
    return PlainFile(path, source.shape, source.stored, source.offset)


def _by_rasterio(path: Path) -> ArraysGiven:
    try:
        import rasterio
    except ImportError:
        raise RunError(f"{path} needs tifffile: pip install tifffile (or rasterio)") from None
    try:
        return rasterio.open(path)
    except rasterio.errors.RasterioIOError as error:
        raise RunError(f"{path} can't be read as TIFF: {_first_line(error)}") from None


class TiffSource:
    """Rows of a TIFF's first image, decoded strip by strip or tile by tile."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self._file = path, file
        series = file.series[0]
        self._pages = list(series.pages)
        self._key = key = self._pages[0].keyframe
        separate, depth, self._length, self._width, self._samples = key.shaped
        planes = len(self._pages) * separate
        if depth != 1 or (planes > 1 and self._samples > 1):
            raise RunError(f"{path} holds {tuple(series.shape)} ({series.axes}), which is no image of rows and columns")
        self._separate, self._planes, self.dtype = separate, planes, np.dtype(key.dtype)
        tiled = bool(key.is_tiled)
        self._tall = int(key.tilelength if tiled else min(key.rowsperstrip or self._length, self._length))
        self._wide = int(key.tilewidth) if tiled else self._width
        self._across = -(-self._width // self._wide)
        self._down = -(-self._length // self._tall)
        if planes > 1:
            self.shape: tuple[int, ...] = (planes, self._length, self._width)
            self.chunks: tuple[int, ...] = (planes, self._tall, self._width)
        else:
            more = (self._samples,) if self._samples > 1 else ()
            self.shape = (self._length, self._width, *more)
            self.chunks = (self._tall, self._width, *more)
        # where all of it lies uncompressed and together, and how
        self.offset = series.dataoffset if key.fillorder == 1 else None
        self.stored = self.dtype.newbyteorder(file.byteorder)

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        """Rows and columns, all samples."""
        first, end, _ = slices[self._axis].indices(self._length)
        across = slices[self._axis + 1 : self._axis + 2]
        left, right, _ = (across[0] if across else slice(None)).indices(self._width)
        out = np.empty((self._planes, end - first, self._width, self._samples), self.dtype)
        try:
            for plane in range(self._planes):
                self._plane(out[plane], plane, first, end, left, right)
        except RunError:
            raise
        except Exception as error:  # codecs have many of their own
            missing = "; pip install imagecodecs" if "imagecodecs" in str(error) else ""
            raise RunError(f"{self.path} can't be read: {_first_line(error)}{missing}") from None
        rows = out.reshape([end - first if a == self._axis else n for a, n in enumerate(self.shape)])
        if right - left == self._width:
            return rows
        return rows[(slice(None),) * (self._axis + 1) + (slice(left, right),)].copy()

    @property
    def _axis(self) -> int:
        return 1 if self._planes > 1 else 0

    def _plane(self, out: np.ndarray, plane: int, first: int, end: int, left_most: int, right_most: int) -> None:
        page, separate = self._pages[plane // self._separate], plane % self._separate
        if page is None:
            raise RunError(f"{self.path} lacks page {plane // self._separate}")
        more = {}
        if self._key.compression in _JPEG:
            more = {"jpegtables": page.jpegtables, "jpegheader": self._key.jpegheader}
        for down in range(first // self._tall, -(-end // self._tall)):
            for across in range(self._across):
                if self._across > 1 and not left_most // self._wide <= across <= (right_most - 1) // self._wide:
                    continue
                index = (separate * self._down + down) * self._across + across
                offset, count = page.dataoffsets[index], page.databytecounts[index]
                data = os.pread(self._file.filehandle.fileno(), count, offset) if count else None
                if data is not None and len(data) != count:
                    raise RunError(f"{self.path} ends before its rows do")
                segment, (_, _, top, left, _), shape = self._key.decode(data, index, **more)
                low, high = max(first, top), min(end, top + shape[1])
                right = min(left + shape[2], self._width)
                found = self._key.nodata if segment is None else segment[0, low - top : high - top, : right - left]
                out[low - first : high - first, left:right] = found

    def close(self) -> None:
        """Harmless when repeated."""
        self._file.close()


class TiffTarget(PlainFile):
    """A new file, or with ``again`` the one that is there, of which nothing but the rows is missing."""

    def __init__(
        self, path: Path, rows: int, width: int, channels: int, dtype: Any, *, again: bool = False
    ) -> None:
        head = _head(rows, width, channels, np.dtype(dtype))
        if again:
            with try_open(path, "rb") as file:
                if file.read(len(head)) != head:
                    raise OutputError(f"{path} is not what its journal tells of; remove the journal to begin anew")
        else:
            with try_open(path, "wb") as file:
                file.write(head)
                room(file, len(head), (rows, width, channels), dtype)
        super().__init__(path, (rows, width, channels), dtype, len(head), target=True)


def _head(rows: int, width: int, channels: int, dtype: np.dtype) -> bytes:
    """All of a file but its rows, which follow it."""
    row = width * channels * dtype.itemsize
    tall = max(1, min(rows, _STRIP // row))
    count = -(-rows // tall)
    big = rows * row + 16 * count + 4096 >= 1 << 32
    place = _LONG8 if big else _LONG
    sizes = [min(tall, rows - i * tall) * row for i in range(count)]
    colour = channels in (3, 4)
    others = channels - 3 if colour else channels - 1
    kind = {"u": 1, "i": 2, "f": 3}[dtype.kind]

    def made(start: int) -> bytes:
        tags = [
            (256, _LONG, [width]), (257, _LONG, [rows]), (258, _SHORT, [8 * dtype.itemsize] * channels),
            (259, _SHORT, [1]), (262, _SHORT, [2 if colour else 1]),
            (273, place, [start + i * tall * row for i in range(count)]), (277, _SHORT, [channels]),
            (278, _LONG, [tall]), (279, place, sizes), (284, _SHORT, [1]),
            *([(338, _SHORT, [0] * others)] if others else []), (339, _SHORT, [kind] * channels),
        ]  # fmt: skip
        return _directory(tags, big)

    return made(len(made(0)))


def _directory(tags: list[tuple[int, int, list[int]]], big: bool) -> bytes:
    """A little-endian header and one directory, padded to a whole number of pages."""
    word, entry = ("Q", "<HHQ") if big else ("I", "<HHI")
    size = struct.calcsize(f"<{word}")
    head = struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16) if big else struct.pack("<2sHI", b"II", 42, 8)
    first = len(head) + (8 if big else 2) + len(tags) * (struct.calcsize(entry) + size) + size
    entries, behind = b"", b""
    for tag, kind, values in tags:
        data = struct.pack(f"<{len(values)}{_CODES[kind]}", *values)
        entries += struct.pack(entry, tag, kind, len(values))
        if len(data) <= size:
            entries += data.ljust(size, b"\0")
        else:
            entries += struct.pack(f"<{word}", first + len(behind))
            behind += data.ljust(-(-len(data) // 8) * 8, b"\0")
    whole = head + struct.pack("<Q" if big else "<H", len(tags)) + entries + struct.pack(f"<{word}", 0) + behind
    return whole.ljust(math.ceil(len(whole) / 4096) * 4096, b"\0")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
