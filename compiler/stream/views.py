"""Arrays of any layout as rows in the network's: NumPy's, memmaps, and whatever has a shape, a dtype and slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError
from .bands import chunk_rows
from .behind import RowsBehind
from .columns import ColumnWindow
from .files import PlainFile
from .pieces import Pieces
from .step_rows import StepPart, StepRows

if TYPE_CHECKING:
    from ..given import ArraysGiven

_COPIED = 1 << 24  # bytes of rows of a target's own type from which on they are written without a copy, and waited for
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
        pieces: Pieces | None = None,
    ) -> None:
        self.name, self.array, self.shape, self.axis = name, array, tuple(shape), axis
        self.dtype, self.scale = dtype, scale
        self.pieces = pieces or Pieces()
        self.behind: RowsBehind | None = None  # writes rows while the next are computed
        found = tuple(array.shape)
        self.layout = self._layout(found, layout)
        self.rows: int = found[self.layout.index("R")]

    def columns(self, axis: int, first: int, end: int) -> View:
        """The same rows, of columns ``first`` to ``end`` of the network's ``axis``."""
        found, at = copy(self), self.at(axis)
        found.shape = tuple(end - first if a == axis else n for a, n in enumerate(self.shape))
        if isinstance(self.array, np.ndarray):
            found.array = self.array[(slice(None),) * at + (slice(first, end),)]
        elif isinstance(self.array, StepRows):
            found.array, found.behind = self.array.part(at, first, end), None
        else:
            found.array = ColumnWindow(self.array, at, first, end)
        return found

    def banded(self, bands: Callable[[Any, int], Any]) -> View:
        """The same, of an array in chunks by ``bands`` of these."""
        if chunk_rows(self.array, self.row_axis) > 1:
            self.array = bands(self.array, self.row_axis)
        return self

    def at(self, axis: int) -> int:
        """The array's axis that is the network's ``axis``."""
        return self.layout.index(str(axis))

    @property
    def row_axis(self) -> int:
        """The array's axis of rows."""
        return self.layout.index("R")

    def by_pixels(self) -> bool:
        """Whether any rows and columns can be read and written at no more cost than their own."""
        return isinstance(self.array, (np.ndarray, PlainFile))

    def _layout(self, found: tuple[int, ...], asked: str | None) -> str:
        """The letters of the array's axes: R for rows, digits for the network's axes."""
        own = "".join("R" if a == self.axis else str(a) for a in range(len(self.shape)))
        offered = {"": own}
        if own == "01R3":
            offered = {"NCHW": own, "NHWC": "0R31", "CHW": "1R3", "HWC": "R31", "HW": "R3"}
        elif own == "0R23":  # a frame, and what is made of its kind
            offered = {"NHWC": own, "HWC": "R23"}
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
        rows, seen = self._seen(first, end)
        if rows.dtype == self.dtype and self.scale == 1.0:
            return seen
        found = np.empty(seen.shape, self.dtype)
        self._convert(seen, found)
        return found

    def read_into(self, first: int, own: np.ndarray) -> None:
        """Fills ``own`` with the rows from ``first`` on."""
        _, seen = self._seen(first, first + own.shape[self.axis])
        if seen.shape != own.shape:
            raise RunError(f"rows of '{self.name}' have the shape {own.shape}, and its source gave {seen.shape}")
        self._convert(seen, own)

    def _seen(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """The array's own rows, and these in the network's layout."""
        rows = np.asarray(self.array[self._slices(first, end)])
        if rows.dtype != self.dtype and (self.dtype.kind != "f" or rows.dtype.kind not in "uif"):
            raise RunError(f"'{self.name}' takes {self.dtype}, got {rows.dtype}")
        return rows, self._as_given(rows, end - first)

    def _convert(self, seen: np.ndarray, found: np.ndarray) -> None:
        def convert(here: np.ndarray, there: np.ndarray) -> None:
            here[...] = there  # apart: a product of other types would convert them in small steps of its own
            if self.scale != 1.0:
                np.multiply(here, self.dtype.type(self.scale), out=here)

        self.pieces.work(convert, found, seen)

    def write(self, first: int, rows: np.ndarray) -> None:
        """Puts rows in the network's layout to their place; whole numbers are rounded, and held in their range.
        ``rows`` may be changed."""
        kind = np.dtype(self.array.dtype)
        limits = np.iinfo(kind) if kind != rows.dtype and kind.kind in "ui" and rows.dtype.kind == "f" else None
        count = rows.shape[self.axis]
        slices = self._slices(first, first + count)
        same = kind == rows.dtype and self.scale == 1.0 and isinstance(self.array, PlainFile)
        if same and (self.behind is None or rows.nbytes > _COPIED):
            self.array[slices] = self._in_order(rows)
            return
        if isinstance(self.array, (np.ndarray, StepPart)):  # in place: what is made for a step costs more than it
            found = self.array[slices]
        else:
            sizes = [count if n == "R" else self.shape[int(n)] for n in self.layout]
            found = np.empty(sizes, kind) if self.behind is None else self.behind.rows(sizes, kind)

        def convert(here: np.ndarray, there: np.ndarray) -> None:
            if self.scale != 1.0:
                np.multiply(there, rows.dtype.type(self.scale), out=there)
            if limits is not None:
                np.clip(np.rint(there, out=there), limits.min, limits.max, out=there)
                there = there.astype(kind)  # together, where vectors are converted; then to places apart
            here[...] = there

        self.pieces.work(convert, self._as_given(found, count), rows)
        if isinstance(self.array, StepPart):
            self.array.filled(slices, found.size)
        elif self.behind is not None:
            self.behind.write(self.array, slices, found)
        elif not isinstance(self.array, np.ndarray):
            self.array[slices] = found

    def _as_given(self, rows: np.ndarray, count: int) -> np.ndarray:
        """The array's rows, seen in the network's layout."""
        letters = self.layout
        for a in range(len(self.shape)):
            if str(a) not in letters and a != self.axis:
                rows, letters = rows[None], str(a) + letters
        return rows.transpose([letters.index("R" if a == self.axis else str(a)) for a in range(len(self.shape))])

    def _in_order(self, rows: np.ndarray) -> np.ndarray:
        """Rows in the network's layout, seen in the array's."""
        axes = [self.axis if letter == "R" else int(letter) for letter in self.layout]
        gone = [a for a in range(len(self.shape)) if a not in axes]
        return rows.transpose([*gone, *axes]).reshape([rows.shape[a] for a in axes])

    def _slices(self, first: int, end: int) -> tuple[slice, ...]:
        return tuple(slice(first, end) if letter == "R" else slice(None) for letter in self.layout)

