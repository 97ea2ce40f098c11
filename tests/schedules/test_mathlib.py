"""The float32 functions of math/exponential.py against float64: every exponent, both signs, and the special values."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from compiled import Suite
from halotile.schedules.emit.inline import LIBM, Inliner, key
from halotile.schedules.operators.registry import call as own
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from tvm import relax, te, tirx
from tvm.ir.prim import expr as prim


def sample() -> np.ndarray:
    """Random mantissas for every sign and exponent (denormals included), and a dense grid where most of life is."""
    random = np.random.default_rng(1)
    fields = np.arange(512, dtype=np.uint32)[:, None] << 23
    spread = (fields | random.integers(0, 1 << 23, (512, 61), dtype=np.uint32)).reshape(-1).view(np.float32)
    grid = np.linspace(-110, 110, 40_003, dtype=np.float32)
    near = np.linspace(-2.5, 2.5, 20_001, dtype=np.float32)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 88.72283, 88.72284, -103.9, -104.1, 0.625], "f4")
    return np.concatenate([spread, grid, near, special])


X = sample()
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": lambda x: math.exp(x) if x < 709 else math.inf,
    "log": lambda x: math.nan if x < 0 else -math.inf if x == 0 else math.log(x),
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -709 else 0.0,
    "silu": lambda x: math.nan if x == -math.inf else x / (1 + math.exp(-x)) if x > -709 else -0.0,
    "erf": math.erf,
    "gelu": lambda x: math.nan if x == -math.inf else 0.5 * x * math.erfc(-x * 0.5**0.5),
    "gelu_tanh": lambda x: math.nan if x == -math.inf else x / (1 + math.exp(min(709, -x * (A + B * min(x * x, 1e8))))),
    "expm1": lambda x: math.expm1(x) if x < 709 else math.inf,
    "atan": math.atan,
    "sin": lambda x: math.nan if math.isinf(x) else math.sin(x),
    "cos": lambda x: math.nan if math.isinf(x) else math.cos(x),
    "tan": lambda x: math.nan if math.isinf(x) else math.tan(x),
    "asin": lambda x: math.asin(x) if abs(x) <= 1 else math.nan,
    "acos": lambda x: math.acos(x) if abs(x) <= 1 else math.nan,
    "sinh": lambda x: math.sinh(x) if abs(x) < 709 else math.copysign(math.inf, x),
    "cosh": lambda x: math.cosh(x) if abs(x) < 709 else math.inf,
}
A = 2 * math.sqrt(2 / math.pi)
B = A * 0.044715


BOUND = {"exp": 2e-7, "log": 2e-7, "tanh": 2e-7, "erf": 3e-7, "sigmoid": 2e-7, "silu": 5e-7}
BOUND |= {"expm1": 3e-7, "atan": 3e-7, "sin": 1.3e-7, "cos": 1.3e-7, "tan": 2.5e-7, "asin": 3e-7, "acos": 3e-7}
BOUND |= {"sinh": 3e-7, "cosh": 3e-7}
EXACT_SIGNS = ["tanh", "erf", "atan", "sin", "tan", "asin", "sinh"]

pytestmark = pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")


def operator(name: str) -> Callable[..., relax.Expr]:
    if f"{name}f" in LIBM:
        return lambda x: own("halotile.libm", x, function=name)
    return getattr(relax.op.nn if name in ("silu", "gelu", "gelu_tanh") else relax.op, name)


@pytest.fixture(scope="module")
def suite() -> Suite:
    suite = Suite()
    for name, function in FUNCTIONS.items():
        exact = np.array([math.nan if math.isnan(x) else function(x) for x in X.tolist()])
        suite.add(name, [X], operator(name), exact.astype(np.float64))
    suite.compile()
    return suite


def values(suite: Suite, name: str) -> tuple[np.ndarray, np.ndarray]:
    case = suite.cases[name]
    return case.results[0].astype(np.float64), case.expected[0]


def errors(suite: Suite, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Absolute error and true value where both are finite numbers of float32's normal range, or near zero."""
    got, exact = values(suite, name)
    keep = np.isfinite(exact) & (np.abs(exact) <= np.finfo(np.float32).max)
    return np.abs(got - exact)[keep], exact[keep]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(suite: Suite, name: str) -> None:
    got, exact = values(suite, name)
    rounded = exact.astype(np.float32)
    special = ~np.isfinite(rounded)
    np.testing.assert_array_equal(got[special], rounded[special])  # inf of the right sign, NaN for NaN
    assert np.isfinite(got[~special]).all()


