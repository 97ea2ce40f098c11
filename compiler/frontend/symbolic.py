"""Partial evaluation of shape arithmetic: nodes whose operands are numbers and open dimensions.

    Reshape(x, Concat(Shape(x)[0], Shape(x)[1] // 12, 64))     becomes     Reshape(x, [batch, seq // 12, 64])

What only moves elements is evaluated on their positions, by the operator's own converter, so every form of Slice,
Gather or Concat is right by construction. Arithmetic and comparisons are done on Dims; one that
depends on the symbols is left to run time. Floats stay exact: a Dim times or over a small number, until a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ...schedules.words.dims import (
    Dim,
    Open,
    bounds,
    different,
    floor_div,
    is_whole,
    maximum,
    minimum,
    quotient,
)
from .functions import dtype_name
from .implied import learn_at_least, require_at_least
from .node import OnnxNode
from .value import OnnxValue

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

#: More elements than this are no shape.
LARGEST = 1 << 12
#: A float factor this large keeps the product with any real dimension exact in 24 bits.
LARGEST_FACTOR = 64

#: Operators that move elements, and the operands that hold them.
_MOVES: dict[str, Callable[[int], Sequence[int]]] = {
    **dict.fromkeys(
        "Reshape Squeeze Unsqueeze Transpose Gather GatherElements GatherND Slice Split Expand Tile Flatten".split(),
        lambda n: (0,),
    ),
    "Concat": range,
    "Where": lambda n: (1, 2),
    "ScatterND": lambda n: (0, 2),
    "ScatterElements": lambda n: (0, 2),
}


Write = Callable[[Sequence["OnnxValue | None"]], "Sequence[OnnxValue | None]"]


def evaluate(node: OnnxNode, inputs: Sequence[OnnxValue | None], write: Write) -> list[OnnxValue | None] | None:
    """The outputs of a node on operands that are known or symbolic; None when they must be computed at run time.
    ``write`` converts it on others."""
    present = [i for i in inputs if i is not None]
    if not present or any(i.contents is None or i.size > LARGEST for i in present):
        return None
    try:
        if node.operator in _MOVES:
            return _moved(node, inputs, write)
        function = _FUNCTIONS.get(node.operator)
        result = function(node, present) if function is not None else None
    except (Open, OverflowError):
        return None
    return None if result is None else [result]


def _moved(node: OnnxNode, inputs: Sequence[OnnxValue | None], write: Write) -> list[OnnxValue | None] | None:
    data = [i for i in _MOVES[node.operator](len(inputs)) if i < len(inputs)]
    elements: list[SizeLike] = []
    places: list[OnnxValue | None] = []
    for index, value in enumerate(inputs):
        if value is None or index not in data:
            if value is not None and value.array is None:
                return None
            places.append(value)
            continue
        contents = value.contents
        if contents is None:
            return None
        numbers = np.arange(len(elements), len(elements) + contents.size, dtype="int64")
        places.append(OnnxValue.of_array(numbers.reshape(contents.shape)))
        elements.extend(contents.reshape(-1).tolist())
    moved = write(places)
    if any(m is not None and m.array is None for m in moved):
        return None
    first = inputs[data[0]]
    if first is None:
        return None
    table = np.empty(len(elements), object)
    table[:] = elements
    return [None if m is None else OnnxValue.of_contents(table[m.array], first.dtype) for m in moved]


# ---------------------------------------------------------------------- arithmetic

Function = Callable[[OnnxNode, list[OnnxValue]], "OnnxValue | None"]


def _each(function: Callable[..., object]) -> Function:
    """An elementwise function of one or more operands, of the dtype of the first."""

    def apply(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
        dtype = values[0].dtype
        result = np.frompyfunc(function, len(values), 1)(*(v.contents for v in values))
        return _checked(np.asarray(result, object), dtype)

    return apply


def _chain(function: Callable[[Any, Any], Any]) -> Function:
    def apply(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
        step = np.frompyfunc(function, 2, 1)
        return _checked(np.asarray(reduce(step, [v.contents for v in values]), object), values[0].dtype)

    return apply


def _compare(function: Callable[[Any, Any], bool]) -> Function:
    def apply(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
        result = np.frompyfunc(function, 2, 1)(values[0].contents, values[1].contents)
        return OnnxValue.of_array(np.asarray(result).astype(bool))

    return apply


def _checked(result: np.ndarray, dtype: str) -> OnnxValue | None:
    """The result when it is what the model's own arithmetic gives: whole in integers, not rounded in floats."""
    for number in result.reshape(-1):
        if not isinstance(number, Dim):
            if "int" in dtype and number != int(number):
                return None
            continue
        if "int" in dtype and not is_whole(number):
            return None
        if "float" in dtype and not all(map(_exact_factor, number.terms.values())):
            return None
    return OnnxValue.of_contents(result, dtype)


def _exact_factor(factor: SizeLike) -> bool:
    fraction = Fraction(factor)
    power = fraction.denominator & (fraction.denominator - 1) == 0
    return power and abs(fraction.numerator) <= LARGEST_FACTOR and fraction.denominator <= LARGEST_FACTOR


