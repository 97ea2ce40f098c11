"""MNN: what its converter makes of the ONNX file; precision ``high`` (float32) unless its own is asked for (``normal``,
its default); inputs are bound once."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import MNN
import numpy as np

if TYPE_CHECKING:
    from ...targets.plain import Json

KINDS = {"float32": MNN.Halide_Type_Float, "int32": MNN.Halide_Type_Int}
PLAIN = MNN.Tensor_DimensionType_Caffe


class MnnEngine:
    def __init__(self, model: str, threads: int, options: Json) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="halotile-mnn-")
        own = options.get("precision", "float32") != "float32"
        settings = {"backend": "CPU", "numThread": threads, "precision": "normal" if own else "high"}
        self.interpreter = MNN.Interpreter(str(_converted(Path(model), Path(self.folder.name))))
        self.session = self.interpreter.createSession({**settings, "memory": "normal", "power": "normal"})
        self.shapes: dict[str, list[int]] = options.get("outputs", {})
        self.info = {"version": metadata.version("MNN"), "precision": "own" if own else "f32"}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        shapes = {name: tuple(array.shape) for name, array in inputs.items()}
        for name, shape in shapes.items():
            self.interpreter.resizeTensor(self.interpreter.getSessionInput(self.session, name), shape)
        self.interpreter.resizeSession(self.session)
        self._copy_in(inputs)

    def call(self, inputs: dict[str, np.ndarray]) -> None:
        self._copy_in(inputs)
        self.interpreter.runSession(self.session)
        self.outputs()

    def run(self) -> None:
        self.interpreter.runSession(self.session)

    def outputs(self) -> dict[str, np.ndarray]:
        return {name: self._copied_out(name, shape) for name, shape in self.shapes.items()}

    def _copy_in(self, inputs: dict[str, np.ndarray]) -> None:
        for name, array in inputs.items():
            held = np.ascontiguousarray(array.astype(np.int32) if array.dtype == np.int64 else array)
            tensor = MNN.Tensor(held.shape, KINDS[str(held.dtype)], held, PLAIN)
            self.interpreter.getSessionInput(self.session, name).copyFrom(tensor)

    def _copied_out(self, name: str, shape: list[int]) -> np.ndarray:
        tensor = self.interpreter.getSessionOutput(self.session, name)
        host = MNN.Tensor(tensor.getShape(), MNN.Halide_Type_Float, np.zeros(shape, np.float32), PLAIN)
        tensor.copyToHostTensor(host)
        return np.array(host.getData(), np.float32).reshape(shape)


def _converted(model: Path, folder: Path) -> Path:
    """The model as MNN reads it."""
    made = folder / "model.mnn"
    converter = str(Path(sys.executable).with_name("mnnconvert"))
    words = ["-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(made), "--bizCode", "halotile"]
    done = subprocess.run([converter, *words], capture_output=True, text=True, errors="replace", check=False)
    if not made.exists():
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise RuntimeError(f"MNN's converter can't read the model: {last[0][:200]}")
    return made


Engine = MnnEngine
