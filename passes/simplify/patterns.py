"""The small questions that rules ask of nodes."""

from __future__ import annotations

import numpy as np

from ...schedules.operators import registry as own
from .graph import CONST, GraphNode

FLOATS = frozenset(("float16", "float32", "float64", "bfloat16"))
INTEGERS = frozenset(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))

UNARY = frozenset(
    f"relax.{n}"
    for n in (
        "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh exp floor log logical_not negative round rsqrt"
        " sigmoid sign sin sinh square sqrt tan tanh trunc erf isfinite isinf isnan clip astype nn.relu nn.relu6"
        " nn.leakyrelu nn.gelu nn.gelu_tanh nn.selu nn.silu nn.softplus"
    ).split()
)
UNARY |= {operator.name for operator in own.operators() if operator.movable}
BINARY = frozenset(
    f"relax.{n}"
    for n in (
        "add divide floor_divide log_add_exp multiply power atan2 subtract mod floor_mod equal greater greater_equal"
        " less less_equal not_equal maximum minimum logical_and logical_or logical_xor bitwise_and bitwise_or"
        " bitwise_xor left_shift right_shift"
    ).split()
)
#: Operators whose every output element depends on the elements at the same (broadcast) place only.
ELEMENTWISE = UNARY | BINARY | {"relax.where", "relax.ewise_fma"}


#: For each dtype, those that hold every one of its values.
_HOLDS: dict[str, frozenset[str]] = {
    name: frozenset(wider.split())
    for name, wider in {
        "bool": "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64",
        "int8": "int16 int32 int64 float16 bfloat16 float32 float64",
        "uint8": "int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64",
        "int16": "int32 int64 float32 float64",
        "uint16": "int32 uint32 int64 uint64 float32 float64",
        "int32": "int64 float64",
        "uint32": "int64 uint64 float64",
        "float16": "float32 float64",
        "bfloat16": "float32 float64",
        "float32": "float64",
    }.items()
}


def holds(wide: str, narrow: str) -> bool:
    """Whether the dtype ``wide`` has every value of ``narrow`` (and is another one)."""
    return wide in _HOLDS.get(narrow, frozenset())


def is_float(node: GraphNode) -> bool:
    return node.dtype in FLOATS


def is_integer(node: GraphNode) -> bool:
    return node.dtype in INTEGERS


def split_constant(node: GraphNode) -> tuple[GraphNode, GraphNode] | None:
    """``(x, c)`` of a two-operand node one of whose operands is a constant, whichever side it is on."""
    if len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if b.op == CONST and a.op != CONST:
        return a, b
    if a.op == CONST and b.op != CONST:
        return b, a
    return None


def other(node: GraphNode, one: GraphNode) -> GraphNode | None:
    """The other operand of a two-operand node that has ``one`` as exactly one of its operands."""
    a, b = node.inputs
    if (a is one) == (b is one):
        return None
    return b if a is one else a


def scalar(node: GraphNode | None) -> float | int | bool | None:
    """The value of a constant all of whose elements are equal, bit for bit; None otherwise."""
    if node is None or node.op != CONST:
        return None
    array = node.array
    if array.size == 0:
        return None
    first = array.reshape(-1)[:1]
    if array.size > 1:
        same = array == first
        if not np.all(same) or (
            array.dtype.kind not in "biu" and np.any(np.signbit(array) != np.signbit(first))
        ):
            return None
    return first[0].item()


def uniform(node: GraphNode | None) -> float | int | bool | None:
    """The number that all elements are, as :func:`scalar` tells it, of a constant that is broadcast to an open shape as
    well; None for anything else."""
    while node is not None and node.op in ("relax.broadcast_to", "relax.reshape"):
        node = node.inputs[0]
    return scalar(node)


def is_value(node: GraphNode | None, *values: float) -> bool:
    """Whether ``node`` is a constant that is one of ``values`` everywhere (0.0 and -0.0 are told apart)."""
    v = scalar(node)
    if v is None:
        return False
    return any(v == w and (v != 0 or isinstance(v, int) or np.signbit(v) == np.signbit(w)) for w in values)


def near(node: GraphNode | None, value: float) -> bool:
    """Whether ``node`` is a constant equal to ``value`` within two units in the last place of its dtype."""
    v = scalar(node)
    if v is None or node is None:
        return False
    if node.dtype in INTEGERS or node.dtype == "bool":
        return v == value
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23}.get(node.dtype, 2.0**-52)
    return abs(float(v) - value) <= 2 * max(eps, 2.0**-23) * abs(value)


def ints(values: object) -> list[int] | None:
    """A list of plain integers, or None when something in it is symbolic or absent."""
    if isinstance(values, int) and not isinstance(values, bool):
        return [values]
    if not isinstance(values, (list, tuple)) or not all(type(v) is int for v in values):
        return None
    return list(values)


def squeeze_leading(array: np.ndarray) -> np.ndarray:
    """``array`` without its leading dims of one."""
    k = 0
    while k < array.ndim and array.shape[k] == 1:
        k += 1
    return array.reshape(array.shape[k:])


def rounded(wide: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """``wide`` (float64) rounded once to ``dtype``; None when that overflows, or loses small numbers of a float16.

    In the wider formats a number too small for the dtype becomes the smallest one, never zero, so that its product
    with an infinity stays infinite.
    """
    if dtype.kind in "iu":
        return wide.astype(dtype)
    import ml_dtypes

    info = ml_dtypes.finfo(dtype)
    with np.errstate(all="ignore"):
        narrow = wide.astype(dtype)
        back = narrow.astype(np.float64)
    if not np.all(np.isfinite(back)):
        return None
    if dtype == np.float16:
        return None if np.any((np.abs(back) < float(info.tiny)) & (wide != 0)) else narrow
    lost = (back == 0) & (wide != 0)
    if np.any(lost):
        narrow = np.where(lost, np.copysign(info.smallest_subnormal, wide).astype(dtype), narrow)
    return narrow


def finite(array: np.ndarray) -> bool:
    return bool(array.dtype.kind in "biu" or np.all(np.isfinite(array.astype(np.float64))))


def shrunk(array: np.ndarray) -> np.ndarray:
    """The same constant with a dim of one for each axis along which every bit repeats."""
    bits = (
        array.view(f"u{array.dtype.itemsize}")
        if array.dtype.itemsize in (1, 2, 4, 8) and array.ndim
        else array
    )
    for axis in range(array.ndim):
        if array.shape[axis] > 1:
            first = np.take(bits, [0], axis=axis)
            if np.array_equal(np.broadcast_to(first, bits.shape), bits):
                bits = first
    return np.ascontiguousarray(bits).view(array.dtype).reshape(bits.shape)
