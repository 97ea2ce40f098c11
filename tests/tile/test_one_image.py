"""Tile groups of an open batch: images take turns, so that windows are those of one, and they come without a wish."""

from __future__ import annotations

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.passes.memory.open_offsets import below, best_below, offsets_of
from halotile.passes.memory.placement import Life, place
from halotile.passes.tile.open.at_size import plan_at
from halotile.passes.tile.open.lines import Lines
from halotile.passes.tile.open.one_image import OneImage
from halotile.passes.tile.open.plan import Tiles
from halotile.passes.tile.plan.checker import check_plan
from halotile.passes.tile.plan.form import Untileable
from halotile.schedules.words.dims import Dim, maximum
from halotile.schedules.words.sizes import replaced

from ..support.open_models import Drawing, feeds
from ..support.open_tile_models import prepared, residual

NAMED = "x86-64-v3"
CLOSE = 3e-5  # of the largest number of an output: sums in other orders, and Winograd's


def narrowing(size: int = 97) -> onnx.ModelProto:
    """The first blocks of a network for phones, of a batch of images of one odd size, and a mean at the end."""
    g = Drawing(6)
    x = g("Relu", g.conv(g.input("x", "n", 3, size, size), 3, 32, 3, strides=[2, 2]))
    x = g.conv(g("Relu", g.conv(x, 32, 32, 3, groups=32)), 32, 16, 1)
    for inputs, outputs, stride in ((16, 24, 2), (24, 24, 1)):
        y = g("Relu", g.conv(x, inputs, 6 * inputs, 1))
        y = g("Relu", g.conv(y, 6 * inputs, 6 * inputs, 3, groups=6 * inputs, strides=[stride, stride]))
        y = g.conv(y, 6 * inputs, outputs, 1)
        x = g("Add", x, y) if inputs == outputs else y
    g.output(g("GlobalAveragePool", x), 4)
    return g.model()


def wished(model: onnx.ModelProto) -> dict[str, object]:
    """A tile group of all layers, of one task an image."""
    return {"last": [n.name for n in model.graph.node if n.op_type == "Conv"][-1], "shape": (4, None), "bands": 1}


@pytest.fixture(scope="module")
def built():
    return halotile.compile(narrowing(), NAMED, threads=1)


def fired(library: halotile.Model) -> list[str]:
    return [k["schedule"] for k in library.report["kernels"] if k["schedule"].startswith("open tiles")]


def test_groups_of_an_open_batch_are_tiled_as_those_of_one_image(built) -> None:
    fixed = halotile.compile(narrowing(), NAMED, threads=1, shapes={"x": (1, 3, 97, 97)})
    assert any(k["schedule"].startswith("tiled") for k in fixed.report["kernels"])
    assert fired(built) and all("image by image" in schedule for schedule in fired(built))
    assert built.arena_bytes(1, n=1) <= 1.02 * fixed.arena_bytes(1)


def test_the_arena_of_a_batch_is_smaller_than_that_of_whole_layers(built) -> None:
    whole = halotile.compile(narrowing(), NAMED, threads=1, tile="off")
    assert not fired(whole)
    for n in (2, 5, 64):
        assert built.arena_bytes(1, n=n) < 0.75 * whole.arena_bytes(1, n=n), n


def test_as_many_cores_have_windows_as_there_are_images() -> None:
    model = narrowing()
    library = halotile.compile(model, NAMED, threads=2, tile=wished(model))
    assert len(fired(library)) == 1
    grown = [library.arena_bytes(2, n=n) for n in (1, 2, 3, 4)]
    assert grown[1] - grown[0] > 3 * (grown[2] - grown[1]) > 0
    assert abs(grown[3] - 2 * grown[2] + grown[1]) <= 128  # bytes are rounded to whole lines


@pytest.mark.parametrize("threads", [1, 2])
def test_numbers_of_every_batch(threads: int) -> None:
    model = narrowing()
    library = halotile.compile(model, NAMED, threads=threads, tile="auto" if threads == 1 else wished(model))
    assert all("image by image" in schedule for schedule in fired(library)) and fired(library)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for n in (1, 2, 3, 7):
        given = feeds(model, {"n": n}, n)
        (got,), (want,) = library(given).values(), session.run(None, given)
        assert got.shape == want.shape and np.abs(got - want).max() <= CLOSE * np.abs(want).max(), n
        (alone,) = library(given, threads=1).values()
        assert np.array_equal(got, alone), n
    assert library({"x": np.zeros((0, 3, 97, 97), np.float32)})["y0"].shape == (0, 24, 1, 1)


