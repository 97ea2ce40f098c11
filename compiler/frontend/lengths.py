"""Lengths of run time as symbols: what a model computes from them is followed exactly.

    n = Shape(NonZero(x))[1]           a symbol between 0 and the elements of x
    Concat(n - 1, [4])                 is told to be [n - 1, 4]
    n < 0                              is known to be false

A :class:`~.dims.Dim` over such symbols says what an integer of run time is; each symbol carries the tensor that holds
it, so that :func:`run_time` can compute any Dim again. Nothing of this reaches Relax but what it writes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from tvm import relax

from ...schedules.words.dims import Atom, Dim, bounds, is_whole, terms_of
from ...schedules.words.refusal import Refusal
from . import symbolic
from .learned import Learned
from .node import MOST, OnnxNode
from .value import OnnxValue

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

R = relax.op
_NUMBERS = itertools.count()


def length_of(count: OnnxValue, most: SizeLike) -> SizeLike:
    """What a count (int64 [1]) is told to be; a new symbol, of at most ``most``, where nothing is told yet."""
    if count.array is not None:
        return int(count.array.reshape(-1)[0])
    if count.told is None:
        symbol = Atom("symbol", f"length{next(_NUMBERS)}", (count,), 0, bounds(most)[1])
        count.told = np.array([Dim({(symbol,): 1})], object)
    return count.told.reshape(-1)[0]


def follow(
    node: OnnxNode, inputs: Sequence[OnnxValue | None], write: symbolic.Write, results: Sequence[OnnxValue | None]
) -> list[OnnxValue | None]:
    """The results of a node, with what is told of them where it is told of operands; those that do not depend on the
    lengths after all become constants."""
    told = [i if i is None or i.told is None else OnnxValue.of_contents(i.told, i.dtype) for i in inputs]
    if all(i is None or i.told is None for i in inputs) or any(i is not None and i.part is not None for i in inputs):
        return list(results)
    try:
        found = symbolic.evaluate(node, told, write)
    except (Learned, Refusal):
        found = None
    return [r if f is None else _told(r, f) for r, f in zip(results, found or [None] * len(results))]


def _told(result: OnnxValue | None, found: OnnxValue) -> OnnxValue | None:
    if result is None or result.part is not None or (result.shape, result.dtype) != (found.shape, found.dtype):
        return result
    if found.array is not None:
        return found
    result.told = found.contents
    return result


def most_of(dim: SizeLike) -> int:
    """The room for a length: the most that it can be."""
    high = bounds(dim)[1]
    if high >= MOST:
        raise Refusal(f"a length is known at run time only ({dim}), and nothing says how large it can be")
    return max(math.floor(high), 0)


def run_time(node: OnnxNode, dim: SizeLike) -> OnnxValue:
    """The tensor (int64 [1]) that holds a Dim, computed from those of its symbols."""
    if not is_whole(dim):
        raise Refusal(f"{dim} is not a whole number")
    total: OnnxValue | None = None
    for monomial, factor in terms_of(dim).items():
        term = node.const([factor], "int64")
        for atom in monomial:
            value = _atom(node, atom)
            term = value if term.array is not None and term.array[0] == 1 else node.do(R.multiply, term, value)
        total = term if total is None else node.do(R.add, total, term)
    total = node.const([0], "int64") if total is None else total
    if isinstance(dim, Dim) and total.told is None:
        total.told = np.array([dim], object)
    return total


def _atom(node: OnnxNode, atom: Atom) -> OnnxValue:
    if atom.kind == "symbol":
        if not atom.operands:
            raise Refusal(f"it depends on the open dimension {atom.text} and on the data")
        count: OnnxValue = atom.operands[0]
        return count
    functions = {"floor": R.floor_divide, "max": R.maximum, "min": R.minimum}
    return node.do(functions[atom.kind], *(run_time(node, o) for o in atom.operands))
