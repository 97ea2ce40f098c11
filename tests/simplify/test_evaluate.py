"""What constant folding computes is, bit for bit, what the compiled operator computes."""

from __future__ import annotations

import numpy as np
import pytest
from halotile.passes.simplify import Simplify
from halotile.passes.simplify.convert import read
from halotile.passes.simplify.evaluate import evaluate
from halotile.passes.simplify.interpret import compiled
from tvm import relax

op = relax.op
FLOATS = np.array(
    [0, -0.0, 1, -1, 2.5, -2.5, 0.5, -0.5, 1.5, np.nan, np.inf, -np.inf, 1e-40, 3e38, -7.2, 100.7], "float32"
)
INTS = np.array([0, 1, -1, 5, -5, 7, 2**31 - 1, -(2**31), 12, -12, 3, -3, 100, -100, 8, 9], "int32")
DIVISORS = np.array([3, -3, 7, 2, -2, 5, 3, -7, 5, -5, 1, -1, 9, 9, 3, -4], "int32")
FLAGS = np.arange(16) % 3 == 0
BLOCK = np.arange(24, dtype="float32").reshape(2, 3, 4)
BACK = slice(None, None, -1)


def assert_same(tools, function, *arrays):
    arrays = [np.ascontiguousarray(a) for a in arrays]
    mod = tools.module([(a.shape, str(a.dtype)) for a in arrays], lambda emit, *xs: emit(function(*xs)))
    node = read(mod["main"]).outputs[0]
    folded, real = evaluate(node, arrays), compiled(node, arrays)
    assert folded is not None and folded.dtype == real.dtype
    np.testing.assert_array_equal(folded, real)


@pytest.mark.parametrize("name", "abs ceil floor sign trunc sqrt round negative isnan isinf isfinite".split())
def test_unary_on_floats(tools, name):
    assert_same(tools, getattr(op, name), FLOATS)


@pytest.mark.parametrize("name", "abs sign negative bitwise_not".split())
def test_unary_on_integers(tools, name):
    assert_same(tools, getattr(op, name), INTS)


@pytest.mark.parametrize("name", "add subtract multiply divide maximum minimum".split())
def test_arithmetic_on_floats(tools, name):
    assert_same(tools, getattr(op, name), FLOATS, FLOATS[BACK])


@pytest.mark.parametrize("name", "equal less less_equal greater greater_equal".split())
def test_comparisons(tools, name):
    assert_same(tools, getattr(op, name), FLOATS, FLOATS[BACK])
    assert_same(tools, getattr(op, name), INTS, INTS[BACK])


@pytest.mark.parametrize(
    "name", "add subtract multiply maximum minimum bitwise_and bitwise_or bitwise_xor".split()
)
def test_arithmetic_on_integers(tools, name):
    assert_same(tools, getattr(op, name), INTS, INTS[BACK])


@pytest.mark.parametrize("name", "divide floor_divide floor_mod".split())
def test_integer_division(tools, name):
    assert_same(tools, getattr(op, name), INTS[[0, 1, 2, 3, 4, 5, 8, 9]], DIVISORS[:8])


@pytest.mark.parametrize("name", "logical_and logical_or logical_xor".split())
def test_logic(tools, name):
    assert_same(tools, getattr(op, name), FLAGS, FLAGS[BACK])


@pytest.mark.parametrize("target", "int32 int64 float64 float16 bool int8".split())
@pytest.mark.parametrize("source", [np.array([0, 1.5, -1.5, 100.7, -3.2], "float32"), INTS, FLAGS])
def test_casts(tools, source, target):
    assert_same(tools, lambda x: op.astype(x, target), source)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: op.strided_slice(x, [1, 2], [2, 3], [-4, -5], [-1, -2]),
        lambda x: op.strided_slice(x, [1, 2], [0, 1], [3, 4], [2, 1]),
        lambda x: op.tile(x, [2, 1, 2]),
        lambda x: op.repeat(x, 2, 1),
        lambda x: op.flip(x, 1),
        lambda x: op.nn.pad(x, [1, 0, 0, 1, 2, 0]),
        lambda x: op.permute_dims(x, [2, 0, 1]),
        lambda x: op.broadcast_to(x, [5, 2, 3, 4]),
        lambda x: op.max(x, [1]),
        lambda x: op.tril(x, 1),
        lambda x: op.triu(x, -1),
        lambda x: op.clip(x, 3.0, 9.0),
        lambda x: op.reshape(x, [4, -1]),
    ],
)
def test_movement(tools, function):
    assert_same(tools, function, BLOCK)


@pytest.mark.parametrize("mode", ["exact", "strict"])
def test_what_numpy_does_not_know_is_folded_by_the_operator_itself(tools, mode):
    def body(emit, x):
        return emit(op.add(x, emit(op.nn.softmax(emit(op.erf(relax.const(BLOCK, "float32"))), -1))))

    mod = tools.module([((2, 3, 4), "float32")], body)
    result = Simplify(mode).apply(mod)
    assert tools.operators(result) == (["add"] if mode == "strict" else ["erf", "nn.softmax", "add"])
    tools.same(mod, result.module, exact=False)


def test_where_take_and_concat(tools):
    assert_same(tools, lambda x, y: op.concat([x, y], 1), BLOCK, BLOCK + 1)
    assert_same(tools, op.where, FLAGS, FLOATS, FLOATS[BACK])
    assert_same(tools, lambda x, i: op.take(x, i, 1), BLOCK, np.array([0, 2, 1]))
