"""Heights of tiles for an open number of rows: each number is computed once, by tiles that it fills, and is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.matmul.open_heights import open_heights
from halotile.schedules.words.dims import Dim
from halotile.schedules.words.sizes import value_of
from halotile.targets.resolve import resolve

from ..support.open_models import Drawing

N = Dim.symbol("n", 1, 4096)


@pytest.mark.parametrize("tallest", [1, 2, 3, 6, 13, 14, 28])
@pytest.mark.parametrize("rows", [N, N * 8, N * 17, N + 20, Dim.symbol("few", 0, 5), Dim.symbol("m", 3, 16) * N])
@pytest.mark.parametrize("busy", [lambda h: h * 2 >= 8, lambda h: True, lambda h: False])
def test_each_number_of_rows_is_computed_once(rows: Dim, tallest: int, busy: Callable[[int], bool]) -> None:
    found = open_heights(rows, tallest, busy)
    assert [h for h, _ in found] == sorted({h for h, _ in found}, reverse=True)
    for n in range(0 if rows.terms == Dim.symbol("few").terms else 1, 60):
        for m in range(3, 17) if "m" in str(rows) else [3]:
            few = {"few": n}
            if n > 5 and "few" in str(rows):
                continue
            count = int(value_of(rows, {"n": n, "m": m, **few}))
            own = [h for h, spans in found if any(a <= count < b for a, b in spans)]
            assert len(own) == 1 and (own[0] <= count or own[0] == 1), (count, found)


def test_of_a_few_more_rows_than_a_tile_has_less_is_computed_twice() -> None:
    found = open_heights(N, 14, lambda h: h * 2 >= 8)
    own = {n: next(h for h, spans in found if any(a <= n < b for a, b in spans)) for n in range(1, 100)}
    assert own[14] == 14 and own[15] == own[16] == own[21] == 7 and own[22] == own[99] == 14


@pytest.mark.parametrize("target,threads", [("native", 1), ("x86-64-v3", 2)])
@pytest.mark.parametrize("width", [16, 40, 7])
def test_all_numbers_of_rows(target: str, threads: int, width: int, tmp_path: Path) -> None:
    g = Drawing(width)
    weight = g.random.standard_normal((24, width)).astype(np.float32)
    x = g.input("x", "n", 24)
    g.output(g("Relu", g("MatMul", x, g.constant(weight))), 2)
    options = Options(resolve(target), threads=threads, formats=("so",), open=True, typical={"n": 64})
    run_pipeline(g.model().SerializeToString(), options, output=tmp_path / "out")
    with load(tmp_path / "out") as library:
        for rows in (*range(1, 64), 85, 127, 250):
            own = np.random.default_rng(rows).standard_normal((rows, 24)).astype(np.float32)
            (y,) = library({"x": own}, threads=threads).values()
            np.testing.assert_allclose(y, np.maximum(own.astype(np.float64) @ weight, 0), rtol=1e-4, atol=1e-4)
