"""Products on the matrix unit: every shape against NumPy, the error's bound, blocks, and where they are taken."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Compiled, Suite, machine, module_of, staged, unitless, weight
from halotile import compile as compile_model
from halotile.benchmarks.graph import ModelGraph
from halotile.compiler import pipeline
from halotile.schedules.instructions.amx import SUMS, has_matrix_unit
from halotile.schedules.matmul.amx_blocks import ProductShape, choose_registers, heights, pieces
from halotile.schedules.matmul.amx_kernel import fits_unit
from halotile.schedules.matmul.estimate import matrix_pays, product_cycles
from halotile.schedules.matmul.facts import MatmulFacts
from halotile.schedules.words.group import Group, Node, Request, Value
from halotile.schedules.words.policy import Policy
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax

R = relax.op
FORM = "matmul on the matrix unit"
NAMED = replace(resolve("x86_64-linux-gnu+sapphirerapids"), cores=2, l2_bytes=2 << 20)
TWO = replace(machine(), cores=2)
ONE = replace(machine(), cores=1)
SMALL = replace(TWO, l2_bytes=64 << 10)  # many blocks of rows

needs_unit = pytest.mark.skipif(
    not has_matrix_unit(machine()), reason="NOT RUN: this machine has no matrix unit, or does not grant it"
)

# shape of A, N: primes, rows and columns that fill no register, one register, an odd number of them, broken steps
SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((128, 384), 384),
    ((131, 61), 139),
    ((197, 70), 50),
    ((48, 96), 16),
    ((40, 100), 17),
    ((16, 128), 96),
    ((13, 257), 113),
    ((2, 67, 61), 71),
    ((2, 3, 37, 64), 96),
    ((113, 31), 47),
    ((3, 70), 130),
    ((129, 33), 48),
    ((79, 48), 80),
    ((700, 160), 33),
    ((1, 50, 49), 49),
    ((64, 1600), 32),
]


def random(seed: int, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def product(a: Any, b: np.ndarray) -> Any:
    return relax.BlockBuilder().normalize(R.matmul(a, weight(b)))


def bound(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The largest error that is allowed: 2**-15 of the sum of all products' sizes."""
    return np.abs(a).astype("float64") @ np.abs(b).astype("float64") / 2**15


