"""ncnn: what pnnx makes of the ONNX file, float32 pinned unless its own precision is asked for (float16 where the
processor has it); inputs are bound once, an extractor is made for each run, as its users do."""

from __future__ import annotations

import os
import subprocess
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ncnn
import numpy as np

if TYPE_CHECKING:
    from ...targets.plain import Json


class NcnnEngine:
    def __init__(self, model: str, threads: int, options: Json) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="halotile-ncnn-")
        stem = _converted(Path(model), Path(self.folder.name))
        own = options.get("precision", "float32") != "float32"
        self.net = ncnn.Net()
        settings = self.net.opt
        settings.num_threads = threads
        if not own:
            settings.use_fp16_packed = settings.use_fp16_storage = settings.use_fp16_arithmetic = False
            settings.use_bf16_storage = False
        os.environ["OMP_NUM_THREADS"] = str(threads)
        if self.net.load_param(f"{stem}.param") or self.net.load_model(f"{stem}.bin"):
            raise RuntimeError("ncnn can't load what pnnx made of the model")
        self.shapes: dict[str, list[int]] = options.get("outputs", {})
        self.info = {"version": metadata.version("ncnn"), "precision": "own" if own else "f32"}

    def bind(self, inputs: dict[str, np.ndarray]) -> None:
        self.inputs = [_mat(array) for array in inputs.values()]  # pnnx numbers them in their order

    def call(self, inputs: dict[str, np.ndarray]) -> None:
        self._infer([_mat(array) for array in inputs.values()])

    def run(self) -> None:
        self.found = self._infer(self.inputs)

    def outputs(self) -> dict[str, np.ndarray]:
        pairs = zip(self.shapes.items(), self.found)
        return {name: np.array(mat.numpy(), np.float32).reshape(shape) for (name, shape), mat in pairs}

    def _infer(self, inputs: list[object]) -> list[Any]:
        with self.net.create_extractor() as extractor:
            for i, mat in enumerate(inputs):
                extractor.input(f"in{i}", mat)
            found = [extractor.extract(f"out{i}") for i in range(len(self.shapes))]
        if any(code for code, _ in found):
            raise RuntimeError("ncnn stopped in the middle of the network")
        return [mat for _, mat in found]


def _converted(model: Path, folder: Path) -> Path:
    """The path, without its endings, of the network that pnnx writes: one of float32 weights."""
    package = util.find_spec("pnnx")  # its module needs PyTorch, its program does not
    assert package is not None and package.origin is not None
    program = Path(package.origin).with_name("pnnx")
    program.chmod(0o755)
    copy = folder / "net.onnx"
    copy.symlink_to(model.resolve())
    command = [str(program), str(copy), "fp16=0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    if not (folder / "net.ncnn.param").exists():
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing"]
        raise RuntimeError(f"pnnx can't convert the model: {last[0][:200]}")
    return folder / "net.ncnn"


def _mat(array: np.ndarray) -> Any:
    held = np.ascontiguousarray(array.astype(np.int32) if array.dtype == np.int64 else array)
    return ncnn.Mat(held, batch_index=0).clone()


Engine = NcnnEngine
