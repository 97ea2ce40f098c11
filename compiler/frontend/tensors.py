"""TensorProto -> Value, with external data mapped from inside the model's own folder and from nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ...errors import ModelError, UnsupportedError
from .ahead import ALLOWANCE
from .functions import dtype_name, element_name
from .load import MESSAGE
from .node import MOST
from .value import OnnxValue


class TensorReader:
    """Reads the tensors of one model; ``folder`` is where its file lies (None for a model given as bytes)."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def value(self, tensor: onnx.TensorProto) -> OnnxValue:
        dtype = dtype_name(tensor.data_type)
        if dtype is None or dtype.startswith("complex"):
            kind = element_name(tensor.data_type)
            raise UnsupportedError(f"tensor '{tensor.name}' holds {kind} data, which is not supported")
        if any(d < 0 for d in tensor.dims):
            raise ModelError(f"tensor '{tensor.name}' has the shape {list(tensor.dims)}; dimensions can't be negative")
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return OnnxValue.of_array(self._external(tensor, dtype))
        try:
            array = numpy_helper.to_array(tensor)
        except Exception as error:
            raise ModelError(f"tensor '{tensor.name}' can't be read: {error}") from None
        return OnnxValue.of_array(array)

    def sparse(self, tensor: onnx.SparseTensorProto) -> OnnxValue:
        """The whole tensor, zero where nothing is stated: positions count all elements, or are rows of coordinates."""
        name, dims = tensor.values.name, list(tensor.dims)
        values, places = self.value(tensor.values).array, self.value(tensor.indices).array
        if values is None or places is None or any(d < 0 for d in dims) or math.prod(dims) >= MOST:
            raise ModelError(f"sparse tensor '{name}' has the shape {dims}")
        if places.shape not in ((values.size,), (values.size, len(dims))) or places.dtype.kind not in "iu":
            raise ModelError(
                f"sparse tensor '{name}' has {values.size} values at positions {list(places.shape)}"
            )
        if values.itemsize * math.prod(dims) > ALLOWANCE:
            raise UnsupportedError(
                f"sparse tensor '{name}' of the shape {dims} is too large to be written out"
            )
        limits = np.array(dims if places.ndim == 2 else math.prod(dims))
        if (places < 0).any() or (places >= limits).any():
            raise ModelError(f"sparse tensor '{name}' has values outside of its shape {dims}")
        dense = np.zeros(dims, values.dtype)
        dense[tuple(places.T) if places.ndim == 2 else np.unravel_index(places, dims)] = values.reshape(-1)
        return OnnxValue.of_array(dense)

    def _external(self, tensor: onnx.TensorProto, dtype: str) -> np.ndarray:
        """The tensor's bytes, mapped; pages are read when something looks at them."""
        path, begin, end = self.extent(tensor)
        item = np.dtype(dtype)
        if begin == end:
            return np.empty(tuple(tensor.dims), item)
        try:
            raw = np.memmap(path, np.uint8, "c", begin, (end - begin,))  # private: nothing reaches the file
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ModelError(
                f"tensor '{tensor.name}': external data file '{path.name}' can't be read: {reason}"
            ) from None
        if dtype in PACKED:
            inline = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=raw.tobytes())
            return numpy_helper.to_array(inline)
        return (
            np.asarray(raw)
            .view(item.newbyteorder("<") if item.kind in "iuf" else item)
            .reshape(tuple(tensor.dims))
        )

    def span(self, tensor: onnx.TensorProto) -> tuple[str, int, int]:
        """The name of that file, as it is from the model's folder, and where in it; ModelError unless it is there."""
        _, begin, end = self.extent(tensor)
        (location,) = (e.value for e in tensor.external_data if e.key == "location")
        return Path(location).as_posix(), begin, end

    def extent(self, tensor: onnx.TensorProto) -> tuple[Path, int, int]:
        """The file that holds an external tensor, and where in it; ModelError unless it is there."""
        entries = {e.key: e.value for e in tensor.external_data}
        path = self.locate(tensor.name, entries.get("location", ""))
        offset, bytes_ = _number(tensor, entries, "offset") or 0, _number(tensor, entries, "length")
        need = _bytes(tensor, dtype_name(tensor.data_type) or "")
        if bytes_ is not None and bytes_ < need:
            raise ModelError(f"tensor '{tensor.name}' needs {need} bytes of external data, its entry says {bytes_}")
        status = path.stat()
        if offset + need > status.st_size:
            raise ModelError(
                f"tensor '{tensor.name}' needs bytes {offset} to {offset + need} of its external data "
                f"file '{entries['location']}', which has {status.st_size}"
            )
        return path, offset, offset + need

    def locate(self, name: str, location: str) -> Path:
        """The file of an external tensor; refuses one that is missing or lies outside the model's folder."""
        where = f"tensor '{name}': external data file '{location}'"
        if not location:
            raise ModelError(f"tensor '{name}' has external data without a location")
        if self.folder is None:
            raise ModelError(f"{where} can't be found, because the model was not given as a path")
        folder = self.folder.resolve()
        relative = Path(location)
        try:
            resolved = (folder / relative).resolve()
            there = resolved.is_file()
        except (OSError, ValueError):  # no file can have such a name
            raise ModelError(f"{where[:200]!r} does not exist") from None
        if relative.is_absolute() or ".." in relative.parts or not resolved.is_relative_to(folder):
            raise ModelError(f"{where} lies outside the model's folder; it is not read")
        if not there:
            raise ModelError(f"{where} does not exist")
        return resolved


def external_tensors(message: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a model that lie in files of their own, wherever they are: in graphs within graphs, in functions,
    as attributes."""
    for kind, value in message.ListFields():
        if kind.type != MESSAGE:
            continue
        for inner in [value] if hasattr(value, "ListFields") else value:
            if not isinstance(inner, onnx.TensorProto):
                yield from external_tensors(inner)
            elif inner.data_location == onnx.TensorProto.EXTERNAL:
                yield inner


PACKED = {"int4": 2, "uint4": 2, "float4_e2m1fn": 2, "int2": 4, "uint2": 4}  # elements of a byte


def _bytes(tensor: onnx.TensorProto, dtype: str) -> int:
    """Bytes that a tensor takes in a file."""
    count = math.prod(tensor.dims)
    return -(-count // PACKED[dtype]) if dtype in PACKED else count * np.dtype(dtype).itemsize


def _number(tensor: onnx.TensorProto, entries: dict[str, str], key: str) -> int | None:
    if key not in entries:
        return None
    try:
        number = int(entries[key])
    except ValueError:
        number = -1
    if number < 0:
        raise ModelError(f"tensor '{tensor.name}' has external data with {key} '{entries[key]}'")
    return number
