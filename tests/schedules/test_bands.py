"""Cores take bands of rows: every element once, the same bits for every number of cores, margins and means included."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.conv.direct import kernel as direct
from halotile.schedules.conv.winograd import algorithm as winograd_algorithm
from halotile.schedules.kernel.context import Context
from halotile.schedules.kernel.work_sharing import bands
from halotile.schedules.operators.te_graph import GroupGraph
from halotile.schedules.words.group import Group, Request
from halotile.targets.resolve import resolve
from tvm import relax, tirx
from tvm.ir.prim import expr as prim
from tvm.tirx.stmt import ForKind

R = relax.op
F = "float32"


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(F) / 4


def build(arrays: list[np.ndarray], body: Any, cores: int) -> Any:
    return staged(module_of(arrays, body), replace(native(), cores=cores), tiled=False)


OPERATORS: dict[type, Callable[[int, int], int]] = {
    prim.Add: operator.add,
    prim.Sub: operator.sub,
    prim.Mul: operator.mul,
    prim.FloorDiv: operator.floordiv,
    prim.FloorMod: operator.mod,
    prim.Max: max,
    prim.Min: min,
}


def evaluate(expr: Any, known: dict[Any, int]) -> int:
    if isinstance(expr, prim.IntImm):
        return int(expr.value)
    if isinstance(expr, tirx.Var):
        return known[expr]
    return OPERATORS[type(expr)](evaluate(expr.a, known), evaluate(expr.b, known))


def visits(
    images: int, groups: int, rows: int, cores: int, order: str, *passed: int
) -> list[list[tuple[int, int, int]]]:
    """What each task of a loop over bands does, evaluated in Python."""
    request = Request(Group("g", (), (), ()), {}, replace(native(), cores=cores))
    ctx = Context(request, GroupGraph(request.group), "g")
    out = ctx.k.pointer("out", "int32", 1)
    with bands(ctx, images, groups, rows, True, order, None, *passed) as (image, group, row):
        ctx.k.store(out, 0, image * 1_000_000 + group * 1000 + row)
    function = ctx.k.finish()
    found: list[list[tuple[int, int, int]]] = []

    def run(statement: Any, known: dict[Any, int]) -> None:
        if isinstance(statement, tirx.SeqStmt):
            for part in statement.seq:
                run(part, known)
        elif isinstance(statement, tirx.Bind):
            known[statement.var] = evaluate(statement.value, known)
        elif isinstance(statement, tirx.For):
            first = evaluate(statement.min, known)
            for i in range(first, first + evaluate(statement.extent, known)):
                if int(statement.kind) == int(ForKind.PARALLEL):
                    found.append([])
                run(statement.body, {**known, statement.loop_var: i})
        elif isinstance(statement, tirx.BufferStore):
            code = evaluate(statement.value, known)
            if not found:
                found.append([])
            found[-1].append((code // 1_000_000, code // 1000 % 1000, code % 1000))

    run(function.body, {})
    return found


@pytest.mark.parametrize("order", ["bands", "rows", "groups"])
@pytest.mark.parametrize(
    "images,groups,rows,cores", [(1, 3, 7, 2), (1, 1, 5, 3), (1, 5, 1, 2), (2, 3, 4, 2), (3, 2, 5, 2), (1, 2, 2, 8)]
)
def test_every_pair_once_and_fairly(images: int, groups: int, rows: int, cores: int, order: str) -> None:
    tasks = visits(images, groups, rows, cores, order)
    together = [pair for task in tasks for pair in task]
    every = [(n, g, r) for n in range(images) for g in range(groups) for r in range(rows)]
    assert sorted(together) == every
    assert max(map(len, tasks)) - min(map(len, tasks)) <= 1
    if order == "bands" and images == 1:
        for earlier, later in zip(tasks, tasks[1:]):
            assert max(r for _, _, r in earlier) <= min(r for _, _, r in later)  # only a row between them is shared


@pytest.mark.parametrize("order", ["bands", "rows", "groups"])
@pytest.mark.parametrize("images,groups,rows,cores", [(1, 3, 7, 2), (1, 5, 1, 2), (2, 3, 4, 2), (3, 2, 5, 2)])
def test_a_core_passes_over_its_own_rows_again(images: int, groups: int, rows: int, cores: int, order: str) -> None:
    once = visits(images, groups, rows, cores, order)
    thrice = visits(images, groups, rows, cores, order, 3)
    for own, again in zip(once, thrice, strict=True):
        for turn in range(3):
            assert [(n, g // 3, r) for n, g, r in again if g % 3 == turn] == own
        places = [(n, g // 3, g % 3, r) for n, g, r in again]
        assert all(a < b for a, b in zip(places, places[1:]) if a[:2] == b[:2] and (order != "rows" or a[3] == b[3]))


@pytest.mark.parametrize("order", ["bands", "groups"])
@pytest.mark.parametrize("groups,height,step,cores", [(4, 7, 2, 2), (64, 7, 2, 3), (3, 13, 4, 2), (5, 9, 4, 4)])
def test_a_short_last_row_counts_less(groups: int, height: int, step: int, cores: int, order: str) -> None:
    rows, short = -(-height // step), -height % step
    tasks = visits(1, groups, rows, cores, order, 1, step, short)
    assert sorted(pair for task in tasks for pair in task) == [(0, g, r) for g in range(groups) for r in range(rows)]
    work = [sum(step - short * (r == rows - 1) for _, _, r in task) for task in tasks]
    assert max(work) <= groups * height / cores + step


def chain(x: Any) -> Any:
    """Margins of several widths, strides, a depthwise layer, a mean over images, a gate, and a pool."""
    y = R.nn.relu(R.nn.conv2d(x, weight(random(37, 21, 5, 5)), padding=2))
    y = R.nn.relu(R.nn.conv2d(y, weight(random(37, 1, 5, 5)), strides=(2, 1), padding=(2, 2, 1, 3), groups=37))
    gate = R.sigmoid(R.nn.conv2d(R.mean(y, axis=(2, 3), keepdims=True), weight(random(37, 37, 1, 1))))
    y = R.nn.conv2d(R.multiply(y, gate), weight(random(50, 37, 1, 1)))
    return R.nn.relu(R.nn.conv2d(R.nn.max_pool2d(y, (3, 3), padding=(1, 1)), weight(random(18, 50, 5, 5)), padding=2))


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_the_same_bits_for_every_number_of_cores(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = random(batch, 21, 29, 23)
    monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda *_, **__: None)  # which may depend on the cores
    alone = Compiled(build([x], chain, 1)).run([x], tasks=1)[0]
    assert np.isfinite(alone).all() and alone.std() > 0
    for cores in (2, 3, 7):
        compiled = Compiled(build([x], chain, cores))
        for tasks in (1, 2, cores, cores + 2):
            np.testing.assert_array_equal(compiled.run([x], tasks=tasks)[0], alone)
        assert compiled.launches > 0


def test_layers_of_one_image_are_dealt_by_rows() -> None:
    """Convolutions, the gate and the mean: as many tasks as cores, whose loops over rows begin where the core's do."""
    x = random(1, 21, 53, 23)
    found = build([x], chain, 3)
    dealt = [k for k in found.kernels if re.search(r"for \w+ in T\.parallel\(3\)", str(k.function))]
    names = " ".join(k.schedule for k in dealt)
    assert "direct" in names and "depthwise" in names and "map" in names and "staged" in names
    depthwise = next(k for k in dealt if k.schedule.startswith("depthwise"))
    assert re.search(r"for \w+ in range\(\(?\w+ \* \d+.*//", str(depthwise.function))


