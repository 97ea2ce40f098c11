"""Norms, activations and softmax written out, in the spellings that exporters use."""

from __future__ import annotations

import math

import halotile.schedules.operators  # noqa: F401
import numpy as np
import pytest
from halotile.passes.simplify import Simplify
from halotile.schedules.operators.registry import call
from tvm import relax

op = relax.op
F32 = "float32"
X = [((2, 5, 8), F32)]
RNG = np.random.default_rng(3)


def c(value):
    return relax.const(np.asarray(value, F32), F32)


@pytest.mark.parametrize("order", ["x*(1+erf)*0.5", "(0.5x)*(1+erf)", "x*(0.5*(1+erf))", "x*(1+erf)/2"])
@pytest.mark.parametrize("inside", ["divide", "multiply"])
@pytest.mark.parametrize("batch", [2, "n"])
def test_gelu_in_every_order(check, order, inside, batch):
    def body(emit, x):
        scaled = op.divide(x, c(math.sqrt(2))) if inside == "divide" else op.multiply(c(math.sqrt(0.5)), x)
        gate = emit(op.add(c(1), emit(op.erf(emit(scaled)))))
        if order == "x*(1+erf)*0.5":
            return emit(op.multiply(emit(op.multiply(x, gate)), c(0.5)))
        if order == "(0.5x)*(1+erf)":
            return emit(op.multiply(emit(op.multiply(c(0.5), x)), gate))
        if order == "x*(1+erf)/2":
            return emit(op.divide(emit(op.multiply(x, gate)), c(2)))
        return emit(op.multiply(x, emit(op.multiply(gate, c(0.5)))))

    check([((batch, 8), F32)], body, ["nn.gelu"], n=3, special=True)


def test_gelu_with_another_constant_stays(check):
    def body(emit, x):
        gate = emit(op.add(emit(op.erf(emit(op.multiply(x, c(0.7))))), c(1)))
        return emit(op.multiply(emit(op.multiply(x, gate)), c(0.5)))

    check(X, body, ["multiply", "erf", "add", "multiply", "multiply"])


@pytest.mark.parametrize("cube", ["power", "products"])
def test_gelu_tanh(check, cube):
    def body(emit, x):
        third = emit(op.power(x, c(3))) if cube == "power" else emit(op.multiply(emit(op.multiply(x, x)), x))
        inner = emit(op.add(x, emit(op.multiply(third, c(0.044715)))))
        tanh = emit(op.tanh(emit(op.multiply(inner, c(math.sqrt(2 / math.pi))))))
        return emit(op.multiply(emit(op.multiply(c(0.5), x)), emit(op.add(tanh, c(1)))))

    check(X, body, ["nn.gelu_tanh"])


@pytest.mark.parametrize("root", ["divide", "reciprocal", "rsqrt", "power"])
@pytest.mark.parametrize("square", ["power", "product"])
@pytest.mark.parametrize("batch", [2, "n"])
def test_layer_norm(check, root, square, batch):
    gamma, beta = c(RNG.standard_normal(8)), c(RNG.standard_normal(8))

    def body(emit, x):
        d = emit(op.subtract(x, emit(op.mean(x, [-1], True))))
        s = emit(op.power(d, c(2))) if square == "power" else emit(op.multiply(d, d))
        v = emit(op.add(emit(op.mean(s, [-1], True)), c(1e-5)))
        if root == "divide":
            y = emit(op.divide(d, emit(op.sqrt(v))))
        elif root == "reciprocal":
            y = emit(op.multiply(d, emit(op.divide(c(1), emit(op.sqrt(v))))))
        elif root == "rsqrt":
            y = emit(op.multiply(emit(op.rsqrt(v)), d))
        else:
            y = emit(op.multiply(d, emit(op.power(v, c(-0.5)))))
        return emit(op.add(emit(op.multiply(y, gamma)), beta))

    check([((batch, 5, 8), F32)], body, ["nn.layer_norm"], n=3)


def test_layer_norm_over_the_first_axis_has_no_weights(check):
    def body(emit, x):
        d = emit(op.subtract(x, emit(op.mean(x, [0], True))))
        v = emit(op.add(emit(op.mean(emit(op.multiply(d, d)), [0], True)), c(1e-5)))
        return emit(op.divide(d, emit(op.sqrt(v))))

    check([((6, 4), F32)], body, ["halotile.standardise"])


def test_a_constant_that_varies_outside_the_norm_stays(check):
    rows = c(RNG.standard_normal((5, 1)))

    def body(emit, x):
        return emit(op.multiply(emit(op.nn.layer_norm(x, c(np.ones(8)), c(np.zeros(8)), axes=[-1])), rows))

    check(X, body, ["nn.layer_norm", "multiply"], declined="axes that are not normalised")


