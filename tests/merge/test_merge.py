"""Products side by side become one: what is merged, what stays apart and why, and that the numbers stay."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import attention, linear, reshape, transpose
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.passes.merge import Merge
from halotile.targets.detect import native
from halotile.targets.resolve import resolve

TOKENS, WIDTH = 37, 60  # three products are too small for two cores, one of all columns is not


def model(build: Callable[[ModelGraph], dict[str, str]]) -> onnx.ModelProto:
    g = ModelGraph("side_by_side", ExportForm(opset=17))
    return g.finish(**build(g))


def heads(g: ModelGraph, y: str, keys: bool = False) -> str:
    n, t, c = (int(d) for d in g.shape(y))
    return transpose(g, reshape(g, y, (n, t, 3, c // 3)), *((0, 2, 3, 1) if keys else (0, 2, 1, 3)))


def own(g: ModelGraph) -> dict[str, str]:
    """Queries, keys and values of one sequence, with biases."""
    return {"y": attention(g, g.input("x", (1, TOKENS, WIDTH)), 3)}


def some_biases(g: ModelGraph) -> dict[str, str]:
    """Keys without a bias, two images."""
    x = g.input("x", (2, TOKENS, WIDTH))
    q, k, v = (linear(g, x, WIDTH, bias=b) for b in (True, False, True))
    scores = g.op("MatMul", heads(g, q), heads(g, k, keys=True))
    return {"y": g.op("MatMul", g.op("Softmax", scores, axis=-1), heads(g, v))}


def cross(g: ModelGraph) -> dict[str, str]:
    """Keys and values of another sequence: only those read the same."""
    x, context = g.input("x", (1, 20, WIDTH)), g.input("context", (1, 51, WIDTH))
    return {"y": attention(g, x, 3, context=context)}


def keys_leave(g: ModelGraph) -> dict[str, str]:
    """The keys are an output of the model as well (a cache)."""
    x = g.input("x", (1, TOKENS, WIDTH))
    q, k, v = (linear(g, x, WIDTH) for _ in range(3))
    scores = g.op("MatMul", heads(g, q), heads(g, k, keys=True))
    return {"y": g.op("MatMul", g.op("Softmax", scores, axis=-1), heads(g, v)), "keys": k}


def tied_weights(g: ModelGraph) -> dict[str, str]:
    """Queries of one sequence and keys of another have one matrix."""
    x, context = g.input("x", (1, TOKENS, WIDTH)), g.input("context", (1, 51, WIDTH))
    w = g.weight("w", g.normal((WIDTH, WIDTH), 0.2))
    q, k, v = g.op("MatMul", x, w), g.op("MatMul", context, w), linear(g, context, WIDTH)
    scores = g.op("MatMul", heads(g, q), heads(g, k, keys=True))
    return {"y": g.op("MatMul", g.op("Softmax", scores, axis=-1), heads(g, v))}


def gated(g: ModelGraph) -> dict[str, str]:
    x = g.input("x", (1, TOKENS, WIDTH))
    return {"y": g.op("Mul", g.op("Sigmoid", linear(g, x, WIDTH)), linear(g, x, WIDTH))}


def feeds_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in proto.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def products(report: dict[str, Any]) -> int:
    return sum(k["schedule"].startswith("matmul") for k in report["kernels"])


@pytest.mark.parametrize(
    "build, expected, merged",
    [(own, 2, 3), (some_biases, 1, 3), (cross, 3, 2), (keys_leave, 2, 2), (tied_weights, 3, 0), (gated, 2, 0)],
)
def test_one_product_with_the_same_numbers(build: Any, expected: int, merged: int) -> None:
    """``expected`` products are left, the one behind the attention included."""
    proto = model(build)
    feeds = feeds_of(proto)
    reference = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
    with tempfile.TemporaryDirectory() as folder:
        report = run_pipeline(proto, Options(native(), threads=2, matrix=False), output=Path(folder) / "library").report
        assert products(report) == expected, [k["name"] for k in report["kernels"]]
        assert not any("map" in k["schedule"] for k in report["kernels"])
        notes = [n for n in report["notes"].get("merge", []) if "become one product" in n]
        assert [n.split(" become")[0].count(",") + 1 for n in notes] == ([merged] if merged else [])
        with halotile.load(Path(folder) / "library") as compiled:
            results = [compiled(feeds, threads=t) for t in (1, 2, 3)]
    for name, wanted in zip(results[0], reference, strict=True):
        np.testing.assert_allclose(results[0][name], wanted, rtol=2e-4, atol=2e-5)
        for other in results[1:]:
            np.testing.assert_array_equal(other[name], results[0][name])


def test_weights_move_and_the_bits_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    proto = model(some_biases)
    feeds = feeds_of(proto)
    found = []
    for gain in (1.0, 0.0):
        monkeypatch.setattr("halotile.passes.merge.merge.GAIN", gain)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "library"
            report = run_pipeline(proto, Options(native(), threads=2, exact=True), output=path).report
            found.append((products(report), report["weight_bytes"], halotile.load(path)(feeds)["y"]))
    (one, less, merged), (three, more, apart) = found
    assert (one, three) == (1, 3) and 3 * WIDTH * WIDTH * 4 <= less <= more + 64
    np.testing.assert_array_equal(merged, apart)


@pytest.mark.parametrize("build, why", [(keys_leave, "would be copied"), (tied_weights, "used elsewhere")])
def test_the_reason_is_noted(build: Any, why: str) -> None:
    report = run_pipeline(model(build), Options(native(), threads=2, stop_after="fuse")).report
    assert any("stays apart" in n and why in n for n in report["notes"]["merge"])


def test_off_where_it_gains_nothing() -> None:
    """On one core, whole tiles alone and together; on two, one launch saves the others."""
    proto = model(lambda g: {"y": attention(g, g.input("x", (1, 48, 384)), 6)})
    target = resolve("raspberry-pi-5")
    module = run_pipeline(proto, Options(target, stop_after="simplify")).module
    alone, both = (Merge(threads, strassen=False).apply(module, target) for threads in (1, 2))
    assert not alone.changed and "stay side by side" in alone.notes[0]
    assert both.changed and both.details == {"merged": 3}
    assert not Merge(2, strassen=False).apply(both.module, target).changed
