"""Values of operators on constants, in numpy: what constant folding knows how to compute.

Each function takes the node and one array per tensor operand and gives the array of the (single) output, or None when
this form is not known here. The arithmetic is that of the operator's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...schedules.math.wrapping import truncated_array
from .evaluate_own import OWN
from .graph import ITEM, GraphNode
from .patterns import ints

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike
    from ...schedules.words.tvm_types import Attribute

Evaluator = Callable[[GraphNode, Sequence[np.ndarray]], "np.ndarray | None"]


def evaluate(node: GraphNode, inputs: Sequence[np.ndarray]) -> np.ndarray | None:
    """The value of ``node`` (one tensor) on ``inputs``, or None when numpy can't tell it bit for bit alike."""
    function = TABLE.get(node.op)
    if function is None:
        return None
    with np.errstate(all="ignore"):
        try:
            value = function(node, inputs)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    if value is None:
        return None
    value = np.asarray(value)
    return value if str(value.dtype) == node.dtype else value.astype(node.dtype)


def steps(node: GraphNode, inputs: Sequence[np.ndarray]) -> int:
    """What :func:`evaluate` takes, in steps of which a second has about 1e9: some elements in one, and more of
    products, whose blocks stay in caches."""
    if node.op == "relax.matmul":
        return math.prod(node.shape or ()) * inputs[0].shape[-1] // 16
    return sum(i.size for i in inputs) // 4


def _unary(function: Callable[..., np.ndarray]) -> Evaluator:
    return lambda node, x: function(x[0])


def _binary(function: Callable[..., np.ndarray | None]) -> Evaluator:
    return lambda node, x: function(x[0], x[1])


def _truncated_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Division that truncates integers, as C and ONNX do; never by zero."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b).astype(a.dtype)
    if np.any(b == 0):
        return None
    quotient = np.floor_divide(a, b)  # the least number over -1 wraps
    return quotient + ((np.remainder(a, b) != 0) & ((a < 0) != (b < 0)))


