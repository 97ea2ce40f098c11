"""Halotile: loads a built library, as a user's program would; neither tvm nor onnx is imported.

Inputs and outputs are bound once, as the peers' are: fresh arrays on every call would measure page faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
from halotile.compiler.runtime.loader import numpy_dtype


class Engine:
    def __init__(self, model: str, threads: int, options: dict[str, Any]) -> None:
        self.model = halotile.load(model, threads=threads)
        self.run: Callable[[], None]
        self.info = {"version": halotile.__version__, "precision": "f32"}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        arrays = {s.name: np.require(inputs[s.name], requirements=["C", "A"]) for s in self.model.inputs}
        self._outputs = {s.name: np.empty(s.shape, numpy_dtype(s.dtype)) for s in self.model.outputs}
        self.run = self.model.bind(arrays, self._outputs)

    def profile(self) -> list[float]:
        """Seconds of each kernel in the last run; the library must have timers."""
        seconds = self.model.kernel_seconds()
        if seconds is None:
            raise RuntimeError("the library was built without timers")
        return seconds

    def outputs(self) -> dict[str, np.ndarray]:
        return self._outputs
