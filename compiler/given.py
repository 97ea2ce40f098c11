"""What users may give where a model, or arrays, are asked for. A library that is found in the cache needs no ONNX for
it."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import did_you_mean

if TYPE_CHECKING:
    import onnx

ModelGiven: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"

# An array in the caller's own type (of NumPy, PyTorch, dask, zarr, or whatever has a shape, a dtype and slices), the
# path of a file, rows that come one after the other, or a dict of such by name. It is looked into where it is read, and
# what comes back is of the same kind.
ArraysGiven: TypeAlias = Any

MOST_NEIGHBOURS = 1000  # files of a folder that one may have been meant of


def no_model(path: Path) -> str:
    """That there is no such file, and what it may have meant of those that are there."""
    try:
        with os.scandir(path.parent) as entries:
            near = did_you_mean(path.name, [entry.name for entry in islice(entries, MOST_NEIGHBOURS)])
    except (FileNotFoundError, NotADirectoryError):
        near = f": there is no folder '{path.parent}'"
    except OSError:
        near = ""
    return f"model file '{path}' does not exist{near}"
