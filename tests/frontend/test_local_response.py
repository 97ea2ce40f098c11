"""LRN takes square roots where its exponent is one of them and no base is below zero, and the power elsewhere."""

from __future__ import annotations

from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.frontend import import_model
from onnx import TensorProto, helper

SHAPE, SIZE = (2, 7, 5, 3), 3


def lrn(**attributes: float) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("LRN", ["x"], ["y"], size=SIZE, **attributes)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, SHAPE)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "alpha, beta, bias, power",
    [(0.3, 0.75, 1.0, 0), (0.3, 0.5, 2.0, 0), (0.3, 0.6, 1.0, 1), (-0.01, 0.75, 40.0, 1)],
)
def test_exponents(tmp_path: Path, alpha: float, beta: float, bias: float, power: int) -> None:
    model = lrn(alpha=alpha, beta=beta, bias=bias)
    assert str(import_model(model)).count("R.power(") == power
    x = (np.random.default_rng(1).standard_normal(SHAPE) * 3).astype(np.float32)
    x[0, 0, 0, 0], x[1, 6, 4, 2] = np.nan, np.inf
    path = tmp_path / "lrn.onnx"
    onnx.save(model, str(path))
    got = halotile.compile(str(path))({"x": x})
    got = np.asarray(next(iter(got.values())) if isinstance(got, dict) else got[0])
    wide = np.pad(x.astype(np.float64) ** 2, ((0, 0), (SIZE // 2, SIZE // 2), (0, 0), (0, 0)))
    total = sum(wide[:, i : i + SHAPE[1]] for i in range(SIZE))
    with np.errstate(invalid="ignore"):
        wanted = x / (bias + alpha / SIZE * total) ** beta
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)
