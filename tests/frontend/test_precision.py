"""float16 and bfloat16 models: computed in float32, rounded where the chain ends, seen rounded where results jump."""

from __future__ import annotations

import re

import halotile
import numpy as np
import onnx
import pytest
from evaluate import evaluate
from halotile.compiler.frontend import import_model
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(2)
HALF = TensorProto.FLOAT16


def model(
    nodes: list[onnx.NodeProto], outputs: dict[str, int], shape: list[int], **constants: np.ndarray
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", HALF, shape)],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def roundings(built: onnx.ModelProto) -> int:
    """How often the imported program rounds to float16."""
    return len(re.findall(r'astype\([^)]*"float16"', str(import_model(built).module)))


def test_a_network_rounds_once_and_is_as_near_as_its_output_type_allows() -> None:
    """Three convolutions with what stands around them, against float64 on the same (rounded) numbers."""
    nodes, constants = [], {}
    last = "x"
    for i in range(3):
        constants[f"w{i}"] = (RNG.standard_normal((8, 8, 3, 3)) * 0.15).astype("float16")
        constants[f"b{i}"] = RNG.standard_normal(8).astype("float16")
        nodes += [
            helper.make_node("Conv", [last, f"w{i}", f"b{i}"], [f"c{i}"], pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"]),
            helper.make_node("Mul", [f"c{i}", f"s{i}"], [f"y{i}"]),
        ]
        last = f"y{i}"
    built = model(nodes, {last: HALF}, [1, 8, 9, 11], **constants)
    assert roundings(built) == 1
    x = RNG.standard_normal((1, 8, 9, 11)).astype("float16")
    value = x.astype("float64")
    for i in range(3):
        padded = np.pad(value, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
        value = np.einsum("nchwyx,ocyx->nohw", windows, constants[f"w{i}"].astype("float64"))
        value += constants[f"b{i}"].astype("float64")[:, None, None]
        value /= 1 + np.exp(-value)
    ours = halotile.compile(built)({"x": x})[last]
    assert ours.dtype == np.float16
    step = np.spacing(np.abs(value).astype("float16")).astype("float64")
    assert (np.abs(ours.astype("float64") - value) <= 0.51 * step).all()  # half a unit in the last place, or nearly


def test_comparisons_and_roundings_see_rounded_values() -> None:
    """2049 / 2 + 1024 is 2048.5, which float16 does not have: it is 2048, and neither larger than that nor ceiled."""
    nodes = [
        helper.make_node("Add", ["x", "big"], ["sum"]),
        helper.make_node("Greater", ["sum", "limit"], ["over"]),
        helper.make_node("Ceil", ["sum"], ["up"]),
        helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT32),
    ]
    outputs = {"over": TensorProto.BOOL, "up": HALF, "whole": TensorProto.INT32}
    big, limit = np.float16([2048]), np.float16([2048])
    results = evaluate(model(nodes, outputs, [1], big=big, limit=limit), {"x": np.float16([0.5])})
    assert not results["over"][0] and results["up"][0] == 2048 and results["whole"][0] == 2048


def test_an_explicit_cast_rounds() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Cast", ["square"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "wide"], ["y"]),
    ]
    x = RNG.standard_normal(50).astype("float16")
    ours = evaluate(model(nodes, {"y": TensorProto.FLOAT}, [50]), {"x": x})["y"]
    np.testing.assert_array_equal(ours, (x * x).astype("float32") ** 2)


def test_moves_of_a_stored_value_stay_half_wide() -> None:
    """What only moves elements of a float16 input does not pass through float32; a table of weights stays as it is."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Gather", ["table", "rows"], ["g"]),
        helper.make_node("Concat", ["t", "g"], ["y"], axis=0),
    ]
    table = RNG.standard_normal((30, 4)).astype("float16")
    built = model(nodes, {"y": HALF}, [4, 3], table=table, rows=np.int64([2, 7]))
    assert "float32" not in str(import_model(built).module)
    x = RNG.standard_normal((4, 3)).astype("float16")
    np.testing.assert_array_equal(evaluate(built, {"x": x})["y"], np.concatenate([x.T, table[[2, 7]]]))


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_statistics_keep_their_own_type(dtype: int) -> None:
    """LayerNormalization's mean is float32 for half-width operands; its Y is theirs."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    built = model(
        [helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean"])],
        {"y": dtype, "mean": TensorProto.FLOAT}, [3, 40], scale=np.ones(40, kind),
    )  # fmt: skip
    built.graph.input[0].type.tensor_type.elem_type = dtype
    x = RNG.standard_normal((3, 40)).astype(kind)
    results = evaluate(built, {"x": x})
    assert results["y"].dtype == kind and results["mean"].dtype == np.float32
    np.testing.assert_allclose(results["mean"][:, 0], x.astype("float64").mean(1), atol=1e-6)
