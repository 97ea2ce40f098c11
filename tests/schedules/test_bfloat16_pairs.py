"""Products of pairs of bfloat16 in vectors (vdpbf16ps): against float64 of the rounded operands, with all kinds of
tails; the instruction in the object for targets that have it, on any machine; and where they are taken."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from bfloat16_sums import rounded
from compiled import Compiled, module_of, native, staged, weight
from halotile import compile as compile_model
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.graph import ModelGraph
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.schedules.instructions.bf16_pairs import has_pairs, words
from halotile.schedules.instructions.bf16_parts import ONE
from halotile.schedules.matmul import select
from halotile.schedules.matmul.estimate import product_cycles
from halotile.schedules.matmul.pairs import fits_pairs
from halotile.schedules.words.group import Packed
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax

R = relax.op
NAMED = ("x86_64-linux-gnu+znver4", "x86_64-linux-gnu+cooperlake", "x86_64-linux-gnu+sapphirerapids+-amx-tile")
WITHOUT = ("x86-64-v3", "x86-64-v4", "raspberry-pi-5", "x86_64-linux-gnu+sapphirerapids")

needs_pairs = pytest.mark.skipif(
    not has_pairs(native()), reason="NOT RUN: this machine's vectors do not multiply bfloat16 (AVX512_BF16)"
)
needs_objdump = pytest.mark.skipif(shutil.which("objdump") is None, reason="NOT RUN: there is no objdump")

# shape of A, N: one row, primes, odd depths, columns that fill no vector, several blocks of rows, batches, parts of K
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((1, 1021), 509),
    ((1, 768), 64),
    ((3, 7), 130),
    ((131, 61), 139),
    ((197, 192), 50),
    ((48, 33), 16),
    ((13, 5003), 113),
    ((2, 67, 61), 71),
    ((2, 3, 37, 64), 96),
    ((701, 160), 33),
    ((1, 50, 49), 49),
    ((1031, 9), 23),
]


def random(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def product(a: Any, b: np.ndarray) -> Any:
    return relax.BlockBuilder().normalize(R.matmul(a, weight(b)))


@pytest.fixture
def wherever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it would not pay."""
    monkeypatch.setattr(select, "pairs_expected", fits_pairs)


def built(arrays: list[np.ndarray], body: Any, target: Target, **options: Any) -> Compiled:
    return Compiled(staged(module_of(arrays, body), target, precision="bfloat16", **options))


def close(found: np.ndarray, a: np.ndarray, b: np.ndarray, wanted: np.ndarray) -> None:
    """Within what float32's sums round, of the products of rounded numbers."""
    step = (a.shape[-1] + 8) * 2.0**-24
    assert (np.abs(found - wanted) <= step * (rounded(np.abs(a)) @ rounded(np.abs(b)) + np.abs(wanted)) + 1e-6).all()


# -- numbers -------------------------------------------------------------------------------------


@needs_pairs
@pytest.mark.parametrize("memory", [False, True], ids=["time", "memory"])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.usefixtures("wherever")
def test_products_are_those_of_the_nearest_numbers(cores: int, memory: bool) -> None:
    """With a bias, a residual and an activation behind it, the same bits by any number of tasks, whatever lies in
    scratch; a small cache makes many blocks."""
    target = replace(native(), cores=cores, **({"l2_bytes": 64 << 10} if cores == 2 else {}))
    for i, (shape, n) in enumerate(SHAPES):
        a, b, bias, other = random(i, shape, (shape[-1], n), (n,), (*shape[:-1], n))

        def body(a: Any, c: Any, b: np.ndarray = b, bias: np.ndarray = bias) -> Any:
            return R.nn.relu(R.add(R.add(product(a, b), weight(bias)), c))

        compiled = built([a, other], body, target, **({"optimize": "memory"} if memory else {}))
        (kernel,) = compiled.build.kernels
        if memory and shape[-1] > 5000:  # rows of a tile are more than the stack takes
            assert "bfloat16" not in kernel.schedule
            continue
        assert kernel.schedule.endswith(", bfloat16"), (shape, n, kernel.schedule)
        assert not (memory and kernel.workspace), (shape, n)
        (found,) = compiled.run([a, other])
        close(found, a, b, np.maximum(rounded(a) @ rounded(b) + bias + other, 0))
        unrounded = np.maximum(a.astype("float64") @ b + bias + other, 0)
        assert np.abs(found - unrounded).max() > 1e-4, "these are float32's"
        for tasks, poison in ((1, 0x7F), (2, 0), (64, 0xFF)):
            assert np.array_equal(found, compiled.run([a, other], tasks, poison)[0])


