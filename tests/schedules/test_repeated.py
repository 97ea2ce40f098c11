"""Kernels of groups that are the same are built once, and are those that each group would have had by itself."""

from __future__ import annotations

from typing import Any

import halotile
import numpy as np
import onnx
import pytest
import tvm_ffi
from halotile.benchmarks.models import MODELS
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.reassociate import compose
from halotile.schedules import dispatch
from halotile.schedules.kernel.cache import Repeats
from halotile.schedules.words.group import Packed, Scratch, Value
from halotile.targets.detect import native
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
ROUNDS = 20


def unrolled(own: bool = False, clips: bool = False) -> onnx.ModelProto:
    """A decoder's rounds: two products that are one, a step of the state, and scores of each round. ``own``: weights of
    its own in each round; ``clips``: bounds of its own."""
    rng = np.random.default_rng(5)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32), name)

    held = [weight("up", 37, 53), weight("score", 53, 11), weight("bias", 11)]
    nodes, state, scores = [], "x", []
    for i in range(ROUNDS):
        if own or not i:
            held.append(weight(f"w{i}", 37, 37))
        low = 0.1 * i if clips else 0.3
        held += [numpy_helper.from_array(np.float32(v), f"{n}{i}") for n, v in (("low", -low - 0.1), ("high", low + 2))]
        nodes += [
            node("MatMul", [state, f"w{i if own else 0}"], [f"p{i}"]),
            node("Clip", [f"p{i}", f"low{i}", f"high{i}"], [f"h{i}"]),
            node("Concat", [f"h{i}", "x"], [f"j{i}"], axis=0),
            node("Split", [f"j{i}"], [f"a{i}", f"b{i}"], axis=0, num_outputs=2),
            node("Softmax", [f"a{i}"], [f"s{i}"], axis=1),
            node("Add", [f"s{i}", f"b{i}"], [f"n{i}"]),
            node("MatMul", [f"n{i}", "up"], [f"u{i}"]),
            node("MatMul", [f"u{i}", "score"], [f"v{i}"]),
            node("Add", [f"v{i}", "bias"], [f"y{i}"]),
        ]
        state = f"n{i}"
        scores.append(f"y{i}")
    nodes.append(node("Concat", scores, ["y"], axis=0))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 37])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests for which a generator has run."""
    asked: list[Any] = []
    build = dispatch.build_kernel
    monkeypatch.setattr(dispatch, "build_kernel", lambda request: asked.append(request) or build(request))
    return asked


def test_rounds_of_a_loop_share_their_kernels(count: list[Any]) -> None:
    model = halotile.compile(unrolled())
    kernels = len(model.report["kernels"])
    assert kernels >= 3 * ROUNDS and len(count) < kernels // 4
    assert model.verify().ok
    assert model.report["weight_bytes"] < 4 * 4 * (37 * 37 + 37 * 53 + 53 * 11)


@pytest.mark.parametrize("what", ["own", "clips"])
def test_other_constants_are_other_kernels(what: str, count: list[Any]) -> None:
    model = halotile.compile(unrolled(**{what: True}))
    products = sum("relax.matmul" in r.group.operators for r in count)
    assert products >= ROUNDS
    assert model.verify().ok


@pytest.mark.parametrize(
    "case", ["unrolled", "clips", "bert", "swin", "mobilenet_v2", "unet", "shufflenet_v2", "densenet"]
)
def test_a_shared_kernel_is_the_one_that_would_have_been_built(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = unrolled(clips=case == "clips") if case in ("unrolled", "clips") else MODELS[case].model(small=True)
    options = Options(native(), threads=2, stop_after="plan")
    shared = run_pipeline(model, options)
    monkeypatch.setattr(Repeats, "kernel", lambda self, request: self.build(request))
    alone = run_pipeline(model, options)
    assert len(shared.kernels) == len(alone.kernels) and shared.memory.planned_bytes == alone.memory.planned_bytes
    scratch = [o for k in shared.kernels for o in k.operands if isinstance(o, Scratch)]
    assert len(set(scratch)) == len(scratch)
    for a, b in zip(shared.kernels, alone.kernels):
        if not hasattr(a, "function"):
            continue
        assert tvm_ffi.structural_equal(a.function, b.function, map_free_vars=True)
        assert a.schedule == b.schedule and a.notes == b.notes and a.workspace == b.workspace
        assert [v.name for v in (*a.outputs, *a.inplace)] == [v.name for v in (*b.outputs, *b.inplace)]
        for x, y in zip(a.operands, b.operands, strict=True):
            assert type(x) is type(y)
            if isinstance(x, Packed):
                np.testing.assert_array_equal(x.data, y.data)
            elif isinstance(x, Value):
                assert x.name == y.name
            else:
                assert x.bytes == y.bytes


def test_a_pair_of_weights_is_multiplied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    product = compose._product
    monkeypatch.setattr(compose, "_product", lambda *operands: made.append(operands) or product(*operands))
    build = run_pipeline(unrolled(), Options(native(), threads=1, stop_after="fuse"))
    weights = {n.operands[1] for n in build.graph.nodes if n.operator == "relax.matmul"}
    assert len(made) == 1 and len(weights) == 2
