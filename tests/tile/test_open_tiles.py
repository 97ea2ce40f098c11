"""Tile groups of open images: right at every size, in windows that hold what their members read, within budgets."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.passes.tile.open import tile
from halotile.passes.tile.open.at_size import plan_at
from halotile.passes.tile.open.plan import Tiles, plan_open
from halotile.passes.tile.plan.checker import check_plan
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing, feeds
from ..support.open_tile_models import MODELS, chain, crossing, prepared, residual

CLOSE = 3e-5  # of the largest number of an output: sums in other orders, and Winograd's
NAMED = "x86-64-v3"
BOUNDED = {"h": "1..96", "w": "1..128"}
EDGES = ((1, 1), (2, 3), (7, 9), (8, 16), (9, 17), (23, 32), (24, 31), (25, 33), (61, 47), (96, 128))


def _sizes(model: onnx.ModelProto) -> list[dict[str, int]]:
    batches = itertools.cycle((1, 3, 2))
    named = {d.dim_param for v in model.graph.input for d in v.type.tensor_type.shape.dim}
    return [{"h": h, "w": w, **({"n": n} if "n" in named else {})} for (h, w), n in zip(EDGES, batches)]


def _compare(library: halotile.Model, model: onnx.ModelProto, least: int = 1) -> None:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, sizes in enumerate(s for s in _sizes(model) if s["h"] >= least):
        given = feeds(model, sizes, number)
        got, alone = library(given), library(given, threads=1)
        for name, want in zip(got, session.run(None, given), strict=True):
            assert got[name].shape == want.shape, sizes
            assert np.abs(got[name] - want).max() <= CLOSE * np.abs(want).max(), sizes
            assert np.array_equal(got[name], alone[name]), sizes


def _fired(library: halotile.Model) -> list[str]:
    return [k["schedule"] for k in library.report["kernels"] if k["schedule"].startswith("open tiles")]


TILES = (("chain", (4, None), 1), ("residual", (3, 8), 2), ("enlarging", (8, 32), 1))


@pytest.mark.parametrize(("name", "shape", "bands"), TILES)
def test_numbers_at_every_size(name: str, shape: tuple[int, int | None], bands: int) -> None:
    model = MODELS[name]()
    library = halotile.compile(model, threads=2, tile={"shape": shape, "bands": bands})
    assert len(_fired(library)) == 1
    _compare(library, model)


def test_what_others_read_as_well_lies_whole() -> None:
    model = crossing()
    last = [n.name for n in model.graph.node if n.op_type == "Conv"][-1]
    library = halotile.compile(model, threads=2, tile={"last": last, "shape": (4, None), "bands": 1})
    (group,) = library.report["tile"]["groups"]
    assert [v["mode"] for v in group["values"]].count("whole") == 2 < len(group["values"])
    _compare(library, model, least=2)


@pytest.mark.parametrize(("name", "rows"), [("residual", 4), ("enlarging", 3)])
def test_cores_share_each_step(name: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(groups, layouts, tiles, *rest):
        return plan_open(groups, layouts, replace(tiles, sharing=2), *rest)

    monkeypatch.setattr(tile, "plan_open", shared)
    model = MODELS[name]()
    library = halotile.compile(model, threads=2, tile={"shape": (rows, None), "bands": 1}, cache=False)
    assert all("2 cores share each step" in text for text in _fired(library)) and _fired(library)
    _compare(library, model)


SMALL = 24_000.0  # bytes of inner values: of images below some 100 positions of these models


def _kept(groups, layouts, tiles, *rest):
    return plan_open(groups, layouts, replace(tiles, kept=SMALL), *rest)


@pytest.mark.parametrize(("name", "shape", "bands"), [*TILES, ("residual", (2, None), 2), ("chain", (4, 8), 1)])
def test_small_images_are_one_tile(name: str, shape: tuple[int, int | None], bands: int, monkeypatch) -> None:
    model = MODELS[name]()
    asked = {"shape": shape, "bands": bands}
    cut = halotile.compile(model, threads=2, tile=asked)
    monkeypatch.setattr(tile, "plan_open", _kept)
    library = halotile.compile(model, threads=2, tile=asked, cache=False)
    assert len(_fired(library)) == 1
    large = {**_sizes(model)[0], "h": 2000, "w": 2001}
    arenas = [(library.arena_bytes(2, shape=s), cut.arena_bytes(2, shape=s)) for s in [*_sizes(model), large]]
    assert any(own != other for own, other in arenas)  # small images have other windows
    assert arenas[-1][0] == arenas[-1][1]  # and large ones the same
    _compare(library, model)


@pytest.mark.parametrize("name", MODELS)
def test_the_one_tile_of_a_small_image_computes_nothing_twice(name: str) -> None:
    drawn, large = random.Random(name), {"residual": 640}.get(name, 99)
    for model in prepared(MODELS[name]()):
        model.source.kept = SMALL
        for form in ((1, None, 1), (2, 7, 2), (5, 12, 1)):
            plan = model.plan(*form)
            seen = set()
            for most in (3, large, 3, 20, large, 9):
                sizes = model.sizes(drawn, most)
                at = plan_at(plan, sizes)
                checked = check_plan(at)
                assert checked.problems == [], (form, sizes)
                height, width = at.members[-1].outputs[0].shape[2:]
                seen.add(small := height * width <= plan.small)
                if small:
                    assert [len(t.stripes) for t in at.tasks] == [1]
                    assert all(c <= g.outputs[0].shape[2] * g.outputs[0].shape[3]
                               for c, g in zip(checked.computed, at.members, strict=True))  # fmt: skip
            assert seen == {True, False}, form


def test_large_images_take_a_part_of_the_memory_and_small_ones_no_more_than_whole_layers() -> None:
    model = chain(channels=64, depth=3)
    target = replace(resolve(NAMED), l2_bytes=1 << 20, l3_bytes=32 << 20)
    whole = halotile.compile(model, target, threads=1, tile="off")
    library = halotile.compile(model, target, threads=1)
    assert _fired(library)
    sizes = {"h": 48, "w": 48}, {"h": 720, "w": 1280}
    own, other = ([m.arena_bytes(1, shape=s) for s in sizes] for m in (library, whole))
    assert own[0] <= 1.02 * other[0] and own[1] < other[1] / 8
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for number, (h, w) in enumerate(((1, 1), (48, 48), (131, 127), (97, 480))):
        given = feeds(model, {"h": h, "w": w}, number)
        (want,), (got,) = session.run(None, given), library(given).values()
        assert np.abs(got - want).max() <= CLOSE * np.abs(want).max(), (h, w)


def test_a_group_in_the_middle_writes_the_margins_that_the_next_layer_reads() -> None:
    model = chain()
    convolutions = [n.name for n in model.graph.node if n.op_type == "Conv"]
    wish = {"first": convolutions[1], "last": convolutions[2], "shape": (4, 16)}
    library = halotile.compile(model, threads=1, tile=wish)
    assert len(_fired(library)) == 1 < len(library.report["kernels"]) - 3
    _compare(library, model)


def test_the_bits_are_those_of_whole_layers_where_these_promise_them() -> None:
    model = residual()
    whole = halotile.compile(model, threads=2, exact=True)
    tiled = halotile.compile(model, threads=2, exact=True, tile={"shape": (3, 8), "bands": 2})
    assert _fired(tiled)
    assert not any("winograd" in note for note in map(str, tiled.report["kernels"]))
    for sizes in _sizes(model):
        given = feeds(model, sizes)
        one, other = whole(given), tiled(given)
        assert all(np.array_equal(one[n], other[n]) for n in one), sizes


@pytest.mark.parametrize("name", MODELS)
def test_windows_hold_what_members_read_at_every_size(name: str) -> None:
    """The plan at random sizes against the exact regions at these sizes, step by step."""
    drawn = random.Random(name)
    for model in prepared(MODELS[name]()):
        for form in ((1, None, 1, 1), (3, None, 3, 6), (2, 7, 1, 1), (8, 1, 2, 4), (5, 12, 1, 6)):
            plan = model.plan(*form)
            assert len(plan.members) > 3
            for _ in range(3):
                sizes = model.sizes(drawn, 26)
                assert check_plan(plan_at(plan, sizes)).problems == [], (form, sizes)


def test_rows_that_no_reader_takes_are_made_at_the_end() -> None:
    for model in prepared(crossing()):
        last = max(i for i, g in enumerate(model.program.groups) if g.anchor is not None)
        for rows in (1, 3, 4):
            plan = model.source.of(model.program, 0, last, Tiles(rows, None))
            assert len(plan.whole) == 1
            for height in range(2, 30):
                assert check_plan(plan_at(plan, {"h": height, "w": 9})).problems == [], (rows, height)


@pytest.mark.parametrize("name", ["chain", "enlarging"])
def test_a_budget_holds_at_the_largest_shape(name: str) -> None:
    model = MODELS[name]()
    whole = halotile.compile(model, NAMED, threads=2, shapes=BOUNDED)
    most = {"h": 96, "w": 128}
    budget = whole.arena_bytes(2, shape=most) // 6
    library = halotile.compile(model, NAMED, threads=2, shapes=BOUNDED, memory_budget=budget)
    assert _fired(library)
    assert all(library.arena_bytes(2, shape=sizes) <= budget for sizes in [*_sizes(model), most])
    assert any("budget" in note and "h=96" in note for note in library.report["notes"]["plan"])
    _compare(library, model)


def test_the_least_budget_that_a_refusal_names_can_be_had() -> None:
    with pytest.raises(halotile.HalotileError, match=r"largest shape, h=96, w=128$") as refused:
        halotile.compile(chain(), NAMED, threads=2, shapes=BOUNDED, memory_budget=1000)
    least = int(re.search(r"(\d+) bytes, at", str(refused.value))[1])
    library = halotile.compile(chain(), NAMED, threads=2, shapes=BOUNDED, memory_budget=least)
    assert library.arena_bytes(2, shape={"h": 96, "w": 128}) == least


def test_a_budget_asks_for_bounds() -> None:
    with pytest.raises(halotile.errors.ShapeError, match="'w' has none: bound it with --shape, such as"):
        halotile.compile(chain(), shapes={"h": "1..96"}, memory_budget="1MB")


def test_the_smallest_arena_does_not_grow_with_the_image() -> None:
    library = halotile.compile(chain(), NAMED, threads=1, optimize="memory")
    assert _fired(library)
    small, large = (library.arena_bytes(1, shape={"h": n, "w": n}) for n in (64, 1024))
    assert small == large


def test_what_can_not_be_tiled_says_why() -> None:
    g = Drawing(4)
    x = g("Relu", g.conv(g.input("x", 1, 3, "h", "w"), 3, 16, 3))
    x = g("Resize", x, "", g.constant([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="align_corners")
    g.output(g.conv(x, 16, 16, 3), 4)
    with pytest.raises(halotile.HalotileError, match="corners are aligned"):
        halotile.compile(g.model(), tile={"first": g.nodes[0].name, "shape": (4, None)})
    with pytest.raises(halotile.HalotileError, match="leave modes out"):
        halotile.compile(chain(), tile={"shape": (4, None), "modes": "recompute"})


def test_bounds_that_follow_from_the_size_are_numbers_of_twins() -> None:
    """The smallest arena of a model that goes on with an even number of its rows."""
    g = Drawing(8)
    x = g("Relu", g.conv(g.input("x", 1, 3, "h", "w"), 3, 8, 3))
    even = g("Mul", g("Div", g.dims(x, 2)[0], g.whole(2)), g.whole(2))
    x = g("Relu", g.conv(g("Slice", x, g.whole(0), even, g.whole(2)), 8, 8, 3))
    g.output(g.conv(x, 8, 8, 3), 4)
    library = halotile.compile(g.model(), NAMED, threads=2, optimize="memory")
    assert _fired(library)
    _compare(library, g.model(), least=2)


def test_without_a_budget_nothing_is_tiled() -> None:
    library = halotile.compile(chain(), threads=1)
    assert not _fired(library)
    assert library.report["notes"]["tile"] == ["every group is computed whole: dimensions are open"]


@pytest.mark.parametrize("form", [(8, None), (8, 16)])
def test_windows_are_no_larger_than_the_image(form: tuple[int, int | None]) -> None:
    for model in prepared(MODELS["residual"]()):
        plan = model.plan(*form, 1)
        names = {s: 1 for s in model.sizes(random.Random(1), 2)}
        small, large = (plan_at(plan, {**names, "h": n, "w": n}) for n in (8, 400))
        least = plan_at(plan, {**names, "h": 33, "w": 400})
        assert small.task_bytes < 0.5 * least.task_bytes <= 0.5 * large.task_bytes * 2
        for value, window in small.windows.items():
            spare = [own - size for own, size in zip(window.layout.shape[2:], value.shape[2:])]
            assert max(spare) <= 3, value.name  # what is read beyond the edges


def test_windows_of_one_stripe_share_memory() -> None:
    """Where an image is one stripe a window lives from its producer to its reader; exact plans say what overlaps."""
    for model in prepared(chain()):
        plan = model.plan(8, None, 1)
        assert plan.at_once and plan.warm > 0
        one, two = (plan_at(plan, {"h": h, "w": 20}) for h in (8, 9))
        sums = [sum(w.layout.elements * 4 for w in p.windows.values()) for p in (one, two)]
        assert len(one.tasks[0].stripes) == 1 and one.task_bytes < 0.6 * sums[0]
        assert len(two.tasks[0].stripes) == 2 + plan.warm and two.task_bytes >= sums[1]
        for h in range(1, 18):
            assert check_plan(plan_at(plan, {"h": h, "w": 5})).problems == [], h
