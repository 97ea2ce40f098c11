"""Small helpers shared by the TE functions of this folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..words.dims import is_dim, is_expression, to_index
from ..words.sizes import dim_of
from ..words.tvm_types import Expr, Tensor

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def shape_of(x: te.Tensor) -> list[Expr]:
    return [dim_of(d) for d in x.shape]


def broadcast_shape(*shapes: Sequence[Expr]) -> list[Expr]:
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(s)) + list(s) for s in shapes]
    result = []
    for dims in zip(*padded):
        big = {d for d in dims if d != 1} or {1}
        if len(big) > 1:
            raise ValueError(f"shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
        result.append(big.pop())
    return result


def broadcast_read(x: te.Tensor, index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """x at ``index`` of the tensor of ``shape`` that it is broadcast to. A dim that both have is read at its axis, even
    if it is 1: as other operators do, so that elements have one name."""
    first = len(shape) - len(x.shape)
    return x(*[i if dim_of(d) == s else 0 for d, i, s in zip(x.shape, index[first:], shape[first:])])


def elementwise(name: str, function: Callable[..., Expr], *operands: te.Tensor) -> te.Tensor:
    """function applied element by element to operands that broadcast together."""
    shape = broadcast_shape(*map(shape_of, operands))
    return te.compute(shape, lambda *i: function(*(broadcast_read(x, i, shape) for x in operands)), name=name)


def dtype_of(value: Expr | Tensor) -> str:
    """The dtype of a TE tensor or of a scalar expression."""
    return str(value.dtype) if isinstance(value, te.Tensor) else str(value.ty.dtype)


def zero(value: Expr) -> Expr:
    """A zero of the dtype of ``value``."""
    return tirx.const(0, dtype_of(value))


def window_extents(
    size: Sequence[Expr],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
) -> list[Expr]:
    """How many windows lie on each axis, with ``begin`` and ``end`` places around the data; extents may be open."""
    spans = [d + b + e - ((k - 1) * dilation + 1) for d, k, dilation, b, e in zip(size, kernel, dilations, begin, end)]
    return [tirx.floordiv(n, s) + 1 if is_expression(n) else n // s + 1 for n, s in zip(spans, strides)]


def transposed_extents(
    size: Sequence[Expr],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
) -> list[Expr]:
    """The spatial extents of a transposed convolution's result, of whose full form ``begin`` and ``end`` are cut."""
    spans = zip(size, kernel, strides, dilations, begin, end)
    return [(n - 1) * s + (k - 1) * d + 1 - b - e for n, k, s, d, b, e in spans]


def wide(dim: SizeLike) -> Expr:
    """A dim in int64, to be compared with positions."""
    return tirx.Cast("int64", to_index(dim)) if is_dim(dim) else tirx.const(dim, "int64")


def number(value: Expr, dtype: str) -> Expr:
    """A number or a dim, or the sum of a dim and a fraction, in ``dtype``."""
    if not is_dim(value):
        return tirx.const(value, dtype)
    fraction = value.terms.get((), 0)
    whole = tirx.Cast(dtype, to_index(value - fraction))
    return whole + tirx.const(fraction, dtype) if fraction else whole


def share_of(count: SizeLike, dtype: str) -> Expr:
    """1 / ``count`` in ``dtype``: a constant, or computed where the count is open."""
    if isinstance(count, int):
        return tirx.const(1.0 / count, dtype)
    return tirx.const(1.0, dtype) / tirx.Cast(dtype, to_index(count))


def is_float(dtype: str) -> bool:
    return "float" in str(dtype)


def larger(a: Expr, b: Expr) -> Expr:
    """The larger of two, and NaN when either is one (a plain max, a > b ? a : b, keeps only the second's)."""
    if not is_float(dtype_of(a)):
        return tirx.max(a, b)
    return tirx.Select(is_nan(a), a, tirx.max(a, b))


def smaller(a: Expr, b: Expr) -> Expr:
    """The smaller of two, and NaN when either is one."""
    if not is_float(dtype_of(a)):
        return tirx.min(a, b)
    return tirx.Select(is_nan(a), a, tirx.min(a, b))


def largest_number(dtype: str) -> Expr:
    """A reducer to the largest element that passes over NaN: one maximum a step, since what it holds is none itself."""
    if not is_float(dtype):
        return te.comm_reducer(lambda a, b: tirx.max(a, b), lowest, name="largest_number")
    return te.comm_reducer(lambda a, b: tirx.Select(b > a, b, a), lowest, name="largest_number")


def is_nan(value: Expr) -> Expr:
    """NaN or not. (``value != value`` will not do: the simplifier takes it for false.)"""
    return tirx.isnan(value.astype("float32") if dtype_of(value) == "bfloat16" else value)


def lowest(dtype: str) -> Expr:
    """The identity of max: -inf for floats, so that a window of -inf stays one."""
    return tirx.const(float("-inf"), dtype) if is_float(dtype) else tirx.min_value(dtype)


def highest(dtype: str) -> Expr:
    return tirx.const(float("inf"), dtype) if is_float(dtype) else tirx.max_value(dtype)
