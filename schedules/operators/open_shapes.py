"""Rules for result shapes where dims are open, of operators of ours whose TE expression would not tell them.

Each takes the operand shapes and the attributes and gives the shapes of the results; dims are integers or expressions.
ValueError where only numbers will do. A rule stands in the operator's record (:class:`.registry.Operator`); the results
of an operator without one are those of its TE expression. Here are those that several operators share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..words.size_like import SizeLike
from ..words.tvm_types import Attributes

if TYPE_CHECKING:
    from ..words.tvm_types import Attribute, Expr

Shape = list[SizeLike]
Rule = Callable[[list[Shape], Attributes], list[Shape]]


def same(shapes: list[Shape], _: dict[str, Attribute]) -> list[Shape]:
    """The shape of the first operand."""
    return [shapes[0]]


def broadcast(shapes: list[Shape], _: dict[str, Expr]) -> list[Shape]:
    """The shape that all operands are broadcast to."""
    rank = max(map(len, shapes))
    result = []
    for k in range(rank):
        dims = [s[len(s) - rank + k] for s in shapes if len(s) - rank + k >= 0]
        rest = [d for d in dims if not (isinstance(d, int) and d == 1)]
        if any(not same_dim(d, rest[0]) for d in rest):
            raise ValueError(f"dimensions {rest} may differ")
        result.append(rest[0] if rest else 1)
    return [result]


def same_dim(a: SizeLike, b: SizeLike) -> bool:
    """True if two dims are the same number, or the same expression."""
    import tvm_ffi

    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return bool(tvm_ffi.structural_equal(a, b))


def replaced(shape: Shape, axis: int, *new: SizeLike) -> Shape:
    """``shape`` with the dims ``new`` in the place of that of ``axis``."""
    axis %= len(shape)
    return [*shape[:axis], *new, *shape[axis + 1 :]]
