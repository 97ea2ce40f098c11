"""A convolution's result takes over the memory of the residual that it adds, and only where nothing is read again."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnxruntime
import pytest
from compiled import Compiled, native
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Build, Options
from halotile.schedules.words.group import Kernel
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 48  # whole vectors on every machine


def model(kind: str, height: int, width: int, kernel: int) -> Any:
    """A stem, then a block whose last convolution adds what the stem made (or does something else: ``kind``), between
    convolutions of the same size, so that both lie in memory alike."""
    random = np.random.default_rng(height * 100 + width + kernel)
    tensors, nodes = [], []

    def conv(source: str, result: str, size: int, before: str = "") -> None:
        weight = random.standard_normal((CHANNELS, CHANNELS, size, size)) / np.sqrt(CHANNELS * size * size)
        for name, array in ((f"w_{result}", weight), (f"b_{result}", random.standard_normal(CHANNELS))):
            tensors.append(numpy_helper.from_array(array.astype(np.float32), name))
        made = f"{result}_sum" if before else result
        nodes.append(helper.make_node("Conv", [source, f"w_{result}", f"b_{result}"], [made], pads=[size // 2] * 4))
        if before:
            nodes.append(helper.make_node("Add", [made, before], [f"{result}_added"]))
            nodes.append(helper.make_node("Relu", [f"{result}_added"], [result]))

    conv("x", "stem", 1)
    nodes.append(helper.make_node("Relu", ["stem"], ["skip"]))
    conv("skip", "middle", kernel)
    nodes.append(helper.make_node("Relu", ["middle"], ["inner"]))
    conv("skip" if kind == "own input" else "inner", "block", kernel, "skip")
    conv("block", "last", kernel)
    if kind == "read later":
        nodes.append(helper.make_node("Add", ["last", "skip"], ["y"]))
    else:
        nodes.append(helper.make_node("Relu", ["last"], ["y"]))
    shape = [1, CHANNELS, height, width]
    names = [("x", "x"), ("y", "y")]
    ends = [[helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)] for n, _ in names]
    graph = helper.make_graph(nodes, "residual", ends[0], ends[1], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def built(model: Any, winograd: bool) -> Build:
    return run_pipeline(model, Options(native(), threads=3, tile="off", winograd=winograd, stop_after="plan"))


def check(model: Any, build: Build) -> None:
    """Equal to ONNX Runtime, with a poisoned arena and tasks in reverse."""
    x = np.random.default_rng(1).standard_normal(build.graph.inputs[0].shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    (got,) = Compiled(build).run([x])
    assert float(np.abs(got - wanted).max()) <= 1e-4 * float(np.abs(wanted).max())


def block_of(build: Build) -> Kernel:
    """The first convolution that reads two values which others made."""
    made = {v for k in build.kernels for v in k.outputs}
    convs = [k for k in build.kernels if "conv" in k.schedule or "winograd" in k.schedule]
    return next(k for k in convs if len(made & set(k.operands)) == 3)


def overwrites(build: Build) -> bool:
    assert build.memory is not None
    return block_of(build).outputs[0] in {a for a, _ in build.memory.inplace}


@pytest.mark.parametrize("height, width, kernel", [(24, 48, 3), (17, 23, 3)])
def test_the_residual_is_overwritten(height: int, width: int, kernel: int) -> None:
    """Winograd's stores each output once whatever the size."""
    found = model("block", height, width, kernel)
    build = built(found, winograd=True)
    assert overwrites(build), [k.schedule for k in build.kernels]
    assert build.memory is not None
    assert block_of(build).outputs[0].name not in {b.name for b in build.memory.buffers}
    check(found, build)


@pytest.mark.parametrize("kind", ["own input", "read later"])
def test_what_is_read_again_stays(kind: str) -> None:
    found = model(kind, 28, 28, 3 if kind == "own input" else 1)
    build = built(found, winograd=True)
    if kind == "own input":
        made = {v for k in build.kernels for v in k.outputs}
        assert all(len(made & set(k.operands)) < 3 for k in build.kernels if "conv" in k.schedule)
        assert build.memory is not None and build.memory.inplace == ()
    else:
        assert not overwrites(build)
    check(found, build)


@pytest.mark.parametrize("height, width", [(13, 19), (29, 31), (28, 28), (24, 24), (5, 7), (9, 65), (8, 127)])
def test_tiles_that_move_back_compute_twice(height: int, width: int) -> None:
    """A direct convolution overwrites exactly where its register tile divides the image, or what it leaves over has a
    tile of its own."""
    found = model("block", height, width, 1)
    build = built(found, winograd=False)
    block = block_of(build)
    tiles = [(int(rows), int(columns)) for rows, columns in re.findall(r"(\d+)x(\d+)x\d+", block.schedule)]
    rows, columns = height % block.least[0], width % block.least[1]
    assert overwrites(build) == (rows in {0, *(t[0] for t in tiles)} and columns in {0, *(t[1] for t in tiles)})
    check(found, build)
