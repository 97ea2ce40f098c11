"""Products of few rows read the vectors of a panel as streams of their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from compiled import Compiled, module_of, native, staged, weight
from halotile.schedules.matmul.streamed_panels import even_width
from halotile.schedules.words.group import Kernel
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax

R = relax.op
READ = ", 0, 2, 1)"  # the end of a hint for weights
X86 = replace(resolve("x86-64-v4"), fma_ports=2, cores=1, l1_bytes=48 << 10, l2_bytes=2 << 20, far_bytes=10)


def rand(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


def product(target: Target, *shape: int) -> Kernel:
    """The kernel of (rows x depth) by constant (depth x columns)."""
    rows, depth, columns = shape
    module = module_of([rand(rows, depth)], lambda x: R.matmul(x, weight(rand(depth, columns))))
    (kernel,) = staged(module, target, tiled=False).kernels
    return kernel


@pytest.mark.parametrize(
    "target,shape,expected",
    [
        (X86, (1, 1024, 1000), True),
        (X86, (1, 64, 100), True),
        (X86, (4, 256, 256), True),
        (X86, (8, 384, 768), False),  # stays in the second level, and keeps up with eight rows
        (X86, (8, 384, 1536), True),
        (X86, (32, 384, 1536), False),  # several tiles of rows meet a panel
        (resolve("raspberry-pi-4"), (1, 1024, 1000), False),
    ],
)
def test_where_one_tile_of_rows_waits_for_weights(target: Target, shape: tuple[int, ...], expected: bool) -> None:
    found = product(target, *shape)
    assert found.schedule.endswith(", in streams") is expected
    if expected:
        assert READ not in str(found.function), "the hardware looks ahead in each stream"


@pytest.mark.sampled
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("columns", [16, 131, 259, 1000])
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_bits_as_one_run(rows: int, columns: int, cores: int, dtype: str) -> None:
    """Of whole panels and of what is left behind them: each sum goes over K in its order."""
    a, b = rand(rows, 83, dtype=dtype), rand(83, columns, dtype=dtype)
    module = module_of([a], lambda x: R.matmul(x, weight(b)))
    kinds, found = [], []
    for in_order in (False, True):
        target = replace(native(), in_order=in_order, cores=cores)
        built = staged(module, target, tiled=False, exact=True)
        kinds.append([k.schedule.endswith(", in streams") for k in built.kernels])
        found.append(Compiled(built).run([a])[0])
    assert kinds == [[native().triple.startswith("x86_64")], [False]]
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], a.astype("float64") @ b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "vectors,widest,workers,expected",
    [
        (63, 8, 1, 8),
        (63, 8, 2, 5),  # 6 of 12 panels and three vectors behind them, not 4 of 7 and seven: 33 instead of 39
        (256, 8, 2, 8),  # 51 panels of five would fall into eight runs of seven
        (8, 8, 2, 4),
        (2, 2, 2, 2),
    ],
)
def test_cores_share_panels_evenly(vectors: int, widest: int, workers: int, expected: int) -> None:
    assert even_width(vectors, widest, workers) == expected
    columns = vectors * 16
    found = product(replace(X86, cores=workers), 1, 4096, columns).schedule
    assert f"tile 1x{expected}x16" in found
