"""Writing at computed positions: a copy of the tensor, then the updates one after the other.

Updates that can't meet (different rows of the other axes, different columns of the slices) run side by side, those that
can in their own order, so that the last one wins and sums do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..math.wrapping import plus, times
from ..words.dims import is_dim, to_index
from ..words.sizes import product
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, larger, shape_of, smaller, wide
from .loops import kind_of, split_at, written
from .open_shapes import same
from .registry import define

LANES = 16
COLUMNS = 64  # neighbouring columns that one task takes, so that it reads whole cache lines


def _combine(reduction: str, a: Expr, b: Expr) -> Expr:
    if reduction == "none":
        return b
    if reduction in ("add", "mul"):
        return plus(a, b) if reduction == "add" else times(a, b)
    return larger(a, b) if reduction == "max" else smaller(a, b)


def _resolve(index: Expr, length: Expr) -> Expr:
    """A position as int64, negative ones counted from the end."""
    signed = index.astype("int64")
    return tirx.Select(signed < 0, signed + wide(length), signed)


def _copy(k: KernelBuilder, source: Buffer, target: Buffer, elements: Expr) -> None:
    whole, rest = divmod(elements, LANES)
    if whole != 0:
        with k.loop(whole, kind_of(elements), "c") as block:
            with k.loop(LANES, "vectorized") as v:
                k.store(target, block * LANES + v, k.load(source, block * LANES + v))
    if rest != 0:
        with k.loop(rest, name="c") as i:
            k.store(target, whole * LANES + i, k.load(source, whole * LANES + i))


def _offset(index: Expr, extent: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Where element ``index`` of a corner of size ``extent`` lies in a tensor of size ``shape``."""
    if list(extent[1:]) == list(shape[1:]):
        return index
    offset: Expr = 0
    stride: Expr = 1
    for n, full in reversed(list(zip(extent, shape))):
        offset = offset + index % n * stride
        index = index // n
        stride *= full
    return offset


@define("halotile.scatter_elements", shapes=same)
def scatter_elements(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, axis: int, reduction: str
) -> te.Tensor:
    """x with updates[i] put (or added, ...) at i with indices[i] in place of i[axis]; the last of several wins."""
    shape, extent = shape_of(x), shape_of(updates)
    outer, count, inner = split_at(extent, axis)
    behind = product(shape[axis + 1 :])
    columns = COLUMNS if is_dim(inner) else min(inner, COLUMNS)
    tasks = -(-inner // columns)

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        _copy(k, ins[0], outs[0], product(shape))
        with k.loop(outer * tasks, kind_of(outer * count * inner), "row") as row:
            before = row // tasks
            base = _offset(before, extent[:axis], shape[:axis]) * (shape[axis] * behind)
            with k.loop(count, name="u") as u, k.loop(columns, name="j") as j:
                column = (row % tasks) * columns + j
                with _inside(k, column, inner, is_dim(inner) or inner % columns != 0):
                    at = (before * count + u) * inner + column
                    place = _offset(column, extent[axis + 1 :], shape[axis + 1 :])
                    _put(k, outs[0], ins[1], at, shape[axis], reduction, k.load(ins[2], at), base + place, behind)

    return written("scatter_elements", [x, indices, updates], [(shape, dtype_of(x))], write)[0]


def _inside(k: KernelBuilder, index: Expr, length: Expr, needed: bool) -> Expr:
    return k.when(index < to_index(length) if needed else tirx.IntImm("bool", 1))


def _put(
    k: KernelBuilder,
    out: Buffer,
    indices: Buffer,
    at: Expr,
    length: Expr,
    reduction: str,
    new: Expr,
    base: Expr,
    stride: int,
) -> None:
    """One update at position indices[at] of an axis of ``length``; none where that lies outside."""
    found = k.bind(_resolve(k.load(indices, at), length))
    with k.when(tirx.all(found >= 0, found < wide(length))):
        place = base + tirx.Cast("int32", found) * stride
        k.store(out, place, _combine(reduction, k.load(out, place), new))


@define("halotile.scatter_nd", shapes=same)
def scatter_nd(x: te.Tensor, indices: te.Tensor, updates: te.Tensor, *, reduction: str) -> te.Tensor:
    """x with slices of updates put (or added, ...) at the positions in the last axis of indices; the last wins."""
    shape, index_shape = shape_of(x), shape_of(indices)
    depth, count = index_shape[-1], product(index_shape[:-1])
    size = product(shape[depth:])
    whole, rest = divmod(size, LANES)

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        def one(u: Expr, update: Callable[[Expr], None]) -> None:
            """``update(start of the slice)``, if update ``u`` lies inside."""
            inside: Expr = tirx.IntImm("bool", 1)
            start: Expr = tirx.IntImm("int32", 0)
            for d in range(depth):
                found = k.bind(_resolve(k.load(ins[1], u * depth + d), shape[d]))
                inside = tirx.all(inside, found >= 0, found < wide(shape[d]))
                start = start * shape[d] + tirx.Cast("int32", found)
            with k.when(inside):
                update(start * size)

        def element(u: Expr, start: Expr, i: Expr) -> None:
            k.store(outs[0], start + i, _combine(reduction, k.load(outs[0], start + i), k.load(ins[2], u * size + i)))

        _copy(k, ins[0], outs[0], product(shape))
        if whole != 0:
            with k.loop(whole, kind_of(count * size), "block") as block, k.loop(count, name="u") as u:

                def lanes(start: Expr) -> None:
                    with k.loop(LANES, "vectorized") as v:
                        element(u, start, block * LANES + v)

                one(u, lanes)
        if rest != 0:
            with k.loop(count, name="u") as u:

                def remaining(start: Expr) -> None:
                    with k.loop(rest, name="i") as i:
                        element(u, start, whole * LANES + i)

                one(u, remaining)

    return written("scatter_nd", [x, indices, updates], [(shape, dtype_of(x))], write)[0]


@define("halotile.scatter_known", shapes=same)
def scatter_known(x: te.Tensor, table: te.Tensor, updates: te.Tensor, *, reduction: str) -> te.Tensor:
    """Scatter at positions known at import: table[p] is the row of updates that hits row p of x, or -1.

    x: [P, R], table: [P], updates: [U, R]; every row is hit at most once.
    """
    shape = shape_of(x)

    def pick(p: Expr, r: Expr) -> Expr:
        k = table(p)
        value = updates(tirx.max(k, 0), r)
        old = x(p, r)
        return tirx.Select(k < 0, old, value if reduction == "none" else _combine(reduction, old, value))

    return te.compute(shape, pick, name="scatter_known")
