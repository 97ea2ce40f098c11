"""Closed forms of many windows stay short: as long as windows are many, not twice as long with each."""

from __future__ import annotations

import itertools
import random

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.passes.memory.placement import Life
from halotile.passes.tile.open import plan
from halotile.schedules.tiled.operands import part_operands
from halotile.schedules.words.alignment import aligned
from halotile.schedules.words.dims import Dim, minimum
from halotile.schedules.words.group import Kernel, Scratch
from halotile.schedules.words.sizes import value_of
from onnx import TensorProto, helper

H, W = Dim.symbol("h", 1, 4096), Dim.symbol("w", 1, 4096)


def _window(n: int) -> object:
    """Bytes of a window; of two of them each may be the larger one, as images are."""
    return aligned(minimum(H + n % 7, 5 + n % 5) * (W + n % 3) * (8 + n % 11) * 4)


@pytest.mark.parametrize("count", [6, 40])
def test_places_of_many_windows_are_short_forms_and_apart(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(count)
    sizes = [_window(n) for n in range(count)]
    firsts = [rng.randrange(count) for _ in sizes]
    at = {"h": 9, "w": 64}
    lives = [Life(value_of(s, at), a, a + rng.randrange(1, 6)) for s, a in zip(sizes, firsts)]
    monkeypatch.setattr(plan, "usual", lambda size: value_of(size, at) if isinstance(size, Dim) else size)
    offsets, total = plan._placed(lives, sizes)
    assert len(str(total)) <= plan.LONGEST
    assert all(len(str(o)) <= plan.LONGEST for o in offsets.values())
    for h, w in itertools.product((1, 4, 5, 9, 200), (1, 63, 2000)):
        numbers = {"h": h, "w": w}

        def bytes_of(size: object) -> int:
            return int(value_of(size, numbers) if isinstance(size, Dim) else size)  # noqa: B023

        spans = [(bytes_of(offsets[i]), bytes_of(offsets[i]) + bytes_of(sizes[i])) for i in range(count)]
        assert max(end for _, end in spans) <= bytes_of(total)
        for i, j in itertools.combinations(range(count), 2):
            if lives[i].first <= lives[j].last and lives[j].first <= lives[i].last:
                assert spans[i][1] <= spans[j][0] or spans[j][1] <= spans[i][0], (i, j)
        assert bytes_of(total) <= sum(map(bytes_of, sizes))


def test_scratch_behind_a_long_form_repeats_it_once() -> None:
    start = aligned(_window(1) + _window(2))
    parts = [Kernel(None, (Scratch(_window(n)), Scratch(64 * n)), (), "", 0, 0) for n in range(12)]
    offsets, end = part_operands(parts, start)[1:]
    assert str(end).count(str(_window(1))) <= 2
    numbers = {"h": 7, "w": 40}
    ends = [value_of(o.bytes, numbers) if isinstance(o.bytes, Dim) else o.bytes for p in parts for o in p.operands[-1:]]
    lasts = [value_of(offsets[p.operands[-1]], numbers) for p in parts]
    assert all(a + b <= value_of(end, numbers) for a, b in zip(lasts, ends))
    assert all(value_of(offsets[p.operands[0]], numbers) == value_of(start, numbers) for p in parts)


def _unet(levels: int) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    nodes, weights, skips = [], [], []

    def conv(name: str, x: str, inputs: int, outputs: int) -> str:
        weight = rng.standard_normal((outputs, inputs, 3, 3)).astype(np.float32) / np.sqrt(9 * inputs)
        weights.append(onnx.numpy_helper.from_array(weight.astype(np.float32), f"{name}_w"))
        nodes.append(helper.make_node("Conv", [x, f"{name}_w"], [f"{name}_c"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"{name}_c"], [name]))
        return name

    x = conv("first", "x", 3, 16)
    for i in range(levels):
        x = conv(f"down{i}", x, 16 * (i + 1), 16 * (i + 1))
        skips.append(x)
        nodes.append(helper.make_node("MaxPool", [x], [f"pool{i}"], kernel_shape=[2, 2], strides=[2, 2]))
        x = conv(f"wider{i}", f"pool{i}", 16 * (i + 1), 16 * (i + 2))
    weights.append(onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "twice"))
    for i in reversed(range(levels)):
        nodes.append(helper.make_node("Resize", [x, "", "twice"], [f"up{i}"], mode="nearest"))
        nodes.append(helper.make_node("Concat", [f"up{i}", skips[i]], [f"both{i}"], axis=1))
        x = conv(f"narrow{i}", f"both{i}", 16 * (2 * i + 3), 16 * (i + 1))
    conv("y", x, 16, 3)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, "h", "w"))
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3, "h", "w"))
    graph = helper.make_graph(nodes, "unet", [image], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_network_of_many_levels_meets_a_budget() -> None:
    """Each of two windows may be the larger one; the build took minutes and gigabytes where each doubled a form."""
    model = _unet(3)
    bounds = {"h": "8..512:8", "w": "8..512:8"}
    library = halotile.compile(model, "x86-64-v3", threads=1, shapes=bounds, memory_budget=8 << 20)
    assert any(k["schedule"].startswith("open tiles") for k in library.report["kernels"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for h, w in ((8, 8), (72, 104), (256, 40)):
        x = np.random.default_rng(h).standard_normal((1, 3, h, w)).astype(np.float32)
        (want,) = session.run(None, {"x": x})
        assert np.abs(library({"x": x})["y"] - want).max() <= 3e-5 * np.abs(want).max()
    assert library.arena_bytes(1, shape={"h": 512, "w": 512}) <= 8 << 20
