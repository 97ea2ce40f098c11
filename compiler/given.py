"""What users may give where a model, or arrays, are asked for. A library that is found in the cache needs no ONNX for
it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import onnx

ModelGiven: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"

# An array in the caller's own type (of NumPy, PyTorch, dask, zarr, or whatever has a shape, a dtype and slices), the
# path of a file, rows that come one after the other, or a dict of such by name. It is looked into where it is read, and
# what comes back is of the same kind.
ArraysGiven: TypeAlias = Any
