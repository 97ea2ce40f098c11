"""Channel shuffles, the concatenations before and the slices behind them are permutations of vectors in one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from halotile import compile as compile_model
from onnx import TensorProto, helper, numpy_helper


def unit(
    half: int, split: str, units: int = 2, groups: int = 2, also: str = "", size: tuple[int, ...] = (2, 5, 9, 7)
) -> Any:
    """ShuffleNetV2: a convolution to 2 * half channels, then units of split, convolutions, concatenation, shuffle."""
    rng = np.random.default_rng(3)
    tensors, nodes = [], []
    whole = 2 * half

    def tensor(values: Any) -> str:
        name = f"t{len(tensors)}"
        tensors.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def node(operator: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> str:
        names = [f"v{len(nodes)}_{i}" for i in range(outputs)]
        nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names[0]

    def conv(x: str, inputs: int, outputs: int, kernel: int = 1, groups: int = 1) -> str:
        weight = rng.standard_normal((outputs, inputs // groups, kernel, kernel)) / np.sqrt(inputs // groups * kernel)
        pads = [kernel // 2] * 4
        return node("Conv", [x, tensor(weight.astype("f4"))], pads=pads, group=groups)

    def shuffle(x: str) -> str:
        n, _, h, w = size
        x = node("Reshape", [x, tensor(np.array([n, groups, whole // groups, h, w]))])
        x = node("Transpose", [x], perm=[0, 2, 1, 3, 4])
        return node("Reshape", [x, tensor(np.array([n, whole, h, w]))])

    def halves(x: str) -> tuple[str, str]:
        if split == "split":
            first = node("Split", [x], 2, axis=1, num_outputs=2)
            return first, first[:-1] + "1"
        ends = [tensor(np.array([v])) for v in (0, half, whole, 1)]
        return node("Slice", [x, ends[0], ends[1], ends[3]]), node("Slice", [x, ends[1], ends[2], ends[3]])

    x = conv("x", size[1], whole, 3)
    y = conv(x, whole, half, 3)
    x = shuffle(node("Concat", [y, node("Relu", [conv(x, whole, half)])], axis=1))
    first = x
    for _ in range(units):
        left, right = halves(x)
        right = conv(conv(right, half, half), half, half, 3, half)
        x = shuffle(node("Concat", [left, right], axis=1))
    x = conv(x, whole, 8, 3)
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, size)]
    leaving = [x, first] if also == "whole" else [x]
    ends += [helper.make_tensor_value_info(v, TensorProto.FLOAT, None) for v in leaving]
    graph = helper.make_graph(nodes, "units", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def agrees(model: Any, size: tuple[int, ...] = (2, 5, 9, 7), **options: Any) -> list[dict[str, Any]]:
    """The kernels of ``model``, whose results were compared."""
    x = np.random.default_rng(1).standard_normal(size).astype("f4")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    library = compile_model(model, exact=True, **options)
    for found, wanted in zip(library({"x": x}).values(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    return list(library.report["kernels"])


def shuffles(kernels: list[dict[str, Any]]) -> list[list[str]]:
    return [k["operators"] for k in kernels if k["schedule"].startswith("shuffle of channels")]


@pytest.mark.sampled
@pytest.mark.parametrize("split", ["split", "slice"])
@pytest.mark.parametrize("half", [8, 16, 29])
def test_one_kernel_writes_both_halves(half: int, split: str) -> None:
    kernels = agrees(unit(half, split), threads=1, tile="off")
    found = shuffles(kernels)
    assert len(found) == 3
    for operators in found:
        assert operators[:4] == ["relax.concat", "relax.reshape", "relax.permute_dims", "relax.reshape"]
    assert [o[4:] for o in found] == [["relax.strided_slice"] * 2] * 2 + [[]]
    apart = {"relax.concat", "relax.permute_dims", "relax.strided_slice", "relax.split"}
    assert not any(apart & set(k["operators"]) for k in kernels if k["operators"] not in found)


@pytest.mark.sampled
@pytest.mark.parametrize("size", [(1, 5, 64, 40), (2, 3, 7, 7)])
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("tile", ["auto", "off", {"shape": (4, 5)}])
def test_tiles_and_cores(size: tuple[int, ...], groups: int, tile: Any) -> None:
    """Margins of the depthwise layers' inputs, bands of two cores, boxes of tiles."""
    kernels = agrees(unit(18, "slice", groups=groups, size=size), size, threads=2, tile=tile)
    if tile == "off":
        assert len(shuffles(kernels)) == 3


def test_a_whole_that_leaves_the_model_stays() -> None:
    kernels = agrees(unit(16, "slice", also="whole"), threads=1, tile="off")
    assert len(shuffles(kernels)) == 2  # the first one's result is an output: plain


def test_a_transpose_of_the_image_is_none() -> None:
    """Rows that become columns are no move of channels."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 5, 8, 8])
    y = helper.make_tensor_value_info("v2", TensorProto.FLOAT, None)
    weight = np.random.default_rng(0).standard_normal((32, 5, 1, 1)).astype("f4")
    last = np.random.default_rng(0).standard_normal((8, 32, 1, 1)).astype("f4")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["v0"]),
        helper.make_node("Transpose", ["v0"], ["v1"], perm=[0, 1, 3, 2]),
        helper.make_node("Conv", ["v1", "l"], ["v2"]),
    ]
    tensors = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(last, "l")]
    graph = helper.make_graph(nodes, "transposed", [x], [y], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    assert not shuffles(agrees(model, (1, 5, 8, 8), tile="off"))


def test_images_too_large_to_follow_stay_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halotile.schedules.general.channel_shuffle.MOST_ELEMENTS", 100)
    kernels = agrees(unit(9, "slice"))  # slices alone are followed by their channels
    assert shuffles(kernels) == [["relax.strided_slice"]] * 2
    turned = [k["schedule"] for k in kernels if "relax.permute_dims" in k["operators"]]
    assert turned and not any(s.startswith("shuffle") for s in turned)
