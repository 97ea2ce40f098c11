"""Einsum: any product of tensors summed over any of their axes."""

from __future__ import annotations

from tvm import te

from ..words.tvm_types import Attributes, Expr
from .common import shape_of
from .open_shapes import Shape, same_dim
from .registry import define


def parse_einsum(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Labels of every operand's axes and of the output's; an ellipsis becomes labels of its own (``...0``).

    Without ``->`` the output has the ellipsis, then the labels that occur once, in alphabetical order.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"equation '{equation}' names {len(terms)} operands, there are {len(ranks)}")
    hidden = [r - len(t.replace("...", "")) for t, r in zip(terms, ranks)]
    widest = max((h for t, h in zip(terms, hidden) if "..." in t), default=0)

    def labels(term: str, count: int) -> list[str]:
        before, dots, after = term.partition("...")
        if not dots and count:
            raise ValueError(f"equation '{equation}' does not fit the ranks {ranks}")
        middle = [f"...{widest - count + i}" for i in range(count)] if dots else []
        return [*before, *middle, *after]

    operands = [labels(t, h) for t, h in zip(terms, hidden)]
    if arrow:
        return operands, labels(right, widest if "..." in right else 0)
    letters = [c for t in terms for c in t.replace("...", "")]
    once = sorted(c for c in set(letters) if letters.count(c) == 1)
    return operands, [f"...{i}" for i in range(widest)] + once


def _summed(shapes: list[Shape], a: Attributes) -> list[Shape]:
    terms, _, out = a["equation"].replace(" ", "").partition("->")
    letters, dims = terms.replace(",", ""), [d for s in shapes for d in s]
    if "." in terms or "->" not in a["equation"] or len(letters) != len(dims):
        raise ValueError("halotile.einsum needs fixed dimensions in this form")
    size = dict(zip(letters, dims))
    if any(not same_dim(size[x], d) for x, d in zip(letters, dims)):
        raise ValueError("dimensions of one letter may differ")
    return [[size[x] for x in out]]


@define("halotile.einsum", shapes=_summed)
def einsum(*operands: te.Tensor, equation: str) -> te.Tensor:
    """``equation`` in numpy's notation, with repeated labels (diagonals) and ellipses."""
    terms, output = parse_einsum(equation, [len(x.shape) for x in operands])
    size: dict[str, int] = {}
    for term, x in zip(terms, operands):
        for label, length in zip(term, shape_of(x)):
            if size.setdefault(label, length) == 1:
                size[label] = length
            if length not in (1, size[label]):
                raise ValueError(f"label '{label}' of '{equation}' has lengths {size[label]} and {length}")
    summed = [label for label in size if label not in output]
    axes = {label: te.reduce_axis((0, size[label]), name=f"r{n}") for n, label in enumerate(summed)}

    def product(*i: Expr) -> Expr:
        at = dict(zip(output, i)) | {label: axis.var for label, axis in axes.items()}
        value = None
        for term, x in zip(terms, operands):
            read = x(*[at[label] if d != 1 else 0 for label, d in zip(term, shape_of(x))])
            value = read if value is None else value * read
        return te.sum(value, axis=list(axes.values())) if axes else value

    shape = [size[label] for label in output]
    return te.compute(shape, product, name="einsum")


@define("halotile.determinant")
def determinant(x: te.Tensor) -> te.Tensor:
    """The determinant of each small square matrix [..., n, n], by cofactors along the first row."""
    shape = shape_of(x)
    size = shape[-1]

    def minor(at: Expr, row: int, columns: list[int]) -> Expr:
        if len(columns) == 1:
            return x(*at, row, columns[0])
        total = None
        for n, column in enumerate(columns):
            rest = columns[:n] + columns[n + 1 :]
            term = x(*at, row, column) * minor(at, row + 1, rest)
            total = term if total is None else (total - term if n % 2 else total + term)
        return total

    return te.compute(shape[:-2], lambda *at: minor(at, 0, list(range(size))), name="determinant")
