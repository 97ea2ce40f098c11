"""Maps of the general generator: broadcasts, strided and transposed reads, merged axes, guards, dtypes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import Suite, module_of, native, staged, weight
from tvm import relax, tirx

R = relax.op
SHAPE = (3, 5, 2, 19)


def coded(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Every element is its own position, so that a wrong read shows where it came from."""
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape).astype(dtype)


def add_broadcasts(suite: Suite) -> None:
    """x[3,5,2,19] - b with every subset of axes of size 1, b a parameter or a constant, on either side."""
    x = coded(SHAPE)
    for n, ones in enumerate(itertools.product((False, True), repeat=4)):
        b = coded(tuple(1 if one else s for one, s in zip(ones, SHAPE))) * 1000
        if n % 2:
            suite.add(f"broadcast{n}", [x, b], lambda x, b: R.subtract(x, b), x - b)
        else:
            suite.add(f"broadcast{n}", [x], lambda x, b=b: R.subtract(weight(b), x), b - x)
    for i, shape in enumerate([(19,), (2, 1), (5, 1, 1), (1,), ()]):
        b = coded(shape) + 7
        suite.add(f"lower_rank{i}", [x, b], lambda x, b: R.multiply(x, b), x * b)
    left, right = coded((3, 1, 2, 1)), coded((1, 5, 1, 19)) * 1000
    suite.add("both_ways", [left, right], lambda a, b: R.add(a, b), left + right)


def add_movement(suite: Suite) -> None:
    x = coded((3, 5, 7, 18))
    for axes in itertools.permutations(range(4)):
        name = "permute" + "".join(map(str, axes))
        suite.add(name, [x], lambda x, a=axes: R.permute_dims(x, a), x.transpose(axes).copy())
    large = coded((2, 67, 83))
    suite.add("transpose_large", [large], lambda x: R.permute_dims(x, (0, 2, 1)), large.transpose(0, 2, 1).copy())
    for shape in ((3, 130, 67), (2, 131, 16), (1, 7, 129)):
        y = coded(shape)
        suite.add(f"transpose{shape[1]}", [y], lambda x: R.permute_dims(x, (0, 2, 1)), y.transpose(0, 2, 1).copy())
    both = coded((2, 96, 40))
    suite.add("transpose_and_not", [both, both.transpose(0, 2, 1).copy()],
              lambda x, y: R.subtract(R.permute_dims(x, (0, 2, 1)), R.negative(y)),
              both.transpose(0, 2, 1) * 2)  # fmt: skip
    suite.add("transpose_map", [large], lambda x: R.permute_dims(R.negative(x), (2, 0, 1)), -large.transpose(2, 0, 1))
    steps = [([1, 0, 2, 3], [3, 5, 7, 17], [1, 2, 3, 4]), ([0, 4, 6, 17], [3, 0, 0, 2], [2, -1, -2, -3])]
    for i, (begin, end, step) in enumerate(steps):
        wanted = x[tuple(slice(b, e, s) for b, e, s in zip(begin, end, step))].copy()
        suite.add(
            f"slice{i}", [x], lambda x, b=begin, e=end, s=step: R.strided_slice(x, [0, 1, 2, 3], b, e, s), wanted
        )
    suite.add("flip", [x], lambda x: R.flip(x, 3), x[..., ::-1].copy())
    suite.add("pad", [x], lambda x: R.nn.pad(x, [0, 0, 1, 2, 0, 3, 5, 0], pad_value=-1.0),
              np.pad(x, [(0, 0), (1, 2), (0, 3), (5, 0)], constant_values=-1))  # fmt: skip
    parts = [coded((2, n, 5)) + 100 * n for n in (1, 3, 17)]
    suite.add("concat", parts, lambda *p: R.concat(p, 1), np.concatenate(parts, 1))
    last = [coded((3, 2, n)) + 100 * n for n in (1, 3, 17)]
    suite.add("concat_last", last, lambda *p: R.concat(p, 2), np.concatenate(last, 2))
    suite.add("tile", [x], lambda x: R.tile(x, (1, 2, 1, 3)), np.tile(x, (1, 2, 1, 3)))
    suite.add("repeat", [x], lambda x: R.repeat(x, 3, 3), np.repeat(x, 3, 3))
    index = np.array([[4, 0, 3], [1, 1, 2]], "int64")
    suite.add("take", [x, index], lambda x, i: R.take(x, i, axis=1), np.take(x, index, 1))
    suite.add("split", [x], lambda x: R.split(x, 3, axis=3), np.split(x, 3, 3))


