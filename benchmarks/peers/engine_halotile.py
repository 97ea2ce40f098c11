"""Halotile: loads a built library, as a user's program would; neither tvm nor onnx is imported.

Inputs and outputs are bound once, as the peers' are: fresh arrays on every call would measure page faults.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import halotile
import numpy as np
from halotile.compiler.runtime.loader import numpy_dtype


class Engine:
    def __init__(self, model: str, threads: int, options: dict[str, Any]) -> None:
        self.model = halotile.load(model, threads=threads)
        self.info = {"version": halotile.__version__, "precision": "f32"}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        self.model(inputs)  # checks names, dtypes and shapes once, with the messages that a user sees
        self._inputs = [np.require(inputs[spec.name], requirements=["C", "A"]) for spec in self.model.inputs]
        self._outputs = [np.empty(spec.shape, numpy_dtype(spec.dtype)) for spec in self.model.outputs]
        self._pointers = (_pointers(self._inputs), _pointers(self._outputs))
        instance = self.model._instance(self.model._default)
        self._call = (instance, *(ctypes.addressof(p) for p in self._pointers))
        self._run = self.model._binding.run

    def run(self) -> None:
        code = self._run(*self._call)
        if code:
            raise RuntimeError(f"the library failed with code {code}")

    def profile(self) -> list[float]:
        """Seconds of each kernel in the last run; the library must have timers."""
        seconds = self.model.kernel_seconds()
        if seconds is None:
            raise RuntimeError("the library was built without timers")
        return seconds

    def outputs(self) -> dict[str, np.ndarray]:
        return {spec.name: array for spec, array in zip(self.model.outputs, self._outputs)}


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
