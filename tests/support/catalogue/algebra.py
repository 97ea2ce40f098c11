"""Rewrites of arithmetic with constants."""

from __future__ import annotations

from typing import Any

from .base import F32, I32, IMAGE, X2, X3, B, Emit, Entry, c, k


def scores(e: Emit, x: Any) -> Any:
    n = x.ty.shape[0]

    def heads(seed: int) -> Any:
        return e.permute_dims(e.reshape(e.linear(x, 4, 4, seed), [n, 3, 2, 2]), [0, 2, 1, 3])

    return e.matmul(heads(1), e.permute_dims(heads(2), [0, 1, 3, 2]))


ENTRIES = [
    Entry(
        "Mul(Add(MatMul,B),C) scalar",
        X3,
        lambda e, x: e.multiply(e.add(e.linear(x), c(5)), k(3)),
        "matmul add",
    ),
    Entry(
        "Mul(Add(MatMul,B),C) [N]", X3, lambda e, x: e.multiply(e.add(e.linear(x), c(5)), c(5)), "matmul add"
    ),
    Entry(
        "Mul(Add(MatMul,B),C) [1,1,N]",
        X3,
        lambda e, x: e.multiply(e.add(e.linear(x), c(5)), c(1, 1, 5)),
        "matmul add",
    ),
    Entry("Div(Add(MatMul,B),c)", X3, lambda e, x: e.divide(e.add(e.linear(x), c(5)), k(3)), "matmul add"),
    Entry(
        "Mul(Add(MatMul,B),C) rank 2",
        X2,
        lambda e, x: e.multiply(e.add(e.linear(x), c(5)), c(5)),
        "matmul add",
    ),
    Entry("Mul(MatMul,C)", X3, lambda e, x: e.multiply(e.linear(x), c(5)), "matmul"),
    Entry("MatMul(Mul(x,C),A)", X3, lambda e, x: e.linear(e.multiply(x, c(4))), "matmul"),
    Entry("MatMul(Add(x,a),W)+b", X3, lambda e, x: e.add(e.linear(e.add(x, c(4))), c(5)), "matmul add"),
    Entry(
        "Div(Add(MatMul,MatMul),c)",
        X2 * 2,
        lambda e, x, z: e.divide(e.add(e.linear(x), e.linear(z, seed=2)), k(3)),
        "matmul matmul add",
    ),
    Entry(
        "scale of scores into the projection",
        X3,
        lambda e, x: e.softmax(e.divide(scores(e, x), k(1.7)), -1),
        "matmul matmul matmul permute_dims permute_dims reshape reshape nn.softmax",
    ),
    Entry(
        "bias shared by two Adds",
        X3,
        lambda e, x: [
            e.exp(e.add(t := e.add(e.linear(x), c(5)), c(5, seed=2))),
            e.tanh(e.add(t, c(5, seed=3))),
        ],
        "matmul add add exp tanh",
    ),
    Entry("MatMul+Add+Add", X3, lambda e, x: e.add(e.add(e.linear(x), c(5)), c(5, seed=2)), "matmul add"),
    Entry(
        "Add+Sub+Mul+Div chain",
        IMAGE,
        lambda e, x: e.divide(e.multiply(e.subtract(e.add(x, c(1, 3, 1, 1)), k(0.5)), c(1, 3, 1, 1)), k(3)),
        "multiply add",
    ),
    Entry("Mul+Mul", X3, lambda e, x: e.multiply(e.multiply(x, k(3)), c(4)), "multiply"),
    Entry("Add+Add", X3, lambda e, x: e.add(e.add(x, k(3)), c(4)), "add"),
    Entry("x * 1", X3, lambda e, x: e.multiply(x, k(1)), "", "exact"),
    Entry("x / 1, x - 0", X3, lambda e, x: e.subtract(e.divide(x, k(1)), k(0)), "", "exact"),
    Entry("x + 0", X3, lambda e, x: e.exp(e.add(x, k(0))), "exp"),
    Entry(
        "integers plus constants, twice",
        [((B, 4), I32)],
        lambda e, x: e.add(e.add(x, k(7, I32)), k(5, I32)),
        "add",
    ),
    Entry("x - c", X3, lambda e, x: e.subtract(x, c(4)), "add", "exact"),
    Entry(
        "x - x of integers",
        [((B, 4), I32)],
        lambda e, x: e.subtract(x, x),
        "",
        open_left="broadcast_to",
    ),
    Entry("max(x, x)", X3, lambda e, x: e.maximum(x, x), "", "exact"),
    Entry("x + (-y)", X3 * 2, lambda e, x, y: e.add(x, e.negative(y)), "subtract", "exact"),
    Entry(
        "(-x) * (-y)", X3 * 2, lambda e, x, y: e.multiply(e.negative(x), e.negative(y)), "multiply", "exact"
    ),
    Entry("-(-x)", X3, lambda e, x: e.negative(e.negative(x)), "", "exact"),
    Entry(
        "scale of scores, a product's other operand",
        X3 * 2,
        lambda e, x, z: e.multiply(e.matmul(e.linear(x, 4, 4), e.permute_dims(z, [0, 2, 1])), k(0.3)),
        "matmul matmul permute_dims",
    ),
    Entry(
        "Mul of a sum of products",
        X2 * 2,
        lambda e, x, z: e.multiply(e.add(e.linear(x), e.linear(z, seed=2)), k(3)),
        "matmul matmul add",
    ),
    Entry(
        "scale through a transpose and a reshape",
        X3,
        lambda e, x: e.multiply(e.reshape(e.permute_dims(e.linear(x), [0, 2, 1]), [x.ty.shape[0], 15]), k(3)),
        "matmul permute_dims reshape",
    ),
    Entry(
        "a scale for each head, after the heads are split",
        X3,
        lambda e, x: e.multiply(
            e.permute_dims(e.reshape(e.linear(x, 4, 4), [x.ty.shape[0], 3, 2, 2]), [0, 2, 1, 3]), c(2, 1, 1)
        ),
        "matmul reshape permute_dims",
    ),
    Entry(
        "Div of a sum of products by [N]",
        X3 * 2,
        lambda e, x, z: e.divide(e.add(e.linear(x), e.linear(z, seed=2)), c(5)),
        "matmul matmul add",
    ),
    Entry(
        "Mul by columns of a product, into its right operand",
        [*X3, ((B, 4, 4), F32)],
        lambda e, x, z: e.multiply(e.matmul(x, e.linear(z)), c(5)),
        "matmul matmul",
    ),
    Entry(
        "Div(Add(q@k^T, q@r^T), sqrt d) without constants",
        X3 * 3,
        lambda e, q, z, r: e.divide(
            e.add(*(e.matmul(q, e.permute_dims(v, [0, 2, 1])) for v in (z, r))), k(1.7)
        ),
        "permute_dims permute_dims matmul matmul add multiply",
    ),
    Entry("Mul(MatMul,C), weights first", X3, lambda e, x: e.multiply(e.matmul(c(5, 3), x), c(5, 1)), "matmul"),
    Entry(
        "scales on both sides of a product",
        [((B, 3, 4), F32), ((B, 4, 5), F32)],
        lambda e, q, z: e.matmul(e.multiply(q, k(0.7)), e.multiply(z, k(0.7))),
        "matmul multiply",
    ),
]