RELATIVE = ["exp", "log", "sigmoid", "expm1", "atan", "sin", "cos", "tan", "asin", "acos", "sinh", "cosh"]


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_error(suite: Suite, name: str) -> None:
    error, exact = errors(suite, name)
    normal = np.abs(exact) >= np.finfo(np.float32).tiny
    assert (error[normal] / np.abs(exact[normal])).max() <= BOUND[name]


def test_gates_are_nearer_where_life_is(suite: Suite) -> None:
    for name in ("sigmoid", "silu"):
        got, exact = values(suite, name)
        for limit, bound in ((40, 4e-7), (88, BOUND[name])):
            near = (np.abs(X) < limit) & (np.abs(exact) >= np.finfo(np.float32).tiny)
            assert (np.abs(got[near] - exact[near]) / np.abs(exact[near])).max() <= bound
    at_zero = values(suite, "sigmoid")[0][X == 0]
    np.testing.assert_array_equal(at_zero, 0.5)


def test_a_product_with_a_sigmoid_is_one_quotient() -> None:
    x = te.placeholder((4,), "float32")
    element = tirx.Var("element", "float32")
    for product in (lambda i: x(i) * tirx.sigmoid(x(i)), lambda i: tirx.sigmoid(x(i)) * x(i)):
        tensor = te.compute((4,), product)
        value = Inliner({key(x): lambda _indices: element}).at(tensor, [tirx.Var("i", "int32")])
        assert isinstance(value, prim.Div) and value.a.same_as(element)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh"])
def test_gelus_are_one_quotient(suite: Suite, name: str) -> None:
    """The factor of x is within 2e-7 of its own in float64, and the kernel has one division and no tanh's choice."""
    got, exact = values(suite, name)
    finite = np.isfinite(exact) & (np.abs(exact) <= np.finfo(np.float32).max) & (np.abs(X) >= 1e-30)
    assert (np.abs(got - exact)[finite] / np.abs(X.astype(np.float64)[finite])).max() <= 2e-7
    assert suite.compiled is not None
    text = str(suite.compiled.build.kernels[list(FUNCTIONS).index(name)].function)
    assert text.count("T.vectorized") == text.count(" / ") > 0  # vectors, and a shorter one at the end


def test_weights_of_a_softmax_take_the_exponential_below_zero() -> None:
    """Rows of every distance from their largest; NaN and infinities as the formula has them."""
    random = np.random.default_rng(3)
    x = (random.standard_normal((7, 83)) * np.array([1, 5, 20, 60, 200, 1e4, 1e30])[:, None]).astype(np.float32)
    x[:, 40] = x.max(1)
    special = np.tile(random.standard_normal(83).astype(np.float32), (5, 1))
    special[0, 3], special[1, 80], special[2, 5], special[4, :] = np.nan, np.nan, -np.inf, -np.inf
    special[3, 7] = np.inf
    rows = np.concatenate([x, special])
    with np.errstate(invalid="ignore"):
        exact = np.exp((rows - rows.max(1, keepdims=True)).astype("f8"))  # any float32 code rounds the difference
        exact /= exact.sum(1, keepdims=True)
    for axis, data in ((1, rows), (0, rows.T.copy())):
        suite = Suite()
        suite.add("softmax", [data], lambda v, a=axis: relax.op.nn.softmax(v, a), exact if axis else exact.T)
        suite.compile()
        got = suite.cases["softmax"].results[0]
        wanted = suite.cases["softmax"].expected[0]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        assert np.nanmax(np.abs(got - wanted)) <= 4e-7
        normal = wanted >= np.finfo(np.float32).tiny
        assert (np.abs(got - wanted)[normal] / wanted[normal]).max() <= 1e-6


