"""OrtValue: a tensor in the memory of the processor, which it shares with whom it came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .failures import InvalidArgument
from .types import dtype_of_element, element_number, tensor_text


class OrtDevice:
    """Where memory is; here always the processor's."""

    def __init__(self, name: str = "cpu", number: int = 0) -> None:
        self._name, self._number = name, number

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device of that name; InvalidArgument unless it is ``cpu``."""
        check_device(ort_device_name)
        return OrtDevice(ort_device_name.lower(), device_id)

    def device_type(self) -> str:
        return self._name

    def device_id(self) -> int:
        return self._number


class OrtValue:
    """A tensor. Made by the class methods below; none copies, but where an array is not contiguous."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array if array.flags.c_contiguous else np.ascontiguousarray(array)

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """The value of an array, with which it shares memory."""
        check_device(device_type)
        if not isinstance(numpy_obj, np.ndarray):
            raise InvalidArgument(f"a value is made of a numpy array, not of {type(numpy_obj).__name__}")
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """The array's bytes as elements of another type of the same size, given by ONNX's number."""
        dtype = dtype_of_element(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise InvalidArgument(f"elements of {data.dtype} can't be taken for {dtype}, which has another size")
        return cls(data.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: object, device_type: str = "cpu", device_id: int = 0,
        vendor_id: int = -1, memory_info: object = None,
    ) -> OrtValue:  # fmt: skip
        """A value whose elements nobody has set. ``element_type``: NumPy's type or ONNX's number."""
        check_device(device_type)
        return cls(np.empty(tuple(shape), dtype_of_element(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """The value of anything that speaks DLPack, with which it shares memory."""
        try:
            return cls(np.from_dlpack(data))
        except (TypeError, BufferError, AttributeError, RuntimeError) as error:
            raise InvalidArgument(f"a {type(data).__name__} can't be shared by DLPack: {error}") from error

    def numpy(self) -> np.ndarray:
        """The value as an array, which shares its memory."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        if copy is False and array is not self._array:
            raise ValueError(f"a value of {self._array.dtype} is no array of {dtype} without a copy")
        return array.copy() if copy and array is self._array else array

    def __dlpack__(self, **more: Any) -> object:
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Copies ``data`` into the value's memory; it must have its type and shape."""
        array = data.numpy() if isinstance(data, OrtValue) else data
        if not isinstance(array, np.ndarray):
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        if array.dtype != self._array.dtype or array.shape != self._array.shape:
            raise InvalidArgument(
                f"{array.dtype}{list(array.shape)} can't go into a value of {self._array.dtype}{self.shape()}"
            )
        self._array[...] = array

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        return "cpu"

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def data_type(self) -> str:
        """The type as ONNX Runtime writes it, such as ``tensor(float)``."""
        return tensor_text(self._array.dtype)

    def element_type(self) -> int:
        """ONNX's number of the type of elements."""
        return element_number(self._array.dtype)

    def tensor_size_in_bytes(self) -> int:
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        return True

    def is_tensor(self) -> bool:
        return True

    def is_sparse_tensor(self) -> bool:
        return False

    def is_tensor_sequence(self) -> bool:
        return False


def check_device(name: object) -> None:
    if not isinstance(name, str) or name.lower() != "cpu":
        raise InvalidArgument(f"there is no device {name!r}: libraries run on the processor, 'cpu'")
