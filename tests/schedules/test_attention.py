"""Attention as one kernel: every form of it against ONNX Runtime, one kernel in the plan, the same bits throughout."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import attention, transpose
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.targets.detect import native
from halotile.targets.resolve import resolve
from uncompiled import reported

Build = Callable[[ModelGraph], str]
RNG = np.random.default_rng(5)


def _qkv(g: ModelGraph, batch: int, heads: int, rows: int, keys: int, depth: int, width: int) -> tuple[str, str, str]:
    """Q, K, V as inputs (N, T, H, D): split into heads by a transpose."""
    q = g.input("q", (batch, rows, heads, depth))
    k = g.input("k", (batch, keys, heads, depth))
    v = g.input("v", (batch, keys, heads, width))
    return transpose(g, q, 0, 2, 1, 3), transpose(g, k, 0, 2, 3, 1), transpose(g, v, 0, 2, 1, 3)


def _sdpa(g: ModelGraph, q: str, k: str, v: str, score: Callable[[str], str] = lambda s: s) -> str:
    weights = g.op("Softmax", score(g.op("MatMul", q, k)), axis=-1)
    return g.op("MatMul", weights, v)


def _merged(g: ModelGraph, y: str) -> str:
    n, h, t, e = (int(d) for d in g.shape(y))
    return g.op("Reshape", transpose(g, y, 0, 2, 1, 3), g.const([n, t, h * e], "int64"), shape=(n, t, h * e))


def _plain(g: ModelGraph) -> str:
    return _merged(g, _sdpa(g, *_qkv(g, 2, 3, 37, 37, 20, 20)))


def _scaled(g: ModelGraph) -> str:
    q, k, v = _qkv(g, 1, 4, 50, 41, 24, 40)
    return _merged(g, _sdpa(g, q, k, v, lambda s: g.op("Mul", s, g.const(0.2))))


def _masked(g: ModelGraph) -> str:
    """An additive mask of -inf, with a row that is masked altogether: NaN there, and nowhere else."""
    mask = np.where(RNG.random((2, 1, 29, 35)) < 0.4, -np.inf, 0.0).astype(np.float32)
    mask[1, 0, 3] = -np.inf
    name = g.weight("mask", mask)
    return _merged(g, _sdpa(g, *_qkv(g, 2, 2, 29, 35, 16, 16), lambda s: g.op("Add", s, name)))


def _run_time_mask(g: ModelGraph) -> str:
    mask = g.input("mask", (2, 1, 1, 33))
    return _sdpa(g, *_qkv(g, 2, 2, 65, 33, 7, 9), lambda s: g.op("Add", g.op("Div", s, g.const(2.5)), mask))


def _causal(g: ModelGraph) -> str:
    keep = g.weight("keep", np.tril(np.ones((1, 1, 70, 70), bool)))
    low = g.const(-np.inf)
    return _merged(g, _sdpa(g, *_qkv(g, 1, 2, 70, 70, 32, 32), lambda s: g.op("Where", keep, s, low)))


def _bias_and_cap(g: ModelGraph) -> str:
    """A position bias for each head, and scores capped by tanh."""
    bias = g.weight("bias", RNG.standard_normal((3, 19, 31)).astype(np.float32))

    def score(s: str) -> str:
        capped = g.op("Mul", g.op("Tanh", g.op("Div", s, g.const(5.0))), g.const(5.0))
        return g.op("Add", capped, bias)

    return _sdpa(g, *_qkv(g, 2, 3, 19, 31, 12, 17), score)


def _grouped_queries(g: ModelGraph) -> str:
    """Two key heads for six query heads: expanded on the way, as exporters write it."""
    q = transpose(g, g.input("q", (1, 45, 6, 16)), 0, 2, 1, 3)
    parts = []
    for name in ("k", "v"):
        x = transpose(g, g.input(name, (1, 39, 2, 16)), 0, 2, 1, 3)
        x = g.op("Unsqueeze", x, g.const([2], "int64"))
        x = g.op("Expand", x, g.const([1, 2, 3, 39, 16], "int64"), shape=(1, 2, 3, 39, 16))
        parts.append(g.op("Reshape", x, g.const([1, 6, 39, 16], "int64"), shape=(1, 6, 39, 16)))
    return _merged(g, _sdpa(g, q, transpose(g, parts[0], 0, 1, 3, 2), parts[1]))


def _rotated(g: ModelGraph) -> str:
    """Rotary positions on Q and K."""
    q, k, v = (transpose(g, g.input(n, (1, 26, 2, 16)), 0, 2, 1, 3) for n in "qkv")
    angles = RNG.standard_normal((26, 16))
    cos = g.weight("cos", np.cos(angles).astype(np.float32))
    sin = g.weight("sin", np.sin(angles).astype(np.float32))

    def rotate(x: str) -> str:
        low = g.op("Slice", x, *(g.const([c], "int64") for c in (0, 8, 3)))
        high = g.op("Slice", x, *(g.const([c], "int64") for c in (8, 16, 3)))
        turned = g.op("Concat", g.op("Neg", high), low, axis=3)
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))

    return _merged(g, _sdpa(g, rotate(q), transpose(g, rotate(k), 0, 1, 3, 2), v))


def _single_head(g: ModelGraph) -> str:
    """Rank 3, many queries and few keys: one launch packs, another computes."""
    q, k, v = g.input("q", (1, 515, 32)), g.input("k", (1, 49, 32)), g.input("v", (1, 49, 48))
    return _sdpa(g, q, transpose(g, k, 0, 2, 1), v)


def _shared_keys(g: ModelGraph) -> str:
    """K and V broadcast over the heads."""
    q, k, v = g.input("q", (2, 3, 18, 8)), g.input("k", (2, 1, 8, 22)), g.input("v", (1, 1, 22, 8))
    return _sdpa(g, q, k, v)


def _residual(g: ModelGraph) -> str:
    x = g.input("x", (2, 23, 3, 16))
    y = transpose(g, _sdpa(g, *_qkv(g, 2, 3, 23, 23, 16, 16)), 0, 2, 1, 3)
    return g.op("Relu", g.op("Add", y, x))


def _thinned(g: ModelGraph) -> str:
    """Weights multiplied after the softmax."""
    keep = g.input("keep", (1, 2, 24, 24))
    q, k, v = _qkv(g, 1, 2, 24, 24, 8, 8)
    return g.op("MatMul", g.op("Mul", g.op("Softmax", g.op("MatMul", q, k), axis=-1), keep), v)


def _long_rows(g: ModelGraph) -> str:
    return _merged(g, _sdpa(g, *_qkv(g, 1, 2, 33, 5001, 8, 8)))


def _one_query(g: ModelGraph) -> str:
    return _merged(g, _sdpa(g, *_qkv(g, 1, 4, 1, 67, 16, 16)))


CASES = {
    f.__name__.strip("_"): f
    for f in (
        _plain, _scaled, _masked, _run_time_mask, _causal, _bias_and_cap, _grouped_queries, _rotated, _single_head,
        _shared_keys, _residual, _thinned, _long_rows, _one_query,
    )
}  # fmt: skip


def _model(build: Build) -> onnx.ModelProto:
    g = ModelGraph("attention", ExportForm(opset=17))
    return g.finish(y=build(g))


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    if "mask" in feeds:
        feeds["mask"] = np.where(feeds["mask"] < -0.5, -np.inf, feeds["mask"]).astype(np.float32)
    return feeds


def _reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, feeds)[0])


def _attention(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [k for k in report["kernels"] if k["schedule"].startswith("attention")]


@pytest.mark.parametrize("name", CASES)
def test_one_kernel_that_agrees_with_onnx_runtime(name: str) -> None:
    model = _model(CASES[name])
    feeds = _feeds(model)
    with tempfile.TemporaryDirectory() as folder:
        report = run_pipeline(model, Options(native(), threads=3), output=Path(folder) / "library").report
        assert len(_attention(report)) == 1 == len(report["kernels"]), [k["operators"] for k in report["kernels"]]
        with halotile.load(Path(folder) / "library") as compiled:
            results = [compiled(feeds, threads=t)["y"] for t in (1, 2, 3)]
    np.testing.assert_allclose(results[0], _reference(model, feeds), rtol=2e-4, atol=2e-6)
    assert np.isnan(results[0]).any() == (name == "masked")
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("name", ["plain", "causal", "masked", "single_head", "thinned"])
def test_the_bits_are_those_of_the_operators_one_by_one(name: str) -> None:
    """So that the kernel is legal in an exact build: no sum is taken in another order."""
    model = _model(CASES[name])
    feeds = _feeds(model)
    found = []
    for options in ({"exact": True}, {"fuse": False}):
        with tempfile.TemporaryDirectory() as folder:
            report = run_pipeline(
                model, Options(native(), threads=2, **options), output=Path(folder) / "library"
            ).report
            found.append(halotile.load(Path(folder) / "library")(feeds)["y"])
            assert len(_attention(report)) == (1 if "exact" in options else 0)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("fused", [False, True])
def test_splitting_and_merging_of_heads_costs_no_kernel(fused: bool) -> None:
    def build(g: ModelGraph) -> str:
        return attention(g, g.input("x", (2, 21, 48)), 3, fused_qkv=fused)

    model = _model(build)
    feeds = _feeds(model)
    compiled = halotile.compile(model, threads=2)
    assert not any("map" in k["schedule"] for k in compiled.report["kernels"])
    assert len(_attention(compiled.report)) == 1
    np.testing.assert_allclose(compiled(feeds)["y"], _reference(model, feeds), rtol=1e-4, atol=1e-5)


def test_a_score_matrix_is_nowhere_in_memory() -> None:
    def build(g: ModelGraph) -> str:
        q, k, v = g.input("q", (1, 2048, 32)), g.input("k", (1, 32, 2048)), g.input("v", (1, 2048, 32))
        return _sdpa(g, q, k, v)

    compiled = halotile.compile(_model(build), threads=1)
    assert compiled.report["arena_bytes"] < 2048 * 2048 * 4 / 8


def _scores_leave(g: ModelGraph) -> str:
    q, k, v = _qkv(g, 1, 2, 20, 20, 8, 8)
    scores = g.op("MatMul", q, k)
    return g.op("Add", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), g.op("ReduceMax", scores, keepdims=1))


def _other_axis(g: ModelGraph) -> str:
    q, k, v = _qkv(g, 1, 2, 20, 20, 8, 8)
    return g.op("MatMul", g.op("Softmax", g.op("MatMul", q, k), axis=-2), v)


def _weights(g: ModelGraph) -> str:
    x = g.input("x", (4, 20, 16))
    a, b = (g.weight(n, RNG.standard_normal((16, 16)).astype(np.float32)) for n in "ab")
    return g.op("MatMul", g.op("Softmax", g.op("MatMul", x, a), axis=-1), b)


@pytest.mark.parametrize("build", [_scores_leave, _other_axis, _weights])
def test_what_is_no_attention_stays_apart_and_right(build: Build) -> None:
    model = _model(build)
    feeds = _feeds(model)
    compiled = halotile.compile(model, threads=2)
    assert not _attention(compiled.report)
    np.testing.assert_allclose(compiled(feeds)["y"], _reference(model, feeds), rtol=1e-4, atol=1e-5)


def test_the_reason_is_noted() -> None:
    report = reported(_model(_other_axis), threads=1)
    assert any("mixes rows" in note for note in report["notes"]["fuse"])


def test_the_weights_of_a_softmax_keep_their_digits() -> None:
    """Scores 0 and x, values 0 and 1: the output is exp(x) / (1 + exp(x)), for x over all that counts and beyond."""
    x = np.concatenate([-np.logspace(-7, np.log10(87.3), 4000), [-87.7, -1e4, -1e38, 0.0]]).astype(np.float32)

    def build(g: ModelGraph) -> str:
        q, k, v = g.input("q", (1, x.size, 1)), g.input("k", (1, 1, 2)), g.input("v", (1, 2, 1))
        return _sdpa(g, q, k, v)

    compiled = halotile.compile(_model(build), threads=1)
    assert [k["schedule"].count("rows of the output scaled") for k in compiled.report["kernels"]] == [1]
    feeds = {"q": x[None, :, None], "k": np.array([[[0, 1]]], np.float32), "v": np.array([[[0], [1]]], np.float32)}
    exact = np.exp(x.astype(np.float64))
    got = compiled(feeds)["y"][0, :, 0].astype(np.float64)
    bound = 4e-7 if native().triple.startswith(("x86_64", "aarch64")) else 1e-7 * (3 + np.abs(x))
    normal = x >= -87.31
    error = np.abs(got * (1 + exact) - exact)
    assert (error <= bound * exact)[normal].all()
    np.testing.assert_array_equal(got[~normal], 0.0)
    for bad in (np.nan, np.inf):
        feeds["q"] = np.where(np.arange(x.size) == 5, bad, x).astype(np.float32)[None, :, None]
        np.testing.assert_array_equal(np.isnan(compiled(feeds)["y"][0, :, 0]), np.arange(x.size) == 5)


def test_scaled_outputs_are_for_builds_that_may_round_otherwise() -> None:
    for name, options, scaled in (
        ("plain", {}, True), ("bias_and_cap", {}, True), ("plain", {"exact": True}, False), ("thinned", {}, False)
    ):  # fmt: skip
        (kernel,) = run_pipeline(_model(CASES[name]), Options(native(), stop_after="schedule", **options)).kernels
        assert ("rows of the output scaled" in kernel.schedule) == scaled, (name, options)


def test_last_columns_wait_in_a_register() -> None:
    """Scores in memory are written in whole vectors behind the softmax alone, or as a map of themselves: what fills up
    a row's last vector is nowhere in memory, where the load of the whole would wait for its parts."""
    for name in ("plain", "scaled", "bias_and_cap"):
        (kernel,) = run_pipeline(_model(CASES[name]), Options(native(), stop_after="schedule")).kernels
        lines = [line for line in str(kernel.function).splitlines() if '= T.float32("-inf")' in line]
        filled = [line.split("[")[0].strip() for line in lines]
        assert len(filled) == 2 and not any("scores" in memory for memory in filled), "maxima, and the last vector"


