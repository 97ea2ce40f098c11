"""Builds with precision int8: bytes where they are asked for, right answers, an error that is kept, the same again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from board_tools import halotile as command
from halotile.compiler.quantise.plan import plan_of, quantised_by
from halotile.errors import HalotileError, TargetError, ToolchainError, UnsupportedError
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A graph under construction, with random weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, *shape: int, scale: float | None = None) -> str:
        name = f"w{len(self.weights)}"
        array = self.rng.standard_normal(shape) * (scale or 1 / np.sqrt(np.prod(shape[1:])))
        self.weights.append(numpy_helper.from_array(array.astype("f4"), name))
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [f"t{len(self.nodes)}"], f"{operator}{len(self.nodes)}",
                                           **attributes))  # fmt: skip
        return str(self.nodes[-1].output[0])

    def model(self, inputs: dict[str, tuple[Any, ...]], outputs: dict[str, str], opset: int = 17) -> onnx.ModelProto:
        self.nodes += [helper.make_node("Identity", [made], [name]) for name, made in outputs.items()]
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs], self.weights,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def image_net(opset: int = 17, batch: Any = 1, height: Any = 19, width: Any = 23) -> onnx.ModelProto:
    """Convolutions with and without bias, in groups, dilated, transposed; a skip, pools, joins; two outputs."""
    n = Net(4)
    a = n.add("Relu", n.add("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16, scale=0.1), pads=[1, 1, 1, 1]))
    b = n.add("Relu", n.add("Conv", a, n.weight(16, 1, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2], group=16))
    c = n.add("Add", a, n.add("Conv", b, n.weight(16, 16, 1, 1)))
    d = n.add("MaxPool", c, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 0, 0], ceil_mode=1)
    e = n.add("ConvTranspose", d, n.weight(16, 7, 2, 2), strides=[2, 2])
    f = n.add("Concat", d, n.add("Sigmoid", n.add("Conv", d, n.weight(13, 16, 1, 1))), axis=1)
    g = n.add("Flatten", n.add("GlobalAveragePool", f))
    y = n.add("Gemm", g, n.weight(11, 29), transB=1)
    return n.model({"x": (batch, 3, height, width)}, {"map": e, "y": y}, opset)


def token_net() -> onnx.ModelProto:
    """Products of two inputs' rows, norms and softmax between, which stay in floats."""
    n = Net(6)
    q, k = (n.add("MatMul", name, n.weight(24, 24)) for name in ("left", "right"))
    scores = n.add("Softmax", n.add("MatMul", q, n.add("Transpose", k, perm=[0, 2, 1])), axis=-1)
    mixed = n.add("Add", n.add("MatMul", scores, k), "left")
    out = n.add("MatMul", n.add("Tanh", n.add("MatMul", mixed, n.weight(24, 53))), n.weight(53, 24))
    return n.model({"left": (2, 13, 24), "right": (2, 17, 24)}, {"y": out})


