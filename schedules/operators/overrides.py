"""Relax operators whose own TE expression is wrong or loses digits, written again.

A plain max or min drops a NaN, so relu, clip and the extremes keep it here. The normalisations take the variance from
centred values; Relax's difference of means cancels when the mean is large.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm
from tvm import te, tirx, topi
from tvm.ir.prim import expr as prim

from ..emit.decided import FAR
from ..math.exponential import BELOW_ZERO
from ..words.sizes import dim_of, surely
from ..words.tvm_types import Expr
from .common import (
    dtype_of,
    elementwise,
    highest,
    is_float,
    larger,
    largest_number,
    lowest,
    share_of,
    smaller,
)
from .indexing import gathered
from .registry import override
from .standardised import standardised


@override("relax.maximum")
def maximum(_call: Expr, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return elementwise("maximum", larger, a, b)


@override("relax.minimum")
def minimum(_call: Expr, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return elementwise("minimum", smaller, a, b)


@override("relax.nn.relu")
def relu(_call: Expr, x: te.Tensor) -> te.Tensor:
    """max(0, x): one instruction, and with the constant first it keeps a NaN (a > b ? a : b takes b then)."""
    return elementwise("relu", lambda v: tirx.max(tirx.const(0, dtype_of(v)), v), x)


@override("relax.clip")
def clip(call: Expr, x: te.Tensor, _low: Expr, _high: Expr) -> te.Tensor:
    """min(high, max(low, x)), constants first for the same reason."""
    low, high = (_number(b) for b in call.args[1:3])

    def apply(v: Expr) -> Expr:
        bottom, top = tirx.const(low, dtype_of(v)), tirx.const(high, dtype_of(v))
        return tirx.min(top, tirx.max(bottom, v))

    return elementwise("clip", apply, x)


@override("relax.nn.silu")
def silu(_call: Expr, x: te.Tensor) -> te.Tensor:
    """x * sigmoid(x) as one expression, which becomes one quotient (mathlib.gated)."""
    return elementwise("silu", lambda v: v * tirx.sigmoid(v), x)


@override("relax.nn.gelu")
def gelu(_call: Expr, x: te.Tensor) -> te.Tensor:
    """x * (1 + erf(x / sqrt 2)) / 2 as one expression, whose sum becomes one quotient (mathlib.normal_cdf)."""

    def apply(v: Expr) -> Expr:
        kind = dtype_of(v)
        wide = v.astype("float32") if kind in ("float16", "bfloat16") else v
        half, root = (tirx.const(c, dtype_of(wide)) for c in (0.5, 0.5**0.5))
        return (wide * (half + tirx.erf(wide * root) * half)).astype(kind)

    return elementwise("gelu", apply, x)


@override("relax.nn.gelu_tanh")
def gelu_tanh(_call: Expr, x: te.Tensor) -> te.Tensor:
    """x * (1 + tanh(u)) / 2 with u = sqrt(2 / pi) * (x + 0.044715 x^3), which is x * sigmoid(2 u): one quotient, and no
    digits lost where the tanh nears -1."""

    def apply(v: Expr) -> Expr:
        kind = dtype_of(v)
        wide = v.astype("float32") if kind in ("float16", "bfloat16") else v
        linear, cubic = (tirx.const(c * 2 * (2 / math.pi) ** 0.5, dtype_of(wide)) for c in (1.0, 0.044715))
        return (wide * tirx.sigmoid(wide * (wide * wide * cubic + linear))).astype(kind)

    return elementwise("gelu_tanh", apply, x)


@override("relax.nn.softmax")
def softmax(call: Expr, x: te.Tensor) -> te.Tensor:
    """exp(x - max) / sum: one quotient a row, an exponential for what is never above 0, and a maximum that may lose a
    NaN, since the sum does not."""
    if str(x.dtype) != "float32":
        return topi.nn.softmax(x, int(call.attrs.axis))
    _top, weights, total, row = _exponentials(x, int(call.attrs.axis) % len(x.shape))
    return te.compute(x.shape, lambda *i: weights(*i) * (tirx.const(1.0, "float32") / total(*row(i))), name="softmax")


@override("relax.nn.log_softmax")
def log_softmax(call: Expr, x: te.Tensor) -> te.Tensor:
    """(x - max) - log(sum of exp(x - max)), with the sum of :func:`softmax`; the logarithm once a row."""
    if str(x.dtype) != "float32":
        return topi.nn.log_softmax(x, int(call.attrs.axis))
    top, _weights, total, row = _exponentials(x, int(call.attrs.axis) % len(x.shape))
    shift = te.compute(total.shape, lambda *i: tirx.log(total(*i)), name="shift")
    return te.compute(x.shape, lambda *i: x(*i) - top(*row(i)) - shift(*row(i)), name="log_softmax")


def _exponentials(x: te.Tensor, axis: int) -> tuple[te.Tensor, te.Tensor, te.Tensor, Expr]:
    """The largest elements along ``axis``, exp(x - largest), the sums of those, and the row that an element is in."""
    shape = [d for a, d in enumerate(x.shape) if a != axis]
    largest = largest_number("float32")

    def row(i: tuple[Expr, ...]) -> list[Expr]:
        return [p for a, p in enumerate(i) if a != axis]

    def along(k: Expr, i: tuple[Expr, ...]) -> list[Expr]:
        return [*i[:axis], k, *i[axis:]]

    k, j = (te.reduce_axis((0, x.shape[axis]), name=n) for n in "kj")
    top = te.compute(shape, lambda *i: largest(x(*along(k, i)), axis=k), name="largest")
    attrs = {BELOW_ZERO: True}
    weights = te.compute(x.shape, lambda *i: tirx.exp(x(*i) - top(*row(i))), name="weights", attrs=attrs)
    total = te.compute(shape, lambda *i: te.sum(weights(*along(j, i)), axis=j), name="total")
    return top, weights, total, row


def _number(value: Expr) -> float | int:
    return value.value if hasattr(value, "value") else value


@override("relax.power")
def power(_call: Expr, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    """The same as Relax's, without a warning on standard error for every constant exponent."""
    return elementwise("power", lambda x, y: tirx.call_intrin(dtype_of(x), "tirx.pow", x, y), a, b)


