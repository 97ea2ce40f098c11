"""An ONNX file as a model of the harness: ``halotile bench model.onnx --shape x=1,3,224,224``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ModelFile:
    """The model in ``path``, whose name is the file's; ``shapes`` fix its open dimensions, for ours and for the feeds,
    whose integers stay below the length of the table that they index."""

    path: Path
    shapes: Shapes | None = None

    @property
    def name(self) -> str:
        return self.path.stem

    def model(self, small: bool = False) -> onnx.ModelProto:
        """There is one size of it; raises ModelError for a file that holds none."""
        from ...compiler.frontend.load import load

        load(self.path)
        return onnx.load(self.path)

    def inputs(self, model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
        from ...compiler.frontend import import_model
        from ...compiler.sample import random_inputs

        return random_inputs(import_model(self.path, self.shapes).inputs, model, seed)