@needs_pairs
@pytest.mark.usefixtures("wherever")
def test_moves_before_and_behind_it_and_long_activations() -> None:
    a, b = random(1, (2, 50, 95), (95, 128))
    b /= 10
    y = rounded(a) @ rounded(b)
    gelu = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in y.reshape(-1)]).reshape(y.shape)
    cases = {
        "heads": (
            lambda a: R.permute_dims(R.reshape(product(a, b), (2, 50, 4, 32)), [0, 2, 1, 3]),
            y.reshape(2, 50, 4, 32).transpose(0, 2, 1, 3),
        ),
        "gelu": (lambda a: R.nn.gelu(product(a, b)), gelu),
        "rows": (lambda a: R.matmul(R.permute_dims(a, [1, 0, 2]), weight(b)), y.transpose(1, 0, 2)),
    }
    for name, (body, wanted) in cases.items():
        compiled = built([a], body, native())
        assert any(k.schedule.endswith(", bfloat16") for k in compiled.build.kernels), name
        np.testing.assert_allclose(compiled.run([a])[0], wanted, 0, 2e-5, err_msg=name)


@needs_pairs
@pytest.mark.parametrize("depth", [64, 37, 97])
@pytest.mark.usefixtures("wherever")
def test_nan_and_infinity_reach_their_rows_and_no_other(depth: int) -> None:
    """A zero beside the last of an odd number of terms meets a zero; NaN of every kind stays one."""
    a, b = random(2, (67, depth), (depth, 83))
    b = np.abs(b) + np.float32(0.1)
    odd = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    for i, value in enumerate((*odd, np.float32(np.inf), np.float32(-np.inf), np.float32(np.inf))):
        a[7 * i, -1 - i] = value
    a[49, 0] = -np.inf  # with an infinity of the other sign
    compiled = built([a], lambda a: product(a, b), native())
    (y,) = compiled.run([a], poison=0xFF)
    assert np.isnan(y[:35:7]).all() and np.isnan(y[49]).all()
    assert (y[35] == np.inf).all() and (y[42] == -np.inf).all()
    assert np.isfinite(np.delete(y, range(0, 50, 7), axis=0)).all()
    b[-1, 5], b[0, 7] = np.inf, np.nan
    (y,) = built([a[1:7]], lambda a: product(a, b), native()).run([a[1:7]])
    assert np.isinf(y[:, 5]).all() and np.isnan(y[:, 7]).all() and np.isfinite(np.delete(y, [5, 7], axis=1)).all()


def test_weights_are_pairs_along_depth_and_ties_go_to_even() -> None:
    ties = np.array([[0x3F808000, 0x3F818000], [0xBF808000, 0x7F800000], [0x3F800000, 0x7F800001]], np.uint32)
    found = words(ties.view(np.float32))
    assert found.shape == (2, 2) and found.dtype == np.int32
    pairs = found.view(np.uint16).reshape(2, 2, 2)  # [word][column][term]
    assert pairs[0].tolist() == [[0x3F80, 0xBF80], [0x3F82, 0x7F80]]
    assert pairs[1, 0].tolist() == [0x3F80, 0] and pairs[1, 1, 1] == 0
    assert np.isnan(pairs[1, 1, :1].view(ml_dtypes.bfloat16).astype(np.float32)).all()


# -- which targets, on any machine ----------------------------------------------------------------


