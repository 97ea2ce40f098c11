"""Matrix products of every shape against NumPy: primes, batches that broadcast, constant and run-time operands."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from compiled import Suite, narrow, native, weight
from halotile.schedules.matmul.blocking import FEWEST_ROWS, choose_blocks
from halotile.schedules.matmul.register_tile import choose_tile, first_level_ways, rows_in_cache
from halotile.targets.target import Target
from tvm import relax

R = relax.op

# shapes of A and B
PRODUCTS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    *(((m, k), (k, n)) for m, k, n in itertools.product((1, 7, 31), (1, 13), (1, 15, 17, 67))),
    ((3, 7, 5), (3, 5, 19)),
    ((3, 7, 5), (5, 19)),
    ((7, 5), (3, 5, 19)),
    ((2, 1, 7, 5), (1, 3, 5, 19)),
    ((2, 3, 7, 5), (5, 19)),
    ((2, 3, 7, 5), (3, 5, 19)),
    ((1, 3, 7, 5), (2, 3, 5, 19)),
    ((1, 1, 7, 5), (2, 3, 5, 19)),
    ((2, 1, 1, 5), (3, 5, 1)),
    ((131, 61), (61, 139)),
    ((2, 67, 61), (61, 71)),
]
FAMILY = [i for i, (a, b) in enumerate(PRODUCTS) if len(a) > 1 and len(b) > 1]
VECTORS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((13,), (13,)),
    ((13,), (13, 7)),
    ((7, 13), (13,)),
    ((3, 7, 13), (13,)),
]


def operands(i: int, shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(i)
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]


def filled(suite: Suite) -> Suite:
    for i, shapes in enumerate([*PRODUCTS, *VECTORS]):
        dtype = "float64" if i % 5 == 4 else "float32"
        a, b = operands(i, shapes, dtype)
        exact = a.astype("float64") @ b.astype("float64")
        tolerance = 1e-11 if dtype == "float64" else 1e-5
        bias = np.linspace(-1, 2, exact.shape[-1] if exact.ndim else 1).astype(dtype)

        def epilogue(y: Any, bias: Any = bias, i: int = i) -> Any:
            y = R.add(y, weight(bias)) if y.ty.ndim else y
            return [y, R.nn.relu(y), R.sigmoid(y)][i % 3]

        y = exact + bias if exact.ndim else exact
        wanted: Any = np.asarray([y, np.maximum(y, 0), 1 / (1 + np.exp(-y))][i % 3]).astype(dtype)

        def variable(a: Any, b: Any, epilogue: Any = epilogue) -> Any:
            return epilogue(relax.BlockBuilder().normalize(R.matmul(a, b)))

        def constant(a: Any, b: Any = b, epilogue: Any = epilogue) -> Any:
            return epilogue(relax.BlockBuilder().normalize(R.matmul(a, weight(b))))

        suite.add(f"variable{i}", [a, b], variable, wanted, tolerance, tolerance)
        suite.add(f"constant{i}", [a], constant, wanted, tolerance, tolerance)
    return suite


@pytest.fixture(scope="module")
def suite() -> Suite:
    return filled(Suite(narrow(512)))


@pytest.mark.parametrize("kind", ["variable", "constant"])
@pytest.mark.parametrize("i", range(len(PRODUCTS) + len(VECTORS)))
def test_equals_numpy(suite: Suite, i: int, kind: str) -> None:
    suite.check(f"{kind}{i}")


@pytest.mark.parametrize("i", FAMILY)
def test_the_family_is_used(suite: Suite, i: int) -> None:
    """Everything in one kernel of the family, epilogue included; a constant B that all batches share lies packed."""
    variable, constant = (suite.schedules(f"{kind}{i}") for kind in ("variable", "constant"))
    assert len(variable) == len(constant) == 1
    assert variable[0].startswith("matmul in place")
    shared = int(np.prod(PRODUCTS[i][1][:-2], dtype=np.int64)) == 1
    assert constant[0].startswith("matmul packed" if shared else "matmul in place")


AVX512 = replace(native(), vector_bits=512, vector_registers=32, fma_ports=2, fma_latency=4)
AVX2 = replace(native(), vector_bits=256, vector_registers=16, fma_ports=2, fma_latency=4)
NEON = replace(native(), vector_bits=128, vector_registers=32, fma_ports=2, fma_latency=4)


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
@pytest.mark.parametrize("rows, vectors", [(1, 63), (1, 1), (7, 5), (128, 96), (197, 24)])
def test_tiles_fit_the_registers(target: Target, rows: int, vectors: int) -> None:
    height, width = choose_tile(target, rows, vectors)
    loaded = width if height > 1 else 1  # with one row each vector of B is used once, from memory
    assert height * width + loaded + 1 <= target.vector_registers
    assert height <= rows and width <= vectors


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_large_tiles_keep_the_ports_busy(target: Target) -> None:
    height, width = choose_tile(target, 128, 96)
    assert height * width >= target.fma_latency * target.fma_ports
    assert (height + width) / 2 <= height * width / target.fma_ports


def test_one_row_takes_many_vectors() -> None:
    """A fully connected layer hides the latency by its columns, having one row."""
    assert choose_tile(AVX512, 1, 64) == (1, 8)


@pytest.mark.parametrize("target", [AVX512, AVX2, NEON], ids=["avx512", "avx2", "neon"])
def test_rows_that_share_sets_of_the_cache_make_low_tiles(target: Target) -> None:
    """Rows of A a multiple of 4 KiB apart lie in one set of the first level; odd distances don't matter."""
    assert rows_in_cache(4096) == rows_in_cache(3 * 4096) == 6
    assert rows_in_cache(2048) == 12 and rows_in_cache(64 * 33) > 64 and rows_in_cache(4000) > 64
    target = replace(target, l1_bytes=32 << 10)
    assert choose_tile(target, 512, 64, 4096)[0] <= 6
    one_port = replace(target, fma_ports=1)
    assert choose_tile(one_port, 3136, 18)[0] < 16, "a tall tile of one vector loads more than it must"