def samples(model: onnx.ModelProto, count: int, seed: int = 0, **sizes: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    shapes = {
        i.name: [sizes.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    return [{n: rng.standard_normal(s).astype("f4") for n, s in shapes.items()} for _ in range(count)]


def reference(model: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, arrays)))


def off(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> float:
    return max(float(np.abs(found[n] - wanted[n]).max() / np.abs(wanted[n]).max()) for n in wanted)


MODELS = {"image": image_net, "old": lambda: image_net(11), "batch": lambda: image_net(17, 3, 16, 31),
          "tokens": token_net}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_answers_are_those_of_the_model_in_bytes_and_near_the_float_ones(name: str) -> None:
    model = MODELS[name]()
    built = halotile.compile(model, precision="int8", calibrate=samples(model, 8), threads=2)
    report = built.report["int8"]
    assert report["left"] == [] and report["layers"] == (4 if name == "tokens" else 6)
    assert built.verify(model=model).ok  # against the model in bytes, with no more than float32's tolerance
    worst = max(off(built(s), reference(model, s)) for s in samples(model, 4, seed=1))
    assert report["error"] / 3 < worst < 0.15 and worst < 3 * report["error"]
    same = built(samples(model, 1, seed=2)[0], threads=1)
    again = built(samples(model, 1, seed=2)[0], threads=2)
    assert all((same[n] == again[n]).all() for n in same)


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86_64-linux-gnu+cascadelake", "raspberry-pi-5"])
def test_sums_are_products_of_bytes_where_the_target_has_them(target: str) -> None:
    model = image_net()
    small = halotile.compile(model, target, precision="int8", calibrate=samples(model, 4), threads=1)
    large = halotile.compile(model, target, threads=1)
    assert small.manifest["weight_bytes"] < large.manifest["weight_bytes"]
    assert sum(k["schedule"].startswith("dot products of bytes") for k in small.report["kernels"]) >= 3
    assert not any(k["schedule"].startswith("dot products of bytes") for k in large.report["kernels"])


@pytest.mark.parametrize("target", ["x86-64-v4", "raspberry-pi-4"])
def test_a_target_without_products_of_bytes_stays_in_float32_and_says_so(target: str) -> None:
    model = image_net()
    asked = halotile.compile(model, target, precision="int8", calibrate=samples(model, 4), threads=1)
    plain = halotile.compile(model, target, threads=1)
    assert any("no products of bytes" in line for line in asked.report["warnings"])
    assert "int8" not in asked.report and "int8" not in asked.manifest["options"]
    assert asked.manifest["fingerprint"] == plain.manifest["fingerprint"]


def test_levels_have_bytes_all_or_none() -> None:
    model, chosen = image_net(), samples(image_net(), 4)
    built = halotile.compile(model, "x86_64-linux-gnu", levels="v2,v3", precision="int8", calibrate=chosen)
    assert built.report["int8"]["layers"] == 6
    with pytest.raises(TargetError, match="level x86-64-v4 has no products of bytes"):
        halotile.compile(model, "x86_64-linux-gnu", levels="v2,v3,v4", precision="int8", calibrate=chosen)


def test_an_error_is_kept_and_names_the_layers_that_stay_in_floats() -> None:
    model = image_net()
    chosen = samples(model, 6)
    whole = plan_of(model, chosen)
    plan = plan_of(model, chosen, whole["error"] * 0.6)
    assert 0 < len(plan["left"]) < plan["layers"] and plan["error"] <= whole["error"] * 0.6
    quantised = quantised_by(model, plan)
    floats = {n.name for n in quantised.graph.node if n.op_type in ("Conv", "Gemm", "ConvTranspose")}
    assert set(plan["left"]) <= floats
    built = halotile.compile(model, precision="int8", calibrate=chosen, error=whole["error"] * 0.6)
    assert built.report["int8"] == {k: plan[k] for k in ("layers", "left", "error")}
    assert built.verify(model=model).ok
    with pytest.raises(HalotileError, match="can't be kept in bytes: with one layer alone it is"):
        halotile.compile(model, precision="int8", calibrate=chosen, error=1e-7)


def test_open_dimensions_stay_open() -> None:
    model = image_net(17, "n", "h", "w")
    built = halotile.compile(model, precision="int8", calibrate=samples(model, 4, n=1, h=32, w=40))
    assert [s.name for s in built.symbols] == ["n", "h", "w"]
    for sizes in ({"n": 1, "h": 9, "w": 11}, {"n": 3, "h": 33, "w": 17}):
        arrays = samples(model, 1, 5, **sizes)[0]
        assert off(built(arrays), reference(model, arrays)) < 0.15
        assert built.verify(arrays, model=model).ok


def test_the_command_line_records_what_the_same_bytes_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cache of its own: in that of all tests, other processes have left objects."""
    monkeypatch.setenv("HALOTILE_CACHE", str(tmp_path / "cache"))
    model = image_net()
    onnx.save(model, tmp_path / "net.onnx")
    np.savez(tmp_path / "samples.npz", x=np.stack([s["x"] for s in samples(model, 5)]))
    done = command("build", "net.onnx", "--precision", "int8", "--calibrate", "samples.npz", "--table", "-o", "out",
                   "--format", "so", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "layers in int8" in done.stderr and "6 of 6" in done.stderr
    (tmp_path / "samples.npz").unlink()
    again = command("build", "--from", "out", "-o", "again", "--no-cache", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out" / "manifest.json").read_bytes() == (tmp_path / "again" / "manifest.json").read_bytes()
    checked = command("verify", "net.onnx", "out", cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr


def test_a_damaged_plan_in_a_manifest_is_refused(tmp_path: Path) -> None:
    from halotile.compiler.quantise.recorded import checked_plan

    good = {"ranges": {"x": [-1.0, 1.0]}, "left": [], "layers": 1, "error": 0.0}
    assert checked_plan(json.loads(json.dumps(good))) == good
    wrong = ({"ranges": {"x": [1.0, -1.0]}}, {"ranges": {"x": "no"}}, {"left": [3]}, {"error": "0"})
    for bad in (None, {}, *({**good, **part} for part in wrong)):
        with pytest.raises(HalotileError, match="no plan of layers in bytes"):
            checked_plan(bad)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"precision": "int8"}, "needs sample inputs"),
        ({"calibrate": []}, "calibrate is for precision int8"),
        ({"error": 0.1}, "error is for precision int8"),
        ({"precision": "int8", "calibrate": [], "exact": True}, "exact forbids"),
        ({"precision": "int8", "calibrate": [], "error": 0}, "error=0"),
        ({"precision": "int8", "calibrate": []}, "holds no sample"),
    ],
)
def test_contradictions_are_refused_in_one_line(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(HalotileError) as caught:
        halotile.compile(image_net(), **asked)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_model_in_bytes_already_is_refused() -> None:
    model = image_net()
    plan = plan_of(model, samples(model, 2))
    with pytest.raises(UnsupportedError, match="is quantised already"):
        halotile.compile(quantised_by(model, plan), precision="int8", calibrate=samples(model, 2))


def test_without_onnxruntime_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ToolchainError, match=r"pip install onnxruntime"):
        halotile.compile(image_net(), precision="int8", calibrate=samples(image_net(), 1))


@pytest.mark.parametrize("asked", [
    {"precision": "int8"}, {"precision": "auto", "error": 0.01}, {"precision": "float16", "target": "raspberry-pi-5"}
])  # fmt: skip
def test_a_model_that_does_not_run_on_the_samples_is_refused_in_one_line(asked: dict[str, Any]) -> None:
    """More kernel than image, which shape inference takes."""
    n = Net(1)
    y = n.add("Conv", "x", n.weight(7, 3, 5, 5), dilations=[2, 2], strides=[2, 2])
    model = n.model({"x": (1, 3, 9, 8)}, {"y": y})
    with pytest.raises(UnsupportedError, match="ONNX Runtime can't run the model") as told:
        halotile.compile(model, calibrate=[{"x": np.ones((1, 3, 9, 8), np.float32)}], **asked)
    assert "\n" not in str(told.value)