def test_a_log_softmax_takes_the_exponential_below_zero() -> None:
    """A few roundings of the distance from the largest; NaN and infinities as the formula has them."""
    random = np.random.default_rng(4)
    x = (random.standard_normal((6, 83)) * np.array([1, 5, 20, 60, 200, 1e4])[:, None]).astype(np.float32)
    special = np.tile(random.standard_normal(83).astype(np.float32), (5, 1))
    special[0, 3], special[1, 80], special[2, 5], special[4, :] = np.nan, np.nan, -np.inf, -np.inf
    special[3, 7] = np.inf
    rows = np.concatenate([x, special])
    with np.errstate(invalid="ignore"):
        distance = (rows - rows.max(1, keepdims=True)).astype("f8")
        exact = distance - np.log(np.exp(distance).sum(1, keepdims=True))
    for axis, data in ((1, rows), (0, rows.T.copy())):
        suite = Suite()
        suite.add("it", [data], lambda v, a=axis: relax.op.nn.log_softmax(v, a), exact if axis else exact.T)
        suite.compile()
        assert suite.compiled is not None
        text = str(suite.compiled.build.kernels[0].function)
        assert "-87.6999" in text and "88.8000" not in text, "the general exponential"
        got, wanted = suite.cases["it"].results[0], suite.cases["it"].expected[0]
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        np.testing.assert_array_equal(got[np.isinf(wanted)], wanted[np.isinf(wanted)])
        finite = np.isfinite(wanted)
        assert (np.abs(got - wanted)[finite] / np.maximum(1, np.abs(wanted[finite]))).max() <= 4e-7


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_absolute_error(suite: Suite, name: str) -> None:
    error, exact = errors(suite, name)
    assert error.max() <= BOUND[name]


@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_relative_error_near_zero(suite: Suite, name: str) -> None:
    """An odd function of a small number keeps all its digits; exp(x) - exp(-x) would lose them."""
    error, exact = errors(suite, name)
    small = (np.abs(exact) < 0.5) & (np.abs(exact) >= np.finfo(np.float32).tiny)
    assert (error[small] / np.abs(exact[small])).max() <= BOUND[name]


@pytest.mark.parametrize("name", ["exp", "tanh", "erf"])
def test_denormal_results(suite: Suite, name: str) -> None:
    """Within one step of the denormal grid."""
    error, exact = errors(suite, name)
    denormal = np.abs(exact) < np.finfo(np.float32).tiny
    assert denormal.sum() > 10
    assert error[denormal].max() <= float(np.finfo(np.float32).smallest_subnormal)


@pytest.mark.parametrize("name", EXACT_SIGNS)
def test_odd_to_the_bit(suite: Suite, name: str) -> None:
    got, _ = values(suite, name)
    by_input = {np.float32(x).tobytes(): y for x, y in zip(X, got)}
    pairs = [(by_input[np.float32(-x).tobytes()], y) for x, y in zip(X, got) if np.float32(-x).tobytes() in by_input]
    mirrored, plain = np.array([p for p in pairs if not np.isnan(p[0])]).T
    assert len(plain) > (8_000 if name == "asin" else 20_000)
    np.testing.assert_array_equal(mirrored, -plain)
    zero = by_input[np.float32(-0.0).tobytes()]
    assert zero == 0 and np.signbit(zero)


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_within_the_limits(suite: Suite, name: str) -> None:
    got, _ = values(suite, name)
    low = 0.0 if name == "sigmoid" else -1.0
    finite = got[~np.isnan(got)]
    assert finite.min() == low and finite.max() == 1.0


