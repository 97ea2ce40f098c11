"""An ONNX file as a model of the harness: ``halotile bench model.onnx --shape x=1,3,224,224 --fix size=480,640``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from ...compiler.options import Fixed, Shapes


@dataclass(frozen=True)
class ModelFile:
    """The model in ``file``, whose name is the file's; ``given`` shapes fix its open dimensions, for ours and for the
    feeds, whose integers stay below the length of the table that they index. Inputs that are ``fixed`` become constants
    in a copy of the model, for every engine. What stays open is measured at its ``typical`` size."""

    file: Path
    given: Shapes | None = None
    fixed: Mapping[str, Fixed] | None = None
    typical: Mapping[str, int] | None = None

    @property
    def name(self) -> str:
        return self.file.stem

    @property
    def path(self) -> Path | None:
        return None if self.fixed else self.file

    @property
    def shapes(self) -> Shapes | None:
        return {n: s for n, s in (self.given or {}).items() if n not in (self.fixed or {})} or None

    def model(self, small: bool = False) -> onnx.ModelProto:
        """There is one size of it; raises ModelError for a file that holds none, and what an import raises for values
        that don't fit."""
        from ...compiler.frontend import import_model
        from ...compiler.frontend.load import load

        load(self.file)
        model = onnx.load(self.file)
        if not self.fixed:
            return model
        known = import_model(self.file, self.given, fixed=self.fixed).fixed
        graph = model.graph
        types = {i.name: i.type.tensor_type.elem_type for i in graph.input}
        inputs, weights = list(graph.input), list(graph.initializer)
        del graph.input[:], graph.initializer[:]
        declared = model.ir_version < 4  # older models list their weights among the inputs
        graph.input.extend(i for i in inputs if declared or i.name not in known)
        graph.initializer.extend(w for w in weights if w.name not in known)
        for name, value in known.items():
            array = np.asarray(value.values, onnx.helper.tensor_dtype_to_np_dtype(types[name])).reshape(value.shape)
            graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        return model

    def inputs(self, model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray]:
        from ...compiler.frontend import import_model
        from ...compiler.frontend.typical import at_typical
        from ...compiler.sample import random_inputs

        imported = import_model(self.file, self.given, True, self.fixed, self.typical)
        return random_inputs(at_typical(imported.inputs, imported.symbols), model, seed)