def test_a_mean_adds_rows_first() -> None:
    """Against float64, and in scratch where cores share an image."""
    x = random(2, 33, 19, 41) + 3

    def same(x: Any) -> Any:
        return R.nn.conv2d(x, weight(np.eye(33, dtype=F)[:, :, None, None]))

    def body(x: Any) -> Any:
        return same(R.mean(R.nn.relu(same(x)), (2, 3), True))

    exact = np.maximum(x.astype("float64"), 0).mean((2, 3), keepdims=True)
    results = [Compiled(build([x], body, cores)).run([x], tasks=2)[0] for cores in (1, 3)]
    np.testing.assert_allclose(results[0], exact, rtol=1e-6)
    np.testing.assert_array_equal(results[0], results[1])


def test_far_heavier_weights_are_dealt_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    x, k = random(1, 96, 7, 7), random(160, 96, 5, 5)

    def text() -> str:
        found = build([x], lambda x: R.nn.conv2d(x, weight(k), padding=2), 2)
        kernel = next(k for k in found.kernels if k.schedule.startswith("direct"))
        return str(kernel.function)

    monkeypatch.setattr(winograd_algorithm, "choose_plan", lambda *_, **__: None)
    monkeypatch.setattr(direct, "OWN_GROUPS", 8)
    own = text()
    monkeypatch.setattr(direct, "OWN_GROUPS", 10**9)
    assert own != text()


