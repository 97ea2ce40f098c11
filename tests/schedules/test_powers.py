"""Powers of float32 numbers: against float64, C's exceptions, and exact where the result is."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Suite
from tvm import relax

pytestmark = pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow", "ignore:divide by zero")

SPECIAL = np.array(
    [0, 1, 2, 0.5, 3, 1e-40, 1e30, 16777216, 33554434, 0.75, 1.0000001, 7, 2.5, 1e-45, np.inf, np.nan], "f4"
)


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Every special value with every other one, random bits, numbers of every day, whole ones."""
    random = np.random.default_rng(0)
    special = np.concatenate([SPECIAL, -SPECIAL])
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    spread = np.abs(random.integers(0, 2**32, 30_000, dtype=np.uint32).view(np.float32))
    common, exponents = np.exp(random.uniform(-5, 5, 30_001)), random.uniform(-20, 20, 30_001)
    whole, small = random.integers(-40, 40, 9_999), random.integers(-6, 12, 9_999)
    return (
        np.concatenate([x, spread, common, whole]).astype(np.float32),
        np.concatenate([y, random.uniform(-3, 3, 30_000), exponents, small]).astype(np.float32),
    )


@pytest.fixture(scope="module")
def suite() -> Suite:
    suite = Suite()
    x, y = pairs()
    suite.add("power", [x, y], relax.op.power, np.power(x.astype("f8"), y.astype("f8")))
    for name, exponent in (("root", 0.5), ("inverse", -1.0), ("constant", 2.25)):
        exact = np.power(x.astype("f8"), np.full(x.shape, exponent))  # numpy's own 0.5 is a root
        suite.add(name, [x], lambda v, e=exponent: relax.op.power(v, relax.const(e, "float32")), exact)
    suite.compile()
    return suite


@pytest.mark.parametrize("name", ["power", "root", "inverse", "constant"])
def test_power(suite: Suite, name: str) -> None:
    got, exact = suite.cases[name].results[0], suite.cases[name].expected[0]
    rounded = exact.astype(np.float32)
    special = ~np.isfinite(rounded) | (rounded == 0)
    np.testing.assert_array_equal(got[special], rounded[special])
    number = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(rounded)[number])
    units = np.abs(got - exact)[~special] / np.spacing(np.abs(rounded[~special]))
    assert units.max() <= 0.501
    same = (exact == rounded) & ~special
    assert same.sum() > 100
    np.testing.assert_array_equal(got[same], rounded[same])


def test_powers_are_vectors(suite: Suite) -> None:
    assert suite.compiled is not None
    for kernel in suite.compiled.build.kernels:
        assert "T.pow(" not in str(kernel.function)
