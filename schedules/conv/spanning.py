"""Vectors of output channels that span several groups of a convolution: each lane reads its own group's channel.

    v[lane] = x[channel j of the group of the first lane]          one broadcast a group,
    v[lane] = x[channel j of the next group]  where it is the lane's        chosen by lanes
    acc[p] += v * w[tap][j]                                        for the taps that read the column

No lane multiplies another group's channels, not even by zero: a NaN or an infinity there would reach it. It is less
work too: for G groups in a vector G broadcasts and G - 1 choices by lanes beside one multiply-add a tap, where zero
weights take G multiply-adds a tap. Vectors that lie in one group have a loop of their own, where there are such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from tvm import tirx

from ..words.tvm_types import Expr
from .facts import ConvFacts
from .kernel import ConvKernel


@dataclass(frozen=True)
class Owners:
    """The groups that the lanes of a vector belong to: ``count`` of them from ``first`` on; ``group_of(lane)`` counts
    from there."""

    first: Expr
    count: int
    group_of: Callable[[Expr], Expr]


def spans_groups(facts: ConvFacts, lanes: int) -> bool:
    """True if some vector of outputs lies in several groups."""
    return facts.groups > 1 and facts.group_out % lanes > 0


@contextmanager
def one_group(conv: ConvKernel, group: Expr) -> Iterator[None]:
    """A scope that runs for vectors of outputs that lie in one group of the convolution."""
    facts, lanes = conv.facts, conv.lanes
    last = tirx.min(group * lanes + lanes, facts.outputs) - 1
    with conv.k.when(tirx.floordiv(last, facts.group_out) == tirx.floordiv(group * lanes, facts.group_out)):
        yield


@contextmanager
def several_groups(conv: ConvKernel, group: Expr) -> Iterator[Owners]:
    """A scope that runs for vectors of outputs that lie in several groups; gives their owners."""
    facts, lanes, k = conv.facts, conv.lanes, conv.k
    first = conv.bind(tirx.floordiv(group * lanes, facts.group_out), facts.groups)
    last = tirx.floordiv(tirx.min(group * lanes + lanes, facts.outputs) - 1, facts.group_out)
    counts = group_counts(facts, lanes)
    with k.when(last > first) if 1 in counts else nullcontext():
        if lanes % facts.group_out == 0:
            yield Owners(first, max(counts), lambda v: tirx.floordiv(v, facts.group_out))
            return
        held = k.local("owner", "int32", lanes)
        with k.loop(lanes, "vectorized", "v") as v:
            k.store(held, v, tirx.floordiv(group * lanes + v, facts.group_out) - first)
        yield Owners(first, max(counts), lambda v: held[v])


def group_counts(facts: ConvFacts, lanes: int) -> set[int]:
    """In how many groups of the convolution the vectors of outputs lie: all numbers that occur."""
    ends = ((first, min(first + lanes, facts.outputs) - 1) for first in range(0, facts.outputs, lanes))
    return {last // facts.group_out - first // facts.group_out + 1 for first, last in ends}


def chosen(
    conv: ConvKernel, owners: Owners, channel: Expr, read: Callable[[Expr], Expr]
) -> Callable[[Expr], Expr]:
    """A vector by lanes: what ``read`` gives for ``channel`` of each lane's group."""
    facts, k, lanes = conv.facts, conv.k, conv.lanes
    groups = [
        owners.first if i == 0 else tirx.min(owners.first + i, facts.groups - 1) for i in range(owners.count)
    ]
    values = [k.bind(read(group * facts.group_in + channel), "x") for group in groups]
    vector = k.local("own", facts.data.dtype, lanes)
    with k.loop(lanes, "vectorized", "v") as v:
        value = values[0]
        for i, other in enumerate(values[1:], 1):
            value = tirx.Select(owners.group_of(v) >= i, other, value)
        k.store(vector, v, value)
    return lambda v: vector[v]
