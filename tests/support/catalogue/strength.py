"""Cheaper operators for the same numbers."""

from __future__ import annotations

from .base import F32, I32, X3, B, Entry, c, k

ENTRIES = [
    Entry("Pow(x,2)", X3, lambda e, x: e.power(x, k(2)), "multiply"),
    Entry("Pow(x,.5)", X3, lambda e, x: e.power(e.abs(x), k(0.5)), "abs sqrt"),
    Entry("division by a power of two", X3, lambda e, x: e.divide(x, k(8)), "multiply", "exact"),
    Entry("Relu(Relu)", X3, lambda e, x: e.relu(e.relu(x)), "nn.relu"),
    Entry("Abs(Abs)", X3, lambda e, x: e.abs(e.abs(x)), "abs"),
    Entry("common subexpressions", X3, lambda e, x: e.multiply(e.exp(x), e.exp(x)), "exp multiply"),
    Entry("x * x", X3, lambda e, x: e.square(x), "multiply"),
    Entry("Pow(x,1)", X3, lambda e, x: e.power(x, k(1)), ""),
    Entry("Pow(x,-.5)", X3, lambda e, x: e.power(e.exp(x), k(-0.5)), "exp rsqrt"),
    Entry("1/Sqrt(x)", X3, lambda e, x: e.divide(k(1), e.sqrt(x)), "rsqrt"),
    Entry("division by a constant", X3, lambda e, x: e.divide(x, k(3)), "multiply"),
    Entry("Ceil(Floor)", X3, lambda e, x: e.ceil(e.floor(x)), "floor", "exact"),
    Entry("Relu(Sigmoid)", X3, lambda e, x: e.relu(e.sigmoid(x)), "sigmoid"),
    Entry(
        "x * 0 of integers",
        [((B, 4), I32)],
        lambda e, x: e.multiply(x, k(0, I32)),
        "",
        open_left="broadcast_to",
    ),
    Entry("duplicate constants", X3, lambda e, x: e.multiply(e.add(x, c(4)), e.add(x, c(4))), "add multiply"),
    Entry("a column by a row", [((B, 3, 1), F32)], lambda e, x: e.matmul(x, c(1, 4)), "multiply"),
    Entry("Abs(-x)", X3, lambda e, x: e.abs(e.negative(x)), "abs", "exact"),
]
