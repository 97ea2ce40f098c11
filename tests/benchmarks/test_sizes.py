"""One library at several sizes beside builds for each: figures come from runs that agree, and ratios from figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from halotile.benchmarks.bench import Settings
from halotile.benchmarks.sizes import FIXED, SizeFigures, measure_sizes, table
from onnx import TensorProto, helper, numpy_helper


def product() -> onnx.ModelProto:
    weights = np.random.default_rng(0).standard_normal((12, 7)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 7])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_points_have_figures_of_both_builds(tmp_path: Path) -> None:
    onnx.save(product(), tmp_path / "m.onnx")
    settings = Settings((), (1,), (), seconds=0.0, burst=0.01, pause=0.0, rounds=1)
    said: list[str] = []
    points = measure_sizes(tmp_path / "m.onnx", [{"batch": 5}, {"batch": 33}], {}, settings, said.append)
    assert [p.sizes for p in points] == [{"batch": 5}, {"batch": 33}] and len(said) == 5
    for point in points:
        assert not point.errors
        assert point.seconds.keys() == point.library.keys() == {"halotile", FIXED} and point.first["halotile"] > 0
    text = table(points, ())
    assert "| 1 | batch 33 | " in text and "halotile (fixed) / ours: " in text and "of 2 points" in text


def test_what_has_no_figure_is_told() -> None:
    good = SizeFigures({"n": 1}, 2, {"halotile": 0.002, FIXED: 0.001, "peer": 0.005}, arena={"halotile": 96, FIXED: 64})
    bad = SizeFigures({"n": 2}, 2, {"halotile": 0.002}, arena={"halotile": 96}, errors={"peer": "it differs"})
    text = table([good, bad], ["peer"])
    assert "| 2 | n 1 | 2.000 | 0.500 | 2.500 | 1.500 |  |  |" in text
    assert "peer / ours: 2.500 in geometric mean, 2.500 to 2.500, of 1 points" in text
    assert text.endswith("- n 2, 2 threads: peer: it differs\n")
