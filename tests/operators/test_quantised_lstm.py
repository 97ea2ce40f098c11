"""DynamicQuantizeLSTM: ONNX Runtime's dynamic quantiser on an LSTM, against ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import halotile
import numpy as np
import onnx
import pytest
from compiled import machine
from halotile.compiler.codegen.module import constant_of
from halotile.compiler.frontend import import_model
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.compiler.verify import Reference
from halotile.errors import UnsupportedError
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper


def quantised(
    folder: Path, steps: int, batch: int, width: int, hidden: int, directions: int, more: tuple[str, ...] = (),
    **options: object,
) -> onnx.ModelProto:  # fmt: skip
    """An LSTM, as the quantiser writes it; ``more``: h and c initial states, p peepholes, n lengths that differ."""
    from onnxruntime.quantization import quantize_dynamic

    rng = np.random.default_rng(4)

    def noise(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype("float32")

    known = {"w": noise(directions, 4 * hidden, width), "r": noise(directions, 4 * hidden, hidden)}
    known |= {"b": noise(directions, 8 * hidden), "n": np.arange(steps, steps - batch, -1, "int32")}
    known |= {s: noise(directions, batch, hidden) for s in "hc"} | {"p": noise(directions, 3 * hidden)}
    names = ["x", "w", "r", "b", *(letter if letter in more else "" for letter in "nhcp")]
    direction = "bidirectional" if directions == 2 else "forward"
    node = helper.make_node("LSTM", names, ["y", "last", "cell"], "it", hidden_size=hidden, direction=direction)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, batch, width])
    outputs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in node.output]
    weights = [numpy_helper.from_array(a, n) for n, a in known.items() if n in names]
    graph = helper.make_graph([node], "g", [x], outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "m.onnx")
    quantize_dynamic(folder / "m.onnx", folder / "q.onnx", **options)
    model = onnx.load(folder / "q.onnx")
    assert any(n.op_type == "DynamicQuantizeLSTM" for n in model.graph.node)
    return model


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("sizes", "more"), [((7, 1, 12, 16, 1), ()), ((9, 1, 33, 20, 2), ("h", "c", "p")), ((5, 3, 8, 24, 1), ("h", "c"))]
)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", ["QInt8", "QUInt8"])
def test_as_onnx_runtime(tmp_path: Path, sizes: tuple[int, ...], more: tuple[str, ...], per_channel: bool, kind: str):
    """Rounded where ONNX Runtime rounds: the float model is 100 times as far away."""
    from onnxruntime.quantization import QuantType

    # seven bits: with eight, its sums of pairs saturate on processors without VNNI
    options = {"weight_type": getattr(QuantType, kind), "per_channel": per_channel, "reduce_range": True}
    model = quantised(tmp_path, *sizes, more=more, **options)
    x = np.random.default_rng(5).standard_normal(sizes[:3]).astype("float32")
    wanted = Reference(model)({"x": x}, 0)  # on one thread: each of several takes the range of its own rows
    found = halotile.compile(model)({"x": x})
    for name, theirs in wanted.items():
        np.testing.assert_allclose(found[name], theirs, rtol=1e-4, atol=1e-5)
    exact = Reference(tmp_path / "m.onnx")({"x": x}, 0)
    assert np.abs(exact["y"] - wanted["y"]).max() > 1e-3


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["x", "h"])
def test_one_number_without_a_range_leaves_none(tmp_path: Path, value: float, where: str) -> None:
    """The state is rounded by its own range at every step, as x is once: the scale of a range with NaN is NaN, and the
    code 0 times that or infinity too."""
    model = quantised(tmp_path, 6, 2, 9, 20, 1, more=("h", "c"))
    h = next(t for t in model.graph.initializer if t.name == "h")
    x, state = np.random.default_rng(5).standard_normal((6, 2, 9)).astype("float32"), numpy_helper.to_array(h).copy()
    clean = halotile.compile(model)({"x": x})
    assert all(np.isfinite(v).all() for v in clean.values())
    if where == "x":
        x[3, 1, 4] = value
    else:
        state[0, 1, 7] = value
        h.CopyFrom(numpy_helper.from_array(state, "h"))
    for name, found in halotile.compile(model)({"x": x}).items():
        assert np.isnan(found).all(), name


def test_sequences_of_different_length_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"DynamicQuantizeLSTM.*differ in length"):
        import_model(quantised(tmp_path, 6, 2, 4, 8, 1, more=("n",)))


@pytest.mark.parametrize(("target", "each"), [("x86-64-v3", 2), ("raspberry-pi-5", 1)])
def test_weights_stay_bytes(tmp_path: Path, target: str, each: int) -> None:
    """The input's part is a product of bytes (or pairs of them), the state's part reads bytes."""
    small = replace(resolve(target), l2_bytes=1 << 12)
    build = run_pipeline(quantised(tmp_path, 9, 1, 64, 64, 1), Options(small, stop_after="assemble"))
    assert any("of bytes" in k.schedule for k in build.kernels)
    assert build.weights.bytes <= (each + 1) * 4 * 64 * 64 + (1 << 13)
    assert not any(c.dtype == np.float32 and c.size > 2048 for k in build.kernels for o in k.operands
                   if (c := constant_of(o)) is not None)  # fmt: skip


def test_products_of_what_was_quantised_by_its_own_range(tmp_path: Path) -> None:
    """A scale of run time moves behind the sum, which is one of bytes."""
    rng = np.random.default_rng(6)
    weights = rng.integers(-127, 128, (70, 33)).astype("float32") * np.linspace(0.01, 0.05, 33, dtype="float32")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "w"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [70, 9]), ("y", [9, 33])))
    graph = helper.make_graph(nodes, "own", [x], [y], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for options in ({}, {"exact": True}):
        built = halotile.compile(model, **options)
        feeds = {"x": rng.standard_normal((70, 9)).astype("float32")}
        wanted = Reference(model)(feeds, 0)["y"]
        np.testing.assert_allclose(built(feeds)["y"], wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
        by_bytes = any("of bytes" in k["schedule"] for k in built.report["kernels"])
        assert by_bytes == (data_dtype(machine()) is not None and not options)
