"""Arenas of compiled models with open dimensions: exact at every size, whatever was in them, and no memory grows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import LoadedModel, load
from halotile.compiler.sized import inputs_at
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper

from ..support import flat_runs
from ..support.open_runs import run_in


def weight(name: str, *shape: int):
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 4, name)


def built(folder: Path, nodes: list, inputs: dict, output: tuple | None, weights: list) -> LoadedModel:
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, output)
    graph = helper.make_graph(nodes, "g", sides, [y], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = Options(resolve("native"), threads=2, open=True, formats=("so",))
    run_pipeline(proto.SerializeToString(), options, output=folder)
    return load(folder)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Convolutions of images of any size, a residual, and a stride."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]), node("Add", ["b", "c"], ["d"]),
        node("Conv", ["d", "w3"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    weights = [weight("w1", 16, 3, 3, 3), weight("w2", 16, 16, 3, 3), weight("w3", 24, 16, 3, 3)]
    shape = {"x": ["n", 3, "h", "w"]}
    with built(tmp_path_factory.mktemp("images") / "out", nodes, shape, None, weights) as model:
        yield model


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Products of any number of rows, with a normalisation and a softmax over them."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "a"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "b"], ["s"]),
        node("Add", ["x", "s"], ["t"]), node("Softmax", ["t"], ["y"], axis=-1),
    ]  # fmt: skip
    weights = [weight("a", 24, 96), weight("b", 96, 24)]
    shape = {"x": ["batch", "length", 24]}
    with built(tmp_path_factory.mktemp("rows") / "out", nodes, shape, ("batch", "length", 24), weights) as model:
        yield model


@pytest.fixture(scope="module")
def rounds(tmp_path_factory):
    """A loop over time of any length, whose state lies in two versions, and which keeps rows from the end."""
    node, info = helper.make_node, helper.make_tensor_value_info
    shapes = {name: info(name, TensorProto.FLOAT, ["batch", 24]) for name in ("h", "xt", "next", "row")}
    cell = [
        node("MatMul", ["h", "u"], ["hu"]), node("Add", ["hu", "xt"], ["sum"]), node("Tanh", ["sum"], ["next"]),
        node("Mul", ["next", "xt"], ["row"]),
    ]  # fmt: skip
    body = helper.make_graph(cell, "cell", [shapes["h"], shapes["xt"]], [shapes["next"], shapes["row"]])
    nodes = [
        node("ReduceMax", ["x"], ["h0"], axes=[0], keepdims=0), node("MatMul", ["x", "w"], ["xw"]),
        node("Scan", ["h0", "xw"], ["last", "y"], body=body, num_scan_inputs=1, scan_output_directions=[1]),
    ]  # fmt: skip
    weights = [weight("w", 24, 24), weight("u", 24, 24)]
    shape = {"x": ["length", "batch", 24]}
    with built(tmp_path_factory.mktemp("rounds") / "out", nodes, shape, ("length", "batch", 24), weights) as model:
        yield model


SIZES = {
    "rounds": [(1, 1), (2, 5), (7, 3), (16, 2), (31, 5), (127, 1)],
    "images": [(1, 1, 1), (1, 2, 7), (2, 8, 8), (1, 31, 17), (3, 13, 64), (1, 57, 3), (1, 96, 80)],
    "rows": [(1, 1), (1, 5), (3, 7), (2, 16), (5, 31), (1, 127), (7, 64)],
}
CASES = [(kind, sizes) for kind, each in SIZES.items() for sizes in each]


def inputs_of(model: LoadedModel, sizes: dict[str, int]) -> np.ndarray:
    (spec,) = inputs_at(model, sizes)
    return np.random.default_rng(list(sizes.values())).standard_normal(spec.shape).astype(np.float32)


@pytest.mark.parametrize(("kind", "numbers"), CASES)
def test_arenas_are_the_formula_and_their_contents_never_matter(kind, numbers, request):
    model = request.getfixturevalue(kind)
    sizes = dict(zip((s.name for s in model.symbols), numbers, strict=True))
    x = inputs_of(model, sizes)
    expected = model({"x": x}, threads=1)["y"]
    assert np.isfinite(expected).all() and np.ptp(expected) > 0
    for threads, poison in [(1, 0xFF), (2, 0x00), (3, 0x7F)]:
        assert np.array_equal(run_in(model, sizes, x, threads, poison), expected), threads


@pytest.mark.parametrize("kind", ["images", "rows", "rounds"])
def test_memory_is_flat_over_many_sizes(kind, request):
    model = request.getfixturevalue(kind)
    most = np.max(SIZES[kind], axis=0)
    command = [sys.executable, flat_runs.__file__, str(Path(model.path).parent), *map(str, most)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2 << 20
