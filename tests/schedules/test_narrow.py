"""Columns that register tiles leave over have a tile of their own: where that pays, and that no number changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.conv.direct import algorithm
from halotile.schedules.conv.direct import kernel as direct
from halotile.schedules.conv.register_tile import Space, Tile, choose_tile, narrow_pays, narrow_tile
from tvm import relax

R = relax.op
F = "float32"
AVX512 = replace(
    native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4, in_order=False, cores=1
)


@pytest.mark.parametrize(
    ("width", "vectors", "pays"),
    [(29, 4, True), (31, 4, True), (17, 12, True), (28, 4, False), (27, 6, False), (1279, 4, False)],
)
def test_only_where_it_saves_enough(width: int, vectors: int, pays: bool) -> None:
    assert narrow_pays(AVX512, Space(30, width, vectors, vectors)) is pays


def test_of_the_columns_that_are_left() -> None:
    tile = choose_tile(AVX512, Space(29, 29, 4, 4, narrowed=True))
    narrow = narrow_tile(tile, 29)
    assert (tile, narrow) == (Tile(1, 6, 4), Tile(1, 5, 4))
    assert narrow_tile(tile, 30) is None


# inputs, outputs, height, width, kernel, stride, images
SHAPES = {
    "plain": (20, 64, 9, 29, 3, 1, 1),
    "tail": (50, 70, 7, 29, 3, 1, 1),
    "one_vector": (16, 16, 6, 31, 3, 1, 2),
    "strided": (24, 64, 11, 57, 3, 2, 1),
    "rows_too": (64, 192, 17, 17, 1, 1, 1),  # left over in both directions
    "parts": (512, 64, 9, 29, 3, 1, 2),
    "far": (1024, 128, 17, 17, 1, 1, 1),
}


@pytest.mark.sampled
@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_the_same_bits(name: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the last tile moves back; behind a residual that the result may take over."""
    cin, cout, height, width, kernel, stride, images = SHAPES[name]
    random = np.random.default_rng(cin)
    x = random.standard_normal((images, cin, height, width)).astype(F)
    w = random.standard_normal((cout, cin, kernel, kernel)).astype(F)
    rows, columns = -(-height // stride), -(-width // stride)
    y = random.standard_normal((images, cout, rows, columns)).astype(F)

    def body(x: Any, y: Any) -> Any:
        found = R.nn.conv2d(x, weight(w), padding=kernel // 2, strides=stride)
        return R.nn.relu(found + R.nn.relu(y))

    target, results = replace(AVX512, cores=cores), []
    for pays in (True, False):
        if not pays:
            monkeypatch.setattr(direct, "has_narrow", lambda *_: False)
            monkeypatch.setattr(algorithm, "has_narrow", lambda *_: False)
        build = staged(module_of([x, y], body), target, tiled=False, exact=True)
        (text,) = [k.schedule for k in build.kernels if "direct" in k.schedule]
        tiles = text.split("tile ")[1].split(" and ")
        assert (len({t.split("x")[1] for t in tiles if "/" not in t}) > 1) is pays, text
        results.append(Compiled(build).run([x, y], tasks=cores)[0])
    np.testing.assert_array_equal(*results)
