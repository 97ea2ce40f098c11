"""Sources and targets by their paths: the ending says what a file is.

    .npy             an array of NumPy's
    .zarr            a chunked array in a folder, or one within it (image.zarr/0)
    .tif, .tiff      a TIFF: tiled or in strips, of whatever compression as a source, uncompressed as a target
    .raw, .bin       rows without a header, each pixel with all of its channels
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OutputError, RunError
from .files import NpyFile, RawFile
from .suffixes import SUFFIXES
from .tiff import TiffTarget, tiff_source

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike
    from ..given import ArraysGiven

_TIFF, _RAW = (".tif", ".tiff"), (".raw", ".bin")
_CHUNK = 1 << 20  # bytes of a chunk of a zarr array that is made, about


def is_path(given: object) -> bool:
    """Whether a source or target is the path of one."""
    return isinstance(given, (str, os.PathLike))


def suffix_of(path: str | os.PathLike[str]) -> str:
    """One of the endings. Raises RunError for any other."""
    found = Path(path)
    if any(part.lower().endswith(".zarr") for part in found.parts):
        return ".zarr"
    if found.suffix.lower() not in SUFFIXES:
        raise RunError(f"{os.fspath(path)!r} is none of the files that streams read and write: {', '.join(SUFFIXES)}")
    return found.suffix.lower()


def opened(path: str | os.PathLike[str], name: str, shape: Sequence[int], axis: int, kind: Any) -> ArraysGiven:
    """The array in a file, for the input ``name`` of that shape; plain rows are numbers of ``kind``."""
    suffix = suffix_of(path)
    if suffix == ".zarr":
        return _zarr_source(Path(path))
    if suffix in _TIFF:
        return tiff_source(Path(path))
    if suffix in _RAW:
        width, channels = _pixels(path, f"input '{name}'", shape, axis)
        return RawFile(Path(path), width, channels, kind)
    return NpyFile(Path(path))


def created(
    path: str | os.PathLike[str], name: str, shape: Sequence[int], axis: int, kind: str | np.dtype,
    most: tuple[int, int] | None = None, *, again: bool,
) -> ArraysGiven:  # fmt: skip
    """A new file for the output ``name`` of that shape, of numbers of ``kind``; ``again``: the one that is there.
    ``most``: an axis, and how much of it is written at once."""
    suffix, place, kind = suffix_of(path), Path(path), np.dtype(kind)
    if suffix == ".zarr":
        return _zarr_target(place, tuple(shape), axis, kind, most, again)
    if suffix == ".npy":
        return NpyFile(place, tuple(shape), kind, again=again)
    width, channels = _pixels(path, f"output '{name}'", shape, axis)
    if suffix in _RAW:
        return RawFile(place, width, channels, kind, shape[axis], again=again)
    if kind.kind not in "uif":
        raise OutputError(f"{place} can't hold {kind}: a TIFF has whole numbers and floats; give a .npy or .zarr")
    return TiffTarget(place, shape[axis], width, channels, kind, again=again)


def _pixels(path: Any, what: str, shape: Sequence[SizeLike], axis: int) -> tuple[int, int]:
    """Columns and channels of the one image that ``shape`` is."""
    columns, channels = (3, 1) if axis == 2 else (2, 3)  # or a frame, rows first
    if len(shape) != 4 or axis not in (1, 2) or shape[0] != 1:
        shown = ", ".join("rows" if a == axis else str(n) for a, n in enumerate(shape))
        raise RunError(
            f"{os.fspath(path)} is one image of rows, columns and channels, and {what} has the shape ({shown}); give a "
            ".npy or .zarr"
        )
    return int(shape[columns]), int(shape[channels])


def _zarr() -> ModuleType:
    try:
        import zarr
    except ImportError:
        raise RunError(".zarr needs zarr: pip install zarr") from None
    return zarr


def _zarr_source(path: Path) -> ArraysGiven:
    zarr = _zarr()
    try:
        found = zarr.open(str(path), mode="r")
    except Exception as error:  # zarr 2 and 3 have errors of their own
        reason = "there is no such folder" if not path.exists() else _first_line(error)
        raise RunError(f"{path} can't be read as zarr: {reason}") from None
    if not hasattr(found, "shape"):
        names = sorted(found.array_keys())
        some = f", such as {path / names[0]}" if names else ""
        raise RunError(f"{path} is a group of arrays: give one of them{some}")
    return found


def _zarr_target(
    path: Path, shape: tuple[int, ...], axis: int, kind: np.dtype, most: tuple[int, int] | None, again: bool
) -> ArraysGiven:
    zarr = _zarr()
    if again:
        return zarr.open_array(str(path), mode="r+")
    if path.exists():
        try:
            old = zarr.open(str(path), mode="r")
        except Exception:
            old = None
        if not hasattr(old, "shape"):
            raise OutputError(f"{path} exists and is no zarr array; give another name, or one within it")
    whole = [min(n, most[1]) if most is not None and a == most[0] else n for a, n in enumerate(shape)]
    row = int(np.prod(whole[axis + 1 :], dtype=np.int64)) * kind.itemsize
    rows = min(shape[axis], max(16, _CHUNK // max(row, 1)))
    chunks = tuple(rows if a == axis else n if a > axis else 1 for a, n in enumerate(whole))
    try:
        return zarr.open_array(str(path), mode="w", shape=shape, chunks=chunks, dtype=kind)
    except OSError as error:
        raise OutputError(f"{path} can't be written: {error.strerror or _first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
