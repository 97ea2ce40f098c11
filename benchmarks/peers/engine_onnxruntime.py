"""ONNX Runtime: all graph optimisations, one session of ``threads`` threads, inputs and outputs bound once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import onnxruntime

if TYPE_CHECKING:
    from ...targets.plain import Json


class OnnxRuntimeEngine:
    def __init__(self, model: str, threads: int, options: Json) -> None:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.inter_op_num_threads = 1
        settings.log_severity_level = 3
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        self.session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.info = {"version": onnxruntime.__version__, "precision": "f32"}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        self.inputs = {
            name: np.ascontiguousarray(array) for name, array in inputs.items()
        }  # bindings only borrow
        for name, array in self.inputs.items():
            self.binding.bind_cpu_input(name, array)
        for output in self.session.get_outputs():
            self.binding.bind_output(output.name, "cpu")
        # With the outputs' shapes known from a first run, later ones write into the same memory.
        self.session.run_with_iobinding(self.binding)
        values = self.binding.get_outputs()
        self.binding.clear_binding_outputs()
        for output, value in zip(self.session.get_outputs(), values):
            self.binding.bind_ortvalue_output(output.name, value)

    def call(self, inputs: dict[str, np.ndarray]) -> None:
        self.session.run(None, inputs)

    def run(self) -> None:
        self.session.run_with_iobinding(self.binding)

    def outputs(self) -> dict[str, np.ndarray]:
        values = self.binding.get_outputs()
        return {o.name: v.numpy() for o, v in zip(self.session.get_outputs(), values)}


Engine = OnnxRuntimeEngine
