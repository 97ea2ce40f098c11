"""Joins and cuts of channels that are no whole blocks stay in blocks: permutations of vectors, without plain copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halotile
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from uncompiled import reported

SHAPE = (2, 5, 11, 13)


class Net:
    """A graph of convolutions with the moves between them; ``conv`` gives the name of its result."""

    def __init__(self) -> None:
        self.rng, self.nodes, self.tensors = np.random.default_rng(5), [], []

    def tensor(self, values: Any) -> str:
        self.tensors.append(numpy_helper.from_array(np.asarray(values), f"t{len(self.tensors)}"))
        return str(self.tensors[-1].name)

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 3) -> str:
        weight = self.rng.standard_normal((outputs, inputs, kernel, kernel)) / np.sqrt(inputs * kernel**2)
        bias = self.rng.standard_normal(outputs)
        held = self.tensor(weight.astype("f4")), self.tensor(bias.astype("f4"))
        return self.node("Conv", x, *held, pads=[kernel // 2] * 4)[0]

    def cut(self, x: str, first: int, last: int, step: int = 1) -> str:
        return self.node("Slice", x, *(self.tensor(np.array([v])) for v in (first, last, 1, step)))[0]

    def concat(self, *parts: str) -> str:
        return self.node("Concat", *parts, axis=1)[0]

    def model(self, *results: str) -> Any:
        ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)]
        ends += [helper.make_tensor_value_info(v, TensorProto.FLOAT, None) for v in results]
        graph = helper.make_graph(self.nodes, "ragged", ends[:1], ends[1:], self.tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def parts() -> tuple[Any, int]:
    """Joined, cut in pieces that begin anywhere, joined again in another order."""
    net = Net()
    a, b = net.conv("x", 5, 9), net.conv("x", 5, 13, 1)
    whole = net.concat(a, b, a)
    y = net.conv(whole, 31, 21)
    left, middle, right = net.node("Split", y, net.tensor(np.array([6, 8, 7])), outputs=3, axis=1)
    z = net.conv(net.concat(right, net.conv(middle, 8, 3), left), 16, 19)
    return net.model(net.conv(z, 19, 4), net.conv(net.concat(z, y), 40, 7)), 4


def steps() -> tuple[Any, int]:
    """Every second channel, and every third."""
    net = Net()
    y = net.conv("x", 5, 37)
    even, third = net.cut(y, 2, 37, 2), net.cut(y, 4, 37, 3)
    return net.model(net.conv(even, 18, 6), net.conv(net.concat(third, even), 29, 3)), 2


def maps_behind() -> tuple[Any, int]:
    """What follows a join stays in blocks: maps, pools, a residual."""
    net = Net()
    y = net.concat(net.conv("x", 5, 11), net.conv("x", 5, 10))
    scaled = net.node("Mul", y, net.tensor(net.rng.standard_normal((21, 1, 1)).astype("f4")))[0]
    pooled = net.node("MaxPool", net.node("Relu", scaled)[0], kernel_shape=[3, 3], pads=[1] * 4)[0]
    added = net.node("Add", pooled, net.concat(net.conv(y, 21, 14), net.conv(y, 21, 7, 1)))[0]
    return net.model(net.conv(added, 21, 5)), 2


def images() -> tuple[Any, int]:
    """A resized image, a model input and a part that is in channel blocks, joined."""
    net = Net()
    a = net.conv("x", 5, 9)
    half = net.conv(net.node("MaxPool", a, kernel_shape=[2, 2], strides=[1, 1], pads=[0, 0, 1, 1])[0], 9, 14)
    scales = net.tensor(np.array([1, 1, 2, 2], "f4"))
    pooled = net.node("AveragePool", half, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)[0]
    large = net.node("Resize", pooled, "", scales, mode="linear")[0]
    fitted = net.node("Slice", large, *(net.tensor(np.array(v)) for v in ([0, 0], SHAPE[2:], [2, 3])))[0]
    joined = net.node("Sigmoid", net.concat(fitted, "x", a))[0]
    return net.model(net.conv(joined, 28, 6)), 1


def agrees(proto: Any, **options: Any) -> halotile.Model:
    model = halotile.compile(proto, **options)
    x = np.random.default_rng(2).standard_normal(SHAPE).astype("f4")
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, wanted in zip(model({"x": x}).values(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    return model


@pytest.mark.sampled
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("make", [parts, steps, maps_behind, images])
def test_parts_that_begin_within_a_block_are_permuted(make: Callable[[], tuple[Any, int]], threads: int) -> None:
    proto, fewest = make()
    kernels = agrees(proto, threads=threads, tile="off", exact=True).report["kernels"]
    moved = [k for k in kernels if k["schedule"].startswith("shuffle of channels")]
    assert len(moved) >= fewest
    # conversions are of the input and of outputs alone
    ends = {"x", *(o.name for o in proto.graph.output)}
    copies = [k for k in kernels if k["operators"] == ["halotile.copy"]]
    assert all(set(k["nodes"]) & ends for k in copies), copies


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(3, 13), (4, 5)])
@pytest.mark.parametrize("make", [parts, maps_behind])
def test_they_are_members_of_tile_groups(make: Callable[[], tuple[Any, int]], shape: tuple[int, int]) -> None:
    proto, _ = make()
    whole = halotile.compile(proto, threads=1, tile="off", exact=True)
    last = [n for n in proto.graph.node if n.op_type == "Conv"][-1]
    last.name = "last"
    model = agrees(proto, threads=1, exact=True, tile={"last": "last", "shape": shape})
    tiled = [k for k in model.report["kernels"] if k["schedule"].startswith("tiled")]
    assert any("relax.concat" in k["operators"] for k in tiled)
    x = np.random.default_rng(2).standard_normal(SHAPE).astype("f4")
    for found, wanted in zip(model({"x": x}).values(), whole({"x": x}).values(), strict=True):
        assert np.array_equal(found, wanted)


def test_an_image_of_any_size_is_followed_by_its_channels() -> None:
    """A join of more elements than are followed one by one."""
    from halotile.schedules.general.channel_shuffle import MOST_ELEMENTS

    size = (1, 1, 1025, 1031)
    net = Net()
    y = net.conv(net.concat(net.conv("x", 1, 3, 1), net.conv("x", 1, 5, 1)), 8, 2, 1)
    proto = net.model(y)
    for dim, value in zip(proto.graph.input[0].type.tensor_type.shape.dim, size):
        dim.dim_value = value
    assert 8 * size[2] * size[3] > MOST_ELEMENTS
    kernels = reported(proto, threads=1, tile="off")["kernels"]
    assert any(k["schedule"].startswith("shuffle of channels") for k in kernels)