def _divide(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
    whole = "int" in values[0].dtype

    def one(a: SizeLike, b: SizeLike) -> SizeLike:
        if not isinstance(b, Dim) and b == 0:
            raise Open("a division by zero")
        if whole:
            learn_at_least(a, 0, "below which an integer division would round otherwise")  # as in (n - 1) / 2 + 1
            if bounds(a)[0] < 0 or bounds(b)[0] < 0:
                raise Open("the sign decides how it rounds")
            return _floored(a, b)
        if not isinstance(a, Dim) and not isinstance(b, Dim):
            return a / b
        exact = quotient(_rational(a), _rational(b))
        if exact is None:
            raise Open("not a polynomial")
        return exact

    return _each(one)(node, values)


def _rational(value: SizeLike) -> SizeLike:
    return value if isinstance(value, Dim) else Fraction(value)


def _multiply(a: SizeLike, b: SizeLike) -> SizeLike:
    if isinstance(a, Dim) != isinstance(b, Dim):  # a float factor as the rational number that it is
        dim, number = (a, b) if isinstance(a, Dim) else (b, a)
        return dim * _rational(number)
    return a * b


def _modulo(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
    toward_zero = bool(node.attr("fmod", 0))

    def one(a: SizeLike, b: SizeLike) -> SizeLike:
        if bounds(a)[0] < 0 and not toward_zero:
            learn_at_least(b, 1, "of which a remainder is taken")
        if bounds(b)[0] < (1 if bounds(a)[0] < 0 else 0) or bounds(a)[0] < 0 and toward_zero:
            raise Open("the sign decides the remainder")
        return a - _floored(a, b) * b

    return _each(one)(node, values)


def _floored(a: SizeLike, b: SizeLike) -> SizeLike:
    """floor(a / b), where a run that succeeds divides by no zero."""
    if isinstance(b, Dim) and quotient(a, b) is None:
        require_at_least(b, 1, "a division", "by which is divided")
    return floor_div(a, b)


def _floor(a: SizeLike) -> SizeLike:
    return floor_div(a, 1) if isinstance(a, Dim) else np.floor(a)


def _ceil(a: SizeLike) -> SizeLike:
    return -floor_div(-a, 1) if isinstance(a, Dim) else np.ceil(a)


def _absolute(a: SizeLike) -> SizeLike:
    low, high = bounds(a)
    if low < 0 < high:
        raise Open("the sign is open")
    return a if low >= 0 else -a


def _cast(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
    dtype = values[1].dtype if node.operator == "CastLike" else dtype_name(node.attr("to"))
    value = values[0]
    if dtype is None or value.contents is None:
        return None
    if dtype == "bool":
        return OnnxValue.of_array(np.frompyfunc(lambda a: different(a, 0), 1, 1)(value.contents).astype(bool))
    if dtype.startswith(("uint", "int8", "int16", "bfloat", "float8", "float16")):
        return None

    def one(a: SizeLike) -> SizeLike:
        if "int" not in dtype or not isinstance(a, Dim) or is_whole(a):
            return int(a) if "int" in dtype and not isinstance(a, Dim) else a
        if bounds(a)[0] < 0:
            raise Open("the sign decides how it rounds")
        return _floor(a)

    return _checked(np.asarray(np.frompyfunc(one, 1, 1)(value.contents), object), dtype)


def _reduced(step: Callable[[SizeLike, SizeLike], SizeLike], *start: int) -> Function:
    """Over all elements of a vector, with the dims kept or not."""

    def apply(node: OnnxNode, values: list[OnnxValue]) -> OnnxValue | None:
        contents = values[0].contents
        if contents is None or contents.ndim != 1:
            return None
        keep = node.attr("keepdims", 1)
        total = reduce(step, contents.tolist(), *start)
        return _checked(np.asarray([total] if keep else total, object), values[0].dtype)

    return apply


_FUNCTIONS: dict[str, Function] = {
    "Identity": _each(lambda a: a),
    "Add": _each(lambda a, b: a + _rational(b) if isinstance(a, Dim) else a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(_multiply),
    "Div": _divide,
    "Mod": _modulo,
    "Neg": _each(lambda a: -a),
    "Abs": _each(_absolute),
    "Floor": _each(_floor),
    "Ceil": _each(_ceil),
    "Max": _chain(maximum),
    "Min": _chain(minimum),
    "Sum": _chain(lambda a, b: a + b),
    "Relu": _each(lambda a: maximum(a, 0)),
    "Cast": _cast,
    "CastLike": _cast,
    "ReduceMax": _reduced(maximum),
    "ReduceMin": _reduced(minimum),
    "ReduceProd": _reduced(lambda a, b: a * b, 1),
    "ReduceSum": _reduced(lambda a, b: a + b, 0),
    "Equal": _compare(lambda a, b: not different(a, b)),
    "Less": _compare(lambda a, b: bool(a < b)),
    "LessOrEqual": _compare(lambda a, b: bool(a <= b)),
    "Greater": _compare(lambda a, b: bool(a > b)),
    "GreaterOrEqual": _compare(lambda a, b: bool(a >= b)),
}
