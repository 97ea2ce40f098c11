"""Halotile: loads a built library, as a user's program would; neither tvm nor onnx is imported."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np


class Engine:
    def __init__(self, model: str, threads: int, options: dict[str, Any]) -> None:
        self.model = halotile.load(model, threads=threads)
        self.info = {"version": halotile.__version__, "precision": "f32"}
        self.inputs: dict[str, np.ndarray] = {}
        self.result: dict[str, np.ndarray] = {}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        self.inputs = inputs

    def run(self) -> None:
        self.result = self.model(self.inputs)

    def outputs(self) -> dict[str, np.ndarray]:
        return self.result
