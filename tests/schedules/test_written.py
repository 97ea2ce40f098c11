"""Lines written out: reads at places known at compile time are whole vectors and shuffles, in one phase or two."""

from __future__ import annotations

import re
from typing import Any

import halotile
import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, narrow, native, staged, weight
from halotile.schedules.operators import registry as operator
from halotile.schedules.words.layout import Layout
from onnx import helper, numpy_helper
from tvm import relax

R = relax.op
F = "float32"


def resampled(x: Any, index: np.ndarray, weights: np.ndarray, axis: int) -> Any:
    return operator.call("halotile.resample", x, weight(index.astype("int32")), weight(weights.astype(F)), axis=axis)


def linear(size: int, out: int) -> tuple[np.ndarray, np.ndarray]:
    at = (np.arange(out) + 0.5) * size / out - 0.5
    low = np.floor(at).astype(int)
    ratio = at - low
    return np.stack([low, low + 1], 1).clip(0, size - 1), np.stack([1 - ratio, ratio], 1)


def apply(x: np.ndarray, table: tuple[np.ndarray, np.ndarray], axis: int) -> np.ndarray:
    index, weights = table
    taken = np.take(x.astype("float64"), index, axis)  # [..., o, k, ...]
    shape = [1] * taken.ndim
    shape[axis : axis + 2] = weights.shape
    return (taken * weights.reshape(shape)).sum(axis + 1)


