"""Rows that do not exist are written behind the kernel that computes all of them, and cost the usual step nothing."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from halotile.compiler.stream import machine
from halotile.schedules.kernel.missing_rows import NOTE, MissingRows
from onnx import TensorProto, helper
from stream_models import Maker, random_graph
from streamed_images import same


def _unet(channels, width, batch=1):
    """Convolutions with strides and dilations, pools that pad, a transposed one, a resize and skips."""
    m = Maker(11)
    a = m.op("Relu", m.conv("x", 3, channels))
    y = m.op("MaxPool", a, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    y = m.op("Relu", m.conv(y, channels, channels))
    y = m.op("AveragePool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    y = m.op("Tanh", m.conv(y, channels, channels))
    up = m.op("ConvTranspose", y, m.weights(channels, channels, 2, 2), strides=[2, 2])
    y = m.op("Add", m.conv(m.op("Concat", up, a, axis=1), 2 * channels, channels), a)
    y = m.op("MaxPool", y, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return m.model([m.conv(y, channels, 2)], width, batch=batch)


def _told(model):
    """Of the kernels that replace rows of what they compute those that do so behind it, and the others."""
    kernels = [k for k in model.report["kernels"] if "relax.where" in k["operators"] and len(k["operators"]) > 1]
    return [k for k in kernels if NOTE in k["notes"]], [k for k in kernels if NOTE not in k["notes"]]


def _bits(model, heights, random):
    """What streams of random images of these heights give; what must not be read is NaN."""
    shape = model.inputs[0].shape
    found = []
    for height in heights:
        x = random.standard_normal((shape[0], shape[1], height, shape[3])).astype(np.float32)
        stream = machine.Stream(model._runs, model.plan, {}, poison=True)
        stream.push(x)
        stream.finish()
        found += [stream.pull(p.name) for p in model.plan.outputs]
    return found


@pytest.mark.parametrize("channels, batch", [(16, 1), (20, 2), (8, 1), (3, 1)])
def test_rows_are_written_behind_all_others(channels, batch):
    source = _unet(channels, 22, batch)
    with halotile.compile(source, stream=8, shapes={"x": (batch, 3, "h:4..:2", 22)}) as model:
        behind, within = _told(model)
        assert len(behind) >= 4
        lowest = [k for k in within if "relax.nn.max_pool2d" not in k["operators"]]
        assert not lowest or channels % 16, [k["operators"] for k in within]
        same(model, source, [4, 6, 18, 30], np.random.default_rng(channels))


@pytest.mark.parametrize("exact", [True, False])
def test_bits_are_those_of_a_choice_for_each_element(exact, monkeypatch):
    source, found = _unet(16, 22), []
    for fires in (True, False):
        if not fires:
            monkeypatch.setattr(MissingRows, "of", staticmethod(lambda request: None))
        with halotile.compile(source, stream=8, shapes={"x": (1, 3, "h:4..:2", 22)}, exact=exact) as model:
            assert bool(_told(model)[0]) == fires
            found.append(_bits(model, [4, 18, 30], np.random.default_rng(5)))
    assert all(np.array_equal(a.view(np.uint32), b.view(np.uint32)) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_bits_of_random_graphs(seed, monkeypatch):
    source, found = random_graph(seed, batch=1 + seed % 2, channels=16), []
    for fires in (True, False):
        if not fires:
            monkeypatch.setattr(MissingRows, "of", staticmethod(lambda request: None))
        with halotile.compile(source, stream=5, exact=True) as model:
            least = model.plan.least
            found.append(_bits(model, [least, least + 1, 33], np.random.default_rng(seed)))
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def _chosen(shape, number=0.0, axis=2, also=False):
    """Numbers behind a sigmoid, of which rows along ``axis`` stay; ``also``: the numbers before are an output too."""
    m, kinds = Maker(12), {"x": (shape, TensorProto.FLOAT)}
    y = m.op("Sigmoid", m.op("Mul", "x", m.const(np.float32(3))))
    z = m.op("Where", "exists", y, m.const(np.float32(number)))
    kinds["exists"] = [n if a == axis else 1 for a, n in enumerate(shape)], TensorProto.BOOL
    given = [helper.make_tensor_value_info(name, kind, list(dims)) for name, (dims, kind) in kinds.items()]
    taken = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ([z, y] if also else [z])]
    graph = helper.make_graph(m.nodes, "chosen", given, taken, m.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("number", [0.0, 2.5, -np.inf])
@pytest.mark.parametrize("shape, axis", [((2, 5, 7, 33), 2), ((1, 32, 11, 5), 2), ((3, 2, 5, 3, 19), 3), ((13, 64), 0)])
def test_any_rows_may_be_missing(shape, axis, number):
    random, source = np.random.default_rng(len(shape)), _chosen(shape, number, axis)
    with halotile.compile(source) as model:
        behind, within = _told(model)
        assert len(behind) == 1 and not within
        for share in (0.0, 0.4, 1.0):
            x = random.standard_normal(shape).astype(np.float32)
            exists = random.random([n if a == axis else 1 for a, n in enumerate(shape)]) >= share
            wanted = np.where(exists, 1 / (1 + np.exp(-3 * x.astype(np.float64))), number)
            (found,) = model({"x": x, "exists": exists}).values()
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "shape, number, axis, also",
    [
        ((1, 4, 7, 33), -0.0, 2, False),  # a zero that has a sign
        ((1, 4, 7, 33), np.nan, 2, False),
        ((1, 4, 7, 33), 0.0, 3, False),  # columns
        ((1, 4, 7, 33), 0.0, 1, False),  # channels
        ((1, 4, 7, 2), 0.0, 2, False),  # rows that are no vectors
        ((1, 4, 7, 33), 0.0, 2, True),  # what is there before has another reader
    ],
)
def test_others_are_chosen_element_by_element(shape, number, axis, also):
    random, source = np.random.default_rng(1), _chosen(shape, number, axis, also)
    with halotile.compile(source) as model:
        assert not _told(model)[0]
        x = random.standard_normal(shape).astype(np.float32)
        exists = random.random([n if a == axis else 1 for a, n in enumerate(shape)]) < 0.5
        found = model({"x": x, "exists": exists})
        wanted = 1 / (1 + np.exp(-3 * x.astype(np.float64)))
        for got, y in zip(found.values(), (np.where(exists, wanted, number), wanted)):
            np.testing.assert_allclose(got, y, rtol=1e-5, atol=1e-6)




@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.parametrize("counts", [True, False])
def test_a_condition_that_the_kernel_makes_itself_is_part_of_it(axis, counts):
    """As masks of sentences are: whether a row's number is less than a length that comes as an input. No other kernel
    makes it, so that none can read it from memory."""
    shape, random = (5, 3, 37, 33), np.random.default_rng(axis)
    over = [n if a == axis else 1 for a, n in enumerate(shape)]
    m = Maker(3)
    rows = m.const(np.arange(shape[axis]).reshape(over).astype(np.int64))
    exists = m.op("Less", rows, "n") if counts else m.op("Not", "n")
    y = m.op("Where", exists, m.op("Sigmoid", m.op("Mul", "x", m.const(np.float32(3)))), m.const(np.float32(0)))
    kind, of = (TensorProto.INT64, [1]) if counts else (TensorProto.BOOL, over)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), helper.make_tensor_value_info("n", kind, of)]
    taken = [helper.make_tensor_value_info(y, TensorProto.FLOAT, shape)]
    graph = helper.make_graph(m.nodes, "masked", given, taken, m.constants)
    with halotile.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)) as model:
        for length in (0, 1, shape[axis] // 2, shape[axis]):
            x = random.standard_normal(shape).astype(np.float32)
            there = (np.arange(shape[axis]) < length).reshape(over)
            (found,) = model({"x": x, "n": np.int64([length]) if counts else ~there}).values()
            wanted = np.where(there, 1 / (1 + np.exp(-3 * x.astype(np.float64))), 0)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
