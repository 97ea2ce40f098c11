"""Products of pairs of bfloat16 whose rows are open, at sizes around their tiles: against float64 of the rounded
operands, in memory full of NaN, and the same bits whatever else is computed beside them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from bfloat16_sums import rounded
from compiled import native
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import LoadedModel, load
from halotile.compiler.state import Options
from halotile.schedules.instructions.bf16_pairs import has_pairs
from halotile.schedules.matmul import select
from halotile.schedules.matmul.pairs import fits_pairs
from halotile.targets.resolve import resolve
from open_models import Drawing
from open_runs import run_in

FORM = re.compile(r"matmul packed, tile (\d+)x(\d+)x16(, in streams)?, bfloat16")
# depth, columns: a prime and an odd one, columns that fill no vector, several panels, a depth in parts
SHAPES = [(61, 139), (33, 16), (257, 50), (128, 512), (5003, 113)]

needs_pairs = pytest.mark.skipif(
    not has_pairs(native()), reason="NOT RUN: this machine's vectors do not multiply bfloat16 (AVX512_BF16)"
)


@pytest.fixture
def wherever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it would not pay."""
    monkeypatch.setattr(select, "pairs_expected", fits_pairs)


def weights_of(model: onnx.ModelProto) -> list[np.ndarray]:
    return [onnx.numpy_helper.to_array(w) for w in model.graph.initializer]


def built(model: onnx.ModelProto, folder: Path, **options: object) -> tuple[LoadedModel, int]:
    """The library, and the rows of the register tile of its one product."""
    build = run_pipeline(model, Options(native(), precision="bfloat16", threads=2, **options), output=folder)
    found = [FORM.fullmatch(k.schedule) for k in build.kernels]
    (match,) = (m for m in found if m)
    return load(folder), int(match[1])