@pytest.mark.parametrize("root", ["divide", "rsqrt"])
def test_rms_norm(check, root):
    gamma = c(RNG.standard_normal(8))

    def body(emit, x):
        v = emit(op.add(emit(op.mean(emit(op.power(x, c(2))), [-1], True)), c(1e-6)))
        y = op.divide(x, emit(op.sqrt(v))) if root == "divide" else op.multiply(x, emit(op.rsqrt(v)))
        return emit(op.multiply(gamma, emit(y)))

    check([(("n", 5, 8), F32)], body, ["nn.rms_norm"], n=2)


def test_softmax_with_its_maximum(check):
    def body(emit, x):
        e = emit(op.exp(emit(op.subtract(x, emit(op.max(x, [-1], True))))))
        return emit(op.divide(e, emit(op.sum(e, [-1], True))))

    check([(("n", 8), F32)], body, ["nn.softmax"], n=3)


def test_softmax_without_its_maximum_only_where_values_are_finite(check):
    def body(emit, x):
        e = emit(op.exp(x))
        return emit(op.divide(e, emit(op.sum(e, [-1], True))))

    check(X, body, ["exp", "sum", "divide"], declined="overflows")
    check(X, body, ["nn.softmax"], mode="finite")


def test_log_of_softmax_only_where_values_are_finite(check):
    def body(emit, x):
        return emit(op.log(emit(op.nn.softmax(x, -1))))

    check(X, body, ["nn.softmax", "log"], declined="-inf")
    check(X, body, ["nn.log_softmax"], mode="finite")


def test_silu_and_sigmoid_written_out(check):
    def body(emit, x):
        e = emit(op.exp(emit(op.negative(x))))
        return emit(op.multiply(emit(op.divide(c(1), emit(op.add(e, c(1))))), x))

    check(X, body, ["nn.silu"])


def test_softplus_written_out_overflows(check):
    def body(emit, x):
        return emit(op.log(emit(op.add(c(1), emit(op.exp(x))))))

    check(X, body, ["exp", "add", "log"], declined="overflows")
    check(X, body, ["halotile.softplus"], mode="finite")


def test_min_of_max_is_clip(check):
    def body(emit, x):
        return emit(op.minimum(emit(op.maximum(x, c(-1))), c(6)))

    check(X, body, ["clip"], exact=True, special=True)


def test_relu_then_clip(check):
    check(X, lambda emit, x: emit(op.clip(emit(op.nn.relu(x)), 0.0, 6.0)), ["clip"], exact=True)


def test_maximum_with_zero_is_relu(check):
    check(X, lambda emit, x: emit(op.maximum(c(0), x)), ["nn.relu"], special=True)


def test_clips_that_do_not_overlap_stay(check):
    check(
        X,
        lambda emit, x: emit(op.maximum(emit(op.minimum(x, c(-1))), c(6))),
        ["minimum", "maximum"],
        declined="overlap",
    )


@pytest.mark.parametrize(
    ("equation", "a", "b", "expected"),
    [
        ("bhij,bhjd->bhid", (2, 3, 4, 5), (2, 3, 5, 6), ["matmul"]),
        ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5), ["permute_dims", "matmul"]),
        ("ij,jk->ki", (4, 5), (5, 6), ["permute_dims", "permute_dims", "matmul"]),
        ("bsh,hde->bsde", (2, 3, 8), (8, 4, 5), None),
        ("bshd,hde->bse", (2, 3, 4, 5), (4, 5, 6), None),
        ("ijk,ilk->ijl", (2, 3, 4), (2, 5, 4), ["permute_dims", "matmul"]),
    ],
)
def test_einsum_as_matmul(check, equation, a, b, expected):
    def body(emit, x, y):
        return emit(call("halotile.einsum", x, y, equation=equation))

    result = check([(a, F32), (b, F32)], body, None, grows=True)
    assert result.details["applied"]["einsum-as-matmul"] == 1
    if expected is not None:
        assert sorted(o.removeprefix("relax.") for o in result.details["operators"]) == sorted(set(expected))


@pytest.mark.parametrize(
    ("equation", "a", "b", "reason"),
    [
        ("ii,ij->ij", (4, 4), (4, 5), "twice in one operand"),
        ("ij,k->k", (4, 5), (6,), "within one operand"),
        ("i,j->ij", (4,), (5,), "nothing is summed"),
    ],
)
def test_einsum_that_is_no_matmul_stays(tools, equation, a, b, reason):
    mod = tools.module(
        [(a, F32), (b, F32)], lambda emit, x, y: emit(call("halotile.einsum", x, y, equation=equation))
    )
    result = Simplify().apply(mod)
    assert not result.changed and reason in result.details["declined"][0]["reason"]
