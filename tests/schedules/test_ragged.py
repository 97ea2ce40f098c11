"""Vectors of output channels that register tiles leave over have a tile of their own, and no number changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.conv.direct import kernel as direct
from halotile.schedules.conv.direct.weight_panels import count_parts
from halotile.schedules.conv.register_tile import Space, Tile, choose_tile, rest_tile
from tvm import relax

R = relax.op
F = "float32"
AVX2 = replace(native(), vector_bits=256, vector_registers=16, fma_ports=2, fma_latency=4, in_order=False, cores=1)


@pytest.mark.parametrize(
    ("vectors", "left"), [(125, True), (29, True), (5, True), (7, True), (8, False), (9, False), (1, False)]
)
def test_only_where_they_do_not_divide(vectors: int, left: bool) -> None:
    tile = choose_tile(AVX2, Space(13, 24, vectors, vectors, ragged=True))
    assert (vectors % tile.blocks > 0) is left
    assert (tile.blocks > 1) is (vectors > 1)  # one vector waits for loads


def test_of_as_many_rows() -> None:
    space = Space(12, 24, 5, 5, ragged=True)
    assert rest_tile(AVX2, space, Tile(2, 3, 2)) == Tile(2, 6, 1)
    assert choose_tile(AVX2, replace(space, ragged=False)).blocks in (1, 5)
    assert choose_tile(AVX2, replace(space, once=True)).blocks in (1, 5)


# inputs, outputs, height, width, kernel, stride, images
SHAPES = {
    "classifier": (64, 200, 13, 13, 1, 1, 1),
    "taps": (20, 40, 9, 21, 3, 1, 1),
    "strided": (24, 56, 11, 29, 3, 2, 2),
    "rows and columns": (64, 232, 7, 7, 1, 1, 1),
    "odd channels": (17, 39, 8, 13, 1, 1, 1),  # the last vector is not full
    "parts": (2048, 40, 9, 13, 1, 1, 1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_the_same_bits(name: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in tiles that divide the vectors; behind a residual that the result may take over."""
    cin, cout, height, width, kernel, stride, images = SHAPES[name]
    random = np.random.default_rng(cin)
    x = random.standard_normal((images, cin, height, width)).astype(F)
    w = random.standard_normal((cout, cin, kernel, kernel)).astype(F)
    rows, columns = -(-height // stride), -(-width // stride)
    y = random.standard_normal((images, cout, rows, columns)).astype(F)

    def body(x: Any, y: Any) -> Any:
        found = R.nn.conv2d(x, weight(w), padding=kernel // 2, strides=stride)
        return R.nn.relu(found + R.nn.relu(y))

    target, results = replace(AVX2, cores=cores), []
    for ragged in (True, False):
        if not ragged:
            space = direct.tile_space
            monkeypatch.setattr(direct, "tile_space", lambda *a: replace(space(*a), ragged=False))  # noqa: B023
        build = staged(module_of([x, y], body), target, tiled=False, exact=True)
        (text,) = [k.schedule for k in build.kernels if "direct" in k.schedule]
        tiles = text.split("tile ")[1].split(" and ")
        assert (len({t.split("x")[2] for t in tiles}) > 1) is ragged, text
        results.append(Compiled(build).run([x, y], tasks=cores)[0])
    np.testing.assert_array_equal(*results)


def test_parts_of_weights_are_long() -> None:
    """29 blocks of channels have no divisor: 29 parts of 8 steps each would pass their sums 28 times."""
    x, w = np.zeros((1, 232, 7, 7), F), np.zeros((232, 232, 1, 1), F)
    calls: list[int] = []

    def count(conv: Any, *rest: Any) -> int:
        calls.append(count_parts(conv, *rest))
        return calls[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct, "count_parts", count)
        staged(module_of([x], lambda x: R.nn.conv2d(x, weight(w))), replace(AVX2, l1_bytes=32 << 10), tiled=False)
    assert calls
    assert set(calls) == {1}
