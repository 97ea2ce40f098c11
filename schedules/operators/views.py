"""Views of tensors with open dims: where an element lies after a reshape, without divisions by what is open.

    (batch, length, 768) -> (batch, length, 12, 64)        (b, l, c)  ->  (b, l, c // 64, c % 64)

Dims of the old and the new shape are cut where as many elements lie before the cut in both. Within a part positions are
counted and split again; from part to part nothing moves, so that dims which stay are never divided by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..words.dims import Size, is_open, to_index
from ..words.sizes import dim_of
from ..words.tvm_types import Expr
from .common import shape_of
from .registry import override

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def reshaped_indices(indices: Sequence[Expr], old: Sequence[Size], new: Sequence[Size]) -> list[Expr]:
    """The indices in shape ``new`` of the element at ``indices`` of shape ``old``."""
    found: list[Expr] = []
    for (first, last), (begin, end) in parts(old, new):
        extents = new[begin:end]
        if list(extents) == list(old[first:last]):
            found += indices[first:last]
            continue
        flat: Expr = tirx.IntImm("int32", 0)
        for index, extent in zip(indices[first:last], old[first:last]):
            flat = flat * extent + index
        split: list[Expr] = []
        for extent in reversed(extents[1:]):
            split.append(tirx.floormod(flat, extent))
            flat = tirx.floordiv(flat, extent)
        found += [flat, *split[::-1]] if extents else []
    return found


def parts(old: Sequence[Expr], new: Sequence[Expr]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The finest cuts of both shapes, as (first, last) of either, between which as many elements lie."""
    counts = [_counts(old), _counts(new)]
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = next(
            (a, b)
            for a in range(i, len(old) + 1)
            for b in range(j, len(new) + 1)
            if (a > i or b > j) and (counts[0][a] == counts[1][b] or (a, b) == (len(old), len(new)))
        )
        yield (i, a), (j, b)
        i, j = a, b


def _counts(shape: Sequence[SizeLike]) -> list[Expr]:
    """Elements of the first 0, 1, 2 ... dims."""
    found: list[Expr] = [1]
    for dim in shape:
        found.append(found[-1] * dim)
    return found


@override("relax.reshape")
def reshape(call: Expr, x: te.Tensor, _shape: Expr) -> te.Tensor:
    """The same elements in the order of memory."""
    from tvm import topi

    old, new = shape_of(x), [dim_of(d) for d in call.args[1].values]
    if all(isinstance(d, int) for d in (*old, *new)):
        return topi.reshape(x, new)
    return te.compute(new, lambda *i: x(*reshaped_indices(i, new, old)), name="reshape")


@override("relax.broadcast_to")
def broadcast_to(call: Expr, x: te.Tensor, _shape: Expr) -> te.Tensor:
    """Every element as often as the shape says. An open dim that becomes another one is that long, or one; where sizes
    that no run has stand for the symbols, it may be neither."""
    from tvm import topi

    old, new = shape_of(x), [dim_of(d) for d in call.args[1].values]
    fits = all(d in (1, n) for d, n in zip(old, new[len(new) - len(old) :]))
    if fits and all(isinstance(d, int) for d in (*old, *new)):
        return topi.broadcast_to(x, new)

    def read(*i: Expr) -> Expr:
        places = zip(i[len(new) - len(old) :], old, new[len(new) - len(old) :])
        return x(*[p if d == n else 0 if d == 1 else tirx.min(p, to_index(d) - 1) for p, d, n in places])

    return te.compute(new, read, name="broadcast_to")


@override("relax.tile")
def tile(call: Expr, x: te.Tensor) -> te.Tensor:
    """The tensor as often side by side, along each axis, as the repeats say."""
    from tvm import topi

    repeats = [int(r) for r in call.attrs.repeats]
    shape = shape_of(x)
    if not is_open(shape):
        return topi.tile(x, repeats)
    rank = max(len(shape), len(repeats))
    repeats, old = [1] * (rank - len(repeats)) + repeats, [1] * (rank - len(shape)) + shape

    def read(*i: Expr) -> Expr:
        places = zip(i, repeats, old)
        at = [p if r == 1 else tirx.floormod(p, to_index(d)) for p, r, d in places]
        return x(*at[rank - len(shape) :])

    return te.compute([r * d for r, d in zip(repeats, old)], read, name="tile")