def test_last_columns_of_open_keys_are_one_vector() -> None:
    """Written one by one, they would make the load of the whole wait; of a softmax of scores nothing else is read."""
    g = ModelGraph("open")
    q, k, v = g.input("q", (1, 2, "r", 16)), g.input("k", (1, 2, 16, "s")), g.input("v", (1, 2, "s", 24))
    weights = g.op("Softmax", g.op("MatMul", q, k, shape=(1, 2, "r", "s")), axis=-1)
    model = g.finish(y=g.op("MatMul", weights, v, shape=(1, 2, "r", 24)))
    (kernel,) = run_pipeline(model, Options(native(), stop_after="schedule", open=True)).kernels
    assert not re.search(r"for e\d+ in range", kernel.function.script())
    compiled = halotile.compile(model, threads=2)
    for keys in (1, 2, 15, 16, 17, 31, 67, 130):
        shapes = {"q": (1, 2, 21, 16), "k": (1, 2, 16, keys), "v": (1, 2, keys, 24)}
        feeds = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        feeds["k"][0, 0] *= 9
        np.testing.assert_allclose(compiled(feeds)["y"], _reference(model, feeds), rtol=1e-4, atol=1e-5)
        feeds["q"][0, 1, 3] = np.nan
        wrong = np.isnan(compiled(feeds)["y"])
        assert wrong[0, 1, 3].all() and wrong.sum() == 24


