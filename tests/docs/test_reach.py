"""The examples of docs/reach.md run as they stand, and say what their comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reach.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)


def upscaler() -> onnx.ModelProto:
    """Twice the size: three layers and a shuffle."""
    random = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for name, (inputs, outputs, kernel) in {"first": (3, 8, 5), "middle": (8, 8, 3), "last": (8, 12, 3)}.items():
        w = random.normal(0, 1 / np.sqrt(inputs * kernel**2), (outputs, inputs, kernel, kernel)).astype(np.float32)
        weights.append(numpy_helper.from_array(w, f"{name}.w"))
        nodes.append(helper.make_node("Conv", [x, f"{name}.w"], [name], name=name, pads=[kernel // 2] * 4))
        nodes.append(helper.make_node("Relu", [name], [x := f"{name}.relu"]))
    nodes[-1] = helper.make_node("DepthToSpace", ["last"], ["y"], blocksize=2, mode="CRD")
    graph = helper.make_graph(
        nodes, "upscaler",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def said(example: str) -> list[str]:
    """What the comments behind prints promise."""
    found = re.findall(r"^print\(.*?\) +# (.*)$", example, re.M)
    return [text.rpartition(": ")[2] if text.startswith("ends") else text.partition(": ")[0] for text in found]


def run(code: str, folder: Path) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reach")
    onnx.save(upscaler(), str(folder / "upscaler.onnx"))
    return folder


def test_the_example(folder: Path) -> None:
    stride, numbers, depth = run(EXAMPLES[0], folder)
    assert stride == said(EXAMPLES[0])[0] and depth == said(EXAMPLES[0])[2] == "(4, 4)"
    assert numbers == "(496, 554)" and "x's rows 496 to 553" in said(EXAMPLES[0])[1]


def test_the_example_with_dask(folder: Path) -> None:
    pytest.importorskip("dask.array", reason="dask is not installed: pip install 'dask[array]'")
    assert run("\n".join(EXAMPLES), folder)[-1] == said(EXAMPLES[1])[0]


def test_the_table(folder: Path) -> None:
    command = [sys.executable, "-m", "halotile.compiler.cli", "inspect", "upscaler.onnx", "--reach"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    table = "\n".join(f"    {line}" if line else "" for line in done.stdout.rstrip().splitlines())
    assert table in PAGE, table