@pytest.mark.parametrize("bits", [512, 256, 128])
@pytest.mark.parametrize(("size", "out"), [(20, 34), (33, 66), (100, 37), (7, 61), (3, 40), (64, 16), (1, 50), (50, 1)])
def test_resized_rows_and_columns(size: int, out: int, bits: int) -> None:
    """The rows are made once, in whole vectors; the columns are shuffles of those."""
    x = np.random.default_rng(size).standard_normal((2, 3, 9, size)).astype(F)
    x[1, 2, 4, size // 2] = np.nan
    x[0, 0, 3, size // 3] = np.inf
    tall, wide = linear(9, 14), linear(size, out)
    module = module_of([x], lambda x: R.nn.relu(resampled(resampled(x, *tall, 2), *wide, 3)))
    compiled = Compiled(staged(module, narrow(bits)))
    (kernel,) = compiled.build.kernels
    with np.errstate(invalid="ignore"):
        expected = apply(apply(x, tall, 2), wide, 3)
    (got,) = compiled.run([x])
    np.testing.assert_allclose(got, np.where(expected < 0, 0, expected).astype(F), rtol=1e-5, atol=1e-5)
    text = str(kernel.function)
    if size >= 16 and out >= 16:
        assert "2 phases, prefix 3" in kernel.schedule
        assert "Shuffle" in text, kernel.schedule
        # lanes multiply and add: every read of the scratch row is a whole vector
        assert not re.search(r"= s\d+\[.*b\d\[", text), "one element a lane is read"


def test_channel_blocks_store_rows_where_they_are_few() -> None:
    """Twice as many rows as there are to store: worth it; half as many: each place is computed where it is read."""
    for factor, phases in ((2, True), (0.5, False)):
        x = np.random.default_rng(3).standard_normal((1, 32, 16, 24)).astype(F)
        tall, wide = linear(16, int(16 * factor)), linear(24, int(24 * factor))

        def blocked(build: Any) -> dict[Any, Layout]:
            values = {v for g in build.groups for v in (*g.inputs, *g.outputs)}
            return {v: Layout(v.shape, 16 if len(v.shape) == 4 else 0) for v in values}

        module = module_of([x], lambda x, t=tall, w=wide: resampled(resampled(x, *t, 2), *w, 3))
        build = staged(module, layouts=blocked)
        assert ("2 phases" in build.kernels[0].schedule) == phases, build.kernels[0].schedule


def add_gathers(suite: Suite) -> None:
    """Borders reflected, repeated and wrapped, shuffled, repeated, backwards; short, odd and long lines."""
    rng = np.random.default_rng(4)
    for size in (3, 5, 16, 17, 40, 300):
        x = rng.standard_normal((2, 6, size)).astype(F)
        x[0, 1, size // 2] = np.nan
        for mode in ("reflect", "edge", "wrap"):
            table = np.pad(np.arange(size), (min(size - 1, 5), min(size - 1, 3)), mode)
            suite.add(f"{mode}{size}", [x], lambda x, t=table: R.take(x, weight(t), axis=2), x[..., table])
        table = rng.integers(-size, size, 75)
        suite.add(f"any{size}", [x], lambda x, t=table: R.take(x, weight(t), axis=2), x[..., table])
        rows = rng.integers(0, 6, 50)
        suite.add(f"rows{size}", [x], lambda x, t=rows: R.permute_dims(R.take(x, weight(t), axis=1), (0, 2, 1)),
                  x[:, rows].transpose(0, 2, 1))  # fmt: skip
    ints = rng.integers(-9, 9, (4, 33)).astype("int64")
    twice, mixed = np.repeat(np.arange(33), 2), rng.permutation(5000)
    suite.add("int64", [ints], lambda x: R.take(x, weight(twice), axis=1), ints[:, twice])
    suite.add("bool", [ints > 0], lambda x: R.take(x, weight(twice), axis=1), ints[:, twice] > 0)
    half = rng.standard_normal((4, 33)).astype("float16")
    suite.add("float16", [half], lambda x: R.take(x, weight(twice), axis=1), half[:, twice])
    long = rng.standard_normal((1, 5000)).astype(F)
    suite.add("long", [long], lambda x: R.take(x, weight(mixed), axis=1), long[:, mixed])


SUITE = Suite()
add_gathers(SUITE)


@pytest.mark.parametrize("name", list(SUITE.cases))
def test_gathers(name: str) -> None:
    SUITE.check(name)


def test_borders_are_shuffles() -> None:
    x = np.random.default_rng(5).standard_normal((3, 20, 50)).astype(F)
    table = np.pad(np.arange(50), 3, "reflect")
    compiled = Compiled(staged(module_of([x], lambda x: R.take(x, weight(table), axis=2))))
    np.testing.assert_array_equal(compiled.run([x])[0], x[..., table])
    text = str(compiled.build.kernels[0].function)
    assert "Shuffle" in text and f"T.vectorized({native().lanes()})" in text


@pytest.mark.parametrize("height", [16, 9])
def test_positions_shared_by_channels_are_no_lanes(height: int) -> None:
    """GridSample in channel blocks: rows of the output are no channels, not even where there are as many."""
    rng = np.random.default_rng(6)
    x, grid = rng.standard_normal((1, 16, 8, 8)).astype(F), rng.uniform(-1, 1, (1, height, 5, 2)).astype(F)
    o = {"mode": "linear", "padding": "border", "align_corners": True}

    def body(x: Any, g: Any) -> Any:
        return operator.call("halotile.grid_sample", x, g, **o)

    def blocked(build: Any) -> dict[Any, Layout]:
        values = {v for g in build.groups for v in (*g.inputs, *g.outputs)}
        return {v: Layout(v.shape, 16 if v.shape[1] == 16 and v.shape[-1] != 2 else 0) for v in values}

    plain = Compiled(staged(module_of([x, grid], body))).run([x, grid])[0]
    lanes = Compiled(staged(module_of([x, grid], body), narrow(512), layouts=blocked)).run([x, grid])[0]
    np.testing.assert_allclose(lanes[:, 0].transpose(0, 3, 1, 2), plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("channels", [16, 5])
def test_resized_parts_of_a_concatenation(channels: int) -> None:
    """In channel blocks no part is stored first: its channels are others than those of what reads it."""
    sizes = [(2, 3), (4, 6), (8, 12), (16, 24)]
    nodes = [
        helper.make_node("Resize", [f"x{i}", "", "", "s"], [f"r{i}"], mode="linear") for i in range(len(sizes))
    ]
    nodes.append(helper.make_node("Concat", [n.output[0] for n in nodes], ["c"], axis=1))
    nodes.append(helper.make_node("Conv", ["c", "w"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(f"x{i}", 1, [1, channels, *s]) for i, s in enumerate(sizes)],
        [helper.make_tensor_value_info("y", 1, None)],
        [
            numpy_helper.from_array(np.array([1, channels, 16, 24]), "s"),
            numpy_helper.from_array(np.random.default_rng(4).standard_normal((16, 4 * channels, 1, 1)).astype(F), "w"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    compiled = halotile.compile(model, threads=1, tile="off")
    (kernel,) = (k for k in compiled.report["kernels"] if "concat" in k["name"])
    assert kernel["schedule"].startswith("map, lanes")
    check = compiled.verify()
    assert check.ok, check.message()
