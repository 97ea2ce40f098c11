"""Rewrites of logic and of comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import BOOL, F32, FLAGS, I32, I64, X2, B, Emit, Entry, k

INTS = [((B, 4), I32)]


def triangle(e: Emit, x: Any) -> Any:
    row = e.arange(0, n := x.ty.shape[0], 1, "int64")
    return e.where(e.greater_equal(e.subtract(e.reshape(row, [n, 1]), row), k(0, I64)), x, k(0.0))


ENTRIES = [
    Entry(
        "a Range is at least zero",
        X2,
        lambda e, x: e.where(
            e.reshape(e.greater_equal(e.arange(0, x.ty.shape[0], 1, "int64"), k(0, I64)), [x.ty.shape[0], 1]), x, k(0.0)
        ),
        "",
    ),
    Entry(
        "a Range within its own bounds, gathered",
        X2,
        lambda e, x: e.own(
            "gather",
            x,
            e.minimum(
                e.maximum(e.arange(0, n := x.ty.shape[0], 1, "int64"), k(0, I64)), e.arange(n - 1, n, 1, "int64")
            ),
            axis=0,
        ),
        "",
    ),
    Entry("i - j >= 0 of Ranges", [((B, B), F32)], triangle, "where", open_left="halotile.of_sizes where"),
    Entry(
        "Not(Less(a,b)) floats",
        X2 * 2,
        lambda e, a, b: e.logical_not(e.less(a, b)),
        "greater_equal",
        "finite",
    ),
    Entry(
        "Not(Less(int,int))",
        [((B, 4), I32)] * 2,
        lambda e, a, b: e.logical_not(e.less(a, b)),
        "greater_equal",
    ),
    Entry(
        "De Morgan",
        FLAGS * 3,
        lambda e, a, b, d: e.logical_not(e.logical_or(e.logical_or(e.logical_not(a), e.logical_not(b)), d)),
        "logical_and logical_and logical_not",
    ),
    Entry("Not(Not(x))", FLAGS, lambda e, x: e.logical_not(e.logical_not(x)), ""),
    Entry("Equal(Cast(bool),0)", FLAGS, lambda e, x: e.equal(e.astype(x, I32), k(0, I32)), "logical_not"),
    Entry(
        "Where(Equal(Cast(bool),0),-inf,s)",
        [*FLAGS, *X2],
        lambda e, b, s: e.where(e.equal(e.astype(b, F32), k(0)), k(-np.inf), s),
        "where",
    ),
    Entry(
        "Where(Not(b),x,y)", [*FLAGS, *X2, *X2], lambda e, b, x, y: e.where(e.logical_not(b), x, y), "where"
    ),
    Entry("And(x, true)", FLAGS, lambda e, x: e.logical_and(x, k(True, BOOL)), ""),
    Entry("Or(x, false)", FLAGS, lambda e, x: e.logical_or(x, k(False, BOOL)), ""),
    Entry("Or(x, true)", FLAGS, lambda e, x: e.logical_or(x, k(True, BOOL)), "", open_left="broadcast_to"),
    Entry("And(x, x)", FLAGS, lambda e, x: e.logical_and(x, x), ""),
    Entry("Xor(x, true)", FLAGS, lambda e, x: e.logical_xor(x, k(True, BOOL)), "logical_not"),
    Entry(
        "And(Not A, Not B)",
        FLAGS * 2,
        lambda e, a, b: e.logical_and(e.logical_not(a), e.logical_not(b)),
        "logical_or logical_not",
    ),
    Entry("Not(Equal(int,int))", INTS * 2, lambda e, a, b: e.logical_not(e.equal(a, b)), "not_equal"),
    Entry("Cast(bool) > 0", FLAGS, lambda e, x: e.greater(e.astype(x, F32), k(0)), ""),
    Entry("Cast(bool) != 1", FLAGS, lambda e, x: e.not_equal(e.astype(x, I64), k(1, I64)), "logical_not"),
    Entry("x == x of integers", INTS, lambda e, x: e.equal(x, x), "", open_left="broadcast_to"),
    Entry("x < x", X2, lambda e, x: e.less(x, x), "", open_left="broadcast_to"),
    Entry("Where(true,x,y)", X2 * 2, lambda e, x, y: e.where(k(True, BOOL), x, y), ""),
    Entry("Where(c,x,x)", [*FLAGS, *X2], lambda e, c, x: e.where(c, x, x), ""),
    Entry("Where(c,true,false)", FLAGS, lambda e, c: e.where(c, k(True, BOOL), k(False, BOOL)), ""),
    Entry(
        "Where(c,false,true)", FLAGS, lambda e, c: e.where(c, k(False, BOOL), k(True, BOOL)), "logical_not"
    ),
    Entry(
        "an inverted mask, 1 - m, made a flag",
        FLAGS,
        lambda e, m: e.astype(e.subtract(k(1), e.astype(m, F32)), BOOL),
        "logical_not",
    ),
    Entry(
        "0 == Cast(bool), the constant first",
        FLAGS,
        lambda e, x: e.equal(k(0, I32), e.astype(x, I32)),
        "logical_not",
    ),
    Entry("1 <= Cast(bool)", FLAGS, lambda e, x: e.less_equal(k(1), e.astype(x, F32)), ""),
    Entry("Cast(bool) <= 0", FLAGS, lambda e, x: e.less_equal(e.astype(x, F32), k(0)), "logical_not"),
    Entry(
        "an inverted mask, (1 - m) * min",
        [*FLAGS, *X2],
        lambda e, m, x: e.add(x, e.multiply(e.subtract(k(1), e.astype(m, F32)), k(-3e38))),
        "where add",
    ),
    Entry(
        "Not(Less) of floats made of integers",
        INTS,
        lambda e, x: e.logical_not(e.less(e.astype(x, F32), k(2.5))),
        "astype greater_equal",
    ),
    Entry("And(x, Not x)", FLAGS, lambda e, x: e.logical_and(x, e.logical_not(x)), "", open_left="broadcast_to"),
    Entry("Or(Not x, x)", FLAGS, lambda e, x: e.logical_or(e.logical_not(x), x), "", open_left="broadcast_to"),
    Entry("Xor(x, x)", FLAGS, lambda e, x: e.logical_xor(x, x), "", open_left="broadcast_to"),
    Entry(
        "a mask that no flag changes",
        [*FLAGS, *X2],
        lambda e, m, x: e.where(e.greater(e.astype(m, F32), k(2)), x, k(0)),
        "",
        open_left="broadcast_to",
    ),
]
