"""Packing a matrix that lies the other way round: squares of lanes x lanes are turned in registers.

    for a vector of keys, a vector of depths
      x[i] = k[key + i, depth + [0, lanes)]                             a vector along memory for each key
      log2(lanes) rounds of two-vector permutations                     x[i][j] <-> x[j][i]
      panel[depth + j, key + [0, lanes)] = x[j]

Reading a vector of keys at one depth instead is a load an element: 4 queries of 512 keys of depth 64 take 0.76 of the
time so. Numbers are only moved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..emit.inline import Inliner, Source, key
from ..matmul.folded_moves import producers, step_of
from ..operators.kind import facts_of
from ..operators.te_graph import GroupGraph
from ..words.group import Group, Value
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    pass

CHOICES = {"relax.where", "relax.concat"}  # their branches may part a vector


def lies_turned(group: Group, graph: GroupGraph, value: Value) -> bool:
    """True if neighbours on the last axis but one of ``value``, an operand of a product, are neighbours in the memory
    of whatever is read for it, or the same element, and those on the last axis are not all."""
    if value.shape[-1] == 1 or any(n.operator in CHOICES or facts_of(n).costly for n in producers(group, value)):
        return False
    steps = [_steps(group, graph, value, origin) for origin in group.inputs]
    read = [s for s in steps if s is not None]
    return bool(read) and all(d in (0, 1) for d, _ in read) and any(d == 1 and s != 1 for d, s in read)


def _steps(group: Group, graph: GroupGraph, value: Value, origin: Value) -> tuple[int | None, int | None] | None:
    """How far neighbours on the last axis but one, and on the last, of ``value`` lie apart in ``origin``: None where
    that varies; None altogether if it is not read."""
    found: list[list[Expr]] = []

    def source(of: Value) -> Source:
        def read(indices: Sequence[Expr]) -> Expr:
            if of is origin:
                found.append(list(indices))
            return tirx.Var("read", graph.tensors[of].expr_ty())

        return read

    sources = {key(graph.tensors[v]): source(v) for v in group.inputs}

    def place(indices: Sequence[Expr]) -> list[Expr]:
        found.clear()
        Inliner(sources).at(graph.tensors[value], list(indices))
        return found[0] if len(found) == 1 else []

    if not place([tirx.IntImm("int32", 0)] * len(value.shape)) and not found:
        return None
    rank = len(value.shape)
    return step_of(value, place, origin, rank - 2), step_of(value, place, origin, rank - 1)


def turn(
    k: KernelBuilder, lanes: int, dtype: str, rows: int, read: Callable[..., Expr], write: Callable[..., None]
) -> None:
    """``read(i)`` gives row i < ``rows`` of a square, by a store of a vector (``read(i, local)``); ``write(j, vector)``
    takes its columns. Rows past the last are zero."""
    zero = tirx.Broadcast(tirx.const(0, dtype), lanes)
    ramp = tirx.Ramp(0, 1, lanes)
    square = []
    for i in range(lanes):
        local = k.local("x", dtype, lanes)
        if i < rows:
            read(i, local)
        else:
            k.store(local, ramp, zero)
        square.append(local[ramp])
    step = 1
    while step < lanes:
        low = [j if not j & step else lanes + j - step for j in range(lanes)]
        for i in (i for i in range(lanes) if not i & step):
            pair = [square[i], square[i + step]]
            for at, order in ((i, low), (i + step, [j + step if not j & step else lanes + j for j in range(lanes)])):
                local = k.local("x", dtype, lanes)
                k.store(local, ramp, tirx.Shuffle(pair, order))
                square[at] = local[ramp]
        step *= 2
    for j in range(lanes):
        write(j, square[j])