def test_functions_are_vectors(suite: Suite) -> None:
    """No call of libm is left in the object: each would be a scalar call per lane."""
    assert suite.compiled is not None
    functions = [str(k.function) for k in suite.compiled.build.kernels]
    assert len(functions) == len(FUNCTIONS)
    for text in functions:
        for name in ("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos"):
            assert f"T.{name}(" not in text
        assert "call_pure_extern" not in text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_guarded_reads(name: str) -> None:
    """Where a window leaves the image, what is read stands under a condition, and no part of it has a name."""
    x = np.random.default_rng(5).uniform(0.1, 2.0, (1, 5, 11, 23)).astype(np.float32)
    exact = np.vectorize(FUNCTIONS[name])(x.astype(np.float64))
    padded = np.pad(exact, ((0, 0), (0, 0), (0, 2), (0, 0)))
    wanted = sum(padded[:, :, i : i + 11 : 2, ::3] for i in range(3)) / 3

    def body(v: relax.Expr) -> relax.Expr:
        mapped = operator(name)(v)
        return relax.op.nn.avg_pool2d(mapped, (3, 1), (2, 3), padding=(0, 0, 2, 0), count_include_pad=True)

    suite = Suite()
    suite.add("pooled", [x], body, wanted.astype(np.float32), rtol=1e-6, atol=1e-6)
    suite.check("pooled")
    assert len(suite.schedules("pooled")) == 1, "the function is not part of the pooling's kernel"


@pytest.mark.parametrize("links", [1, 3])
def test_chains_under_a_condition_have_names(links: int) -> None:
    """Only their reads keep the condition: as one expression each link would repeat all before it, megabytes."""
    x = np.random.default_rng(6).uniform(-2.0, 2.0, (1, 3, 29, 24)).astype(np.float32)
    exact = x.astype(np.float64)
    for _ in range(links):
        exact = 1 / (1 + np.exp(-exact * exact)) - np.tanh(exact)
    padded = np.pad(exact, ((0, 0), (0, 0), (2, 0), (0, 0)), constant_values=-np.inf)
    wanted = np.maximum(np.maximum(padded[:, :, 0:30:3, ::2], padded[:, :, 1:30:3, ::2]), padded[:, :, 2:31:3, ::2])

    def body(v: relax.Expr) -> relax.Expr:
        for _ in range(links):
            v = relax.op.sigmoid(v * v) - relax.op.tanh(v)
        return relax.op.nn.max_pool2d(v, (3, 1), (3, 2), padding=(2, 0, 0, 0))

    suite = Suite()
    suite.add("pooled", [x], body, wanted.astype(np.float32), rtol=1e-5, atol=1e-5)
    suite.check("pooled")
    assert len(suite.schedules("pooled")) == 1
    assert suite.compiled is not None
    assert len(str(suite.compiled.build.kernels[0].function)) < 20_000 * links


def test_machines_that_round_no_vectors_take_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit of C's nearbyint, the sign of a zero included; and no call is left."""
    monkeypatch.setattr(Target, "rounds", False)
    suite = Suite()
    halves = [*np.arange(-9, 9.5, 0.5), 2.0**22 - 0.5, 2.0**23 - 0.5, -(2.0**23) - 1]
    x = np.concatenate([X, np.array(halves, np.float32)])
    suite.add("round", [x], relax.op.round, np.rint(x))
    suite.compile()
    got = suite.cases["round"].results[0]
    real = ~np.isnan(x)
    np.testing.assert_array_equal(got[real].view(np.int32), np.rint(x)[real].view(np.int32))
    assert np.isnan(got[~real]).all()
    assert suite.compiled is not None and "nearbyint" not in str(suite.compiled.build.kernels[0].function)
    monkeypatch.undo()
    assert not resolve("raspberry-pi-2-32").rounds
    assert resolve("raspberry-pi-4").rounds and resolve("x86-64-v3").rounds