def add_dtypes(suite: Suite) -> None:
    random = np.random.default_rng(2)
    for dtype in ("int8", "uint8", "int16", "int32", "int64", "uint32"):
        a, b = (random.integers(1, 100, (7, 13)).astype(dtype) for _ in range(2))
        suite.add(f"add_{dtype}", [a, b], lambda a, b: R.add(a, b), a + b)
        suite.add(f"max_{dtype}", [a, b], lambda a, b: R.maximum(a, b), np.maximum(a, b))
        suite.add(f"divide_{dtype}", [a, b], lambda a, b: R.floor_divide(a, b), a // b)
        chosen = np.where(a < b, a + b, a)
        suite.add(f"chosen_{dtype}", [a, b], lambda a, b: R.where(R.less(a, b), R.add(a, b), a), chosen)
        suite.add(f"to_float_{dtype}", [a], lambda a: R.astype(a, "float32"), a.astype("float32"))
    for dtype, tolerance in (("float16", 1e-3), ("float64", 1e-14), ("bfloat16", 1e-2)):
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        a, b = (random.standard_normal((7, 13)).astype(kind) for _ in range(2))
        suite.add(f"add_{dtype}", [a, b], lambda a, b: R.add(a, b), a + b, tolerance, tolerance)
        suite.add(f"exp_{dtype}", [a], lambda a: R.exp(a), np.exp(a), tolerance, tolerance)
        suite.add(f"max_{dtype}", [a, b], lambda a, b: R.maximum(a, b), np.maximum(a, b))
    half = random.standard_normal((24, 1, 6)).astype(ml_dtypes.bfloat16)
    half[3], half[5, 0, 2] = -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        most = half.astype("float32").max((1, 2))
    suite.add("all_lowest_bfloat16", [half],
              lambda x: R.equal(R.astype(R.max(R.astype(x, "float32"), axis=(1, 2)), "bfloat16"),
                                weight(np.array(-np.inf, ml_dtypes.bfloat16))), most == -np.inf)  # fmt: skip
    a, b = (random.random((7, 13)) > 0.5 for _ in range(2))
    suite.add("and", [a, b], lambda a, b: R.logical_and(a, b), a & b)
    suite.add("not", [a], lambda a: R.logical_not(a), ~a)
    suite.add("bool_to_float", [a], lambda a: R.astype(a, "float32"), a.astype("float32"))
    f = random.standard_normal((7, 13)).astype("float32")
    suite.add("less", [f], lambda f: R.less(f, weight(np.float32(0.25))), f < 0.25)
    suite.add("where", [a, f], lambda a, f: R.where(a, f, R.negative(f)), np.where(a, f, -f))
    suite.add("to_bool", [f], lambda f: R.astype(R.greater(f, weight(np.float32(0))), "int32"), (f > 0).astype("int32"))


def add_nan(suite: Suite) -> None:
    """A NaN in either operand of an extremum survives, vector or tail."""
    for side in (0, 1):
        operands = [np.linspace(-1, 1, 37, dtype="float32"), np.linspace(1, -1, 37, dtype="float32")]
        operands[side][::3] = np.nan
        a, b = operands
        suite.add(f"nan_max{side}", [a, b], lambda a, b: R.maximum(a, b), np.maximum(a, b))
        suite.add(f"nan_min{side}", [a, b], lambda a, b: R.minimum(a, b), np.minimum(a, b))
    suite.add("nan_relu", [operands[1]], lambda x: R.nn.relu(x), np.maximum(operands[1], 0))
    suite.add("nan_clip", [operands[1]], lambda x: R.clip(x, -0.5, 0.5), np.clip(operands[1], -0.5, 0.5))
    zero = np.zeros(37, "float32")
    odd = operands[1].copy()
    odd[1::3] = np.inf
    with np.errstate(invalid="ignore"):
        suite.add("nan_times_zero", [odd], lambda x: R.multiply(x, weight(np.float32(0))), odd * zero)
    suite.add("is_nan", [odd], lambda x: R.isnan(x), np.isnan(odd))
    suite.add("not_less", [odd], lambda x: R.logical_not(R.less(x, weight(np.float32(0)))), ~(odd < 0))
    suite.add("differs_from_itself", [odd], lambda x: R.not_equal(x, x), odd != odd)


def add_guards(suite: Suite) -> None:
    """Arms of a choice that would fault are evaluated only where they are chosen."""
    a, b = np.arange(-20, 21, dtype="int32"), np.tile(np.array([3, 0, -2], "int32"), 14)[:41]

    def safe(a: Any, b: Any) -> Any:
        zero = weight(np.int32(0))
        return R.where(R.equal(b, zero), a, R.floor_divide(a, b))

    suite.add("divide_behind_guard", [a, b], safe, np.where(b == 0, a, a // np.where(b == 0, 1, b)))

    def safe_mod(a: Any, b: Any) -> Any:
        zero = weight(np.int32(0))
        return R.where(R.not_equal(b, zero), R.floor_mod(a, b), zero)

    suite.add("modulo_behind_guard", [a, b], safe_mod, np.where(b == 0, 0, a % np.where(b == 0, 1, b)))


def add_float_algebra(suite: Suite) -> None:
    """What is true of real numbers and not of floats must not be used."""
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e8, 3e38, 1e-40] * 3, "float32")
    one, zero = weight(np.float32(1)), weight(np.float32(0))
    forms: dict[str, tuple[Any, Any]] = {
        "minus_itself": (lambda x: R.subtract(x, x), x - x),
        "over_itself": (lambda x: R.divide(x, x), x / x),
        "zero_over": (lambda x: R.divide(zero, x), np.float32(0) / x),
        "zero_times": (lambda x: R.multiply(zero, x), np.float32(0) * x),
        "plus_minus_one": (lambda x: R.subtract(R.add(x, one), one), (x + np.float32(1)) - np.float32(1)),
        "equals_itself": (lambda x: R.equal(x, x), x == x),
        "at_least_itself": (lambda x: R.greater_equal(x, x), x >= x),
        "below_next": (lambda x: R.less(x, R.add(x, one)), x < x + 1),
        "not_above": (lambda x: R.logical_not(R.greater(x, zero)), ~(x > 0)),
        "not_equal_next": (lambda x: R.not_equal(x, R.add(x, one)), x != x + np.float32(1)),
        "double_less_sum": (lambda x: R.less(R.add(x, x), R.add(x, one)), x + x < x + 1),
    }
    for name, (body, expected) in forms.items():
        suite.add(name, [x], body, expected, 0, 0)


def add_sizes(suite: Suite) -> None:
    for size in (1, 2, 3, 15, 16, 17, 31, 33, 4099, 70_001):
        x = coded((size,))
        suite.add(f"size{size}", [x], lambda x: R.add(x, weight(np.float32(1))), x + 1)
    empty = np.zeros((3, 0, 5), "float32")
    suite.add("empty", [empty], lambda x: R.add(x, weight(np.float32(1))), empty)
    some = coded((3, 4, 5))
    suite.add("empty_concat", [empty, some], lambda a, b: R.concat([a, b], 1), some)
    scalar = np.float32(3).reshape(())
    suite.add("scalar", [scalar], lambda x: R.negative(x), -scalar)
    wide = coded((300, 301))
    suite.add("parallel_rows", [wide, coded((300, 1))], lambda x, b: R.add(x, b), wide + coded((300, 1)))
    suite.add("two_outputs", [some], lambda x: [R.negative(x), R.add(x, x)], [-some, some + some])


def names() -> list[str]:
    suite = Suite()
    fill(suite)
    return list(suite.cases)


def fill(suite: Suite) -> None:
    with np.errstate(all="ignore"):
        for add in (add_broadcasts, add_movement, add_dtypes, add_nan, add_guards, add_float_algebra, add_sizes):
            add(suite)


@pytest.fixture(scope="module")
def suite() -> Suite:
    suite = Suite()
    fill(suite)
    suite.compile()
    return suite


@pytest.mark.parametrize("name", names())
def test_equals_numpy(suite: Suite, name: str) -> None:
    suite.check(name)


def loops(array: np.ndarray, body: Any) -> list[int]:
    """Extents of the loops of the only kernel, outermost first, one path."""
    build = staged(module_of([array], body), native())
    (kernel,) = build.kernels
    return list(_extents(kernel.function.body))


def _extents(statement: Any) -> Iterator[int]:
    if isinstance(statement, tirx.For):
        yield int(statement.extent)
        yield from _extents(statement.body)
    for part in getattr(statement, "seq", ()):
        yield from _extents(part)


def test_contiguous_axes_are_one_loop() -> None:
    lanes = native().lanes()
    x = np.zeros((2, 3, 4, lanes), "float32")
    assert loops(x, lambda x: R.negative(x)) == [24, lanes]
    bias = weight(np.ones((1, 3, 1, 1), "float32") * np.arange(3, dtype="float32").reshape(1, 3, 1, 1))
    assert loops(x, lambda x: R.add(x, bias)) == [2, 3, 4, lanes]  # the channel stays a loop, height and width merge


def test_a_merged_axis_leaves_one_tail() -> None:
    lanes = native().lanes()
    x = np.zeros((7, 7), "float32")
    extents = loops(x, lambda x: R.negative(x))
    assert sorted(extents) == sorted(e for e in (49 // lanes, lanes, 49 % lanes) if e > 1)


def test_a_transpose_reads_lines_while_they_are_in_cache() -> None:
    """Vectors of the output's last axis outside, the axis along which reads are contiguous inside: here too short for
    the squares of test_squares."""
    lanes = native().lanes()
    x = np.zeros((2 * lanes, lanes - 1), "float32")
    assert loops(x, lambda x: R.permute_dims(x, (1, 0))) == [2, lanes - 1, lanes]
