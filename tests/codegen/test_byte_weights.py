"""Weights stored as bytes with a scale for each output channel: a quarter of the bytes, never more, error stated."""

from __future__ import annotations

import json
from pathlib import Path

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from halotile.errors import HalotileError
from halotile.schedules.math.scaled_integers import nearest_numbers
from halotile.schedules.math.stored_weights import in_bytes
from onnx import TensorProto, helper, numpy_helper
from weight_models import chain, few, network, planned, sample, seven, transposed, wide


def rounded(model: onnx.ModelProto, axes: dict[str, int]) -> onnx.ModelProto:
    """``model`` with the weights that are named in 255 steps of each channel, along their axis."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    for tensor in whole.graph.initializer:
        if tensor.name in axes:
            w = numpy_helper.to_array(tensor).astype(np.float64)
            others = tuple(i for i in range(w.ndim) if i != axes[tensor.name])
            step = np.abs(w).max(others, keepdims=True) / 127
            tensor.CopyFrom(numpy_helper.from_array((np.rint(w / step) * step).astype(np.float32), tensor.name))
    return whole


def of_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)


def compare(model: onnx.ModelProto, axes: dict[str, int], feeds: dict[str, np.ndarray], **options) -> halotile.Model:
    """A build in bytes, whose outputs are those of ONNX Runtime for the rounded weights."""
    made = halotile.compile(model, weights="int8", **options)
    wanted = of_onnxruntime(rounded(model, axes), feeds)
    for found, y in zip(made(feeds).values(), wanted):
        assert np.abs(found - y).max() <= 1e-5 * np.abs(y).max()
    return made


def test_the_result_is_that_of_rounded_weights() -> None:
    """Of convolutions, a product, and not of the depthwise one, whose weights are too few to be stored so."""
    made = compare(network(), {"w": 0, "p": 0, "m": 1}, sample())
    told = made.report["stored_weights"]
    assert (told["as"], told["arrays"], told["of"]) == ("int8", 3, 4)
    assert told["bytes"] == made.report["weight_bytes"] < 0.4 * told["bytes_in_float32"]
    assert 1 / 300 < told["largest_rounding"] <= 1 / 253.9
    note = made.report["notes"]["assemble"][0]
    assert note.startswith("3 of 4 packed arrays of weights are stored as int8")
    assert str(told["bytes_in_float32"]) in note
    check = made.verify(sample())
    assert check.ok and check.rtol == 0.1 and check.max_error > 1e-4, "rounding shows"


@pytest.mark.parametrize("groups", [1, 3])
def test_transposed_convolutions_have_a_scale_for_each_output_channel(groups: int) -> None:
    rng = np.random.default_rng(2)
    weight = (rng.standard_normal((15, 39 // groups, 4, 3)) * np.linspace(0.1, 9, 39 // groups)[:, None, None]) / 30
    x = rng.standard_normal((2, 15, 7, 9), np.float32)
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 1], pads=[1, 1, 0, 1], group=groups)], "back",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight.astype(np.float32), "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    whole = onnx.shape_inference.infer_shapes(model)
    made = halotile.compile(whole, weights="int8")
    steps = np.abs(weight.reshape(groups, 15 // groups, 39 // groups, 4, 3)).max((1, 3, 4)) / 127
    steps = np.repeat(steps[:, None], 15 // groups, 1).reshape(15, 39 // groups, 1, 1)
    whole.graph.initializer[0].CopyFrom(
        numpy_helper.from_array((np.rint(weight.astype(np.float32) / steps) * steps).astype(np.float32), "w")
    )
    (y,) = of_onnxruntime(whole, {"x": x})
    assert np.abs(made(x) - y).max() <= 1e-5 * np.abs(y).max()


def recurrent() -> onnx.ModelProto:
    """A table of 70 rows, an LSTM of both directions behind it, and a product."""
    rng = np.random.default_rng(3)
    shapes = {"table": (70, 24), "w": (2, 4 * 20, 24), "r": (2, 4 * 20, 20), "b": (2, 8 * 20), "m": (20, 53)}
    arrays = [numpy_helper.from_array((rng.standard_normal(s) / 4).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("LSTM", ["e", "w", "r", "b"], ["s"], hidden_size=20, direction="bidirectional"),
        helper.make_node("MatMul", ["s", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "recurrent", [helper.make_tensor_value_info("ids", TensorProto.INT64, [11, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [11, 2, 2, 53])], arrays,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_tables_and_recurrent_layers_are_stored_so_as_well() -> None:
    model, ids = recurrent(), np.random.default_rng(1).integers(0, 70, (11, 2))
    made, whole = (halotile.compile(model, weights=kind) for kind in ("int8", "float32"))
    assert made.report["weight_bytes"] < 0.35 * whole.report["weight_bytes"]
    told = made.report["stored_weights"]
    assert abs(told["bytes_in_float32"] - whole.report["weight_bytes"]) < 0.1 * whole.report["weight_bytes"]
    (y,) = of_onnxruntime(model, {"ids": ids})
    found = made({"ids": ids})["y"]
    assert 1e-6 < np.abs(found - y).max() / np.abs(y).max() < 0.02


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "raspberry-pi-4", "x86_64-linux-gnu+sapphirerapids"])
@pytest.mark.parametrize("net", [network, wide, seven, transposed, few, chain])
def test_they_never_take_more_bytes(net, target: str) -> None:
    """On targets whose float32 builds take multiply-adds, Winograd's transforms or a matrix unit."""
    small, whole = (planned(net(), target, w)["weight_bytes"] for w in ("int8", "float32"))
    assert small <= whole if net is few else small < 0.45 * whole