def test_rows_of_one_vector_leave_registers_to_their_factors() -> None:
    """x86 before AVX-512 repeats an element in a register, which then becomes the sum's: two a row, of 16."""
    avx2, avx512 = (replace(t, triple="x86_64-linux-gnu") for t in (AVX2, AVX512))
    assert choose_tile(avx2, 1000, 1) == (7, 1) and choose_tile(avx2, 49, 7) == (5, 2)
    assert choose_tile(avx512, 1000, 1)[0] > 14 and choose_tile(NEON, 1000, 1)[0] > 14


def test_a_larger_first_level_has_more_ways() -> None:
    """49 rows 12 KiB apart: seven at a time fit twelve ways beside B, not eight (0.92 of the time where they do)."""
    intel, amd = (replace(AVX512, triple="x86_64-linux-gnu", l1_bytes=k << 10) for k in (48, 32))
    assert (first_level_ways(intel), first_level_ways(amd)) == (12, 8)
    assert (choose_tile(intel, 49, 48, 12288), choose_tile(amd, 49, 48, 12288)) == ((7, 3), (5, 4))
    arm = replace(intel, triple="aarch64-linux-gnu", l1_bytes=64 << 10)
    assert first_level_ways(arm) == 8, "a way is larger than a page there"


SIZES = [(1, 5, 1), (128, 1536, 8), (1000, 1000, 21), (61, 40000, 3), (7, 3, 500)]


@pytest.mark.parametrize("rows, depth, panels", SIZES)
def test_blocks_cover_everything_and_fit_the_cache(rows: int, depth: int, panels: int) -> None:
    for cores in (1, 2, 16):
        target = replace(AVX512, cores=cores, l2_bytes=1 << 20)
        blocks = choose_blocks(target, rows, depth, panels, (min(8, rows), 3), 1, 4)
        assert blocks.rows % min(8, rows) == 0 or blocks.row_blocks == 1, "tiles would overlap at the end of each block"
        assert blocks.rows <= rows and (blocks.row_blocks - 1) * blocks.rows < rows <= blocks.row_blocks * blocks.rows
        assert (blocks.parts - 1) * blocks.depth < depth <= blocks.parts * blocks.depth
        assert 1 <= blocks.groups <= panels
        assert blocks.depth * 3 * 64 <= (1 << 20) // 4 + 3 * 64
        assert blocks.rows * depth * 4 <= 3 << 18 or blocks.rows <= FEWEST_ROWS + 8


