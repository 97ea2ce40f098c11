"""Arrays of any layout as rows in the network's: NumPy's, memmaps, and whatever has a shape, a dtype and slices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import RunError

LAYOUTS = ("NCHW", "NHWC", "CHW", "HWC", "HW")


class View:
    """Rows of ``array``, which is the input or output ``name`` of shape ``shape`` (rows along ``axis``) in a layout.

    ``layout`` None takes the one that fits: as the network has it, else one image as CHW, HWC or HW.
    """

    def __init__(
        self, name: str, array: Any, shape: Sequence[Any], axis: int, dtype: np.dtype, layout: str | None, scale: float
    ) -> None:
        self.name, self.array, self.shape, self.axis = name, array, tuple(shape), axis
        self.dtype, self.scale = dtype, scale
        found = tuple(array.shape)
        self.layout = self._layout(found, layout)
        self.rows: int = found[self.layout.index("R")]

    def _layout(self, found: tuple[int, ...], asked: str | None) -> str:
        """The letters of the array's axes: R for rows, digits for the network's axes."""
        own = "".join("R" if a == self.axis else str(a) for a in range(len(self.shape)))
        offered = {"": own}
        if own == "01R3":
            offered = {"NCHW": own, "NHWC": "0R31", "CHW": "1R3", "HWC": "R31", "HW": "R3"}
        if asked is not None and asked not in offered:
            raise RunError(f"layout {asked!r} does not fit '{self.name}'; choose one of {', '.join(offered)}")
        for name, letters in offered.items():
            missing = set(own) - set(letters)
            fits = len(found) == len(letters) and all(
                letter == "R" or n == self.shape[int(letter)] for letter, n in zip(letters, found)
            )
            if fits and all(self.shape[int(m)] == 1 for m in missing) and asked in (None, name):
                return letters
        shown = ", ".join("rows" if a == self.axis else str(n) for a, n in enumerate(self.shape))
        raise RunError(f"'{self.name}' has the shape ({shown}), and an array of shape {found} does not fit")

    def read(self, first: int, end: int) -> np.ndarray:
        """Rows in the network's layout and type."""
        rows = np.asarray(self.array[self._slices(first, end)])
        if rows.dtype != self.dtype and (self.dtype.kind != "f" or rows.dtype.kind not in "uif"):
            raise RunError(f"'{self.name}' takes {self.dtype}, got {rows.dtype}")
        seen = self._as_given(rows, end - first)
        if rows.dtype == self.dtype and self.scale == 1.0:
            return seen
        found = np.empty(seen.shape, self.dtype)
        for here, there in zip(*_planes(found, seen)):
            if self.scale == 1.0:
                here[...] = there
            else:
                np.multiply(there, self.dtype.type(self.scale), out=here, dtype=self.dtype, casting="unsafe")
        return found

    def write(self, first: int, rows: np.ndarray) -> None:
        """Puts rows in the network's layout to their place; whole numbers are rounded, and held in their range.
        ``rows`` may be changed."""
        kind = np.dtype(self.array.dtype)
        limits = np.iinfo(kind) if kind != rows.dtype and kind.kind in "ui" and rows.dtype.kind == "f" else None
        count = rows.shape[self.axis]
        sizes = [count if n == "R" else self.shape[int(n)] for n in self.layout]
        found = np.empty(sizes, kind)
        for here, there in zip(*_planes(self._as_given(found, count), rows)):
            if self.scale != 1.0:
                np.multiply(there, rows.dtype.type(self.scale), out=there)
            if limits is not None:
                np.clip(np.rint(there, out=there), limits.min, limits.max, out=there)
            here[...] = there
        self.array[self._slices(first, first + count)] = found

    def _as_given(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The array's rows, seen in the network's layout."""
        letters = self.layout
        for a in range(len(self.shape)):
            if str(a) not in letters and a != self.axis:
                rows, letters = rows[None], str(a) + letters
        return rows.transpose([letters.index("R" if a == self.axis else str(a)) for a in range(len(self.shape))])

    def _slices(self, first: int, end: int) -> tuple[slice, ...]:
        return tuple(slice(first, end) if letter == "R" else slice(None) for letter in self.layout)


def _planes(one: np.ndarray, other: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Both arrays image by image and channel by channel: what is done to a plane stays in cache, and inner loops run
    along rows, where those of NumPy would run along the few channels of a pixel."""
    if one.ndim < 4:
        return [one], [other]
    places = list(np.ndindex(one.shape[:2]))
    return [one[p] for p in places], [other[p] for p in places]


class NpyFile:
    """A .npy file of which rows are read and written, none of which stays in memory as those of a memmap would."""

    def __init__(
        self, path: Path, shape: tuple[int, ...] | None = None, dtype: Any = None, *, again: bool = False
    ) -> None:
        """With ``shape`` and ``dtype`` a new file, or with ``again`` the one that is there."""
        self.path = path
        if shape is not None and not again:
            with open(path, "wb") as file:
                kind = np.lib.format.dtype_to_descr(np.dtype(dtype))
                header = {"descr": kind, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(file, header)
                file.truncate(file.tell() + int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
        try:
            self._file = open(path, "r+b" if shape is not None else "rb")
            version = np.lib.format.read_magic(self._file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, fortran, self.dtype = read(self._file)
        except (ValueError, EOFError) as error:
            raise RunError(f"{path} is no .npy file: {error}") from None
        if fortran:
            raise RunError(f"{path} is in the order of Fortran, so that its rows are not together; save it in C's")
        self._start = self._file.tell()

    def _runs(self, slices: tuple[slice, ...]) -> tuple[list[int], tuple[int, ...], list[tuple[int, int]]]:
        """Of a slice the offsets of what lies together, its shape, and the spans."""
        spans = [s.indices(n)[:2] for s, n in zip(slices, self.shape)]
        cut = max((a for a, (s, n) in enumerate(zip(spans, self.shape)) if s != (0, n)), default=0)
        strides = [int(np.prod(self.shape[a + 1 :], dtype=np.int64)) for a in range(len(self.shape))]
        outer = np.zeros(1, np.int64)
        for a in range(cut):
            outer = (outer[:, None] + np.arange(*spans[a]) * strides[a]).reshape(-1)
        offsets = (outer + spans[cut][0] * strides[cut]) * self.dtype.itemsize + self._start
        return offsets.tolist(), tuple(b - a for a, b in spans), spans[cut:]

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        offsets, shape, _ = self._runs(slices)
        out = np.empty(shape, self.dtype)
        flat = out.data.cast("B")
        size = len(flat) // len(offsets)
        for i, offset in enumerate(offsets):
            if os.preadv(self._file.fileno(), [flat[i * size : (i + 1) * size]], offset) != size:
                raise RunError(f"{self.path} ends before its rows do")
        return out

    def __setitem__(self, slices: tuple[slice, ...], rows: np.ndarray) -> None:
        offsets, _, _ = self._runs(slices)
        flat = np.ascontiguousarray(rows, self.dtype).data.cast("B")
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
