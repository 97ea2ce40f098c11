"""Cores share the channels of open images that are small beside their weights, or of too few rows, with the same bits
as one core, and in memory as large as is said. Images that are computed together take Winograd's algorithm when they
are smaller than one alone would have to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.winograd.choose import HELD, best_plan, longer_strips
from halotile.schedules.conv.winograd.plan import held_bytes
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.instructions.bf16_parts import THREE
from halotile.schedules.kernel.channel_parts import ChannelParts
from halotile.schedules.tiled.channel_shares import ChannelShares
from halotile.schedules.tiled.image_needs import BatchNeeds
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.group import Box, Value
from halotile.schedules.words.sizes import value_of
from halotile.targets.resolve import resolve
from tvm import tirx

from ..support.open_models import Drawing, feeds, holds_at
from ..support.open_runs import checked

CLOSE = 5e-5  # of the largest number


def _deep(kind: str) -> Drawing:
    """Layers of many channels, whose numbers no vector divides."""
    g = Drawing(5)
    x = g.input("x", "n", 200, "h", "w")
    if kind == "winograd":
        y = g("Relu", g.conv(x, 200, 200, 3))
        y = g("Relu", g("Add", g.conv(y, 200, 200, 3), x))
    elif kind == "pointwise":
        y = g("Relu", g.conv(g("Relu", g.conv(x, 200, 330, 1)), 330, 100, 1))
    elif kind == "strided":
        y = g("Relu", g.conv(x, 200, 150, 3, strides=[2, 2]))
    elif kind == "depthwise":
        y = g.conv(g("Relu", g.conv(x, 200, 200, 5, groups=200)), 200, 300, 1)
    else:
        y = g("Relu", g.conv(x, 200, 160, 3, groups=5))
    g.output(y, 4)
    return g


@pytest.mark.parametrize("threads", [2, 3])
@pytest.mark.parametrize("kind", ["winograd", "pointwise", "strided", "depthwise", "grouped"])
@pytest.mark.parametrize("target", ["x86-64-v3", "native"])
def test_channels_that_cores_share(target: str, kind: str, threads: int, tmp_path: Path) -> None:
    proto = _deep(kind).model()
    typical = {"n": 1, "h": 7, "w": 7}
    options = Options(resolve(target), threads=threads, formats=("so",), open=True, typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    convs = [kernel for kernel in build.kernels if kernel.schedule.startswith("open images")]
    assert any("part" in part.scalars and part.groups >= threads for kernel in convs for part in kernel.parts)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    sizes = [(1, 7, 7), (1, 1, 1), (4, 5, 3), (3, 2, 9), (2, 7, 7), (1, 2, 3), (7, 3, 3), (5, 14, 14), (1, 40, 41)]
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate(sizes):
            given = feeds(proto, {"n": n, "h": h, "w": w}, number)
            checked(library, session, given, CLOSE, (n, h, w))
            (one,), (all_,) = (library(given, threads=t).values() for t in (1, threads))
            assert np.array_equal(one, all_), (n, h, w)


def test_when_channels_are_shared() -> None:
    image = tirx.Var("image", "int32")
    wide = tirx.Cast("int64", image)
    shares = ChannelShares(*(tirx.IntImm("int32", n) for n in (4, 1, 1000)), wide)
    images, bands = tirx.Var("images", "int32"), tirx.Var("bands", "int32")
    pay, all_ = shares.pay(images, bands), shares.pay_for_all(images, 4)
    for size in (1, 249, 250, 999, 1000):
        for count in (1, 2, 4, 5):
            small = count * size < 1000
            assert holds_at(all_, {"image": size, "images": count}) == small
            for rows in (1, 3, 4):
                holds = holds_at(pay, {"image": size, "images": count, "bands": rows})
                assert holds == (rows < 4 or small)
    uneven = ChannelShares(*(tirx.IntImm("int32", n) for n in (4, 0, 1000)), wide)
    assert not holds_at(uneven.pay(images, bands), {"image": 1, "images": 1, "bands": 4})
    assert not holds_at(uneven.pay_for_all(images, 4), {"image": 1, "images": 1})


def test_needs_of_images_that_are_computed_together() -> None:
    n, h, w = (Dim.symbol(name, 1) for name in "nhw")
    needs = BatchNeeds.of((h, w), (6, 6), (2, 2), n, [(2, (5, 5)), (4, (3, 3))])
    condition = needs.condition()
    since = {1: (6, 6), 2: (5, 5), 4: (3, 3)}
    taken = 0
    for images in (1, 2, 3, 4, 9):
        for rows in range(1, 9):
            for columns in range(1, 9):
                sizes = {"n": images, "h": rows, "w": columns}
                options = [own for least, own in since.items() if images >= least]
                square = any(rows >= own[0] and columns >= own[1] for own in options)
                holds = holds_at(condition, sizes)
                assert holds or not square, sizes
                assert not holds or value_of(needs.called, sizes) == 1, sizes  # then there is memory for the kernel
                assert not holds or (rows >= 2 and columns >= 2 and rows * columns >= min(a * b for a, b in options))
                taken += holds and not (rows >= 6 and columns >= 6)
    assert taken > 50


def _facts(channels: int) -> ConvFacts:
    weight = Value("w", (channels, channels, 3, 3), "float32", np.zeros((channels, channels, 3, 3), np.float32))
    data, output = (Value(name, (1, channels, 7, 7), "float32") for name in "xy")
    return ConvFacts(data, weight, output, (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), 1)


def test_strips_grow_where_weights_pass_the_cache() -> None:
    target, board = resolve("x86-64-v4"), resolve("raspberry-pi-5")
    plan = best_plan(board, _facts(256))
    assert plan is not None and longer_strips(board, _facts(256), plan) == plan  # which has the plan's hints alone
    for_unit = replace(plan, products=THREE)
    assert longer_strips(target, _facts(256), for_unit) == for_unit
    for channels, grows in ((256, True), (32, False)):
        plan = best_plan(target, _facts(channels))
        assert plan is not None
        longer = longer_strips(target, _facts(channels), plan)
        assert (longer.strip > plan.strip) == grows
        if grows:
            assert longer.strip % longer.rows == 0 and longer.strips == 1
            assert held_bytes(target.lanes(), channels, longer) <= HELD * target.l2_bytes


def test_a_kernel_with_a_loop_over_all_channels_is_not_shared() -> None:
    box = Box(4, 4, frozenset(), True, by_channels=True)
    k = KernelBuilder("kernel")
    parts = ChannelParts(k, box, k.scalar)
    assert parts.groups == 1 and parts.own(6) is not None and parts.groups == 6
    assert parts.own(4) is not None and parts.groups == 4
    assert parts.own(1) is None and parts.groups == 1
    assert parts.own(8) is not None and parts.groups == 1
    assert ChannelParts(k, replace(box, by_channels=False), k.scalar).own(6) is None
