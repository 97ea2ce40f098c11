"""Arrays of any layout as rows in the network's: NumPy's, memmaps, and whatever has a shape, a dtype and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError
from .bands import chunk_rows
from .columns import ColumnWindow

if TYPE_CHECKING:
    from ..given import ArraysGiven

LAYOUTS = ("NCHW", "NHWC", "CHW", "HWC", "HW")


class View:
    """Rows of ``array``, which is the input or output ``name`` of shape ``shape`` (rows along ``axis``) in a layout.

    ``layout`` None takes the one that fits: as the network has it, else one image as CHW, HWC or HW.
    """

    def __init__(
        self,
        name: str,
        array: ArraysGiven,
        shape: Sequence[int],
        axis: int,
        dtype: np.dtype,
        layout: str | None,
        scale: float,
    ) -> None:
        self.name, self.array, self.shape, self.axis = name, array, tuple(shape), axis
        self.dtype, self.scale = dtype, scale
        found = tuple(array.shape)
        self.layout = self._layout(found, layout)
        self.rows: int = found[self.layout.index("R")]

    def columns(self, axis: int, first: int, end: int) -> View:
        """The same rows, of columns ``first`` to ``end`` of the network's ``axis``."""
        found, at = copy(self), self.layout.index(str(axis))
        found.shape = tuple(end - first if a == axis else n for a, n in enumerate(self.shape))
        if isinstance(self.array, np.ndarray):
            found.array = self.array[(slice(None),) * at + (slice(first, end),)]
        else:
            found.array = ColumnWindow(self.array, at, first, end)
        return found

    def banded(self, bands: Callable[[Any, int], Any]) -> View:
        """The same, of an array in chunks by ``bands`` of these."""
        axis = self.layout.index("R")
        if chunk_rows(self.array, axis) > 1:
            self.array = bands(self.array, axis)
        return self

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
        if isinstance(self.array, np.ndarray) and kind == rows.dtype and self.scale == 1.0:
            self._as_given(self.array[self._slices(first, first + count)], count)[...] = rows
            return
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
