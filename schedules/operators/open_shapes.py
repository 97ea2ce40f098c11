"""Result shapes of Halotile's operators on tensors with open dims, where the TE expression would not tell them.

Each rule takes the operand shapes and the attributes and gives the shapes of the results; dims are integers or
expressions. The results of an operator without a rule are those of its TE expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .common import transposed_extents, window_extents

Shape = list[Any]
Rule = Callable[[list[Shape], dict[str, Any]], list[Shape]]


def has_rule(name: str) -> bool:
    """True if result shapes of operator ``name`` have a rule here."""
    return name in _RULES


def result_shapes(name: str, shapes: list[Shape], attributes: dict[str, Any]) -> list[Shape]:
    """The shapes of the results of operator ``name``, which has a rule; ValueError where only numbers will do."""
    return _RULES[name](shapes, attributes)


def _same(shapes: list[Shape], _: dict[str, Any]) -> list[Shape]:
    return [shapes[0]]


def _broadcast(shapes: list[Shape], _: dict[str, Any]) -> list[Shape]:
    rank = max(map(len, shapes))
    result = []
    for k in range(rank):
        dims = [s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0]
        rest = [d for d in dims if not (isinstance(d, int) and d == 1)]
        if any(not same_dim(d, rest[0]) for d in rest):
            raise ValueError(f"dimensions {rest} may differ")
        result.append(rest[0] if rest else 1)
    return [result]


def same_dim(a: Any, b: Any) -> bool:
    import tvm_ffi

    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(tvm_ffi.structural_equal(a, b))


def _padded(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [[d + b + e if b + e else d for d, b, e in zip(shapes[0], a["begin"], a["end"])]]


def _upsampled(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [[d * f if f != 1 else d for d, f in zip(shapes[0], a["factors"])]]


def _replaced(shape: Shape, axis: int, *new: Any) -> Shape:
    axis %= len(shape)
    return [*shape[:axis], *new, *shape[axis + 1 :]]


def _gathered(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [_replaced(shapes[0], a["axis"], *shapes[1])]


def _gathered_nd(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    data, indices = shapes
    if not isinstance(indices[-1], int):
        raise ValueError("the length of an index is open")
    return [[*indices[:-1], *data[a["batch_dims"] + indices[-1] :]]]


def _extreme(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [_replaced(shapes[0], a["axis"], *([1] if a["keepdims"] else []))]


def _flattened(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [[1 if k in a["axes"] else d for k, d in enumerate(shapes[0])]]


def _sliced(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [a["shape"]]


def _resampled(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [_replaced(shapes[0], a["axis"], shapes[1][0])]


def _windowed(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return [[*shapes[0][:2], *a["output"]]]


def _pooled_with_indices(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    return _windowed(shapes, a) * 2


def _transposed(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    (batch, _, *size), (_, outputs, *kernel) = shapes
    if a.get("output") is not None:
        return [[batch, outputs * a["groups"], *a["output"]]]
    spans = (a["strides"], a["dilations"], a["begin"], a["end"])
    return [[batch, outputs * a["groups"], *transposed_extents(size, kernel, *spans)]]


def _convolved(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    (batch, _, *size), (outputs, _, *kernel) = shapes
    if a.get("output") is not None:
        return [[batch, outputs, *a["output"]]]
    spans = (a["strides"], a["dilations"], a["begin"], a["end"])
    return [[batch, outputs, *window_extents(size, kernel, *spans)]]


def _sampled(shapes: list[Shape], _: dict[str, Any]) -> list[Shape]:
    return [[*shapes[0][:2], *shapes[1][1:-1]]]


def _summed(shapes: list[Shape], a: dict[str, Any]) -> list[Shape]:
    terms, _, out = a["equation"].replace(" ", "").partition("->")
    letters, dims = terms.replace(",", ""), [d for s in shapes for d in s]
    if "." in terms or "->" not in a["equation"] or len(letters) != len(dims):
        raise ValueError("halotile.einsum needs fixed dimensions in this form")
    size = dict(zip(letters, dims))
    if any(not same_dim(size[x], d) for x, d in zip(letters, dims)):
        raise ValueError("dimensions of one letter may differ")
    return [[size[x] for x in out]]


_FAMILIES: tuple[tuple[Rule, str], ...] = (
    (_same, "hard_sigmoid hard_swish softplus mish standardise centre"),
    (_same, "rounded libm copy cumsum cumprod channel_window_sum reverse_sequence"),
    (_same, "scatter_elements scatter_nd scatter_known"),
    (_broadcast, "integer_divide integer_power modulo bit_shift quotient"),
    (_padded, "pad"),
    (_upsampled, "upsample"),
    (_gathered, "gather"),
    (_gathered_nd, "gather_nd"),
    (lambda shapes, a: [shapes[1]], "gather_elements"),
    (_extreme, "argmax argmin"),
    (_flattened, "global_max_pool"),
    (_sliced, "slice"),
    (_resampled, "resample"),
    (_windowed, "window_sum"),
    (_pooled_with_indices, "max_pool_with_indices"),
    (_transposed, "conv_transpose"),
    (_convolved, "dot_conv"),
    (_sampled, "grid_sample"),
    (_summed, "einsum"),
)
_RULES: dict[str, Rule] = {f"halotile.{name}": rule for rule, names in _FAMILIES for name in names.split()}
#: Results that are not of the first operand's dtype: the dtypes of the results.
_DTYPES: dict[str, list[str | None]] = {
    "halotile.argmax": ["int64"],
    "halotile.argmin": ["int64"],
    "halotile.max_pool_with_indices": [None, "int64"],
    "halotile.dot_conv": ["int32"],
}


def result_dtypes(name: str, first: str, count: int) -> list[str]:
    return [d or first for d in _DTYPES.get(name, [None] * count)]
