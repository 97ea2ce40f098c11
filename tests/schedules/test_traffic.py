"""Choices about memory: the loop order of direct convolutions, and vectors where a choice is the same for all lanes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.conv import kernel as tile
from halotile.schedules.conv.direct import kernel as direct
from halotile.schedules.conv.direct import weight_panels
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.register_tile import Tile
from halotile.schedules.words.group import Request, Value
from halotile.schedules.words.layout import Layout
from tvm import relax

R = relax.op
F = "float32"


def order(cin: int, cout: int, size: int, kernel: int, rows: int, stride: int = 1) -> bool:
    """Whether all channel groups of a row of tiles follow each other, for a core with a megabyte of second level."""
    x, k = np.zeros((1, cin, size, size), F), np.zeros((cout, cin, kernel, kernel), F)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(k), strides=stride, padding=kernel // 2))
    build = staged(module, tiled=False)
    group = next(g for g in build.groups if g.anchor is not None)
    target = replace(native(), l2_bytes=1 << 20, vector_bits=512, vector_registers=32)
    request = Request(group, build.layouts, target)
    assert group.anchor is not None
    conv = tile.ConvKernel(request, ConvFacts.of(group.anchor), Tile(rows, 7, 1), 16, tile.new_context(request))
    return weight_panels.rows_first(conv, k.nbytes)


@pytest.mark.parametrize(
    "cin,cout,size,kernel,rows,expected",
    [
        (384, 128, 80, 1, 4, True),  # ten megabytes of input, sixteen times or once
        (64, 16, 80, 1, 4, False),  # one group: there is no order
        (64, 64, 20, 3, 4, False),  # the input stays near
        (512, 512, 28, 3, 1, False),  # nine megabytes of weights, once or 28 times
    ],
)
def test_the_order_that_moves_less(cin: int, cout: int, size: int, kernel: int, rows: int, expected: bool) -> None:
    assert order(cin, cout, size, kernel, rows) is expected


@pytest.mark.parametrize(("stride", "expected"), [(1, True), (2, False)])
def test_rows_that_no_tap_reads_need_no_room(stride: int, expected: bool) -> None:
    """Every second row of 800 KB stays in half of the cache, so the two megabytes of weights pass by once."""
    assert order(256, 2048, 28, 1, 2, stride) is expected


@pytest.mark.parametrize("first", [True, False])
def test_both_orders_give_the_same_bits(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    x, k = generator.standard_normal((2, 19, 9, 11)).astype(F), generator.standard_normal((53, 19, 3, 3)).astype(F)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(k), strides=(2, 1), padding=(1, 1)))
    monkeypatch.setattr(direct, "rows_first", lambda conv, size: first)
    found = Compiled(staged(module)).run([x])[0]
    monkeypatch.setattr(direct, "rows_first", lambda conv, size: not first)
    np.testing.assert_array_equal(found, Compiled(staged(module)).run([x])[0])


def test_a_choice_by_channel_blocks_stays_a_vector() -> None:
    """``block * 16 + lane < 32`` is ``block < 2``, the same for all lanes; else the lanes would be a plain loop."""
    lanes = native().lanes()
    parts = [np.zeros((2, c * lanes, 5, 6), F) for c in (2, 1)]
    module = module_of(parts, lambda a, b: R.nn.relu(R.concat([a, b], 1)))

    def layouts(build: Any) -> dict[Value, Layout]:
        values = (*build.graph.inputs, *build.graph.outputs)
        return {v: Layout.blocked(v.shape, lanes) for v in values}

    build = staged(module, layouts=layouts)
    (kernel,) = build.kernels
    assert "T.vectorized" in str(kernel.function)
    arrays = [np.random.default_rng(i).standard_normal(p.shape).astype(F) for i, p in enumerate(parts)]
    found = build.layouts[build.graph.outputs[0]].unpack(Compiled(build).run(arrays)[0])
    np.testing.assert_array_equal(found, np.maximum(np.concatenate(arrays, 1), 0))


def hints(cin: int, residual: bool) -> tuple[int, int]:
    """How many places the last kernel of a chain asks for, outside of its weights: to be read, and to be written."""
    arrays = [np.zeros((1, cin, 14, 14), F)]
    first, second, third = (np.zeros((o, i, 1, 1), F) for o, i in ((64, cin), (cin, 64), (64, cin)))

    def body(x: Any) -> Any:
        y = R.nn.relu(R.nn.conv2d(x, weight(first)))
        made = R.nn.conv2d(R.nn.relu(R.nn.conv2d(y, weight(second))), weight(third))
        return R.nn.relu(R.add(made, y) if residual else made)

    target = replace(native(), vector_bits=512, vector_registers=32, l2_bytes=1 << 20, fma_ports=1, far_bytes=12)
    target = replace(target, cores=1)  # several ask for the data as well
    function = str(staged(module_of(arrays, body), target, tiled=False).kernels[-2].function)
    kinds = [line.rsplit(",", 3)[1].strip() for line in function.splitlines() if "T.prefetch" in line]
    return kinds.count("0"), kinds.count("1")


def test_short_reductions_ask_for_what_their_epilogue_touches() -> None:
    """The residual's lines and the output's, before a tile is computed; after a thousand steps no wait would show."""
    assert hints(128, residual=True) == (1, 1)
    assert hints(128, residual=False) == (0, 1)
    assert hints(1040, residual=True) == (0, 0)