def test_deep_products_are_summed_in_parts() -> None:
    """Long enough for several parts of K, with a last one that is cut short; tiles of rows that overlap; an epilogue
    behind all parts."""
    suite = Suite(replace(native(), l2_bytes=64 * 1024, cores=1))
    shapes = [(37, 2048, 67), (50, 1531, 48), (9, 4099, 33), *((m, 900, 80) for m in (5, 7, 10, 11, 13, 23, 29))]
    for m, k, n in shapes:
        a, b = operands(k, ((m, k), (k, n)), "float32")
        bias = np.linspace(-1, 1, n).astype("float32")
        wanted = np.maximum(a.astype("float64") @ b + bias, 0).astype("float32")

        def body(a: Any, b: Any = b, bias: Any = bias) -> Any:
            return R.nn.relu(R.add(relax.BlockBuilder().normalize(R.matmul(a, weight(b))), weight(bias)))

        suite.add(f"{m} rows", [a], body, wanted, 1e-4, 1e-3)
        assert choose_blocks(suite.target, m, k, 1, (8, 3), 1, 4).parts > 1
    assert any(m % choose_tile(suite.target, m, -(-n // 16), k * 4)[0] for m, k, n in shapes)
    for m, _, _ in shapes:
        suite.check(f"{m} rows")


PACKED_FIRST: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((131, 61), (61, 139)),
    ((128, 130), (130, 160)),
    ((2, 130, 40), (2, 40, 211)),
    ((3, 1, 129, 67), (1, 2, 67, 130)),
    ((2, 70, 65), (65, 129)),
]


def test_a_large_variable_operand_is_packed_first() -> None:
    """Where many rows meet it: any batch, lanes that no column fills, parts of K; with an epilogue."""
    suite = Suite(replace(native(), l2_bytes=64 * 1024))
    for i, shapes in enumerate(PACKED_FIRST):
        a, b = operands(i, shapes, "float32")
        wanted = np.maximum(a.astype("float64") @ b, 0).astype("float32")

        def body(a: Any, b: Any) -> Any:
            return R.nn.relu(relax.BlockBuilder().normalize(R.matmul(a, b)))

        suite.add(f"{i}", [a, b], body, wanted, 1e-4, 1e-4)
    for i in range(len(PACKED_FIRST)):
        suite.check(f"{i}")
        assert [s.split(",")[0] for s in suite.schedules(f"{i}")] == ["matmul packed first"]


def test_rows_that_meet_in_few_sets_of_a_cache_are_packed_first() -> None:
    """A variable operand whose rows lie a multiple of 2 KiB apart, where enough rows meet it."""
    suite = Suite(replace(native(), l2_bytes=1 << 20))
    cases = [((2, 130, 20), (2, 20, 512), True), ((130, 20), (20, 500), False), ((96, 20), (20, 512), False),
             ((40, 300), (300, 512), True), ((40, 300), (300, 500), False)]  # fmt: skip
    for i, (*shapes, _) in enumerate(cases):
        a, b = operands(i, tuple(shapes), "float32")
        suite.add(f"{i}", [a, b], R.matmul, (a.astype("float64") @ b).astype("float32"), 1e-4, 1e-4)
    for i, (*_, packed) in enumerate(cases):
        suite.check(f"{i}")
        found = [s.split(",")[0] for s in suite.schedules(f"{i}")]
        assert found == ["matmul packed first" if packed else "matmul in place"], i


def test_one_column_is_summed_along_memory() -> None:
    """A register tile would use one lane. Either kind of operands, epilogue included; short sums stay in the family."""
    suite, random = Suite(narrow(512)), np.random.default_rng(3)
    for k in (9, 77):
        a, b = (random.standard_normal(s).astype("float32") for s in ((2, 13, k), (2, k, 1)))

        def constant(a: Any, b: Any = b[0]) -> Any:
            return R.nn.relu(R.matmul(a, weight(b)))

        suite.add(f"variable{k}", [a, b], lambda a, b: R.nn.relu(R.matmul(a, b)), np.maximum(a @ b, 0), 1e-5, 1e-5)
        suite.add(f"constant{k}", [a], constant, np.maximum(a @ b[0], 0), 1e-5, 1e-5)
    for kind in ("variable", "constant"):
        for k, family in ((9, "matmul"), (77, "staged")):
            (schedule,) = suite.schedules(f"{kind}{k}")
            assert schedule.startswith(family)
            suite.check(f"{kind}{k}")