@override("relax.equal")
def equal(_call: Expr, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return elementwise("equal", lambda x, y: _comparable(x) == _comparable(y), a, b)


@override("relax.not_equal")
def not_equal(_call: Expr, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    return elementwise("not_equal", lambda x, y: _comparable(x) != _comparable(y), a, b)


def _comparable(x: Expr) -> Expr:
    """Booleans as bytes: for vectors of them TVM would write a comparison of floats, which LLVM refuses."""
    return x.astype("uint8") if dtype_of(x) == "bool" else x


@override("relax.sign")
def sign(_call: Expr, x: te.Tensor) -> te.Tensor:
    """-1, 0 or 1, and NaN of a NaN, as in numpy; Relax's own takes it for 0."""
    if not is_float(x.dtype):
        return topi.sign(x)

    def apply(v: Expr) -> Expr:
        up, down, none = (tirx.const(c, dtype_of(v)) for c in (1, -1, 0))
        return tirx.Select(v > 0, up, tirx.Select(v < 0, down, tirx.Select(v.equal(0), none, v)))

    return elementwise("sign", apply, x)


@override("relax.take")
def take(call: Expr, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    """x at ``indices`` along an axis; an index outside the tensor reads the nearest element instead of stray memory."""
    if call.attrs.axis is None:
        return topi.take(x, indices, mode="clip")
    axis = int(call.attrs.axis) % len(x.shape)
    return gathered(x, indices, axis, _inside(call.args[1], x.shape[axis]))


@override("relax.strided_slice")
def strided_slice(call: Expr, x: te.Tensor, *_bounds: Expr) -> te.Tensor:
    """x[begin:end:step]. Where an axis is open, an end beyond every length is the axis' own: in comparisons with the
    smaller of both TVM moves the number to the other side, out of int32."""
    axes, begin, end, *steps = ([*part.fields] for part in call.args[1:])
    step = steps[0] if steps else [tirx.IntImm("int64", 1)] * len(axes)
    for i, axis in enumerate(axes):
        if isinstance(end[i], prim.IntImm) and int(end[i]) >= FAR and not isinstance(x.shape[int(axis)], prim.IntImm):
            end[i] = x.shape[int(axis)].astype("int64")
    return topi.strided_slice(x, begin, end, step, axes, slice_mode="end", assume_inbound=call.attrs.assume_inbound)


def _inside(indices: Expr, length: Expr) -> bool:
    """True for constant positions that lie in an axis of ``length``."""
    if not isinstance(indices, tvm.ir.GenericConst):
        return False
    array = indices.value.numpy()
    return array.size > 0 and 0 <= int(array.min()) and surely(lambda: int(array.max()) < dim_of(length))


@override("relax.max")
def reduce_max(call: Expr, x: te.Tensor) -> te.Tensor:
    return _reduce(call, x, larger, lowest, "max")


@override("relax.min")
def reduce_min(call: Expr, x: te.Tensor) -> te.Tensor:
    return _reduce(call, x, smaller, highest, "min")


def _reduce(
    call: Expr, x: te.Tensor, combine: Callable[..., Expr], identity: Callable[[str], Expr], name: str
) -> te.Tensor:
    rank = len(x.shape)
    axes = list(range(rank)) if call.attrs.axis is None else [int(a) % rank for a in call.attrs.axis]
    keep = bool(call.attrs.keepdims)
    if not is_float(x.dtype):
        return topi.max(x, axes, keep) if name == "max" else topi.min(x, axes, keep)
    reducer = te.comm_reducer(combine, identity, name=f"{name}_keeping_nan")
    along = {a: te.reduce_axis((0, x.shape[a]), name=f"k{a}") for a in axes}
    shape = [1 if a in along else d for a, d in enumerate(x.shape) if keep or a not in along]

    def body(*i: Expr) -> Expr:
        own = iter(i)
        at = []
        for a in range(rank):
            if a in along:
                at.append(along[a])
                if keep:
                    next(own)
            else:
                at.append(next(own))
        return reducer(x(*at), axis=list(along.values()))

    return te.compute(shape, body, name=name)


@override("relax.nn.layer_norm")
def layer_norm(call: Expr, x: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
    """(x - mean) / sqrt(mean((x - mean)^2) + eps) * gamma + beta over the trailing axes."""
    rank = len(x.shape)
    axes = sorted(int(a) % rank for a in call.attrs.axes)

    def scaled(value: Expr, i: tuple[Expr, ...]) -> Expr:
        own = [i[a] for a in axes]
        return value * gamma(*own) + beta(*own)

    return standardised(x, axes, float(call.attrs.epsilon), "layer_norm", scaled)


@override("relax.nn.rms_norm")
def rms_norm(call: Expr, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, where weight has the axes that the mean goes over."""
    rank = len(x.shape)
    axes = sorted(int(a) % rank for a in call.attrs.axes)
    count: Expr = 1
    for a in axes:
        count *= dim_of(x.shape[a])
    dtype = str(x.dtype)
    along = {a: te.reduce_axis((0, x.shape[a]), name=f"square{a}") for a in axes}

    def squares(*i: Expr) -> Expr:
        value = x(*[along.get(a, p) for a, p in enumerate(i)])
        return te.sum(value * value, axis=list(along.values()))

    total = te.compute([1 if a in axes else d for a, d in enumerate(x.shape)], squares, name="square")

    def normalised(*i: Expr) -> Expr:
        mean = total(*[0 if a in axes else p for a, p in enumerate(i)]) * share_of(count, dtype)
        inverse = tirx.const(1.0, dtype) / tirx.sqrt(mean + tirx.const(float(call.attrs.epsilon), dtype))
        return x(*i) * inverse * weight(*[i[a] for a in axes])

    return te.compute(x.shape, normalised, name="rms_norm")