def test_blocks_waste_little_and_leave_room_in_the_first_level() -> None:
    """64 of 128 queries would be five tiles of 13 rows, and their scores more than the first level holds."""
    target = replace(resolve("x86-64-v4"), fma_ports=1, fma_latency=4, l1_bytes=32 << 10, l2_bytes=1 << 20)
    rows = {}
    for queries, keys in ((128, 128), (49, 49), (64, 5000)):
        model = _model(lambda g, t=queries, s=keys: _sdpa(g, *_qkv(g, 1, 4, t, s, 32, 32)))
        (kernel,) = run_pipeline(model, Options(target, stop_after="schedule")).kernels
        rows[queries] = int(kernel.schedule.split()[1])
    assert rows[128] == 32 and rows[49] == 49 and rows[64] * 5000 * 4 <= 1 << 18


def test_vectors_past_the_last_key_are_not_multiplied() -> None:
    """49 keys are seven vectors of eight: three panels of two and one of one, whose scores end where the row does."""
    model = _model(lambda g: _sdpa(g, *_qkv(g, 2, 3, 49, 49, 32, 32)))
    (kernel,) = run_pipeline(model, Options(resolve("x86-64-v3"), stop_after="schedule")).kernels
    assert "tiles 5x2x8 and 5x2x8" in kernel.schedule
    products = [line.split() for line in str(kernel.function).splitlines() if "acc" in line and "alloc" in line.lower()]
    assert len(products) == 3, products