def one(rows: int = 128, depth: int = 333, columns: int = 512) -> Any:
    g = ModelGraph("one")
    return g.finish(y=g.op("MatMul", g.input("x", (rows, depth)), g.weight("w", random(1, (depth, columns))[0])))


def planned(target: str, **options: Any) -> Any:
    wish = {"precision": "bfloat16", "threads": 1, **options}
    return run_pipeline(one(), Options(resolve(target), stop_after="plan", **wish))


@needs_objdump
@pytest.mark.parametrize("target", NAMED)
def test_the_object_has_the_instruction(target: str) -> None:
    build, plain = planned(target), planned(target, precision="float32")
    (kernel,) = build.kernels
    code = m.disassembly([m.object_of(kernel, build.target)], build.target, m.tools().objdump)
    text = "\n".join(i.text for i in m.functions(code)[m.NAME])
    tile = re.search(r"tile (\d+)x(\d+)x16", kernel.schedule)
    assert tile and text.count("vdpbf16ps") >= int(tile[1]) * int(tile[2]), kernel.schedule
    assert "vcvtne2ps2bf16" in text and "vfmadd" not in text and "halotile_pairs" not in text
    code = m.disassembly([m.object_of(k, plain.target) for k in plain.kernels], plain.target, m.tools().objdump)
    assert "vdpbf16ps" not in code and "vfmadd" in code


@pytest.mark.parametrize("target", NAMED)
def test_weights_take_half_of_the_bytes_and_the_report_counts_the_kernels(target: str) -> None:
    def weights(build: Any) -> int:
        return sum(o.data.nbytes for kernel in build.kernels for o in kernel.operands if isinstance(o, Packed))

    build = planned(target)
    assert build.report["precision"] == {"asked": "bfloat16", "kernels": 1, "of": 1} and not build.report["warnings"]
    assert build.report["kernels"][0]["at_once"] == 2 and "matrix" not in build.report["kernels"][0]
    assert weights(build) == 334 * 512 * 2
    assert weights(planned(target, weights="float16")) == weights(build)
    assert weights(planned(target, weights="int8")) <= 333 * 512 + 4 * 512
    assert "bfloat16" not in planned(target, precision="float32").report["kernels"][0]["schedule"]


@pytest.mark.parametrize("target", WITHOUT)
def test_other_targets_have_none(target: str) -> None:
    assert not has_pairs(resolve(target))
    assert all("halotile_pairs" not in str(k.function) for k in planned(target).kernels)


def test_exact_forbids_it() -> None:
    with pytest.raises(HalotileError, match="exact forbids"):
        compile_model(one(), precision="bfloat16", exact=True, target=NAMED[0])


def test_what_would_be_no_faster_stays_in_float32() -> None:
    target = resolve(NAMED[0])
    for depth, taken in ((2, False), (96, True)):
        (kernel,) = run_pipeline(
            one(300, depth, 16), Options(target, precision="bfloat16", threads=1, stop_after="schedule")
        ).kernels
        assert kernel.schedule.endswith(", bfloat16") == taken, kernel.schedule


def test_whole_numbers_stay_in_float32() -> None:
    g = ModelGraph("whole")
    b = np.random.default_rng(0).integers(-9, 9, (333, 512)).astype("float32")
    whole = g.finish(y=g.op("MatMul", g.input("x", (128, 333)), g.weight("w", b)))
    build = run_pipeline(whole, Options(resolve(NAMED[0]), precision="bfloat16", threads=1, stop_after="schedule"))
    assert build.report["precision"] == {"asked": "bfloat16", "kernels": 0, "of": 1} and not build.report["warnings"]


def test_passes_expect_half_of_the_time() -> None:
    target = resolve(NAMED[0])
    plain, pairs = (product_cycles(target, 1, 128, 768, 768, "float32", 1, False, False, *p) for p in ((), (ONE,)))
    assert 0.45 * plain < pairs < 0.65 * plain
    for other in WITHOUT[:3]:
        target = resolve(other)
        plain, same = (product_cycles(target, 1, 128, 768, 768, "float32", 1, False, False, *p) for p in ((), (ONE,)))
        assert plain == same