def test_weights_that_are_steps_already_are_not_rounded() -> None:
    """Bit for bit: of a model whose weights came from bytes; infinite ones stay."""
    rng = np.random.default_rng(5)
    steps = rng.integers(-127, 128, (40, 60)).astype(np.float32)
    steps[:, 0] = 127
    scales = np.exp(rng.uniform(-9, 3, 40)).astype(np.float32)
    found = nearest_numbers(steps * scales[:, None])
    assert found is not None and found.off == 0 and (found.numbers == steps).all()
    plain = rng.standard_normal((40, 60)).astype(np.float32)
    near = nearest_numbers(plain)
    assert near is not None and 0 < near.off <= 1 / 253.9
    off = np.abs(near.numbers * near.spread(40)[:, None].astype(np.float64) - plain).max(1)
    assert (off <= np.abs(plain).max(1) / 253.9).all()
    plain[3, 3] = np.inf
    assert nearest_numbers(plain) is None and nearest_numbers(plain[:2, :9]) is None
    assert nearest_numbers(np.zeros((40, 60), np.float32)).off == 0
    assert nearest_numbers(np.full((40, 60), 1e-40, np.float32)) is None


def test_arrays_of_other_numbers_stay() -> None:
    whole = np.arange(-128, 1920, dtype=np.float32) % 128
    assert in_bytes(whole).dtype == np.int8 and in_bytes(whole * 2).dtype == np.uint8
    for other in (whole[:99], whole + 0.5, whole * 3, whole - 200, whole.astype(np.float64)):
        assert in_bytes(other) is None


def test_tiles_and_open_sizes_read_them_too() -> None:
    budget = planned(chain(), "native", "float32", tile="off")["planned_bytes"] // 2
    tiled = halotile.compile(chain(), weights="int8", memory_budget=budget)
    assert any("tiled" in k["schedule"] for k in tiled.report["kernels"]) and tiled.verify().ok
    x = np.random.default_rng(6).standard_normal((2, 3, 33, 41), np.float32)
    model = chain()
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in ((0, "n"), (2, "h"), (3, "w")):
            value.type.tensor_type.shape.dim[axis].dim_param = name
    made = halotile.compile(model, weights="int8")
    assert made.report["stored_weights"]["arrays"] >= 2
    (y,) = of_onnxruntime(rounded(model, {"w1": 0, "w2": 0}), {"x": x})  # w0 has fewer elements than pay
    assert np.abs(made(x) - y).max() <= 1e-5 * np.abs(y).max()


def test_the_command_line_says_how_many_bytes(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    done = command("build", "net.onnx", "-o", "out", "--weights", "int8", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [row for row in (done.stdout + done.stderr).splitlines() if "stored as int8" in row]
    assert "bytes of weights in place of" in line and "of its channel's largest" in line
    assert json.loads((tmp_path / "out/manifest.json").read_text())["options"]["weights"] == "int8"
    again = command("build", "--from", "out", "-o", "again", "-q", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out/manifest.json").read_bytes() == (tmp_path / "again/manifest.json").read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"exact": True}, "int8 weights are rounded, which exact forbids"),
        ({"precision": "float16"}, "widened to float32, and precision float16"),
        ({"precision": "auto"}, "widened to float32, and precision auto"),
    ],
)
def test_what_can_not_be_is_refused(options, words: str) -> None:
    with pytest.raises(HalotileError, match=words):
        halotile.compile(network(), weights="int8", **options)


def test_no_transform_and_no_parts_are_chosen() -> None:
    """Though float32 takes them there."""
    for target in ("raspberry-pi-4", "x86_64-linux-gnu+sapphirerapids"):
        reports = [
            planned(wide(), target, w, tile="off")
            for w in ("float32", "int8")
        ]
        told = [" ".join(k["schedule"] for k in r["kernels"]) for r in reports]
        assert any(w in told[0] for w in ("winograd", "matrix unit", "products")), told[0]
        assert not any(w in told[1] for w in ("winograd", "matrix unit", "products")), told[1]
