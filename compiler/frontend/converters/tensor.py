"""Constants, shapes as data, casts, and what is a no-op in inference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ....schedules.words.dims import Dim, Open, bounds, is_whole, maximum
from ....schedules.words.refusal import Refusal
from .. import narrow
from ..ahead import LARGEST
from ..functions import dtype_name, element_name
from ..node import OnnxNode, normal_axis, require_addressable
from ..registry import converts
from ..value import PLAIN, OnnxValue
from .walks import walk

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike

R = relax.op


@converts("Constant")
def constant(node: OnnxNode) -> OnnxValue:
    for name in ("value", "sparse_value"):
        if name in node.attributes:
            return node.attr(name)
    for name, dtype in (
        ("value_float", "float32"),
        ("value_floats", "float32"),
        ("value_int", "int64"),
        ("value_ints", "int64"),
    ):
        if name in node.attributes:
            return node.const(np.array(node.attr(name), dtype))
    raise Refusal("it holds strings, which are not supported")


@converts("Shape")
def shape(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    return OnnxValue.of_contents(list(x.shape[slice(node.attr("start", 0), node.attr("end"))]), "int64")


@converts("Size")
def size(node: OnnxNode) -> OnnxValue:
    return OnnxValue.of_contents(node.need(0).size, "int64")


@converts("ConstantOfShape", since=9)
def constant_of_shape(node: OnnxNode) -> OnnxValue:
    dims = node.ints(0, "its shape") or []
    value = node.attr("value")
    array = np.zeros(1, "float32") if value is None else value.array
    filled = node.broadcast(node.const(array.reshape(())), dims)
    if filled.is_integer:
        filled.between = (int(array.reshape(())), int(array.reshape(())))
    filled.everywhere = bool(array.astype(bool).all())
    return filled


@converts("Cast", since=6)
def cast(node: OnnxNode) -> OnnxValue:
    dtype = dtype_name(node.attr("to"))
    if dtype is None:
        raise Refusal(f"a cast to {element_name(node.attr('to'))} is not supported")
    return to_dtype(node, node.need(0), dtype)


@converts("CastLike", since=15)
def cast_like(node: OnnxNode) -> OnnxValue:
    return to_dtype(node, node.need(0), node.need(1).dtype)


def to_dtype(node: OnnxNode, x: OnnxValue, dtype: str | None) -> OnnxValue:
    """Floats become integers towards zero, anything becomes bool by comparison with zero."""
    if dtype is None:
        raise Refusal("strings are not supported")
    if x.carried is not None:
        x = x.carried
    if x.array is not None and not (dtype in PLAIN and x.dtype in PLAIN):
        return narrow.known(node, x, x.array, dtype)
    if dtype in narrow.FLOATS:
        return narrow.narrowed(node, x, dtype)
    for name in (x.dtype, dtype):
        if name not in PLAIN:
            raise Refusal(f"the type {name} is not supported")
    if dtype == x.dtype:
        return x
    if dtype == "bool":
        return node.do(R.not_equal, x, node.scalar(0, x))
    if x.dtype == "bfloat16" and dtype != "float32" or dtype == "bfloat16" and x.dtype != "float32":
        x = node.cast(x, "float32")
    return node.cast(x, dtype)


@converts("Dropout")
def dropout(node: OnnxNode) -> list[OnnxValue | None]:
    """The identity in inference; the mask is all ones."""
    x = node.need(0)
    if node.opset >= 12:
        training = node.constant(2, "its training mode")
        ratio = node.constant(1, "its ratio")
        if training is not None and bool(training) and (ratio is None or float(ratio) != 0.0):
            raise Refusal("it is in training mode, where it draws random numbers")
    mask = None
    if node.wants(1):
        mask = node.broadcast(node.const(np.ones((), bool if node.opset >= 10 else x.dtype)), x.shape)
    return [x, mask]


@converts("Range", since=11)
def range_(node: OnnxNode) -> OnnxValue:
    if any(node.need(i).is_symbolic for i in range(3)):
        return _open_range(node)
    arrays = [node.constant(i, "a bound") for i in range(3)]
    if any(a is None or a.size != 1 for a in arrays):
        raise Refusal("its bounds are not three scalars")
    start, limit, delta = (a.reshape(()).item() for a in arrays if a is not None)
    dtype = node.need(0).dtype
    if not all(map(math.isfinite, (start, limit, delta))) or delta == 0:
        raise Refusal(f"from {start} to {limit} in steps of {delta} there is no end")
    count = max(
        -((start - limit) // delta) if isinstance(delta, int) else math.ceil((limit - start) / delta), 0
    )
    require_addressable((count,))
    if 8 * count <= LARGEST:
        return node.const((start + np.arange(count) * delta).astype(dtype))
    wide = node.counting(count, "int64" if node.need(0).is_integer else "float64")
    steps = node.do(R.multiply, wide, node.scalar(delta, wide))
    return node.cast(node.do(R.add, steps, node.scalar(start, wide)), dtype)


def _open_range(node: OnnxNode) -> OnnxValue:
    """Whole bounds, also where the model counts in floats: those are counted in integers and widened."""
    dtype = node.need(0).dtype
    given = [c.reshape(-1)[0] if (c := node.need(i).contents) is not None and c.size == 1 else None for i in range(3)]
    whole: list[SizeLike] = [
        int(b) if not isinstance(b, (Dim, type(None))) and float(b).is_integer() else b for b in given
    ]
    if not all(isinstance(b, (int, Dim)) and is_whole(b) for b in whole) or isinstance(whole[2], Dim) or not whole[2]:
        raise Open(f"its bounds are {given[0]}, {given[1]} and {given[2]}; open ones need a whole step that is known")
    start, limit, delta = whole
    ahead = (limit - start) * (1 if delta > 0 else -1)
    count = maximum(ahead + (abs(delta) - 1), 0) // abs(delta)
    counted = dtype if node.need(0).is_integer else "int64"
    counting = node.cast(walk(node, start, delta, count, counted), dtype)
    ends = (start, start + (count - 1) * delta)
    counting.between = ends if delta > 0 else ends[::-1]
    return counting


@converts("OneHot", since=9)
def one_hot(node: OnnxNode) -> OnnxValue:
    """Indices count from the end when negative; those outside the depth give rows of the off value."""
    indices, values = node.need(0), node.need(2)
    depth = node.ints(1, "its depth")
    if not depth:
        raise Refusal("it has no depth")
    count = depth[0]
    if bounds(count)[1] < 1 or values.size != 2:
        raise Refusal(f"its depth is {count}, and its values are {values}")
    axis = normal_axis(node.attr("axis", -1), indices.rank + 1)
    require_addressable((*indices.shape, count))
    if isinstance(count, Dim) or indices.is_float or count > np.iinfo(indices.dtype).max:
        indices = node.cast(indices, "int64")  # bytes don't count all of many columns
    if isinstance(count, Dim):
        limit, places = node.reshape(walk(node, count, 1, 1), ()), walk(node, 0, 1, count)
    else:
        limit, places = node.scalar(count, indices), node.counting(count, indices.dtype)
    wrapped = indices
    if not indices.dtype.startswith("u"):
        below = node.do(R.less, indices, node.scalar(0, indices))
        wrapped = node.do(R.where, below, node.do(R.add, indices, limit), indices)
    column = node.reshape(wrapped, wrapped.shape[:axis] + (1,) + wrapped.shape[axis:])
    row = node.reshape(places, [count if a == axis else 1 for a in range(column.rank)])
    hit = node.do(R.equal, column, row)
    off, on = (node.reshape(node.slice(values, 0, i, i + 1), ()) for i in range(2))
    return node.do(R.where, hit, on, off)


@converts("BitCast", since=26)
def bit_cast(node: OnnxNode) -> OnnxValue:
    x = node.need(0)
    dtype = dtype_name(node.attr("to"))
    if dtype is None or dtype not in PLAIN or x.dtype not in PLAIN:
        raise Refusal(f"the types {x.dtype} and {dtype} are not supported")
    if np.dtype(dtype).itemsize != np.dtype(x.dtype).itemsize:
        raise Refusal(f"{x.dtype} and {dtype} differ in width")
    if "bool" in (x.dtype, dtype):
        other = x.dtype if dtype == "bool" else dtype
        bytes_ = node.cast(x, "uint8") if x.dtype == "bool" else x
        if other != "uint8":
            raise Refusal(f"{x.dtype} to {dtype} is not supported")
        return node.cast(bytes_, dtype)
    return node.own("halotile.bitcast", x, dtype=dtype)
