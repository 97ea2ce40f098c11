"""Arrays of other libraries as numpy's, without copies: by numpy's own protocols, else by DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import RunError


def is_array(value: Any) -> bool:
    """Whether numpy can look into it: an array of its own or of another library, or a buffer."""
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__dlpack__")):
        return True
    try:
        return memoryview(value) is not None
    except TypeError:
        return False


def array_of(name: str, value: object) -> np.ndarray:
    """``value`` as an array of numpy; RunError, with the reason, where it is none."""
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise RunError(f"input {name!r} is a {type(value).__name__}, expected a numpy array: {words}") from error


def memory_of(kind: str, name: str, value: object) -> np.ndarray:
    """An array on the very memory of ``value``, and no copy of it; RunError where that can't be."""
    array = array_of(name, value)
    if array is not value and array.size and not np.shares_memory(array, array_of(name, value)):
        raise RunError(
            f"{kind} {name!r} is a {type(value).__name__} whose memory numpy can't see, but a copy; give a numpy array"
        )
    return array
