"""Rasters as arrays: datasets of rasterio's by what they have, so that nothing of it is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError

if TYPE_CHECKING:
    from .files import NpyFile


def as_array(given: NpyFile | np.ndarray) -> Raster | NpyFile | np.ndarray:
    """``given`` with a shape, a dtype and slices, if it is a raster; else as it came."""
    parts = ("count", "height", "width", "dtypes")
    return Raster(given) if all(hasattr(given, part) for part in parts) else given


class Raster:
    """A dataset that is open for reading or writing, as an array (bands, rows, columns) of which rows are windows."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        kinds = sorted(set(dataset.dtypes))
        if len(kinds) != 1:
            raise RunError(f"the bands of {_name(dataset)} are {' and '.join(kinds)}: streams take bands of one type")
        self.shape = (dataset.count, dataset.height, dataset.width)
        self.dtype = np.dtype(kinds[0])

    def __getitem__(self, slices: tuple[slice, ...]) -> np.ndarray:
        if not hasattr(self._dataset, "read"):
            raise RunError(f"{_name(self._dataset)} is open for writing alone")
        return np.asarray(self._dataset.read(window=self._window(slices)))

    def __setitem__(self, slices: tuple[slice, ...], values: np.ndarray) -> None:
        if not hasattr(self._dataset, "write"):
            raise RunError(f"{_name(self._dataset)} is open for reading alone: rasterio.open(..., 'w' or 'r+')")
        self._dataset.write(values, window=self._window(slices))

    def _window(self, slices: tuple[slice, ...]) -> tuple[tuple[int, int], tuple[int, int]]:
        (top, bottom), (left, right) = (s.indices(n)[:2] for s, n in zip(slices[1:], self.shape[1:]))
        return (top, bottom), (left, right)


def _name(dataset: object) -> str:
    return repr(getattr(dataset, "name", "the raster"))