def around(height: int) -> list[tuple[int, int]]:
    """(batch, rows): one, about the tiles and those of half as many rows, primes, more than a block."""
    lower = {-(-height // 2**i) for i in range(4)}
    rows = sorted({max(1, n + more) for n in lower for more in (-1, 0, 1)} | {2 * height + 1, 97, 521})
    return [*((1, n) for n in rows), (2, height), (3, 7), (7, 101)]


def sized(model: LoadedModel, batch: int, rows: int) -> dict[str, int]:
    return dict(zip((s.name for s in model.symbols), (batch, rows), strict=True))


def answer(model: LoadedModel, x: np.ndarray) -> np.ndarray:
    return model({"x": np.ascontiguousarray(x)})["y0"]


def compare(model: LoadedModel, x: np.ndarray, w: np.ndarray, wanted: np.ndarray) -> None:
    """One run on one thread and one on two, of which none reads what was in memory."""
    sizes = sized(model, *x.shape[:2])
    found, other = (run_in(model, sizes, x, threads, poison) for threads, poison in ((1, 0xFF), (2, 0x7F)))
    assert np.array_equal(found, other), sizes
    step = (x.shape[-1] + 8) * 2.0**-24
    bound = step * (rounded(np.abs(x)) @ rounded(np.abs(w)) + np.abs(wanted)) + 1e-6
    assert (np.abs(found - wanted) <= bound).all(), sizes


@needs_pairs
@pytest.mark.parametrize("memory", [False, True], ids=["time", "memory"])
@pytest.mark.parametrize(("depth", "columns"), SHAPES)
@pytest.mark.usefixtures("wherever")
def test_any_number_of_rows_is_that_of_the_nearest_numbers(
    depth: int, columns: int, memory: bool, tmp_path: Path
) -> None:
    g = Drawing()
    g.output(g("Relu", g.linear(g.input("x", "batch", "rows", depth), depth, columns)), 3)
    bias, w = sorted(weights_of(source := g.model()), key=np.ndim)
    wish = {"optimize": "memory"} if memory else {}
    if memory and depth > 5000:  # rows of a tile are more than the stack takes
        plain = run_pipeline(source, Options(native(), precision="bfloat16", stop_after="schedule", **wish))
        assert not any("bfloat16" in kernel.schedule for kernel in plain.kernels)
        return
    model, height = built(source, tmp_path, **wish)
    assert height > 1
    with model:
        for batch, rows in around(height):
            x = np.random.default_rng(rows).standard_normal((batch, rows, depth)).astype("float32")
            wanted = np.maximum(rounded(x) @ rounded(w) + bias, 0)
            compare(model, x, w, wanted)
        exact = np.maximum(x.astype("float64") @ w + bias, 0)
        assert np.abs(answer(model, x) - exact).max() > 1e-4, "these are float32's"


@needs_pairs
@pytest.mark.usefixtures("wherever")
def test_a_row_has_the_same_bits_among_any_others(tmp_path: Path) -> None:
    g = Drawing()
    g.output(g.linear(g.input("x", "batch", "rows", 333), 333, 77), 3)
    model, height = built(g.model(), tmp_path)
    x = np.random.default_rng(0).standard_normal((3, 211, 333)).astype("float32")
    with model:
        y = answer(model, x)
        for rows in (1, 2, height - 1, height, height + 1, 64, 206):
            assert np.array_equal(answer(model, x[1:2, 5 : 5 + rows]), y[1:2, 5 : 5 + rows])
            assert np.array_equal(answer(model, x[:, -rows:]), y[:, -rows:])


def heads(g: Drawing, x: str) -> str:
    split = g("Reshape", g("MatMul", x, g.drawn(95, 128)), g.whole(0, 0, 4, 32))
    return g("Transpose", split, perm=[0, 2, 1, 3])


def turned(g: Drawing, x: str) -> str:
    return g("MatMul", g("Transpose", x, perm=[1, 0, 2]), g.drawn(95, 128))


CASES: dict[str, tuple[Callable[[Drawing, str], str], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "heads": (heads, lambda x, w: (x @ w).reshape(*x.shape[:2], 4, 32).transpose(0, 2, 1, 3)),
    "rows": (turned, lambda x, w: x.transpose(1, 0, 2) @ w),
}


@needs_pairs
@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("wherever")
def test_moves_before_and_behind_it(case: str, tmp_path: Path) -> None:
    made, wanted = CASES[case]
    g = Drawing()
    y = made(g, g.input("x", "batch", "rows", 95))
    g.output(y, 4 if case == "heads" else 3)
    source = g.model()
    w = next(a for a in weights_of(source) if a.ndim == 2)
    model, height = built(source, tmp_path)
    with model:
        for batch, rows in around(height):
            x = np.random.default_rng(rows).standard_normal((batch, rows, 95)).astype("float32")
            found = run_in(model, sized(model, batch, rows), x, 2, 0xFF)
            np.testing.assert_allclose(found, wanted(rounded(x), rounded(w)), 0, 2e-5)


@needs_pairs
@pytest.mark.usefixtures("wherever")
def test_nan_and_infinity_reach_their_rows_and_no_other(tmp_path: Path) -> None:
    g = Drawing()
    g.output(g("MatMul", g.input("x", "batch", "rows", 37), g.constant(np.full((37, 83), 0.3))), 3)
    model, height = built(g.model(), tmp_path)
    with model:
        for rows in (3, height, height + 1, 67):
            x = np.random.default_rng(rows).standard_normal((1, rows, 37)).astype("float32")
            x[0, 0, -1], x[0, 2, 5] = np.nan, np.inf
            y = run_in(model, sized(model, 1, rows), x, 2, 0xFF)
            assert np.isnan(y[0, 0]).all() and (y[0, 2] == np.inf).all()
            assert np.isfinite(np.delete(y, [0, 2], axis=1)).all()


# -- on any machine -------------------------------------------------------------------------------


def test_a_target_that_has_them_takes_them_for_what_models_leave_open() -> None:
    g = Drawing()
    x = g.input("x", "batch", "rows", 768)
    g.output(g.linear(g("Relu", g.linear(x, 768, 3072)), 3072, 768), 3)
    target = resolve("x86_64-linux-gnu+znver4")
    build = run_pipeline(g.model(), Options(target, precision="bfloat16", threads=1, stop_after="plan"))
    assert [bool(FORM.fullmatch(k.schedule)) for k in build.kernels] == [True, True]
    assert build.report["precision"] == {"asked": "bfloat16", "kernels": 2, "of": 2} and not build.report["warnings"]
    plain = run_pipeline(g.model(), Options(target, threads=1, stop_after="plan"))
    assert not any("bfloat16" in k.schedule for k in plain.kernels)