def _integers_only(function: Callable[..., np.ndarray]) -> Evaluator:
    def apply(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
        return None if np.any(x[1] == 0) else function(x[0], x[1])

    return apply


def _power(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    if x[0].dtype.kind in "iu" and np.any(x[1] < 0):
        return None
    value = np.power(x[0], x[1])
    if x[0].dtype.kind == "f":  # numpy takes the root where C's pow has its own rules
        value = np.where((x[1] == 0.5) & ((x[0] == 0) | (x[0] == -np.inf)), np.abs(x[0]), value)
    return value


def _strided_slice(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    parts = [ints(node.raw(k)) for k in range(1, len(node.operands))]
    if any(p is None for p in parts):
        return None
    axes, begin, end = (p or [] for p in parts[:3])
    strides = parts[3] if len(parts) > 3 and parts[3] is not None else [1] * len(axes)
    index: list[Any] = [slice(None)] * x[0].ndim
    for a, b, e, s in zip(axes, begin, end, strides):
        index[a] = np.arange(x[0].shape[a])[_slice(b, e, s, x[0].shape[a])]
    out = x[0]
    for a, i in enumerate(index):
        if not isinstance(i, slice):
            out = np.take(out, i, axis=a)
    return out if out.shape == node.shape else None


def _slice(begin: int, end: int, stride: int, length: int) -> slice:
    """Python's slice for Relax's begin and end, where an end below zero after the shift means 'to the first'."""
    if stride < 0 and end < -length:
        return slice(begin, None, stride)
    return slice(begin, end, stride)


def _take(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    axis, mode = node.attrs.axis, str(node.attrs.mode)
    size = x[0].size if axis is None else x[0].shape[int(axis)]
    index = x[1]
    if mode == "clip":
        index = np.clip(index, 0, size - 1)
    elif mode == "wrap":
        index = index % size
    elif np.any(index < 0) or np.any(index >= size):
        return None
    return np.take(x[0], index, axis=None if axis is None else int(axis))


def _reduce(function: Callable[..., np.ndarray]) -> Evaluator:
    def apply(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray:
        axis = node.attrs.axis
        axes = None if axis is None else tuple(int(a) for a in axis)
        wide = x[0].astype(np.float64) if x[0].dtype.kind not in "biu" else x[0]
        return function(wide, axis=axes, keepdims=bool(node.attrs.keepdims))

    return apply


def _extreme(function: Callable[..., np.ndarray], neutral: Callable[[np.dtype], float]) -> Evaluator:
    """The largest or least; of nothing, what changes no other."""

    def apply(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray:
        kept = {"initial": neutral(x[0].dtype)} if not x[0].size else {}
        axis = node.attrs.axis
        axes = None if axis is None else tuple(int(a) for a in axis)
        return function(x[0], axis=axes, keepdims=bool(node.attrs.keepdims), **kept)

    return apply


def _least(dtype: np.dtype) -> float:
    return np.iinfo(dtype).min if dtype.kind in "iu" else False if dtype.kind == "b" else -np.inf


def _largest(dtype: np.dtype) -> float:
    return np.iinfo(dtype).max if dtype.kind in "iu" else True if dtype.kind == "b" else np.inf


def _astype(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    a = x[0]
    if node.dtype == "bool":
        return a != 0
    target = np.dtype(_np_dtype(node.dtype))
    if a.dtype.kind not in "biu" and target.kind in "iu":
        return truncated_array(a, target)
    return a.astype(target)


def _np_dtype(name: str) -> np.dtype | str:
    import ml_dtypes

    return getattr(ml_dtypes, name) if name.startswith(("bfloat", "float8")) else name


def _pad(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    width = [int(v) for v in node.attrs.pad_width]
    if str(node.attrs.pad_mode) != "constant" or min(width, default=0) < 0:
        return None
    pairs = [(width[2 * k], width[2 * k + 1]) for k in range(x[0].ndim)]
    return np.pad(x[0], pairs, constant_values=np.asarray(node.attrs.pad_value).astype(x[0].dtype))


def _matmul(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    if x[0].dtype.kind not in "iu":
        return np.matmul(x[0].astype(np.float64), x[1].astype(np.float64))
    return np.matmul(x[0], x[1])


def _reshape(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    return x[0].reshape(node.shape or ()) if node.static else None


def _filled(value: SizeLike | None) -> Evaluator:
    def apply(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
        if not node.static:
            return None
        return np.full(node.shape or (), x[0].reshape(()) if value is None else value, _np_dtype(node.dtype))

    return apply


def _arange(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    values = [node.raw(k) for k in range(3)]
    if not all(isinstance(v, (int, float)) for v in values):
        return None
    return np.arange(*values, dtype=_np_dtype(node.dtype))


def _tri(function: Callable[..., np.ndarray]) -> Evaluator:
    def apply(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
        k = node.raw(1)
        return function(x[0], k if isinstance(k, int) else 0) if k is None or isinstance(k, int) else None

    return apply


def _item(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    source = node.inputs[0]
    if source.op != "relax.split":
        return None
    axis = int(source.attrs.axis) % x[0].ndim
    fields = [f.shape.values for f in source.ty.fields]
    sizes = [int(f[axis]) for f in fields]
    start = sum(sizes[: node.attrs])
    return np.take(x[0], range(start, start + sizes[node.attrs]), axis=axis)


def _clip(node: GraphNode, x: Sequence[np.ndarray]) -> np.ndarray | None:
    low, high = node.raw(1), node.raw(2)
    if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
        return None
    return np.minimum(np.maximum(x[0], np.asarray(low, x[0].dtype)), np.asarray(high, x[0].dtype))


TABLE: dict[str, Evaluator] = {
    **{f"relax.{n}": _unary(getattr(np, n)) for n in "abs ceil floor square trunc sqrt".split()},
    **{f"relax.{n}": _unary(getattr(np, n)) for n in "exp log sin cos tan tanh sinh cosh".split()},
    **{f"relax.{n}": _unary(getattr(np, n)) for n in "isnan isinf isfinite logical_not negative".split()},
    "relax.bitwise_not": _unary(np.invert),
    "relax.round": _unary(np.rint),
    "relax.sign": _unary(np.sign),
    "relax.sigmoid": _unary(lambda a: (1 / (1 + np.exp(-a.astype(np.float64)))).astype(a.dtype)),
    "relax.rsqrt": _unary(lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype)),
    "relax.nn.relu": _unary(lambda a: np.maximum(a, np.zeros((), a.dtype))),
    **{f"relax.{n}": _binary(getattr(np, n)) for n in "add subtract multiply maximum minimum".split()},
    **{
        f"relax.{n}": _binary(getattr(np, n))
        for n in "equal not_equal less less_equal greater greater_equal".split()
    },
    **{f"relax.{n}": _binary(getattr(np, n)) for n in "logical_and logical_or logical_xor".split()},
    **{f"relax.{n}": _binary(getattr(np, n)) for n in "bitwise_and bitwise_or bitwise_xor".split()},
    "relax.divide": _binary(_truncated_divide),
    "relax.floor_divide": _integers_only(np.floor_divide),
    "relax.floor_mod": _integers_only(np.mod),
    "relax.power": _power,
    "relax.where": lambda node, x: np.where(x[0], x[1], x[2]),
    "relax.clip": _clip,
    "relax.astype": _astype,
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.nn.batch_flatten": _reshape,
    "relax.permute_dims": lambda node, x: np.transpose(
        x[0], None if node.attrs.axes is None else [int(a) for a in node.attrs.axes]
    ),
    "relax.broadcast_to": lambda node, x: np.broadcast_to(x[0], node.shape or ()) if node.static else None,
    "relax.concat": lambda node, x: np.concatenate(x, axis=int(node.attrs.axis or 0)),
    "relax.stack": lambda node, x: np.stack(x, axis=int(node.attrs.axis or 0)),
    "relax.tile": lambda node, x: np.tile(x[0], [int(r) for r in node.attrs.repeats]),
    "relax.repeat": lambda node, x: np.repeat(x[0], int(node.attrs.repeats), _axis(node.attrs.axis)),
    "relax.flip": lambda node, x: np.flip(x[0], int(node.attrs.axis)),
    "relax.strided_slice": _strided_slice,
    "relax.take": _take,
    "relax.gather_elements": lambda node, x: np.take_along_axis(x[0], x[1], int(node.attrs.axis)),
    "relax.sum": _reduce(np.sum),
    "relax.prod": _reduce(np.prod),
    "relax.mean": _reduce(np.mean),
    "relax.max": _extreme(np.max, _least),
    "relax.min": _extreme(np.min, _largest),
    "relax.nn.pad": _pad,
    "relax.matmul": _matmul,
    "relax.full": _filled(None),
    "relax.zeros": _filled(0),
    "relax.ones": _filled(1),
    "relax.full_like": lambda node, x: np.full(node.shape or (), x[1].reshape(()), _np_dtype(node.dtype)),
    "relax.arange": _arange,
    "relax.tril": _tri(np.tril),
    "relax.triu": _tri(np.triu),
    ITEM: _item,
    **OWN,
}


def _axis(axis: Attribute) -> int | None:
    return None if axis is None else int(axis)
