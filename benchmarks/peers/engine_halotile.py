"""Halotile: loads a built library, as a user's program would; neither tvm nor onnx is imported.

Inputs and outputs are bound once, as the peers' are: fresh arrays on every call would measure page faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import halotile
import numpy as np
from halotile.compiler.runtime.loader import numpy_dtype
from halotile.compiler.sized import chosen_sizes

if TYPE_CHECKING:
    from ...targets.plain import Json


class HalotileEngine:
    def __init__(self, model: str, threads: int, options: Json) -> None:
        self.model = halotile.load(model, threads=threads)
        self.run: Callable[[], None]
        self.dtypes = {s.name: numpy_dtype(s.dtype) for s in self.model.outputs}
        some = (self.model.report.get("precision") or {}).get("kernels", 0)
        self.info = {"version": halotile.__version__, "precision": "bf16" if some else "f32"}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        arrays = {s.name: np.require(inputs[s.name], requirements=["C", "A"]) for s in self.model.inputs}
        self._outputs = {name: np.empty(shape, self.dtypes[name]) for name, shape in self._shapes(arrays).items()}
        self.run = self.model.bind(arrays, self._outputs)

    def call(self, inputs: dict[str, np.ndarray]) -> None:
        self.model(inputs)

    def _shapes(self, arrays: dict[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
        """The outputs' shapes, which follow from the inputs' where dimensions are open."""
        sizes = chosen_sizes(self.model, arrays)
        return self.model.output_shapes(sizes)

    def profile(self) -> list[float]:
        """Seconds of each kernel in the last run; the library must have timers."""
        seconds = self.model.kernel_seconds()
        if seconds is None:
            raise RuntimeError("the library was built without timers")
        return seconds

    def outputs(self) -> dict[str, np.ndarray]:
        return self._outputs


Engine = HalotileEngine
