"""Winograd convolutions of bytes in int16 and int32: every bit of sums in NumPy's integers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from byte_sums import numbers, reference
from compiled import Compiled, Suite, module_of, staged, weight
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.conv.winograd import choose, plan
from halotile.schedules.conv.winograd.axis_transform import AxisTransform
from halotile.schedules.conv.winograd.transform import Transform
from halotile.schedules.conv.winograd.whole_transform import (
    LayerMagnitudes,
    _by_size,
    is_exact,
    quotient_of,
    whole_transforms,
)
from halotile.schedules.instructions.int8_dot import PAIRS
from halotile.schedules.operators.registry import call
from halotile.schedules.tiled.kernel import TiledKernel
from halotile.schedules.words.group import Value
from halotile.targets.detect import read_machine
from halotile.targets.resolve import resolve
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

R = relax.op
V3, V2 = "x86-64-v3", "x86_64-linux-gnu+x86-64-v2"
runs = pytest.mark.skipif("avx2" not in read_machine().flags, reason="NOT RUN: this machine has no AVX2")
KERNELS = [((3, 3), (1, 1)), ((3, 3), (2, 2)), ((2, 2), (1, 1)), ((5, 5), (1, 1)), ((1, 7), (1, 1)), ((4, 4), (2, 2))]
EVERY = [t for kernel, strides in KERNELS for able in _by_size(kernel, strides) for t in able]

#  batch, channels, outputs, size, kernel, strides, dilations, before, after
LAYERS = {
    "whole tiles": (1, 16, 16, (16, 16), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "primes": (2, 37, 29, (11, 7), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)),
    "uneven padding": (1, 23, 41, (13, 17), (3, 3), (1, 1), (1, 1), (2, 0), (0, 3)),
    "no padding": (3, 6, 8, (7, 6), (3, 3), (1, 1), (1, 1), (0, 0), (0, 0)),
    "dilated": (1, 19, 31, (23, 29), (3, 3), (1, 1), (2, 3), (2, 3), (2, 3)),
    "strided": (1, 17, 24, (19, 23), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    "rows": (1, 13, 20, (9, 31), (1, 7), (1, 1), (1, 1), (0, 3), (0, 3)),
    "5x5": (1, 9, 17, (12, 14), (5, 5), (1, 1), (1, 1), (2, 2), (2, 2)),
    "one axis": (2, 11, 19, (37,), (3,), (1,), (1,), (1,), (1,)),
    "deep": (1, 10, 12, (4, 9, 10), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
}


def layer(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
    """Data, weights, exact sums plus a bias, and what computes them."""
    batch, channels, outputs, size, kernel, strides, dilations, before, after = LAYERS[name]
    rng = np.random.default_rng(len(name))
    x = numbers(rng, PAIRS, (batch, channels, *size))
    w = numbers(rng, "int8", (outputs, channels, *kernel))
    bias = rng.integers(-1000, 1000, (1, outputs, *(1 for _ in size))).astype(np.int32)
    wanted = reference(x, w, strides, dilations, (before, after), 1, 0) + bias

    def body(p: Any) -> Any:
        data = R.maximum(p, relax.const(np.array(-255, PAIRS), PAIRS))  # made in blocks, with margins
        output = list(wanted.shape[2:])
        own = dict(strides=strides, dilations=dilations, begin=before, output=output, groups=1, fill=0)
        return R.add(call("halotile.dot_conv", data, weight(w), **own), weight(bias))

    return x, w, wanted.astype(np.int32), body


def forced(rank: int, pick: int) -> Any:
    """A choice of the transform that is ``rank``-th of a layer's, in strips, groups and register tiles that differ."""

    def choice(target: Any, facts: Any, *_: Any, **__: Any) -> Any:
        able = plan.all_transforms(plan.Layer.of(facts)) if choose.applies(facts) else []
        if not able:
            return None
        plans = list(choose._plans(target, plan.Layer.of(facts), able[min(rank, len(able) - 1)]))
        return replace(plans[(7 * facts.channels + 5 * facts.outputs + pick) % len(plans)], cycles=0.0)

    return choice


def integers(matrix: np.ndarray) -> np.ndarray:
    """Python's, which nothing bounds."""
    assert (matrix == np.rint(matrix)).all()
    return np.array([[int(m) for m in row] for row in matrix], object)


def shared(a: AxisTransform) -> np.ndarray:
    """G of an axis, the last row for all products that share it."""
    return integers(a.weights)[np.minimum(np.arange(a.extent), a.rows - 1)]


