"""Writing at computed positions, turned round: every output element looks for the updates that hit it.

The search is a reduction over the updates along one axis (or over all index tuples), so there is no race, the result
does not depend on the order of threads, and the scheduler sees an ordinary reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from ..operator import define
from .common import dtype_of, highest, larger, lowest, shape_of, smaller

REDUCTIONS = ("none", "add", "mul", "max", "min")


def _identity(reduction: str, dtype: str) -> Any:
    if reduction in ("add", "mul"):
        return tirx.const(0 if reduction == "add" else 1, dtype)
    return lowest(dtype) if reduction == "max" else highest(dtype)


def _combine(reduction: str, a: Any, b: Any) -> Any:
    if reduction in ("add", "mul"):
        return a + b if reduction == "add" else a * b
    return larger(a, b) if reduction == "max" else smaller(a, b)


def _resolve(index: Any, length: int) -> Any:
    """A position as int64, negative ones counted from the end."""
    signed = index.astype("int64")
    return tirx.Select(signed < 0, signed + tirx.const(length, "int64"), signed)


def _last_hit(shape: Sequence[int], hits: Any, axes: Sequence[Any], order: Any) -> te.Tensor:
    """For every position the largest ``order`` (int64) among the updates that hit it, or -1."""
    return te.compute(
        list(shape),
        lambda *i: te.max(
            tirx.Select(hits(i), order, tirx.const(-1, "int64")),
            axis=list(axes),
        ),
        name="last_hit",
    )


@define("halotile.scatter_elements")
def scatter_elements(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, axis: int, reduction: str
) -> te.Tensor:
    """x with updates[i] put (or added, ...) at i with indices[i] in place of i[axis]; the last of several wins."""
    shape, extent = shape_of(x), shape_of(updates)
    along = te.reduce_axis((0, extent[axis]), name="rk")
    partial = [a for a in range(len(shape)) if a != axis and extent[a] < shape[a]]

    def at(i: Sequence[Any], k: Any) -> list[Any]:
        return [
            k if a == axis else (tirx.min(p, extent[a] - 1) if a in partial else p) for a, p in enumerate(i)
        ]

    def hits(i: Sequence[Any]) -> Any:
        inside = [i[a] < extent[a] for a in partial]
        return tirx.all(_resolve(indices(*at(i, along.var)), shape[axis]) == i[axis].astype("int64"), *inside)

    if reduction == "none":
        last = _last_hit(shape, hits, [along], along.var.astype("int64"))

        def pick(*i: Any) -> Any:
            k = last(*i)
            return tirx.Select(k < 0, x(*i), updates(*at(i, tirx.max(k, tirx.const(0, "int64")))))

        return te.compute(shape, pick, name="scatter_elements")
    return _reduced(x, shape, hits, lambda i: updates(*at(i, along.var)), [along], reduction)


@define("halotile.scatter_nd")
def scatter_nd(x: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str) -> te.Tensor:
    """x with slices of updates put (or added, ...) at the positions in the last axis of indices; the last wins."""
    shape, index_shape = shape_of(x), shape_of(indices)
    depth, outer = index_shape[-1], index_shape[:-1]
    along = [te.reduce_axis((0, n), name=f"rk{d}") for d, n in enumerate(outer)]
    at = [r.var for r in along]

    def hits(i: Sequence[Any]) -> Any:
        same = [_resolve(indices(*at, d), shape[d]) == i[d].astype("int64") for d in range(depth)]
        return tirx.all(*same) if same else tirx.const(True, "bool")

    if reduction == "none":
        flat: Any = tirx.const(0, "int64")
        for r, n in zip(at, outer):
            flat = flat * tirx.const(n, "int64") + r.astype("int64")
        last = _last_hit(shape[:depth], hits, along, flat) if along else None

        def pick(*i: Any) -> Any:
            if last is None:
                return tirx.Select(hits(i), updates(*i[depth:]), x(*i))
            k = last(*i[:depth])
            rest = tirx.max(k, tirx.const(0, "int64"))
            where = []
            for n in reversed(outer):
                where.append(tirx.floormod(rest, tirx.const(n, "int64")))
                rest = tirx.floordiv(rest, tirx.const(n, "int64"))
            return tirx.Select(k < 0, x(*i), updates(*reversed(where), *i[depth:]))

        return te.compute(shape, pick, name="scatter_nd")
    return _reduced(x, shape, hits, lambda i: updates(*at, *i[depth:]), along, reduction)


def _reduced(
    x: te.Tensor, shape: list[int], hits: Any, update: Any, axes: list[Any], reduction: str
) -> te.Tensor:
    reducer = te.comm_reducer(
        lambda a, b: _combine(reduction, a, b), lambda dtype: _identity(reduction, dtype), name=reduction
    )
    total = te.compute(
        shape,
        lambda *i: reducer(tirx.Select(hits(i), update(i), _identity(reduction, dtype_of(x))), axis=axes),
        name="updates",
    )
    return te.compute(shape, lambda *i: _combine(reduction, x(*i), total(*i)), name=f"scatter_{reduction}")


@define("halotile.scatter_known")
def scatter_known(x: te.Tensor, table: te.Tensor, updates: te.Tensor, *, reduction: str) -> te.Tensor:
    """Scatter at positions known at import: table[p] is the row of updates that hits row p of x, or -1.

    x: [P, R], table: [P], updates: [U, R]; every row is hit at most once.
    """
    shape = shape_of(x)

    def pick(p: Any, r: Any) -> Any:
        k = table(p)
        value = updates(tirx.max(k, 0), r)
        old = x(p, r)
        return tirx.Select(k < 0, old, value if reduction == "none" else _combine(reduction, old, value))

    return te.compute(shape, pick, name="scatter_known")
