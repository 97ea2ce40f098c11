"""Without a budget, open images are tiled where large ones gain by it: the same numbers, and far smaller arenas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.tile.open import tile
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

NAMED = "x86-64-v3"
CLOSE = 3e-5  # of the largest number of an output: sums in other orders, and Winograd's


def _upscaler(channels: int, batch: str | int = 1) -> onnx.ModelProto:
    """Convolutions to ``channels``, and pixels in place of channels, for images of h by w."""
    rng = np.random.default_rng(11)
    nodes, weights, x, inputs = [], [], "x", 3
    for i, (outputs, side) in enumerate(((channels, 5), (channels, 3), (channels, 3), (12, 3))):
        weight = rng.standard_normal((outputs, inputs, side, side)) / np.sqrt(inputs * side * side)
        weights.append(numpy_helper.from_array(weight.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], pads=[side // 2] * 4))
        nodes.append(helper.make_node("Relu" if i < 3 else "Identity", [f"c{i}"], [f"t{i}"]))
        x, inputs = f"t{i}", outputs
    nodes.append(helper.make_node("DepthToSpace", [x], ["y"], blocksize=2, mode="CRD"))
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, 3, "h", "w"))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (batch, 3, None, None))
    graph = helper.make_graph(nodes, "upscaler", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _compiled(model: onnx.ModelProto, folder: Path, **options: Any) -> halotile.Model:
    """Of a processor whose memory is slow, so that large images gain by tiles."""
    target = replace(resolve(NAMED), far_bytes=2)
    run_pipeline(model, Options(target, **{"threads": 1, **options}), output=folder)
    return halotile.load(folder)


def _groups(library: halotile.Model) -> list[str]:
    return [k["schedule"] for k in library.report["kernels"] if k["schedule"].startswith("open tiles")]


@pytest.mark.parametrize("batch", [1, "n"])
def test_open_images_are_tiled_where_large_ones_gain(batch: str | int, tmp_path: Path) -> None:
    model = _upscaler(48, batch)
    library, whole = (_compiled(model, tmp_path / how, tile=how) for how in ("auto", "off"))
    assert _groups(library) and not _groups(whole)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    sizes = ((1, 1), (7, 5), (31, 33), (72, 224), (127, 241), (448, 450))
    for number, (h, w) in enumerate(sizes):
        count = 1 if batch == 1 else 1 + number % 2
        x = np.random.default_rng(number).standard_normal((count, 3, h, w)).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        got = library({"x": x})["y"]
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= CLOSE * np.abs(want).max(), (h, w)
    large = {"h": 1024, "w": 1024} | ({} if batch == 1 else {"n": 2})
    assert library.arena_bytes(1, shape=large) < 0.7 * whole.arena_bytes(1, shape=large)


def test_what_gains_little_is_computed_whole() -> None:
    """At sizes that all caches hold."""
    small = {"h": "1..24", "w": "1..24"}
    library = halotile.compile(_upscaler(8), NAMED, threads=1, shapes=small)
    assert not _groups(library)
    assert library.report["notes"]["tile"] == [tile.WHOLE]


def test_what_is_searched_at_are_images_of_twice_the_size() -> None:
    symbols = tile.TYPICAL.set({"n": 1, "h": 224, "w": 224})
    try:
        assert tile._doubled({"h", "w"}, {"n": None, "h": None, "w": 300}) == {"n": 1, "h": 448, "w": 300}
    finally:
        tile.TYPICAL.reset(symbols)


def test_sizes_that_no_run_may_have_are_not_searched_at(tmp_path: Path) -> None:
    """Of h by w, 1 or as many pixels as a table has: both doubled would be four times as many."""
    model = _upscaler(48)
    table = np.ones((1, 3, 448 * 448), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(table, "table"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 3, -1]), "rows"))
    model.graph.node.append(helper.make_node("Reshape", ["x", "rows"], ["flat"]))
    model.graph.node.append(helper.make_node("Add", ["flat", "table"], ["z"]))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, (1, 3, None)))
    library = _compiled(model, tmp_path / "out", typical={"h": 448, "w": 448})
    assert library.report["notes"]["tile"] == [tile.WHOLE]
