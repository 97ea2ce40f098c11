"""Tensors as arrays and back, in the same memory."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import torch

#: Types that NumPy has not: the integers that their bits are taken for on the way, and what they are in NumPy.
_NARROW: dict[torch.dtype, tuple[torch.dtype, type]] = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.int8, ml_dtypes.float8_e4m3fn),
    torch.float8_e4m3fnuz: (torch.int8, ml_dtypes.float8_e4m3fnuz),
    torch.float8_e5m2: (torch.int8, ml_dtypes.float8_e5m2),
    torch.float8_e5m2fnuz: (torch.int8, ml_dtypes.float8_e5m2fnuz),
}
_TORCH = {np.dtype(array): tensor for tensor, (_, array) in _NARROW.items()}


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor as an array, which shares its memory where it is contiguous."""
    tensor = tensor.detach().contiguous()
    narrow = _NARROW.get(tensor.dtype)
    return tensor.numpy() if narrow is None else tensor.view(narrow[0]).numpy().view(narrow[1])


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """The array as a tensor, which shares its memory."""
    narrow = _TORCH.get(array.dtype)
    if narrow is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(narrow)
