"""OpenVINO: f32 pinned (newer processors would run bf16) unless its ``own`` precision is asked for, one stream of
``threads`` threads, tensors bound once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino

if TYPE_CHECKING:
    from ...targets.plain import Json


class OpenVinoEngine:
    def __init__(self, model: str, threads: int, options: Json) -> None:
        core = openvino.Core()
        own = options.get("precision", "float32") != "float32"
        settings = {
            **({} if own else {"INFERENCE_PRECISION_HINT": "f32"}),
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        self.names = [_name(port) for port in core.read_model(model).outputs]
        self.compiled = core.compile_model(model, "CPU", settings)
        precision = str(self.compiled.get_property("INFERENCE_PRECISION_HINT"))
        plain = "f32" in precision or "float32" in precision
        if not own and not plain:
            raise RuntimeError(f"OpenVINO would run at {precision} although f32 was asked for")
        self.request = self.compiled.create_infer_request()
        self.caller = self.compiled.create_infer_request()  # whose tensors are its own, and grow
        found = "f32" if plain else "bf16" if "bf" in precision else precision
        self.info = {"version": openvino.__version__.split("-")[0], "precision": found}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        self.inputs = {
            name: np.ascontiguousarray(array) for name, array in inputs.items()
        }  # tensors only borrow
        for name, array in self.inputs.items():
            port = next(p for p in self.compiled.inputs if name in p.get_names())
            self.request.set_tensor(port, openvino.Tensor(array, shared_memory=True))

    def call(self, inputs: dict[str, np.ndarray]) -> None:
        self.caller.infer(inputs)

    def run(self) -> None:
        self.request.infer()

    def outputs(self) -> dict[str, np.ndarray]:
        return {n: self.request.get_tensor(p).data.copy() for n, p in zip(self.names, self.compiled.outputs)}


def _name(port: Any) -> str:
    return str(next(iter(port.get_names())))


Engine = OpenVinoEngine
