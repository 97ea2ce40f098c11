"""The arena of a compiled model: the report's number is what a run uses, and its contents never matter."""

from __future__ import annotations

import ctypes

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.runtime.binding import Binding
from halotile.compiler.runtime.loader import load
from onnx import TensorProto, helper, numpy_helper

GUARD = 4096


def residual_model() -> bytes:
    """conv, relu, conv, add, conv with stride, pool: buffers of several sizes that live side by side."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    ]
    weights = [weight("w1", 16, 3, 3, 3), weight("w2", 16, 16, 3, 3), weight("w3", 24, 16, 3, 3)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 21, 19])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 24, 1, 1])
    graph = helper.make_graph(nodes, "residual", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = halotile.compile(residual_model(), threads=2)
    place = tmp_path_factory.mktemp("arena") / "out"
    model.save(place)
    return place


def run_in(binding: Binding, threads: int, x: np.ndarray, poison: int) -> tuple[np.ndarray, np.ndarray]:
    """Runs in memory of ours, between guards that must stay; returns the output and what the arena holds after it."""
    size = int(binding.arena_bytes(threads))
    memory = np.full(size + 2 * GUARD + 64, 0xA5, np.uint8)
    start = GUARD + -(memory.ctypes.data + GUARD) % 64
    memory[start : start + size] = poison
    instance = binding.create_in(threads, memory.ctypes.data + start, size)
    y = np.empty((1, 24, 1, 1), np.float32)
    inputs, outputs = (ctypes.c_void_p * 1)(x.ctypes.data), (ctypes.c_void_p * 1)(y.ctypes.data)
    for _ in range(3):
        memory[start : start + size] = poison
        assert binding.run(instance, ctypes.addressof(inputs), ctypes.addressof(outputs)) == 0
    binding.destroy(instance)
    assert (memory[:start] == 0xA5).all() and (memory[start + size :] == 0xA5).all()
    return y, memory[start : start + size]


def test_a_run_stays_within_the_arena_and_does_not_read_what_was_in_it(folder):
    with load(folder) as model:
        x = np.random.default_rng(1).random((1, 3, 21, 19), np.float32)
        expected = model({"x": x})["y"]
        for threads in (1, 2, 3):
            for poison in (0x00, 0xFF, 0x7F):
                assert np.array_equal(run_in(model._binding, threads, x, poison)[0], expected)


def test_the_arena_is_used_to_its_last_bytes(folder):
    """What three poisons leave alone was never written: at most the padding to the alignment at the end."""
    with load(folder) as model:
        x = np.random.default_rng(2).random((1, 3, 21, 19), np.float32)
        poisons = (0x00, 0xFF, 0x5A)
        untouched = np.logical_and.reduce([run_in(model._binding, 1, x, p)[1] == p for p in poisons])
        assert len(untouched) - 1 - np.flatnonzero(~untouched)[-1] < 64


def test_the_report_states_the_arena_of_the_default_threads(folder):
    with load(folder) as model:
        assert model.report["arena_bytes"] == model.arena_bytes(2)
        assert model.arena_bytes(1) <= model.arena_bytes(2)


def test_an_arena_smaller_by_one_byte_is_refused(folder):
    with load(folder) as model:
        size = model.arena_bytes(2)
        memory = np.zeros(size + 64, np.uint8)
        start = memory.ctypes.data + -memory.ctypes.data % 64
        with pytest.raises(halotile.errors.RunError, match="too small"):
            model._binding.create_in(2, start, size - 1)
        model._binding.destroy(model._binding.create_in(2, start, size))
