"""Random networks in bfloat16 on a matrix unit, or an emulated one, and in pairs of vectors: as near as bfloat16 can
be, with the same bits on any number of threads, and NaN and infinities where float32 has them.

    HALOTILE_RANDOM_NETS=0:500 pytest -s tests/halves/test_random_bfloat16.py -k many       that many, from that seed on
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from compiled import machine, native
from halotile.benchmarks.open_cases import with_dims
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.schedules.conv.amx import algorithm, transposed
from halotile.schedules.conv.direct import pairs
from halotile.schedules.instructions.amx import has_matrix_unit
from halotile.schedules.instructions.bf16_pairs import has_pairs
from halotile.schedules.matmul import select
from halotile.schedules.matmul.amx_kernel import fits_unit
from halotile.schedules.matmul.pairs import fits_pairs
from halotile.targets.target import Target
from matrix_unit import emulated_products, unit
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, RuntimeException
from random_nets import drawn, in_bfloat16, of_outputs, random_nets

MOST = 2  # times what a rounding of each value makes; the largest of 500 networks was 1.52
ROWS = (5, 7, 16, 25, 26, 51, 53)  # networks with products of rows
WISHES: dict[str, dict[str, Any]] = {"whole": {"tile": "off"}, "in tiles": {"optimize": "memory"}}


@pytest.fixture
def in_pairs(monkeypatch: pytest.MonkeyPatch) -> Target:
    """One that takes whatever it can in pairs."""
    if not has_pairs(native()):
        pytest.skip("NOT RUN: this machine's vectors do not multiply bfloat16 (AVX512_BF16)")
    monkeypatch.setattr(select, "pairs_expected", fits_pairs)
    monkeypatch.setattr(pairs, "SHARE", 0.0)
    return native()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """One whose unit takes whatever it can, as it does of layers that are large enough."""
    monkeypatch.setattr(algorithm, "MARGIN", 100.0)
    monkeypatch.setattr(transposed, "MARGIN", 100.0)
    monkeypatch.setattr(select, "matrix_pays", fits_unit)
    with unit() as found:
        yield found


def checked(target: Target, seeds: Sequence[int], wish: str, folder: Path) -> tuple[float, int, int]:
    """The largest error of the outputs, over that of rounding alone, how many kernels are in bfloat16, and how
    many are tile groups."""
    model = random_nets(seeds)
    inputs = drawn(model, seeds[0])
    run_pipeline(model, Options(target, precision="bfloat16", threads=3, **WISHES[wish]), output=folder)
    built = halotile.load(folder)
    before = emulated_products() if has_matrix_unit(target) and not has_matrix_unit(machine()) else -1
    ratio = of_run(built, model, inputs)
    if before >= 0:
        assert emulated_products() > before, "nothing was multiplied on the unit"
    tiled = sum("tiled" in kernel["schedule"] for kernel in built.report["kernels"])
    return ratio, int(built.report["precision"]["kernels"]), tiled


def of_run(built: Any, model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> float:
    """The largest error of the outputs, over that of rounding alone; they are the same on any number of threads."""
    found, *others = (built(inputs, threads=n) for n in (1, 2, 3))
    assert all(np.array_equal(found[name], other[name], equal_nan=True) for name in found for other in others)
    exact, near = of_outputs(model, inputs), in_bfloat16(model, inputs)
    ratios = {}
    for name, wanted in exact.items():
        allowed = max(float(np.abs(near[name] - wanted).max()), 2**-9 * float(np.abs(wanted).max()))
        ratios[name] = float(np.abs(found[name] - wanted).max()) / max(allowed, 1e-9)
    assert max(ratios.values()) < MOST, (model.graph.input, ratios)
    return max(ratios.values())


def checked_open(target: Target, seed: int, wish: str, folder: Path) -> tuple[float, int, int]:
    """The same of one network whose input's dims are open, at its own size and at others that it can have: the largest
    of the errors, how many kernels are in bfloat16, and how many sizes were compared."""
    plain = random_nets([seed])
    (name, own), *_ = (inputs := drawn(plain, seed)).items()
    model = with_dims(plain, inputs, {(name, axis): symbol for axis, symbol in ((0, "n"), (2, "h"), (3, "w"))})
    run_pipeline(model, Options(target, precision="bfloat16", threads=3, **WISHES[wish]), output=folder)
    built = halotile.load(folder)
    ratios = [of_run(built, model, inputs)]
    rng = np.random.default_rng(seed)
    for more in ((0, 0, 1, 1), (1, 0, 13, 6), (0, 0, 40, 61)):
        given = {name: rng.standard_normal([a + b for a, b in zip(own.shape, more)]).astype(np.float32)}
        try:
            of_outputs(model, given)
            built(given)
        except (RuntimeException, Fail, HalotileError):  # constants of a Reshape, or a least size
            continue
        ratios.append(of_run(built, model, given))
    return max(ratios), int(built.report["precision"]["kernels"]), len(ratios)


def checked_numbers(target: Target, seeds: Sequence[int], wish: str, folder: Path) -> int:
    """How many outputs are NaN or infinite: the same as in float32."""
    model = random_nets(seeds)
    inputs, rng = drawn(model, seeds[0]), np.random.default_rng(seeds[0])
    for array in inputs.values():
        array.reshape(-1)[rng.integers(0, array.size, 3)] = [np.nan, np.inf, -np.inf]
    pair = []
    for name, options in (("half", {"precision": "bfloat16"}), ("whole", {"matrix": False})):
        run_pipeline(model, Options(target, threads=2, winograd=False, **options, **WISHES[wish]), output=folder / name)
        built = halotile.load(folder / name)
        assert name == "whole" or int(built.report["precision"]["kernels"]) > 0
        pair.append(built(inputs))
    count = 0
    for name, wanted in pair[1].items():
        for kind in (np.isnan, np.isposinf, np.isneginf):
            assert np.array_equal(kind(pair[0][name]), kind(wanted)), (seeds, name, kind.__name__)
            count += int(kind(wanted).sum())
    return count


@pytest.mark.parametrize(("seeds", "wish"), [(range(5), "whole"), (range(10, 15), "in tiles")])
def test_answers_are_as_near_as_bfloat16_can_be(target: Target, seeds: range, wish: str, tmp_path: Path) -> None:
    _, kernels, tiled = checked(target, seeds, wish, tmp_path / "out")
    assert kernels > 3 if wish == "whole" else kernels and tiled


@pytest.mark.parametrize(("seeds", "wish"), [(range(30, 34), "whole"), (range(34, 38), "in tiles")])
def test_nan_and_infinity_are_where_they_are_in_float32(
    target: Target, seeds: range, wish: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for first layers of few channels, whose products take what no tap reads by zero (docs/numerics.md)."""
    monkeypatch.setattr(algorithm, "few_plan", lambda *_: None)
    assert checked_numbers(target, seeds, wish, tmp_path) > 50


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("seeds", [ROWS, range(5), range(10, 15)], ids=["rows", "images", "more images"])
def test_answers_of_pairs_are_as_near_as_bfloat16_can_be(
    in_pairs: Target, seeds: Sequence[int], wish: str, tmp_path: Path
) -> None:
    _, kernels, tiled = checked(in_pairs, seeds, wish, tmp_path / "out")
    assert kernels > 2 and (wish == "whole" or tiled)


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("seeds", [ROWS, range(30, 34), range(34, 38)], ids=["rows", "images", "more images"])
def test_nan_and_infinity_of_pairs_are_where_they_are_in_float32(
    in_pairs: Target, seeds: Sequence[int], wish: str, tmp_path: Path
) -> None:
    assert checked_numbers(in_pairs, seeds, wish, tmp_path) > 50


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("seeds", [ROWS, range(8), range(10, 18)], ids=["rows", "images", "more images"])
def test_answers_of_open_pairs_are_as_near_as_bfloat16_can_be(
    in_pairs: Target, seeds: Sequence[int], wish: str, tmp_path: Path
) -> None:
    found = [checked_open(in_pairs, seed, wish, tmp_path / str(seed)) for seed in seeds]
    kernels, sizes = (sum(numbers) for numbers in list(zip(*found))[1:])
    assert kernels > 2 and sizes > 2 * len(seeds)


@pytest.mark.skipif("HALOTILE_RANDOM_NETS" not in os.environ, reason="HALOTILE_RANDOM_NETS=first:count asks for many")
@pytest.mark.parametrize("kind", ["target", "in_pairs"])
def test_many(kind: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = request.getfixturevalue(kind)
    first, count = (int(n) for n in os.environ["HALOTILE_RANDOM_NETS"].split(":"))
    for seed in range(first, first + count, 10):
        seeds = range(seed, min(seed + 10, first + count))
        for wish in WISHES:
            ratio, kernels, tiled = checked(target, seeds, wish, tmp_path / f"{seed} {wish}")
            print(f"{seed} {wish}: {ratio:.2f}, {kernels} kernels in bfloat16, {tiled} tile groups", flush=True)
        with monkeypatch.context() as patch:
            patch.setattr(algorithm, "few_plan", lambda *_: None)
            odd = checked_numbers(target, seeds, list(WISHES)[seed // 10 % 2], tmp_path / f"{seed}numbers")
        print(f"{seed}: {odd} outputs are no numbers", flush=True)