def test_windows_of_one_image_hold_what_members_read() -> None:
    for model in prepared(residual()):
        model.source.one = OneImage.of(model.build.groups)
        for form in ((1, None, 1, 1), (3, None, 3, 6), (2, 7, 1, 1)):
            plan = model.plan(*form)
            assert plan.images is not None and all(v.shape[0] == 1 for g in plan.members for v in g.outputs)
            assert all(v.shape[0] == plan.images.batch for v in (*plan.inputs, *plan.outputs) if len(v.shape) == 4
                       and v.constant is None)  # fmt: skip
            for sizes in ({"n": 3, "h": 33, "w": 20}, {"n": 1, "h": 5, "w": 61}):
                assert check_plan(plan_at(plan, sizes)).problems == [], (form, sizes)


def test_lines_of_images_of_one_size_enclose_every_place() -> None:
    for model in prepared(narrowing(31)):
        lines = Lines.of()
        for group in model.build.groups:
            for value in (v for v in group.inputs if v.constant is None and len(group.outputs[0].shape) == 4):
                if any(v.shape[2:] == (1, 1) for v in (value, *group.outputs)):
                    with pytest.raises(Untileable):
                        lines.between(group, value)
                    continue
                rows, _, outside = lines.between(group, value)
                assert (rows.slope, rows.divisor) in ((1, 1), (2, 1))
                assert rows.start(1) <= 1 < rows.end(2) and (outside or rows.start(0) >= 0)


def test_images_that_look_at_each_other_do_not_take_turns() -> None:
    g = Drawing(7)
    x = g("Relu", g.conv(g.input("x", "n", 3, 64, 64), 3, 16, 3))
    mean = g("ReduceMean", x, axes=[0], keepdims=1)
    g.output(g.conv(g("Relu", g("Sub", x, mean)), 16, 16, 3), 4)
    model = g.model()
    for part in prepared(model):
        one = OneImage.of(part.build.groups)
        assert one is not None
        able = [one.holds(g, part.build.layouts, part.source.lines) for g in part.build.groups]
        assert True in able and False in able
        assert part.source.of(part.program, part.first, part.last, Tiles(4, None)).images is None


def test_some_symbols_get_their_sizes() -> None:
    n, h = Dim.symbol("n"), Dim.symbol("h", multiple=4)
    assert replaced(3 * n * (h // 8) + 1, {"n": 1}) == 3 * (h // 8) + 1
    assert replaced(maximum(n * h, h), {"n": 1}) == h
    assert replaced(n * (h // 2), {"n": 2, "h": 12}) == 12


def test_other_sizes_decide_where_the_planned_ones_leave_room() -> None:
    """The large first buffer makes all orders of the others alike, until these grow."""
    lives = [Life(1 << 14, 0, 0), *(Life(size, i, i + 1) for i, size in enumerate((256, 512, 128, 640, 64), 1))]
    grown = [lives[0], *(life._replace(bytes=64 * life.bytes) for life in lives[1:])]
    starts = [sum(life.bytes for life in lives[:i]) * (i > 0) for i in range(len(lives))]  # nothing shares a byte
    under = best_below(lives, starts, [grown])
    assert offsets_of(under, grown)[1] == place(grown)[1] < offsets_of(below(lives, starts), grown)[1]
    assert offsets_of(under, lives)[1] <= offsets_of(below(lives, starts), lives)[1]


def test_a_width_that_is_one_or_a_number_is_asked_for_at_no_other() -> None:
    """Tiles are planned at large images, where the width is neither of what a run may have."""
    g = Drawing(9)
    x = g("Relu", g.conv(g.input("x", "n", 3, "h", "w"), 3, 8, 3))
    x = g("Mul", x, g.constant(np.linspace(0.5, 2, 8 * 16).reshape(1, 8, 1, 16)))
    g.output(g.conv(x, 8, 8, 3), 4)
    proto = g.model()
    model = halotile.compile(proto, threads=2)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for n, h, w in ((1, 5, 16), (3, 33, 16), (2, 20, 1)):
        given = {"x": np.random.default_rng(n).standard_normal((n, 3, h, w)).astype(np.float32)}
        (wanted,), (got,) = session.run(None, given), model(given).values()
        assert got.shape == wanted.shape and np.abs(got - wanted).max() < 1e-4 * np.abs(wanted).max()
