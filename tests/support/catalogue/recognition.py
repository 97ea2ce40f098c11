"""Forms written out in pieces."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .base import F32, IMAGE, X2, X3, B, Emit, Entry, c, k


def gelu(e: Emit, x: Any, half_first: bool) -> Any:
    gate = e.add(e.erf(e.divide(x, k(math.sqrt(2)))), k(1))
    if half_first:
        return e.multiply(e.multiply(k(0.5), x), gate)
    return e.multiply(e.multiply(x, gate), k(0.5))


def layer_norm(e: Emit, x: Any) -> Any:
    d = e.subtract(x, e.mean(x, [-1], True))
    v = e.add(e.mean(e.power(d, k(2)), [-1], True), k(1e-5))
    return e.add(e.multiply(e.divide(d, e.sqrt(v)), c(4)), c(4, seed=2))


def standard(e: Emit, x: Any, axes: list[int]) -> Any:
    d = e.subtract(x, e.mean(x, axes, True))
    return e.divide(d, e.sqrt(e.add(e.mean(e.multiply(d, d), axes, True), k(1e-5))))


def group_norm(e: Emit, x: Any) -> Any:
    """Reshape, InstanceNorm, Reshape, Mul, Add."""
    n = x.ty.shape[0]
    y = e.reshape(standard(e, e.reshape(x, [n, 2, 48]), [2]), [n, 6, 4, 4])
    return e.add(e.multiply(y, c(6, 1, 1)), c(6, 1, 1, seed=2))


def shuffled(e: Emit, x: Any, groups: int) -> Any:
    n = x.ty.shape[0]
    return e.reshape(
        e.permute_dims(e.reshape(x, [n, groups, 6 // groups, 4, 5]), [0, 2, 1, 3, 4]), [n, 6, 4, 5]
    )


def counted(e: Emit, x: Any) -> Any:
    ones = e.broadcast_to(k(1, "int64"), [x.ty.shape[0], 1])
    return e.add(x, e.astype(e.own("cumsum", ones, axis=0, exclusive=False, reverse=False), F32))


def heads(e: Emit, x: Any, seed: int) -> Any:
    return e.permute_dims(e.reshape(e.linear(x, 4, 4, seed), [x.ty.shape[0], 3, 2, 2]), [0, 2, 1, 3])


def attended(e: Emit, x: Any, s: Any) -> Any:
    y = e.permute_dims(e.matmul(e.softmax(s, -1), heads(e, x, 3)), [0, 2, 1, 3])
    return e.reshape(y, [x.ty.shape[0], 3, 4])


def masked(e: Emit, x: Any) -> Any:
    """The mask, a flag per key, fills the scores before they are scaled down by a constant."""
    n = x.ty.shape[0]
    s = e.matmul(heads(e, x, 1), e.permute_dims(heads(e, x, 2), [0, 1, 3, 2]))
    off = e.equal(e.astype(e.greater(e.sum(x, [2]), k(0)), F32), k(0))
    off = e.broadcast_to(e.reshape(off, [n, 1, 1, 3]), [n, 2, 3, 3])
    return attended(e, x, e.where(off, k(-np.inf), e.divide(s, k(1.5))))


def added(e: Emit, x: Any) -> Any:
    """A causal mask built from constants, added to the scores."""
    s = e.matmul(heads(e, x, 1), e.permute_dims(heads(e, x, 2), [0, 1, 3, 2]))
    row, column = (e.reshape(e.arange(0, 3, 1, "int64"), shape) for shape in ([3, 1], [1, 3]))
    mask = e.where(e.less_equal(column, row), k(0), k(-np.inf))
    return attended(e, x, e.add(e.multiply(s, k(0.7)), e.reshape(mask, [1, 1, 3, 3])))


#: Three projections split into heads, two products around a softmax, and the heads joined again.
SCORED = " ".join(["matmul"] * 5 + ["reshape"] * 4 + ["permute_dims"] * 4 + ["nn.softmax"])

ENTRIES = [
    Entry("Sum / count", X3, lambda e, x: e.divide(e.sum(x, [1], True), k(3)), "mean"),
    Entry("Sum * (1 / count)", X3, lambda e, x: e.multiply(e.sum(x, [1, 2], False), k(1 / 12)), "mean"),
    Entry("CumSum of ones", X2, counted, "add", open_left="halotile.of_sizes add"),
    Entry("GELU erf, x*(1+erf)*0.5", X3, lambda e, x: gelu(e, x, False), "nn.gelu"),
    Entry("GELU erf, (0.5x)*(1+erf)", X3, lambda e, x: gelu(e, x, True), "nn.gelu"),
    Entry(
        "GELU tanh",
        X3,
        lambda e, x: e.multiply(
            e.multiply(k(0.5), x),
            e.add(
                k(1),
                e.tanh(
                    e.multiply(k(math.sqrt(2 / math.pi)), e.add(x, e.multiply(k(0.044715), e.power(x, k(3)))))
                ),
            ),
        ),
        "nn.gelu_tanh",
    ),
    Entry("LayerNorm", X3, layer_norm, "nn.layer_norm"),
    Entry(
        "RMSNorm",
        X3,
        lambda e, x: e.multiply(
            e.multiply(x, e.rsqrt(e.add(e.mean(e.multiply(x, x), [-1], True), k(1e-6)))), c(4)
        ),
        "nn.rms_norm",
    ),
    Entry("SiLU", X3, lambda e, x: e.multiply(x, e.sigmoid(x)), "nn.silu"),
    Entry("Softplus", X3, lambda e, x: e.log(e.add(k(1), e.exp(x))), "halotile.softplus", "finite"),
    Entry(
        "Exp(x-max)/Sum",
        X3,
        lambda e, x: e.divide(t := e.exp(e.subtract(x, e.max(x, [-1], True))), e.sum(t, [-1], True)),
        "nn.softmax",
    ),
    Entry("Log(Softmax)", X3, lambda e, x: e.log(e.softmax(x, -1)), "nn.log_softmax", "finite"),
    Entry("Min(Max(x,0),6)", X3, lambda e, x: e.minimum(e.maximum(x, k(0)), k(6)), "clip"),
    Entry("Relu+Clip(0,6)", X3, lambda e, x: e.clip(e.relu(x), 0.0, 6.0), "clip"),
    Entry("global pool as mean", IMAGE, lambda e, x: e.adaptive_avg_pool2d(x, (1, 1)), "mean"),
    Entry(
        "mean, then flatten",
        IMAGE,
        lambda e, x: e.reshape(e.mean(x, [2, 3], True), [x.ty.shape[0], 3]),
        "mean",
    ),
    Entry(
        "Einsum bhid,bhjd->bhij",
        [((B, 2, 3, 4), F32), ((B, 2, 5, 4), F32)],
        lambda e, a, b: e.own("einsum", a, b, equation="bhid,bhjd->bhij"),
        "permute_dims matmul",
    ),
    Entry(
        "HardSwish, x*Clip(x+3,0,6)/6",
        X3,
        lambda e, x: e.divide(e.multiply(x, e.clip(e.add(x, k(3)), 0.0, 6.0)), k(6)),
        "halotile.hard_swish",
    ),
    Entry(
        "HardSwish, x*(Clip(x+3,0,6)/6)",
        X3,
        lambda e, x: e.multiply(e.divide(e.clip(e.add(k(3), x), 0.0, 6.0), k(6)), x),
        "halotile.hard_swish",
    ),
    Entry(
        "HardSwish, x*HardSigmoid(x,1/6,.5)",
        X3,
        lambda e, x: e.multiply(x, e.clip(e.add(e.multiply(x, k(1 / 6)), k(0.5)), 0.0, 1.0)),
        "halotile.hard_swish",
    ),
    Entry(
        "HardSigmoid, Clip(x+3,0,6)/6",
        X3,
        lambda e, x: e.divide(e.clip(e.add(x, k(3)), 0.0, 6.0), k(6)),
        "halotile.hard_sigmoid",
    ),
    Entry(
        "HardSigmoid, Clip(0.2x+0.5,0,1)",
        X3,
        lambda e, x: e.clip(e.add(e.multiply(x, k(0.2)), k(0.5)), 0.0, 1.0),
        "halotile.hard_sigmoid",
    ),
    Entry(
        "HardSigmoid from Min(Max(x+3,0),6)*1/6",
        X3,
        lambda e, x: e.multiply(e.minimum(e.maximum(e.add(x, k(3)), k(0)), k(6)), k(1 / 6)),
        "halotile.hard_sigmoid",
    ),
    Entry(
        "Mish, x*Tanh(Log(1+Exp(x)))",
        X3,
        lambda e, x: e.multiply(x, e.tanh(e.log(e.add(e.exp(x), k(1))))),
        "halotile.mish",
    ),
    Entry(
        "Mish, x*Tanh(Softplus(x))",
        X3,
        lambda e, x: e.multiply(e.tanh(e.own("softplus", x)), x),
        "halotile.mish",
    ),
    Entry(
        "Softplus, max(x,0)+log1p(exp(-|x|))",
        X3,
        lambda e, x: e.add(e.relu(x), e.own("libm", e.exp(e.negative(e.abs(x))), function="log1p")),
        "halotile.softplus",
    ),
    Entry(
        "Sigmoid, 1/(1+Exp(-x))",
        X3,
        lambda e, x: e.divide(k(1), e.add(k(1), e.exp(e.negative(x)))),
        "sigmoid",
    ),
    Entry(
        "GELU tanh, x*(1+0.044715x^2) inside",
        X3,
        lambda e, x: e.multiply(
            e.multiply(k(0.5), x),
            e.add(
                k(1),
                e.tanh(
                    e.multiply(
                        e.multiply(x, k(math.sqrt(2 / math.pi))),
                        e.add(k(1), e.multiply(k(0.044715), e.multiply(x, x))),
                    )
                ),
            ),
        ),
        "nn.gelu_tanh",
    ),
    Entry("LayerNorm over channels", IMAGE, lambda e, x: standard(e, x, [1]), "halotile.standardise"),
    Entry("InstanceNorm", IMAGE, lambda e, x: standard(e, x, [2, 3]), "nn.layer_norm"),
    Entry(
        "InstanceNorm of a large image",
        [((B, 2, 130, 130), F32)],
        lambda e, x: standard(e, x, [2, 3]),
        "halotile.standardise",
    ),
    Entry("GroupNorm", [((B, 6, 4, 4), F32)], group_norm, "reshape nn.layer_norm reshape multiply add"),
    Entry(
        "Softmax over the second axis",
        X3,
        lambda e, x: e.divide(t := e.exp(e.subtract(x, e.max(x, [1], True))), e.sum(t, [1], True)),
        "nn.softmax",
    ),
    Entry("Max(x,0)", X3, lambda e, x: e.maximum(x, k(0)), "nn.relu"),
    Entry(
        "attention: scale and mask in any order",
        X3,
        masked,
        "greater sum reshape where " + SCORED,
    ),
    Entry(
        "attention: an added mask, filled before",
        X3,
        added,
        "add " + SCORED,
    ),
    Entry(
        "pixel shuffle is what it is",
        [((B, 12, 4, 5), F32)],
        lambda e, x: e.reshape(
            e.permute_dims(e.reshape(x, [x.ty.shape[0], 3, 2, 2, 4, 5]), [0, 1, 4, 2, 5, 3]),
            [x.ty.shape[0], 3, 8, 10],
        ),
        "reshape permute_dims reshape",
    ),
    Entry(
        "channel shuffle there and back",
        [((B, 6, 4, 5), F32)],
        lambda e, x: shuffled(e, shuffled(e, x, 2), 3),
        "",
    ),
    Entry("MatMul+Add is one fully connected layer", X3, lambda e, x: e.add(c(5), e.linear(x)), "matmul add"),
    Entry("AveragePool over the whole image", IMAGE, lambda e, x: e.avg_pool2d(x, (8, 8)), "mean"),
    Entry(
        "Einsum bij,jk->bik", X3, lambda e, x: e.own("einsum", x, c(4, 5), equation="bij,jk->bik"), "matmul"
    ),
    Entry("SiLU, x/(1+Exp(-x))", X3, lambda e, x: e.divide(x, e.add(e.exp(e.negative(x)), k(1))), "nn.silu"),
    Entry(
        "GELU erf, x*(0.5+0.5*erf)",
        X3,
        lambda e, x: e.multiply(x, e.add(e.multiply(e.erf(e.multiply(x, k(math.sqrt(0.5)))), k(0.5)), k(0.5))),
        "nn.gelu",
    ),
    Entry(
        "LayerNorm, the weights in the root",
        X3,
        lambda e, x: e.add(
            e.multiply(
                d := e.subtract(x, e.mean(x, [-1], True)),
                e.multiply(e.rsqrt(e.add(e.mean(e.multiply(d, d), [-1], True), k(1e-5))), c(4)),
            ),
            c(4, seed=2),
        ),
        "nn.layer_norm",
    ),
    Entry(
        "InstanceNorm of an open image",
        [((2, 3, B, B), F32)],
        lambda e, x: standard(e, x, [2, 3]),
        "nn.layer_norm",
        open_left="halotile.standardise",
    ),
]
