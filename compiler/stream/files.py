"""Files of plain numbers by rows, which are read and written, and do not stay in memory as those of a memmap would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import OutputError, RunError


class PlainFile:
    """An array of ``shape`` and ``dtype`` that lies in a file from byte ``start`` on, in the order of C."""

    def __init__(
        self, path: Path, shape: tuple[int, ...], dtype: np.dtype, start: int = 0, *, target: bool = False
    ) -> None:
        self.path, self.shape, self.dtype, self._start = path, tuple(shape), np.dtype(dtype), start
        self._file = try_open(path, "r+b" if target else "rb")

    def _runs(self, slices: tuple[slice, ...]) -> tuple[list[int], tuple[int, ...]]:
        """Of a slice the offsets of what lies together, and its shape."""
        spans = [s.indices(n)[:2] for s, n in zip(slices, self.shape)]
        cut = max((a for a, (s, n) in enumerate(zip(spans, self.shape)) if s != (0, n)), default=0)
        strides = [int(np.prod(self.shape[a + 1 :], dtype=np.int64)) for a in range(len(self.shape))]
        outer = np.zeros(1, np.int64)
        for a in range(cut):
            outer = (outer[:, None] + np.arange(*spans[a]) * strides[a]).reshape(-1)
        offsets = (outer + spans[cut][0] * strides[cut]) * self.dtype.itemsize + self._start
        return offsets.tolist(), tuple(b - a for a, b in spans)

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        out = np.empty(self._runs(slices)[1], self.dtype)
        self.read_into(slices, out)
        return out

    def read_into(self, slices: tuple[slice, ...], rows: np.ndarray) -> None:
        """Fills ``rows``, which lie together in memory, with those of the slices."""
        offsets, _ = self._runs(slices)
        flat = rows.view(np.uint8).data.cast("B") if rows.size else memoryview(b"")
        size = len(flat) // len(offsets)
        for i, offset in enumerate(offsets):
            if os.preadv(self._file.fileno(), [flat[i * size : (i + 1) * size]], offset) != size:
                raise RunError(f"{self.path} ends before its rows do")

    def __setitem__(self, slices: tuple[slice, ...], rows: np.ndarray) -> None:
        offsets, _ = self._runs(slices)
        flat = np.ascontiguousarray(rows, self.dtype).view(np.uint8).data.cast("B")
        size = len(flat) // len(offsets)
        for i, offset in enumerate(offsets):
            part = flat[i * size : (i + 1) * size]
            while len(part):
                done = os.pwrite(self._file.fileno(), part, offset)
                part, offset = part[done:], offset + done

    def flush(self) -> None:
        """Waits until what was written is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Harmless when repeated."""
        self._file.close()


class NpyFile(PlainFile):
    """A .npy file: with ``shape`` and ``dtype`` a new one, or with ``again`` the one that is there."""

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...] | None = None,
        dtype: str | np.dtype | None = None,
        *,
        again: bool = False,
    ) -> None:
        if shape is not None and not again:
            with try_open(path, "wb") as file:
                named = np.lib.format.dtype_to_descr(np.dtype(dtype))
                header = {"descr": named, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(file, header)
                room(file, file.tell(), shape, dtype)
        try:
            with try_open(path, "rb") as file:
                version = np.lib.format.read_magic(file)
                one = version == (1, 0)
                read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
                (found, fortran, kind), start = read(file), file.tell()
        except (ValueError, EOFError) as error:
            raise RunError(f"{path} is no .npy file: {error}") from None
        if fortran:
            raise RunError(f"{path} is in the order of Fortran, so that its rows are not together; save it in C's")
        super().__init__(path, found, kind, start, target=shape is not None)


class RawFile(PlainFile):
    """Rows without a header, each pixel with all of its channels: (rows, width, channels)."""

    def __init__(
        self,
        path: Path,
        width: int,
        channels: int,
        dtype: Any,
        rows: int | None = None,
        *,
        again: bool = False,
    ) -> None:
        row = width * channels * np.dtype(dtype).itemsize
        if rows is not None and not again:
            with try_open(path, "wb") as file:
                room(file, 0, (rows, width, channels), dtype)
        target = rows is not None
        if rows is None:
            try:
                size = path.stat().st_size
            except OSError as error:
                raise RunError(f"{path} can't be read: {error.strerror}") from None
            rows, left = divmod(size, row)
            if left:
                raise RunError(
                    f"{path} ends within a row: rows have {row} bytes ({width} x {channels} {np.dtype(dtype)})"
                )
        super().__init__(path, (rows, width, channels), dtype, target=target)


def try_open(path: Path, mode: str) -> Any:
    try:
        return open(path, mode)
    except OSError as error:
        if mode == "rb":
            raise RunError(f"{path} can't be read: {error.strerror}") from None
        raise OutputError(f"{path} can't be written: {error.strerror}") from None


def room(file: Any, start: int, shape: tuple[int, ...], dtype: str | np.dtype | None) -> None:
    """Makes the file as long as its numbers will need."""
    file.truncate(start + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