@pytest.mark.parametrize("rows, heads, keys, depth", [(1, 4, 67, 32), (3, 1, 41, 20), (9, 2, 16, 37)])
def test_keys_that_lie_along_their_depth_are_turned_in_registers(rows: int, heads: int, keys: int, depth: int) -> None:
    """A cache of keys, as decoders read it; by one launch for all heads, and by a head a task."""

    def build(g: ModelGraph) -> str:
        k = transpose(g, g.input("k", (1, heads, keys, depth)), 0, 1, 3, 2)
        return _sdpa(g, g.input("q", (1, heads, rows, depth)), k, g.input("v", (1, heads, keys, 24)))

    model = _model(build)
    feeds = _feeds(model)
    for threads in (1, 3):
        compiled = halotile.compile(model, threads=threads)
        (kernel,) = _attention(compiled.report)
        assert ("turned in registers" in kernel["schedule"]) == (native().lanes("float32") > 1)
        np.testing.assert_allclose(compiled(feeds)["y"], _reference(model, feeds), rtol=1e-4, atol=1e-5)


def test_keys_that_lie_as_the_product_reads_them_are_not_turned() -> None:
    def build(g: ModelGraph) -> str:
        q, k, v = g.input("q", (1, 2, 20, 32)), g.input("k", (1, 2, 32, 40)), g.input("v", (1, 2, 40, 32))
        return _sdpa(g, q, k, v)

    (kernel,) = _attention(reported(_model(build), threads=1))
    assert "turned" not in kernel["schedule"]
