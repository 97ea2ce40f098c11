"""Softmax of one row of scores in two passes, without its division: the rows of the output are scaled instead.

    pass 1    s = scale, mask ... of the scores, in place; their maximum, a vector of them at a time
    pass 2    e = exp(s - maximum) in place, or in rows of float16; their sum
              1 / sum, kept for the row

    out[row] = sum over keys of e[row, key] * v[key]  *  1 / sum[row]

A row's last columns that fill no vector wait in a register between the passes, beside -inf: as parts of a vector in
memory they would hold up the load that puts them together.

What lies before the softmax is computed once, and one quotient a row takes the place of one for each key. Rounding
differs from that of the operators one by one, so ``exact`` takes :mod:`.rows` instead. NaN: the maximum may lose it,
the exponential of the element does not, and by the sum the whole row has it, as have rows whose maximum is infinite.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ..emit.inline import key
from ..general.loop_nest import StageMemory
from ..general.phases import _reads, plan_phases
from ..kernel.context import Context
from ..math.exponential import exp_of_negative
from ..operators.te_graph import GroupGraph
from ..words.dims import is_open, to_index
from ..words.group import Group, Value
from ..words.tvm_types import Buffer, Expr
from .facts import HALF, AttentionFacts
from .rows import own_element

CHAINS = 4  # vectors of maxima and sums side by side: the latency of an addition


def softmax_source(group: Group, graph: GroupGraph, facts: AttentionFacts) -> Value | None:
    """What the softmax right before the second product is taken of, if it is a map of the scores, element by element;
    None if the rows are worked on otherwise."""
    if facts.weights.dtype != "float32":
        return None
    node = next(n for n in group.nodes if facts.weights in n.results)
    if node.operator != "relax.nn.softmax" or facts.weights.shape != facts.scores.shape:
        return None
    source, rank = node.inputs[0], len(facts.scores.shape)
    if source.shape != facts.scores.shape or int(node.call.attrs.axis) % rank != rank - 1:
        return None
    plan = plan_phases(graph, (source,))
    if len(plan.phases) != 1 or plan.phases[0].reduce:
        return None
    if source is facts.scores:
        return source
    scores = key(graph.tensors[facts.scores])
    axes = [tirx.Var(f"a{i}", "int32") for i in range(rank)]
    mine = [indices for t, indices in _reads(graph, plan.phases[0], {scores}, axes) if key(t) == scores]
    return source if mine and all(own_element(indices, axes, source.shape) for indices in mine) else None


class SoftmaxRows:
    """Emits both passes on one row; the scores have room for whole vectors."""

    def __init__(self, ctx: Context, graph: GroupGraph, facts: AttentionFacts, source: Value, lanes: int) -> None:
        self.ctx, self.k, self.graph, self.facts = ctx, ctx.k, graph, facts
        self.source, self.lanes = source, lanes
        self.vectors, self.rest = divmod(facts.keys, lanes)  # of an open number the rest may be a number
        whole = self.vectors * lanes
        self._whole = to_index(whole) if is_open([whole]) else tirx.IntImm("int32", whole)

    def emit(
        self, row: list[Expr], scores: Buffer, weights: Buffer, offset: Expr, inverses: Buffer, number: Expr
    ) -> None:
        """``row``: indices of all axes but the last; the rows of scores and of ``weights``, which may be the same,
        begin at ``offset``, and its inverse sum goes to ``inverses[number]``."""
        k, lanes = self.k, self.lanes
        open_ = is_open([self.facts.keys])
        chains = CHAINS if open_ else min(CHAINS, self.vectors + (1 if self.rest else 0))
        largest = self._started(chains, float("-inf"))
        tail = self._started(1, float("-inf")) if open_ or self.rest else None
        self._largest(row, scores, offset, largest, chains, tail)
        top = self._folded(largest, chains, lambda a, b: tirx.Select(a > b, a, b))
        total = self._started(chains, 0.0)

        rounded = str(weights.dtype) == HALF

        def weight(at: Expr, chain: Expr, memory: Buffer | None = None) -> None:
            with k.loop(lanes, "vectorized", "v") as v:
                score = scores[offset + at + v] if memory is None else memory[v]
                e = k.bind(exp_of_negative(k.bind(score - top), k.bind, rounded))
                k.store(weights, offset + at + v, tirx.Cast(HALF, e) if rounded else e)
                k.store(total, chain * lanes + v, total[chain * lanes + v] + e)

        self._over(self.vectors, chains, weight)
        if is_open([self.rest]):
            with k.when(to_index(self.rest) > 0):
                weight(to_index(self.vectors * lanes), tirx.IntImm("int32", 0), tail)
        elif self.rest:
            weight(self._whole, tirx.IntImm("int32", 0 if open_ else self.vectors % chains), tail)
        whole = self._folded(total, chains, lambda a, b: a + b)
        k.store(inverses, number, tirx.FloatImm("float32", 1.0) / whole)

    def _largest(
        self, row: list[Expr], scores: Buffer, offset: Expr, largest: Buffer, chains: int, tail: Buffer
    ) -> None:
        k, lanes, source = self.k, self.lanes, self.graph.tensors[self.source]
        shape = self.facts.scores.shape
        memory = StageMemory(scores, shape, len(shape) - 1, 0, shape, offset)
        mapped = self.source is not self.facts.scores

        def vector(at: Expr, chain: Expr, width: int, place: Expr = 0) -> None:
            with k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                self.ctx.ranged(v, width)
                value = scores[offset + at + v]
                if mapped:
                    made = key(self.graph.tensors[self.facts.scores])
                    inliner = self.ctx.inliner({made: lambda indices: memory.buffer[offset + indices[-1]]})
                    value = k.bind(inliner.at(source, [*row, at + v]))
                if width < lanes:
                    k.store(tail, place + v, value)
                    return
                if mapped:
                    k.store(scores, offset + at + v, value)
                slot = chain * lanes + v
                k.store(largest, slot, tirx.Select(largest[slot] > value, largest[slot], value))

        self._over(self.vectors, chains, lambda at, chain: vector(at, chain, lanes))
        if is_open([self.rest]) and not mapped:
            with k.when(to_index(self.rest) > 0), k.loop(lanes, "vectorized", "v") as v:
                score, least = scores[offset + self._whole + v], tirx.FloatImm("float32", float("-inf"))
                k.store(tail, v, tirx.Select(v < to_index(self.rest), score, least))
        elif is_open([self.rest]):
            with k.loop(self.rest, name="e") as e:
                self.ctx.ranged(e, lanes)
                vector(e + self.vectors * lanes, tirx.IntImm("int32", 0), 1, e)
        elif self.rest:
            vector(self._whole, tirx.IntImm("int32", 0), self.rest)
        if tail is not None:
            with k.loop(lanes, "vectorized", "v") as v:
                k.store(largest, v, tirx.Select(largest[v] > tail[v], largest[v], tail[v]))

    def _over(self, vectors: int, chains: int, body: Callable[..., None]) -> None:
        """``body(column, chain)`` for each vector."""
        rounds, left = divmod(vectors, chains)
        if is_open([vectors]):
            with self.k.loop(rounds, name="j") as j, self.k.loop(chains, "unroll", "u") as u:
                self.ctx.ranged(j, rounds)
                self.ctx.ranged(u, chains)
                body((j * chains + u) * self.lanes, u)
            with self.k.loop(left, name="j") as j:
                body((self.ctx.ranged(j, chains) + rounds * chains) * self.lanes, tirx.IntImm("int32", 0))
            return
        for first, count, side in ((0, rounds, chains), (rounds * chains, 1, left)):
            if count and side:
                with self.k.loop(count, name="j") as j, self.k.loop(side, "unroll", "u") as u:
                    self.ctx.ranged(j, count)
                    self.ctx.ranged(u, side)
                    body((first + j * side + u) * self.lanes, u)

    def _started(self, chains: int, value: float) -> Buffer:
        memory = self.k.local("m", "float32", chains * self.lanes)
        with self.k.loop(chains, "unroll", "u") as u, self.k.loop(self.lanes, "vectorized", "v") as v:
            self.k.store(memory, u * self.lanes + v, tirx.FloatImm("float32", value))
        return memory

    def _folded(self, memory: Buffer, chains: int, join: Callable[..., Expr]) -> Expr:
        """All lanes of all chains in one, in halves: always in the same order."""
        k, lanes = self.k, self.lanes
        for chain in range(1, chains):
            with k.loop(lanes, "vectorized", "v") as v:
                k.store(memory, v, join(memory[v], memory[chain * lanes + v]))
        width = lanes
        while width > 1:
            width //= 2
            with k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                k.store(memory, v, join(memory[v], memory[width + v]))
        return memory[0]