@needs_unit
@pytest.mark.parametrize("target", [TWO, ONE, SMALL], ids=["two cores", "one core", "small cache"])
def test_equals_numpy(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bias, a residual and an activation behind it; also where it would not pay."""
    monkeypatch.setattr("halotile.schedules.matmul.select.matrix_pays", fits_unit)
    suite = Suite(target)
    for i, (shape, n) in enumerate(SHAPES):
        a, b, bias, other = random(i, shape, (shape[-1], n), (n,), (*shape[:-1], n))
        exact = a.astype("float64") @ b + bias + other
        atol = 2 * bound(a, b).max()

        def body(a: Any, c: Any, b: np.ndarray = b, bias: np.ndarray = bias) -> Any:
            return R.nn.relu(R.add(R.add(product(a, b), weight(bias)), c))

        suite.add(f"{i}", [a, other], body, np.maximum(exact, 0).astype("float32"), 0, atol)
    for i in range(len(SHAPES)):
        suite.check(f"{i}")
        assert [s.split(",")[0] for s in suite.schedules(f"{i}")] == [FORM]


@needs_unit
def test_costly_epilogues_and_moves_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long activation; heads that are parted in the store, a slice that is read in place; a batch of B's axes."""
    monkeypatch.setattr("halotile.schedules.matmul.select.matrix_pays", fits_unit)
    suite = Suite(TWO)
    a, b = random(1, (2, 50, 96), (96, 128))
    b /= 10
    y = a.astype("float64") @ b
    heads = y.reshape(2, 50, 4, 32).transpose(0, 2, 1, 3).astype("float32")
    gelu = np.array([v * (1 + math.erf(v / math.sqrt(2))) / 2 for v in y.reshape(-1)]).reshape(y.shape)

    def part(a: Any) -> Any:
        return R.permute_dims(R.reshape(product(a, b), (2, 50, 4, 32)), [0, 2, 1, 3])

    def rows(a: Any) -> Any:
        return R.matmul(R.permute_dims(a, [1, 0, 2]), weight(b))

    suite.add("heads", [a], part, heads, 0, 1e-4)
    suite.add("gelu", [a], lambda a: R.nn.gelu(product(a, b)), gelu.astype("float32"), 0, 1e-4)
    suite.add("rows", [a], rows, y.transpose(1, 0, 2).astype("float32"), 0, 1e-4)
    suite.add("batch", [a[0]], lambda a: product(a, b[None]), y[:1].astype("float32"), 0, 1e-4)
    for name in ("heads", "gelu", "rows", "batch"):
        suite.check(name)
        assert FORM in [s.split(",")[0] for s in suite.schedules(name)], suite.schedules(name)


CASES = ["normal", "cancelling", "range", "columns", "small", "worst", "fifteen orders"]


@needs_unit
@pytest.mark.parametrize("case", CASES)
def test_error_is_bounded(case: str) -> None:
    """Each product lacks 2**-15 of itself at most; sums are float32. So it is where sums cancel, and where the
    operands' sizes lie far apart."""
    a, b = random(3, (130, 200), (200, 80))
    if case == "cancelling":
        a[:, 100:], b[100:] = -a[:, :100], b[:100]
    if case == "range":
        generator = np.random.default_rng(4)
        a *= np.exp2(generator.integers(-30, 30, a.shape)).astype("float32")
        b *= np.exp2(generator.integers(-30, 30, b.shape)).astype("float32")
    if case == "columns":
        b *= np.exp2(np.arange(80) - 40).astype("float32")
        a *= np.exp2(np.arange(130) / 2 - 30).astype("float32")[:, None]
    if case == "small":
        a *= np.float32(2.0**-60)
    if case == "worst":  # just above half a step of eight bits: heads and tails leave as much as they can
        a[...] = b[...] = np.uint32(0x3F808040).view(np.float32)
    if case == "fifteen orders":
        a, b = (np.exp2(np.random.default_rng(6).uniform(-8, 7, v.shape)).astype("float32") for v in (a, b))
    compiled = Compiled(staged(module_of([a], lambda a: product(a, b)), TWO, tiled=False))
    assert compiled.build.kernels[0].schedule.startswith(FORM)
    wrong = np.abs(compiled.run([a])[0] - a.astype("float64") @ b.astype("float64"))
    assert (wrong <= bound(a, b) * (1 + 2.0**-8 * 3)).all()  # and what 600 sums round
    assert case != "normal" or (wrong <= bound(a, b) / 8).all()


@needs_unit
def test_rows_do_not_mix() -> None:
    """What is infinite or NaN spoils its own row, where an output that would be infinite may be NaN."""
    a, b = random(5, (77, 61), (61, 50))
    compiled = Compiled(staged(module_of([a], lambda a: product(a, b)), TWO, tiled=False))
    clean = compiled.run([a])[0]
    spoilt = a.copy()
    spoilt[5, 3], spoilt[40, 60] = np.nan, np.inf
    got = compiled.run([spoilt])[0]
    others = np.setdiff1d(np.arange(77), [5, 40])
    assert (got[others] == clean[others]).all() and not np.isfinite(got[[5, 40]]).any()


@needs_unit
def test_same_bits_for_every_number_of_tasks() -> None:
    a, b = random(6, (197, 130), (130, 208))
    for target in (TWO, SMALL):
        compiled = Compiled(staged(module_of([a], lambda a: product(a, b)), target, tiled=False))
        assert compiled.build.kernels[0].schedule.startswith(FORM)
        first = compiled.run([a], tasks=1)[0]
        for tasks in (2, 3, 5):
            assert (compiled.run([a], tasks=tasks)[0] == first).all()


@needs_unit
def test_where_parts_lie() -> None:
    """On the stack, or where there are many in the worker's workspace."""
    a, b = random(8, (128, 384), (384, 64))
    for target, size in ((ONE, 128 * 384 * 4), (TWO, 64 * 384 * 4), (replace(ONE, l2_bytes=64 << 10), 0)):
        (kernel,) = staged(module_of([a], lambda a: product(a, b)), target, tiled=False).kernels
        assert kernel.schedule.startswith(FORM) and size <= kernel.workspace <= size + 64 * (size > 0)


@needs_unit
def test_a_library_that_was_tuned_offers_it_first() -> None:
    a, b = random(7, (128, 96), (96, 64))
    build = staged(module_of([a], lambda a: product(a, b)), TWO, tiled=False)
    for tuning, form in (({}, FORM), ({"x": "y"}, FORM)):
        build.options = replace(build.options, tuning=tuning)
        pipeline.schedule(build)
        (kernel,) = build.kernels
        assert kernel.schedule.startswith(form) and kernel.decision and kernel.decision.own == "the matrix unit"
    build.options = replace(build.options, tuning={}, candidate=1)
    pipeline.schedule(build)
    assert not build.kernels[0].schedule.startswith(FORM)


# -- choices, whatever runs here -----------------------------------------------------------------


def facts(rows: tuple[int, ...], k: int, n: int, dtype: str = "float32", whole: bool = False) -> Any:
    data = np.random.default_rng(0).standard_normal((k, n)).astype(dtype)
    b = Value("b", (k, n), dtype, constant=np.rint(data * 9) if whole else data)
    a, y = Value("a", (*rows, k), dtype), Value("y", (*rows, n), dtype)
    node = Node("relax.matmul", "m", None, (a, b), (y,))
    return Request(Group("g", (node,), (a,), (y,), node), {}, NAMED), MatmulFacts.of(node)


def test_where_it_pays() -> None:
    shapes = [(128, 384, 384), (3136, 96, 384), (197, 192, 768), (49, 768, 3072), (64, 128, 128)]
    for rows, k, n in shapes:
        assert matrix_pays(*facts((rows,), k, n)), (rows, k, n)
    for why, case in {
        "one row waits for its weights": facts((1,), 2048, 1000),
        "so do few": facts((4,), 4096, 4096),
        "one row would fill a sixteenth": facts((1,), 128, 128),
        "float64": facts((128,), 384, 384, "float64"),
        "whole numbers are summed without an error": facts((128,), 384, 384, whole=True),
        "a step that is mostly empty": facts((128,), 3, 64),
    }.items():
        assert not matrix_pays(*case), why
    request, found = facts((128,), 384, 384)
    for other in (
        replace(request, policy=Policy.of(exact=True)),
        replace(request, policy=Policy.of(matrix=False)),
        replace(request, policy=Policy.of(weights="float16")),
        replace(request, target=unitless(NAMED)),
        replace(request, target=resolve("x86_64-linux-gnu+znver4")),
        replace(request, target=resolve("raspberry-pi-5")),
    ):
        assert not matrix_pays(other, found)


def test_passes_know_what_it_takes() -> None:
    """Products that are merged save little here: no row is split twice."""
    known = [product_cycles(NAMED, 1, 128, 384, 384, "float32", 1, True, matrix) for matrix in (False, True)]
    assert known[1] < known[0] / 2
    assert product_cycles(NAMED, 1, 1, 384, 384, "float32", 1, True, True) == product_cycles(
        NAMED, 1, 1, 384, 384, "float32", 1, True
    )
    merged = product_cycles(NAMED, 1, 128, 384, 1152, "float32", 1, True, True)
    assert merged < 3 * known[1]


@pytest.mark.parametrize("registers", range(1, 14))
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_blocks_cover_all_registers(registers: int, width: int) -> None:
    if width > 2 and registers > 1:
        return
    tall, blocks, last = heights(registers, width)
    assert tall * blocks + last == registers
    for rows in (tall, last):
        parts = pieces(rows, width)
        assert all(r * c <= SUMS for r, _, c in parts)
        assert sum(c for _, _, c in parts) == width


SIZES = [(128, 384, 384), (3136, 96, 384), (197, 3072, 768), (50, 64, 50, 12), (16, 99, 99)]


@pytest.mark.parametrize("shape", [ProductShape(*sizes) for sizes in SIZES])
@pytest.mark.parametrize("cores", [1, 2, 5])
def test_tasks_cover_everything_and_fit_the_cache(shape: ProductShape, cores: int) -> None:
    for l2 in (64 << 10, 2 << 20):
        cycles, chosen = choose_registers(replace(NAMED, l2_bytes=l2), shape, cores)
        rows = shape.row_registers
        assert cycles > 0 and (chosen.row_blocks - 1) * chosen.rows < rows <= chosen.row_blocks * chosen.rows
        assert chosen.rows % 2 == 0 or chosen.row_blocks == 1
        panels = -(-shape.column_registers // chosen.width)
        run = -(-panels // chosen.groups)
        assert (chosen.groups - 1) * run < panels <= chosen.groups * run
        assert chosen.rows <= 2 or chosen.rows * 16 * shape.steps * 128 <= l2 // 2 + 2 * 16 * shape.steps * 128


def test_cores_find_even_shares() -> None:
    """Rows where these are many, columns where not."""
    assert choose_registers(NAMED, ProductShape(128, 384, 384), 2)[1].row_blocks == 2
    one = choose_registers(NAMED, ProductShape(32, 768, 768), 2)[1]
    assert one.row_blocks * one.groups >= 2


@needs_unit
def test_a_budget_counts_all_memory_and_leaves_the_unit_alone() -> None:
    """Parts of A take a core's workspace, which is part of the arena, but of no plan."""
    g = ModelGraph("product")
    x = g.input("x", (196, 512))
    y = g.op("MatMul", x, g.weight("w", np.random.default_rng(0).standard_normal((512, 384)).astype(np.float32)))
    model = g.finish(y=g.op("Relu", y))
    free = compile_model(model, threads=2)
    assert any("matrix" in k["schedule"] for k in free.report["kernels"])
    for options in ({"optimize": "memory"}, {"memory_budget": 1 << 20}):
        found = compile_model(model, threads=2, **options)
        assert not any("matrix" in k["schedule"] for k in found.report["kernels"])
        assert found.report["arena_bytes"] <= 1 << 20 and found.report["workspace_bytes"] == 0