@pytest.mark.parametrize("t", EVERY, ids=str)
def test_results_are_a_multiple_of_the_outputs(t: Transform) -> None:
    """Of the taps of one part; and what is made of them modulo 2**32 is the outputs."""
    rng = np.random.default_rng(t.products)
    (bt, g, at), (bt2, g2, at2) = ((integers(a.data), shared(a), integers(a.result)) for a in t.axes)
    shift, factor = quotient_of(t)
    for ends in (False, True):
        d = rng.integers(-255, 256, t.extents) if not ends else rng.choice([-255, 255], t.extents)
        w = rng.integers(-128, 128, (t.down.taps, t.across.taps)) if not ends else rng.choice([-128, 127], (3, 3))
        w = w[: t.down.taps, : t.across.taps].astype(object)
        d = d.astype(object)
        w = np.pad(w, [(0, t.down.taps - w.shape[0]), (0, t.across.taps - w.shape[1])]).astype(object)
        made = at @ ((g @ w @ g2.T) * (bt @ d @ bt2.T)) @ at2.T
        strides = t.down.stride, t.across.stride
        for i, j in product(range(t.down.m), range(t.across.m)):
            y = (d[i * strides[0] :, j * strides[1] :][: t.down.taps, : t.across.taps] * w).sum()
            assert made[i, j] == t.down.scale * t.across.scale * y
            wrapped = (int(made[i, j]) * factor) % 2**32
            assert (wrapped - 2**32 * (wrapped >= 2**31)) >> shift == y


