"""Products ask for the part of B that comes next, where tiles pass the weights faster than memory gives them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from compiled import Compiled, Suite, module_of, native, staged, weight
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.math.float16 import Widened
from halotile.schedules.matmul.prefetch import LINE, follow, follows_late
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax, tirx

R = relax.op
TWO_PORTS = replace(
    native(), vector_bits=512, vector_registers=32, fma_ports=2, far_bytes=10, l2_bytes=2 << 20, cores=1
)
ONE_PORT = replace(TWO_PORTS, fma_ports=1, far_bytes=12)
WEIGHTS, WRITTEN = ", 0, 2, 1)", ", 1, 3, 1)"  # the ends of hints in the text of a kernel
PACKED, SEVEN = "matmul packed", "matmul by seven products of halves"


def product(rows: int, depth: int, columns: int, target: Target, exact: bool = True) -> tuple[str, str]:
    """(schedule, text) of the kernel of one product with constant weights."""
    x, w = np.zeros((rows, depth), "float32"), np.zeros((depth, columns), "float32")
    module = module_of([x], lambda x: R.matmul(x, weight(w)))
    (kernel,) = staged(module, target, tiled=False, exact=exact).kernels
    return kernel.schedule.split(",")[0], str(kernel.function)


def test_where_weights_come_too_late() -> None:
    b = KernelBuilder("k").pointer("w", "float32", 1 << 16)
    for name, wanted in {"emeraldrapids": True, "x86-64-v4": True, "znver4": False, "x86-64-v3": False}.items():
        assert follows_late(resolve(f"x86_64-linux-gnu+{name}"), b, 4, 8) == wanted, name
    for board in ("raspberry-pi-4", "raspberry-pi-5", "graviton3"):
        assert not follows_late(resolve(board), b, 4, 8)
    half = Widened(KernelBuilder("k").pointer("w", "float16", 1 << 16))
    assert not follows_late(TWO_PORTS, half, 4, 8), "half as much"


def test_tiles_of_few_rows_pass_the_weights_faster() -> None:
    """Sixteen registers hold six rows by two vectors, or four by three, and so take vectors of half the length as fast
    as twice as many rows long ones."""
    b = KernelBuilder("k").pointer("w", "float32", 1 << 16)
    small = resolve("x86_64-linux-gnu+x86-64-v3")
    assert [follows_late(small, b, 4, height) for height in (4, 5, 6, 7)] == [True, True, True, False]
    assert all(follows_late(TWO_PORTS, b, 4, height) for height in range(1, 29)), "tall tiles as before"
    for board in ("raspberry-pi-4", "raspberry-pi-5"):
        assert not follows_late(resolve(board), b, 4, 1)
    schedule, text = product(128, 384, 1536, small)
    assert schedule == PACKED
    assert WEIGHTS in text


@pytest.mark.parametrize(("rows", "columns", "hints"), [(128, 1536, 1), (16, 1536, 2), (8, 768, 3)])
def test_products_ask_where_they_stream(rows: int, columns: int, hints: int) -> None:
    """A step asks for as many lines as fall to it: a tile of several, of two, and of one, which passes the weights
    alone."""
    schedule, text = product(rows, 384, columns, TWO_PORTS)
    assert schedule == PACKED
    assert text.count(WEIGHTS) == hints * (2 if WRITTEN in text else 1), "in both parts of the steps"
    assert "prefetch" not in product(rows, 384, columns, ONE_PORT)[1]


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "lines"),
    [
        (3136, 96, 384, 3),  # nine rows of three lines, in 36 of 96 steps
        (784, 192, 768, 2),
        (784, 64, 768, 0),  # too few steps
        (784, 768, 192, 2),  # many, but rows of A are asked for as well, since the weights stay
        (784, 1536, 192, 0),  # so many that the wait counts for nothing
    ],
)
def test_a_tile_asks_for_its_results_row_by_row(rows: int, depth: int, columns: int, lines: int) -> None:
    text = product(rows, depth, columns, TWO_PORTS)[1]
    assert text.count(WRITTEN) == lines
    assert WRITTEN not in product(rows, depth, columns, ONE_PORT)[1]


def order_of_loops(text: str) -> str:
    """Of tiles of rows (t) and of panels (n), outermost first."""
    names = [name[0] for loops in re.findall(r"for (.+?) in", text) for name in loops.split(", ")]
    return "".join(n for n in names if n in "tn")[:2]


@pytest.mark.parametrize(("rows", "depth", "columns", "order"), [(784, 192, 768, "tn"), (784, 1536, 192, "nt")])
def test_rows_pass_once_where_weights_stay(rows: int, depth: int, columns: int, order: str) -> None:
    """In half of the second-level cache, that is; each tile then asks for the rows of the next one."""
    text = product(rows, depth, columns, TWO_PORTS)[1]
    assert order_of_loops(text) == order
    assert text.count(WEIGHTS) == 1, "a line of rows or of weights in a step"
    assert order_of_loops(product(rows, depth, columns, ONE_PORT)[1]) == "nt"
    assert order_of_loops(product(rows // 4, depth, columns, TWO_PORTS)[1]) == "nt", "few tiles bring the weights"
    assert order_of_loops(product(rows, depth, columns, replace(TWO_PORTS, l2_bytes=1 << 20))[1]) == "nt"


def test_hints_for_results_change_no_number() -> None:
    """Residuals are asked for where the epilogue reads them, and the last tile of rows is moved back."""
    random = np.random.default_rng(5)
    x, w, r = (random.standard_normal(s).astype("float32") for s in ((2, 67, 160), (160, 75), (2, 67, 75)))
    module = module_of([x, r], lambda x, r: R.matmul(x, weight(w)) + r)
    build = staged(module, replace(native(), fma_ports=2), tiled=False, exact=True)
    (kernel,) = [k for k in build.kernels if PACKED in k.schedule]
    assert WRITTEN in str(kernel.function) and WEIGHTS in str(kernel.function)
    np.testing.assert_allclose(Compiled(build).run([x, r])[0], x @ w + r, rtol=0, atol=1e-4)


def test_products_of_halves_ask_in_each_product() -> None:
    schedule, text = product(128, 384, 1536, TWO_PORTS, exact=False)
    assert schedule == SEVEN and text.count("prefetch") == 7
    schedule, text = product(128, 384, 1536, ONE_PORT, exact=False)
    assert schedule == SEVEN and "prefetch" not in text


class Asked:
    """Takes what :func:`follow` adds, and keeps the elements whose lines it asks for."""

    def __init__(self) -> None:
        self.elements: list[int] = []

    def add(self, statement: tirx.Evaluate) -> None:
        place = statement.value.args[0].args[0]
        self.elements.append(int(place.indices[0]))


@pytest.mark.parametrize("steps, vectors, tiles", [(24, 3, 16), (7, 2, 1), (30, 5, 2), (13, 8, 3), (5, 1, 40)])
@pytest.mark.parametrize("half", [False, True])
def test_the_whole_part_is_asked_for_in_time(steps: int, vectors: int, tiles: int, half: bool) -> None:
    """No line is left out, none is asked for twice by one step, and each tile has its share."""
    k, size = Asked(), 2 if half else 4
    b = KernelBuilder("k").pointer("w", f"float{8 * size}", 1 << 16)
    counts = []
    for step in range(steps * tiles):
        before = len(k.elements)
        follow(k, Widened(b) if half else b, 0, step, vectors * 16, tiles, 4)
        counts.append(len(k.elements) - before)
    share = -(-vectors * 16 // tiles)
    assert set(counts) == {-(-share * size // LINE)}
    lines = {element * size // LINE for element in k.elements}
    assert lines >= set(range(-(-steps * vectors * 16 * size // LINE)))


def test_equals_numpy_where_hints_pass_the_end() -> None:
    """The last panel's hints lie behind the weights; so do those of a last part of K that is cut short."""
    suite = Suite(replace(TWO_PORTS, l2_bytes=64 << 10))
    random = np.random.default_rng(0)
    for rows, depth, columns in ((50, 1531, 48), (9, 130, 33), (131, 64, 139), (707, 75, 96)):
        a, b = (random.standard_normal(s).astype("float32") for s in ((rows, depth), (depth, columns)))
        exact = (a.astype("float64") @ b).astype("float32")
        suite.add(f"{depth}", [a], lambda a, b=b: R.matmul(a, weight(b)), exact, 1e-4, 1e-3)
    assert order_of_loops(product(707, 75, 96, suite.target)[1]) == "tn"
    for name in ("1531", "130", "64", "75"):
        suite.check(name)
