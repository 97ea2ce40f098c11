"""Einsum: a matrix product where it is one, else a general sum of products.

bhid,bhjd->bhij     becomes     matmul(q [b h, i, d], transposed k [b h, d, j])
"""

from __future__ import annotations

import math

from tvm import relax

from ....schedules.operators.linear import parse_einsum
from ....schedules.words.dims import is_open
from ....schedules.words.refusal import Refusal
from ..implied import broadcast
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue

R = relax.op


@converts("Einsum", since=12)
def einsum(node: OnnxNode) -> OnnxValue:
    operands = [node.need(i) for i in range(len(node.inputs))]
    equation = node.attr("equation").replace(" ", "")
    try:
        terms, output = parse_einsum(equation, [v.rank for v in operands])
    except ValueError as error:
        raise Refusal(str(error)) from None
    for label in dict.fromkeys(label for term in terms for label in term):
        found = [v.shape[k] for term, v in zip(terms, operands) for k, one in enumerate(term) if one == label]
        if is_open(found):
            broadcast(*((d,) for d in found))  # which learns what must be equal

    def run(*values: OnnxValue) -> OnnxValue:
        if len(values) == 2 and _is_product(terms, output, values):
            return _product(node, terms, output, values[0], values[1])
        return node.own("halotile.einsum", *values, equation=equation)

    return node.in_float32(run, *operands)


def _is_product(terms: list[list[str]], output: list[str], values: tuple[OnnxValue, ...]) -> bool:
    """No label repeats within a term, none broadcasts, and something is summed over."""
    if any(len(set(t)) < len(t) for t in [*terms, output]):
        return False
    first = dict(zip(terms[0], values[0].shape))
    second = dict(zip(terms[1], values[1].shape))
    if any(first[label] != second[label] for label in first.keys() & second.keys()):
        return False
    return bool((first.keys() & second.keys()) - set(output))


def _product(node: OnnxNode, terms: list[list[str]], output: list[str], a: OnnxValue, b: OnnxValue) -> OnnxValue:
    """Both operands as [batch, rows, inner] and [batch, inner, columns], multiplied, and the axes put in order."""
    a, left = _summed(node, a, terms[0], set(terms[1]) | set(output))
    b, right = _summed(node, b, terms[1], set(terms[0]) | set(output))
    size = dict(zip(left, a.shape)) | dict(zip(right, b.shape))
    batch = [label for label in output if label in left and label in right]
    inner = [label for label in left if label in right and label not in output]
    rows = [label for label in output if label in left and label not in right]
    columns = [label for label in output if label in right and label not in left]

    def length(labels: list[str]) -> int:
        return math.prod(size[label] for label in labels)

    def arranged(value: OnnxValue, labels: list[str], order: list[list[str]]) -> OnnxValue:
        flat = [label for group in order for label in group]
        moved = node.transpose(value, [labels.index(label) for label in flat])
        return node.reshape(moved, [length(group) for group in order])

    apart = [[label] for label in batch]  # a product broadcasts over them as they are
    x = arranged(a, left, [*apart, rows, inner])
    y = arranged(b, right, [*apart, inner, columns])
    product = node.do(R.matmul, x, y)
    made = [*batch, *rows, *columns]
    product = node.reshape(product, [size[label] for label in made])
    return node.transpose(product, [made.index(label) for label in output])


def _summed(node: OnnxNode, value: OnnxValue, labels: list[str], wanted: set[str]) -> tuple[OnnxValue, list[str]]:
    """The operand summed over labels that occur nowhere else."""
    alone = [n for n, label in enumerate(labels) if label not in wanted]
    if not alone:
        return value, labels
    total = node.do(R.sum, value, axis=alone, keepdims=False)
    return total, [label for label in labels if label in wanted]
