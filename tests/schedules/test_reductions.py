"""Reductions of the general generator: every subset of axes, sizes around the vector's, NaN, ties, empty axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, narrow, staged, weight
from halotile.targets.detect import native
from halotile.targets.target import Target
from tvm import relax

R = relax.op
F = "float32"


def normal(*shape: int, dtype: str = F) -> np.ndarray:
    return np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape).astype(dtype)


def exact_sum(x: np.ndarray, axes: Any, keep: bool = False) -> np.ndarray:
    return x.astype("float64").sum(axes, keepdims=keep).astype(x.dtype)


def add_axes(suite: Suite) -> None:
    """All subsets of four axes, kept or not."""
    x = normal(3, 5, 2, 37)
    for count in range(1, 5):
        for axes in itertools.combinations(range(4), count):
            for keep in (False, True):
                name = "".join(map(str, axes)) + ("k" if keep else "")
                options = {"axis": axes, "keepdims": keep}
                suite.add(f"sum{name}", [x], lambda x, o=options: R.sum(x, **o), exact_sum(x, axes, keep), 1e-5, 1e-5)
                suite.add(f"max{name}", [x], lambda x, o=options: R.max(x, **o), x.max(axes, keepdims=keep))
    suite.add("mean", [x], lambda x: R.mean(x, axis=(1, 2)), x.astype("float64").mean((1, 2)).astype(F), 1e-5, 1e-5)
    suite.add("variance", [x], lambda x: R.variance(x, axis=(0, 3)), x.astype("float64").var((0, 3)).astype(F), 1e-5)
    suite.add("prod", [x], lambda x: R.prod(x, axis=(1,)), x.prod(1), 1e-5)


def add_sizes(suite: Suite) -> None:
    """Around one vector and around UNROLL of them, along and across."""
    for size in (1, 2, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 131, 1000, 70_001):
        x = normal(size)
        suite.add(f"all{size}", [x], lambda x: R.sum(x), exact_sum(x, None), 1e-5, 1e-4)
        y = normal(2, size) if size < 2000 else normal(2, 11)
        suite.add(f"last{size}", [y], lambda y: R.min(y, axis=1), y.min(1))
        suite.add(f"first{size}", [y], lambda y: R.max(y, axis=0), y.max(0))
    strided = normal(40, 33, 3)
    suite.add("strided", [strided], lambda x: R.sum(R.permute_dims(x, (0, 2, 1)), axis=2), exact_sum(strided, 1), 1e-5)
    tall = normal(400, 301)
    suite.add("tall", [tall], lambda x: R.sum(x, axis=0), exact_sum(tall, 0), 1e-5, 1e-4)
    suite.add("tall_product", [tall, normal(400, 1)],
              lambda x, w: R.sum(R.multiply(x, w), axis=0, keepdims=True),
              exact_sum(tall * normal(400, 1), 0, True), 1e-5, 1e-4)  # fmt: skip


def add_positions(suite: Suite) -> None:
    """The first of equal elements, everywhere."""
    x = np.random.default_rng(5).integers(0, 4, (3, 5, 37)).astype(F)
    for axis in range(3):
        for keep in (False, True):
            o = {"axis": axis, "keepdims": keep}
            most, least = np.argmax(x, axis=axis, keepdims=keep), np.argmin(x, axis=axis, keepdims=keep)
            suite.add(f"argmax{axis}{keep}", [x], lambda x, o=o: R.argmax(x, **o), most)
            suite.add(f"argmin{axis}{keep}", [x], lambda x, o=o: R.argmin(x, **o), least)


def add_special(suite: Suite) -> None:
    lowest = np.full((3, 35), -np.inf, F)
    suite.add("max_of_lowest", [lowest], lambda x: R.max(x, axis=1), lowest.max(1))
    suite.add("min_of_highest", [-lowest], lambda x: R.min(x, axis=1), -lowest.max(1))
    suite.add("max_of_lowest_across", [lowest], lambda x: R.max(x, axis=0), lowest.max(0))
    for at in (0, 17, 34):
        x = normal(3, 35)
        x[1, at] = np.nan
        suite.add(f"nan_max{at}", [x], lambda x: R.max(x, axis=1), x.max(1))
        suite.add(f"nan_min{at}", [x], lambda x: R.min(x, axis=0), x.min(0))
    for dtype in ("int32", "int8", "uint8", "int64", "float64", "float16"):
        x = (normal(3, 35) * 20).astype(dtype)
        suite.add(f"max_{dtype}", [x], lambda x: R.max(x, axis=1), x.max(1))
        if dtype not in ("int8", "uint8"):
            tolerance = 1e-2 if dtype == "float16" else 1e-12
            suite.add(f"sum_{dtype}", [x], lambda x: R.sum(x, axis=0), x.sum(0).astype(dtype), tolerance, tolerance)
    empty = np.zeros((3, 0, 5), F)
    suite.add("sum_of_nothing", [empty], lambda x: R.sum(x, axis=1), np.zeros((3, 5), F))
    suite.add("max_of_nothing", [empty], lambda x: R.max(x, axis=1), np.full((3, 5), -np.inf, F))
    suite.add("no_result", [empty], lambda x: R.sum(x, axis=2), np.zeros((3, 0), F))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x.astype("float64") - x.max(axis, keepdims=True))
    return (e / e.sum(axis, keepdims=True)).astype(x.dtype)


def add_norms(suite: Suite) -> None:
    for shape in ((3, 5, 37), (2, 19, 4, 5), (1, 67), (300, 131), (1, 1, 1)):
        x = normal(*shape) * 5
        for axis in range(len(shape)):
            name = "x".join(map(str, shape)) + f"_{axis}"
            suite.add(f"softmax{name}", [x], lambda x, a=axis: R.nn.softmax(x, a), softmax(x, axis), 1e-5, 1e-7)
            logs = np.log(softmax(x.astype("float64"), axis)).astype(F)
            suite.add(f"log_softmax{name}", [x], lambda x, a=axis: R.nn.log_softmax(x, a), logs, 1e-5, 1e-5)
    few = normal(1, 21, 40, 41)  # one row, so large that every phase is a launch
    suite.add("softmax_few_rows", [few], lambda x: R.nn.softmax(x, 1), softmax(few, 1), 1e-5, 1e-7)
    suite.add("argmax_few_rows", [few], lambda x: R.argmax(x, axis=1, keepdims=True), few.argmax(1)[:, None])
    x = normal(3, 5, 37) * 3 + 7
    for axes in ((2,), (1, 2), (0, 1, 2)):
        shape = tuple(x.shape[a] for a in axes)
        gamma, beta = normal(*shape), normal(*shape) + 1
        wide = x.astype("float64")
        centred = wide - wide.mean(axes, keepdims=True)
        scale = np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5)
        wanted = (centred / scale * gamma + beta).astype(F)
        suite.add(
            f"layer_norm{len(axes)}",
            [x, gamma, beta],
            lambda x, g, b, a=axes: R.nn.layer_norm(x, g, b, axes=list(a), epsilon=1e-5),
            wanted, 1e-4, 1e-4,
        )  # fmt: skip
    deep = normal(2, 33, 7, 5)

    def instance(x: Any) -> Any:
        """Normalised over space: a mean, a variance and a map that read the same rows."""
        mean = R.mean(x, axis=(2, 3), keepdims=True)
        centred = R.subtract(x, mean)
        variance = R.mean(R.multiply(centred, centred), axis=(2, 3), keepdims=True)
        return R.multiply(centred, R.rsqrt(R.add(variance, weight(np.float32(1e-5)))))

    c = deep.astype("float64") - deep.astype("float64").mean((2, 3), keepdims=True)
    wanted = (c / np.sqrt((c**2).mean((2, 3), keepdims=True) + 1e-5)).astype(F)
    suite.add("instance", [deep], instance, wanted, 1e-4, 1e-4)
    suite.add("squeeze_excite", [deep],
              lambda x: R.multiply(x, R.sigmoid(R.mean(x, axis=(2, 3), keepdims=True))),
              (deep / (1 + np.exp(-deep.astype("float64").mean((2, 3), keepdims=True)))).astype(F), 1e-5)  # fmt: skip
    suite.add("mean_of_channels_then_map", [deep],
              lambda x: R.subtract(x, R.mean(x, axis=(1,), keepdims=True)),
              (deep - deep.astype("float64").mean(1, keepdims=True)).astype(F), 1e-5, 1e-5)  # fmt: skip
    suite.add("exp_then_sum", [deep], lambda x: R.log(R.sum(R.exp(x), axis=(3,))),
              np.log(np.exp(deep.astype("float64")).sum(3)).astype(F), 1e-5, 1e-5)  # fmt: skip
    suite.add("two_sums", [deep], lambda x: R.sum(R.sum(x, axis=(3,)), axis=(1,)), exact_sum(deep, (1, 3)), 1e-4, 1e-4)


def windows(x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], pad: tuple[int, ...], fill: float) -> Any:
    rank = len(kernel)
    padded = np.pad(x, [(0, 0), (0, 0), *[(pad[i], pad[rank + i]) for i in range(rank)]], constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=tuple(range(2, 2 + rank)))
    return view[(slice(None), slice(None), *[slice(None, None, s) for s in strides])]


def add_pools(suite: Suite) -> None:
    cases: list[tuple[tuple[int, ...], tuple[int, int], tuple[int, int], tuple[int, ...]]] = [
        ((1, 3, 13, 17), (2, 2), (2, 2), (0, 0, 0, 0)),
        ((2, 5, 14, 11), (3, 3), (2, 2), (1, 1, 1, 1)),
        ((1, 17, 9, 40), (3, 2), (1, 1), (0, 1, 2, 0)),
        ((1, 2, 7, 7), (7, 7), (1, 1), (0, 0, 0, 0)),
        ((1, 4, 33, 70), (3, 3), (1, 1), (1, 1, 1, 1)),
        ((1, 4, 5, 70), (1, 5), (1, 3), (0, 2, 0, 2)),
    ]
    for i, (shape, kernel, strides, pad) in enumerate(cases):
        x = normal(*shape)
        x[0, 0, 2, 3] = np.nan
        o = {"pool_size": kernel, "strides": strides, "padding": pad}
        most = np.fmax.reduce(windows(x, kernel, strides, pad, -np.inf), axis=(-1, -2))  # passes over a NaN
        suite.add(f"max_pool{i}", [x], lambda x, o=o: R.nn.max_pool2d(x, **o), most)
        mean = windows(x.astype("float64"), kernel, strides, pad, 0).mean((-1, -2)).astype(F)
        suite.add(
            f"avg_pool{i}", [x], lambda x, o=o: R.nn.avg_pool2d(x, count_include_pad=True, **o), mean, 1e-5, 1e-5
        )
    line = normal(2, 3, 50)
    suite.add("max_pool1d", [line], lambda x: R.nn.max_pool1d(x, (3,), (2,), (1, 1)),
              windows(line, (3,), (2,), (1, 1), -np.inf).max(-1))  # fmt: skip
    cube = normal(1, 3, 6, 7, 9)
    suite.add("avg_pool3d", [cube], lambda x: R.nn.avg_pool3d(x, (2, 3, 2), (2, 1, 2)),
              windows(cube, (2, 3, 2), (2, 1, 2), (0,) * 6, 0).mean((-1, -2, -3)), 1e-5, 1e-5)  # fmt: skip


FILL: tuple[Callable[[Suite], None], ...] = (add_axes, add_sizes, add_positions, add_special, add_norms, add_pools)


def filled(bits: int | None) -> Suite:
    suite = Suite(narrow(bits)) if bits else Suite()
    for add in FILL:
        add(suite)
    return suite


@pytest.fixture(scope="module", params=[None, 128], ids=["native", "128-bit"])
def suite(request: pytest.FixtureRequest) -> Suite:
    suite = filled(request.param)
    suite.compile()
    return suite


@pytest.mark.parametrize(
    "axes, prefix",
    [((1,), 2), ((3,), 3), ((2, 3), 2), ((1, 2), 1), ((0,), 2)],
)
def test_lanes_have_an_axis_to_run_over(axes: tuple[int, ...], prefix: int) -> None:
    """Phases share the axes before those that vectors need: a reduction across memory keeps its last axis."""
    x = np.zeros((3, 5, 7, 37), F)
    arrays = module_of([x], lambda x: R.sqrt(R.mean(x, axis=axes)))
    (kernel,) = staged(arrays).kernels
    assert f"prefix {prefix}" in kernel.schedule


def test_few_large_rows_are_a_launch_for_each_phase() -> None:
    x = np.zeros((1, 21, 64, 64), F)
    few = Compiled(staged(module_of([x], lambda x: R.nn.softmax(x, 1))))
    few.run([x])
    many = Compiled(staged(module_of([np.zeros((64, 21, 64), F)], lambda x: R.nn.softmax(x, 2))))
    many.run([np.zeros((64, 21, 64), F)])
    assert few.launches >= 3 and many.launches == 1


def softmax_of(rows: int, columns: int) -> tuple[Compiled, str]:
    x = normal(rows, columns)
    build = staged(module_of([x], lambda x: R.nn.softmax(x, 1)))
    compiled = Compiled(build)
    powers = np.exp(x.astype("float64"))
    np.testing.assert_allclose(compiled.run([x])[0], powers / powers.sum(1, keepdims=True), 1e-5, 1e-7)
    return compiled, str(build.kernels[0].function)


def test_rows_take_turns_in_every_phase() -> None:
    """Two at a time, also where one is left over; not where rows are large, or too few for the cores."""
    cores = native().cores
    _, text = softmax_of(8 * cores + 3, 45)
    assert f"T.min(2, {8 * cores + 3} - row" in text
    for rows, columns in ((8 * cores - 1, 45), (8 * cores + 3, native().l1_bytes // 8)):
        _, text = softmax_of(rows, columns)
        assert "T.min(2," not in text


def test_short_rows_take_turns_in_fours() -> None:
    """Rows that become one number, of up to 512 bytes, of which there are enough."""
    rows = 16 * native().cores + 3

    def turns(columns: int) -> set[int]:
        x = normal(rows, columns)
        build = staged(module_of([x], lambda x: R.mean(x, 1, keepdims=True)))
        wanted = x.astype("float64").mean(1, keepdims=True)
        np.testing.assert_allclose(Compiled(build).run([x])[0], wanted, 1e-5, 1e-6)
        text = str(build.kernels[0].function)
        return {t for t in (2, 4) if f"T.min({t}, {rows} - row" in text}

    assert [turns(columns) for columns in (49, 127, 128)] == [{4}, {4}, {2}]
    _, text = softmax_of(rows, 45)
    assert "T.min(2," in text


def test_pairs_of_rows_ask_for_the_next_two() -> None:
    """Their lines, read and written, beside the last phase; not where four rows fill a third of the first level, nor
    what all rows read, nor on cores that start one multiply-add in a cycle."""
    rows = 8 * native().cores + 3
    target = replace(native(), l1_bytes=48 << 10, fma_ports=2)

    def hints(columns: int, target: Target) -> tuple[int, int]:
        x, w = normal(rows, columns), normal(columns)
        build = staged(module_of([x], lambda x: R.nn.layer_norm(x, weight(w), weight(w), axes=-1)), target)
        mean, spread = x.mean(1, keepdims=True), x.astype("float64").var(1, keepdims=True)
        wanted = (x - mean) / np.sqrt(spread + 1e-5) * w + w
        np.testing.assert_allclose(Compiled(build).run([x])[0], wanted, 1e-4, 1e-5)
        text = str(build.kernels[0].function)
        return text.count("T.prefetch("), text.count(", 1, 3, 1)")

    assert hints(384, target) == (2, 1)
    assert hints(512, target) == (2, 1)
    assert hints(513, target) == hints(384, replace(target, fma_ports=1)) == (0, 0)


@pytest.mark.parametrize("name", list(filled(None).cases))
def test_equals_numpy(suite: Suite, name: str) -> None:
    suite.check(name)
