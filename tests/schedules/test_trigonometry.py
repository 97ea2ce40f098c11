"""Sines of small arguments pass over the long reduction, and have the same bits beside lanes that need it."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Suite
from halotile.schedules.math.trigonometry import _NEAR
from halotile.schedules.operators.registry import call as own
from tvm import relax

LIMIT = float(np.uint32(_NEAR).view(np.float32))
FUNCTIONS = {"sin": relax.op.sin, "cos": relax.op.cos, "tan": lambda x: own("halotile.libm", x, function="tan")}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_do_not_depend_on_the_other_lanes(name: str) -> None:
    random = np.random.default_rng(6)
    small = random.uniform(-LIMIT, LIMIT, 4_003).astype(np.float32)
    mixed = small.copy()
    large = random.random(small.size) < 0.1
    mixed[large] *= np.float32(2e9)
    mixed[::997] = np.nan
    suite = Suite()
    for case, x in (("small", small), ("mixed", mixed)):
        with np.errstate(invalid="ignore"):
            suite.add(case, [x], FUNCTIONS[name], getattr(np, name)(x.astype("f8")).astype("f4"), rtol=3e-7)
    suite.compile()
    got = [suite.cases[case].results[0] for case in ("small", "mixed")]
    same = small == mixed
    assert 0 < same.sum() < small.size
    np.testing.assert_array_equal(got[0][same].view(np.uint32), got[1][same].view(np.uint32))
    wanted = suite.cases["mixed"].expected[0]
    np.testing.assert_allclose(got[1], wanted, rtol=3e-7)


def test_vectors_without_a_large_lane_pass_over_the_long_reduction() -> None:
    """All float64 roundings stand under the comparison of the vector's largest lane."""
    suite = Suite()
    x = np.linspace(-9, 9, 2_048, dtype=np.float32)
    suite.add("plain", [x], relax.op.sin, np.sin(x.astype("f8")).astype("f4"), rtol=3e-7)
    image = x.reshape(1, 32, 8, 8)
    weight = np.random.default_rng(7).standard_normal((32, 32, 3, 3)).astype("f4")

    def conv(v: relax.Expr) -> relax.Expr:
        w = relax.const(weight)
        return relax.op.nn.conv2d(relax.op.sin(relax.op.nn.conv2d(v, w, padding=1)), w, padding=1)

    suite.add("conv", [image], conv, np.empty(0, "f4"))  # nobody asks for its numbers
    suite.compile()
    assert suite.compiled is not None
    found = 0
    for kernel in suite.compiled.build.kernels:
        text = str(kernel.function)
        if "T.nearbyint" not in text:
            continue
        found += 1
        first = text.index("T.nearbyint")
        assert f">= {_NEAR}" in text[:first].replace("T.int32(", "") or f"{_NEAR} <= " in text[:first]
    assert found == 2


def test_sums_and_windows_of_sines() -> None:
    """Where lanes reduce, and where what is read stands under a condition."""
    random = np.random.default_rng(8)
    x = (random.standard_normal((2, 7, 12, 23)) * 10.0 ** random.integers(-2, 12, (2, 7, 12, 23))).astype(np.float32)
    exact = np.sin(x.astype("f8")).astype("f4")
    suite = Suite()
    for axis in (1, 3):
        suite.add(f"sum{axis}", [x], lambda v, a=axis: relax.op.sum(relax.op.sin(v), a), exact.sum(axis), atol=2e-6)
    suite.add("padded", [x], lambda v: relax.op.nn.pad(relax.op.sin(v), [0, 0, 0, 0, 1, 1, 1, 1]),
              np.pad(exact, ((0, 0), (0, 0), (1, 1), (1, 1))), atol=2e-7)
    for case in ("sum1", "sum3", "padded"):
        suite.check(case)