@pytest.mark.parametrize(("size", "shared"), [(14, "channels"), (16, "rows")])
def test_small_images_are_shared_by_channels_from_the_layer_that_widens_them(
    size: int, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 1x1, depthwise, 1x1 only the last is shared by rows, whose bits are the same."""
    x, wide, taps, narrow = (random(*s) for s in ((1, 32, size, size), (96, 32, 1, 1), (96, 1, 3, 3), (32, 96, 1, 1)))

    def body(x: Any) -> Any:
        y = R.nn.relu(R.nn.conv2d(x, weight(wide)))
        y = R.nn.relu(R.nn.conv2d(y, weight(taps), padding=1, groups=96))
        return R.nn.conv2d(y, weight(narrow))

    orders = []

    def noted(*arguments: Any, **options: Any) -> Any:
        orders.append(arguments[5])
        return bands(*arguments, **options)

    monkeypatch.setattr("halotile.schedules.conv.kernel.bands", noted)
    monkeypatch.setattr("halotile.schedules.conv.kernel.PARALLEL_FLOPS", 0)
    found = Compiled(build([x], body, 2)).run([x], tasks=2)[0]
    assert sorted(orders) == (["bands", "groups", "groups"] if shared == "channels" else ["bands"] * 3)
    np.testing.assert_array_equal(found, Compiled(build([x], body, 1)).run([x], tasks=1)[0])


def padded_chain(x: Any, taps: int = 3) -> Any:
    """A layer in strips whose output has margins, which a depthwise layer reads."""
    y = R.nn.relu(R.nn.conv2d(x, weight(random(64, 64, taps, taps)), padding=taps // 2))
    return R.nn.conv2d(y, weight(random(64, 1, 5, 5)), padding=2, groups=64)


@pytest.mark.parametrize(
    ("machine", "kind", "taps"),
    [("x86-64-v3", "winograd", 3), ("sapphirerapids", "matrix conv", 1), ("cortex-a76", "winograd", 3)],
)
def test_no_core_writes_all_margins(machine: str, kind: str, taps: int) -> None:
    """Of kernels in strips: all stores are in the loop over cores."""
    triple = "aarch64-linux-gnu" if machine.startswith("cortex") else "x86_64-linux-gnu"
    target = replace(resolve(f"{triple}+{machine}"), cores=2)
    found = staged(module_of([random(1, 64, 28, 28)], lambda x: padded_chain(x, taps)), target, tiled=False)
    kernel = next(k for k in found.kernels if k.schedule.startswith(kind))
    assert found.layouts[kernel.outputs[0]].margins, "nothing to write"
    loops = re.findall(r"for \w+ in (\S+)", str(kernel.function))
    assert loops[0].startswith("T.parallel(2)")


@pytest.mark.sampled
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("cores", [2, 3, 5])
def test_margins_of_strips_are_whole(batch: int, cores: int) -> None:
    """What is left out would be read as NaN, with which memory is filled."""
    x = random(batch, 64, 28, 27)
    found = build([x], padded_chain, cores)
    assert any(k.schedule.startswith(("winograd", "matrix conv")) for k in found.kernels)
    alone = Compiled(build([x], padded_chain, 1)).run([x], tasks=1)[0]
    assert np.isfinite(alone).all()
    for tasks in (1, cores):
        np.testing.assert_allclose(Compiled(found).run([x], tasks=tasks)[0], alone, rtol=0, atol=1e-4 * alone.std())