@pytest.mark.parametrize("t", EVERY, ids=str)
def test_no_number_leaves_sixteen_bits(t: Transform) -> None:
    """The largest that data and weights can be transformed to, by every combination of signs in one row."""
    by_data, by_weights = (
        int(np.prod([np.abs(getattr(a, name)).sum(axis=1).max() for a in t.axes])) for name in ("data", "weights")
    )
    assert 255 * by_data < 2**15
    assert is_exact(t, LayerMagnitudes((2**15 - 1) // by_weights, 1))
    assert not is_exact(t, LayerMagnitudes((2**15 - 1) // by_weights + 1, 1))
    shift, _ = quotient_of(t)
    assert is_exact(t, LayerMagnitudes(1, 2 ** (31 - shift) - 1))
    assert not is_exact(t, LayerMagnitudes(1, 2 ** (31 - shift)))


def test_sums_that_are_too_large_take_smaller_tiles() -> None:
    def tiles(reach: LayerMagnitudes) -> list[tuple[int, int]]:
        return [t.tile for t in whole_transforms((3, 3), (1, 1), reach)]

    assert tiles(LayerMagnitudes(127, 2**25 - 1)) == [(4, 4), (4, 2), (2, 4), (2, 2)]
    assert tiles(LayerMagnitudes(127, 2**25)) == [(4, 2), (2, 4), (2, 2)]
    assert tiles(LayerMagnitudes(127, 2**27)) == [(2, 2)]
    assert tiles(LayerMagnitudes(127, 2**29)) == []


def facts_of(channels: int, outputs: int, size: int, groups: int = 1, dtype: str = PAIRS, **more: Any) -> ConvFacts:
    w = np.full((outputs, channels // groups, 3, 3), 127, np.int8)
    data = Value("data", (1, channels, size, size), dtype)
    output = Value("output", (1, outputs, size, size), "int32")
    ones = (1, 1)
    return ConvFacts(data, Value("w", w.shape, "int8", w), output, (3, 3), ones, ones, ones, ones, groups, **more)


def test_chosen_by_the_largest_sum_there_can_be() -> None:
    target = replace(resolve(V3), cores=1)
    within, beyond = (choose.choose_plan(target, facts_of(c, 64, 32)) for c in (115, 116))
    assert within is not None and beyond is not None and within.whole and beyond.whole
    assert within.transform.tile == (4, 4) and beyond.transform.tile in ((4, 2), (2, 4))


def test_refused_where_it_does_not_apply_or_wins_nothing() -> None:
    target = resolve(V3)
    assert choose.applies(facts_of(64, 64, 28)) and choose.choose_plan(target, facts_of(64, 64, 28)) is not None
    assert not choose.applies(facts_of(64, 64, 28, groups=2))
    assert not choose.applies(facts_of(64, 64, 28, dtype="uint8"))  # another instruction's
    assert not choose.applies(facts_of(4, 64, 28))  # lies plain
    assert not choose.applies(facts_of(64, 64, 1))
    assert choose.choose_plan(target, facts_of(8, 64, 28)) is None  # transforms take longer than they save


@runs
@pytest.mark.parametrize(("rank", "pick", "target"), [(0, 0, V3), (1, 7, V3), (2, 3, V3), (3, 11, V3), (0, 5, V2)])
def test_sums_are_exact(rank: int, pick: int, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winograd_algorithm, "choose_plan", forced(rank, pick))
    suite = Suite(resolve(target), tiled=False)
    for name in LAYERS:
        x, _, wanted, body = layer(name)
        suite.add(name, [x], body, wanted, 0, 0)
    suite.compile()
    for name in LAYERS:
        suite.check(name)
        assert any("winograd F(" in s and "int16" in s for s in suite.schedules(name)), suite.schedules(name)


def test_exact_builds_take_it_and_those_without_winograd_do_not() -> None:
    x, w = np.ones((1, 64, 28, 28), PAIRS), np.ones((32, 64, 3, 3), np.int8)

    def body(p: Any) -> Any:
        own = dict(strides=[1, 1], dilations=[1, 1], begin=[1, 1], output=list(x.shape[2:]), groups=1, fill=0)
        return call("halotile.dot_conv", R.maximum(p, relax.const(np.array(0, PAIRS), PAIRS)), weight(w), **own)

    for taken, options in ((True, {}), (True, {"exact": True}), (False, {"winograd": False})):
        build = staged(module_of([x], body), resolve(V3), tiled=False, **options)
        assert any(", int16" in k.schedule for k in build.kernels) == taken, options


@runs
@pytest.mark.parametrize("ends", [(255, 127), (255, -127), (-255, 127)])
def test_the_largest_sums_wrap_and_come_back(ends: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 115 channels, 576 times the outputs is 9 times what 32 bits hold."""
    monkeypatch.setattr(winograd_algorithm, "choose_plan", forced(0, 0))
    x, w = np.full((1, 115, 9, 14), ends[0], PAIRS), np.full((33, 115, 3, 3), ends[1], np.int8)
    wanted = reference(x, w, (1, 1), (1, 1), ((1, 1), (1, 1)), 1, 0)
    assert abs(wanted).max() * 576 > 8 * 2**31

    def body(p: Any) -> Any:
        data = R.maximum(p, relax.const(np.array(-255, PAIRS), PAIRS))
        own = dict(strides=[1, 1], dilations=[1, 1], begin=[1, 1], output=[9, 14], groups=1, fill=0)
        return call("halotile.dot_conv", data, weight(w), **own)

    build = staged(module_of([x], body), resolve(V3), tiled=False)
    assert any(s.startswith("winograd F(4x4,3x3)") and ", int16" in s for s in (k.schedule for k in build.kernels))
    (found,) = Compiled(build).run([x])
    np.testing.assert_array_equal(found, wanted)


def chain() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Three quantised layers of odd sizes, the last with a residual."""
    rng = np.random.default_rng(5)
    constants: list[onnx.TensorProto] = []

    def const(array: Any, dtype: str = "float32") -> str:
        constants.append(numpy_helper.from_array(np.asarray(array, dtype), f"c{len(constants)}"))
        return constants[-1].name

    step, byte = const(0.02), const(117, "uint8")
    nodes = []

    def bytes_of(name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [name, step, byte], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", step, byte], [f"{name}_d"]))
        return f"{name}_d"

    last = first = bytes_of("x")
    for i, (channels, outputs) in enumerate(((24, 61), (61, 56), (56, 24))):
        w = const(rng.integers(-127, 128, (outputs, channels, 3, 3)), "int8")
        scale, zeros = const(rng.uniform(0.5, 1, outputs) / channels / 200), const(np.zeros(outputs), "int8")
        nodes.append(helper.make_node("DequantizeLinear", [w, scale, zeros], [f"w{i}"], axis=0))
        bias = const(rng.standard_normal(outputs))
        nodes.append(helper.make_node("Conv", [last, f"w{i}", bias], [f"y{i}"], pads=[1, 1, 1, 1]))
        if i == 2:
            nodes.append(helper.make_node("Add", [f"y{i}", first], [f"s{i}"]))
        nodes.append(helper.make_node("Relu", [f"s{i}" if i == 2 else f"y{i}"], [f"r{i}"]))
        last = bytes_of(f"r{i}")
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 24, 53, 47])]
    results = [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "chain", ends, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model, {"x": (2 * rng.standard_normal((2, 24, 53, 47))).astype(np.float32)}


@runs
def test_tiles_and_builds_without_it_have_the_same_bits() -> None:
    model, feeds = chain()
    every: dict[str, np.ndarray] = {}
    for name, options in {
        "direct": {"winograd": False, "tile": "off"},
        "whole": {"tile": "off"},
        "tiles": {"tile": {"shape": (12, 24), "bands": 1}},
        "rows": {"tile": {"shape": (9, None), "bands": 2}},
    }.items():
        build = run_pipeline(model, Options(resolve(V3), threads=2, stop_after="plan", **options))
        tiled = [k for k in build.kernels if isinstance(k, TiledKernel)]
        every_kernel = [*build.kernels, *(part for k in tiled for part in k.parts)]
        taken = [k for k in every_kernel if k.schedule.startswith("winograd F(") and ", int16" in k.schedule]
        assert bool(taken) == (name != "direct") and bool(tiled) == (name in ("tiles", "rows")), name
        (every[name],) = Compiled(build).run([feeds["x"]])
    for name, found in every.items():
        np.testing.assert_array_equal(found, every["direct"], err_msg=name)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert np.abs(every["whole"] - wanted).max() <= 0.021  # a step, where float32 rounds otherwise
