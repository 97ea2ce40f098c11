"""Group norms of images, written as exporters do and as one operator, by way of their channels' means."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import pytest
from compiled import native
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.reassociate import group_norms
from onnx import TensorProto, helper, numpy_helper

RULE = "reassociate: groups-by-channels 1x"


def model(form: str, channels: int, groups: int, size: tuple[int, ...], bias: float, conv: bool = True) -> Any:
    """x -> 1x1 convolution -> norm in groups -> weights of channels (of groups, for opset 18) -> 1x1 convolution."""
    rng, n = np.random.default_rng(channels), size[0]
    tensors: list[Any] = []

    def tensor(values: Any) -> str:
        tensors.append(numpy_helper.from_array(np.asarray(values), f"t{len(tensors)}"))
        return str(tensors[-1].name)

    def mix() -> str:
        return tensor((rng.standard_normal((channels, channels, 1, 1)) / np.sqrt(channels)).astype("f4"))

    nodes = [helper.make_node("Conv" if conv else "Mul", ["x", mix() if conv else tensor(np.float32(1.5))], ["a"])]
    nodes.append(helper.make_node("Add", ["a", tensor(np.full((channels, 1, 1), bias, "f4"))], ["b"]))
    count = groups if form == "opset 18" else channels
    weights = [rng.uniform(0.5, 1.5, count).astype("f4"), rng.standard_normal(count).astype("f4")]
    if form == "exported":
        inside = [tensor(v) for v in (np.array([n, groups, -1]), np.ones(groups, "f4"), np.zeros(groups, "f4"))]
        nodes.append(helper.make_node("Reshape", ["b", inside[0]], ["c"]))
        nodes.append(helper.make_node("InstanceNormalization", ["c", *inside[1:]], ["d"], epsilon=1e-3))
        nodes.append(helper.make_node("Reshape", ["d", tensor(np.array([n, channels, *size[1:]]))], ["e"]))
        nodes.append(helper.make_node("Mul", ["e", tensor(weights[0].reshape(-1, 1, 1))], ["f"]))
        nodes.append(helper.make_node("Add", ["f", tensor(weights[1].reshape(-1, 1, 1))], ["g"]))
    else:
        given = ["b", *map(tensor, weights)]
        nodes.append(helper.make_node("GroupNormalization", given, ["g"], epsilon=1e-3, num_groups=groups))
    nodes.append(helper.make_node("Conv", ["g", mix()], ["y"]))
    shape = (n, channels, *size[1:])
    ends = [helper.make_tensor_value_info(v, TensorProto.FLOAT, shape) for v in ("x", "y")]
    graph = helper.make_graph(nodes, "norm", ends[:1], ends[1:], tensors)
    opset = 21 if form == "opset 21" else 18
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def compiled(proto: Any, options: Options) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        run_pipeline(proto, options, output=Path(folder, "library"))
        return halotile.load(Path(folder, "library"))


def expected(proto: Any, form: str, groups: int, x: np.ndarray) -> np.ndarray:
    """In float64."""
    held = [numpy_helper.to_array(t).astype(np.float64) for t in proto.graph.initializer]
    first = np.einsum("oi,nihw->nohw", held[0][:, :, 0, 0], x) if held[0].ndim == 4 else x * held[0]
    a = first + held[1]
    rows = a.reshape(x.shape[0], groups, -1)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-3)
    gamma, beta = (held[6], held[7]) if form == "exported" else held[2:4]
    gamma, beta = (np.repeat(v.reshape(-1), x.shape[1] // v.size).reshape(-1, 1, 1) for v in (gamma, beta))
    return np.einsum("oi,nihw->nohw", held[-1][:, :, 0, 0], normal.reshape(x.shape) * gamma + beta)


@pytest.fixture(autouse=True)
def small_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_norms, "LEAST_ELEMENTS", 100)


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["exported", "opset 18", "opset 21"])
@pytest.mark.parametrize(("channels", "groups"), [(35, 5), (48, 4), (18, 1), (26, 13)])
@pytest.mark.parametrize("bias", [0.0, 30.0])
def test_means_of_channels_make_those_of_groups(form: str, channels: int, groups: int, bias: float) -> None:
    size = (2, 11, 7)
    proto = model(form, channels, groups, size, bias)
    library = compiled(proto, Options(native(), threads=2, matrix=False))  # in float32 throughout
    assert RULE in library.report["notes"].get("reassociate", [])
    kernels = library.report["kernels"]
    assert not any("standardise" in o or "layer_norm" in o or "reshape" in o for k in kernels for o in k["operators"])
    x = np.random.default_rng(4).standard_normal((2, channels, *size[1:])).astype("f4")
    wanted = expected(proto, form, groups, x.astype(np.float64))
    np.testing.assert_allclose(library({"x": x})["y"], wanted, rtol=1e-4, atol=2e-5 * max(1.0, bias))


@pytest.mark.parametrize("why", ["exact", "no convolution", "instances", "small"])
def test_it_stays_where_it_is_no_gain(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "small":
        monkeypatch.setattr(group_norms, "LEAST_ELEMENTS", 1 << 16)
    groups = 24 if why == "instances" else 4
    proto = model("exported", 24, groups, (1, 8, 9), 1.0, conv=why != "no convolution")
    library = compiled(proto, Options(native(), threads=1, exact=why == "exact", matrix=False))
    assert RULE not in library.report["notes"].get("reassociate", [])
    x = np.random.default_rng(4).standard_normal((1, 24, 8, 9)).astype("f4")
    wanted = expected(proto, "exported", groups, x.astype(np.float64))
    np.testing.assert_allclose(library({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
