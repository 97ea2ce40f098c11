"""Reductions along contiguous memory: one output, vectors of what it is made of in UNROLL accumulators.

    acc[UNROLL][lanes] = identity
    for chunk of the line: acc += x[chunk]            whole vectors, then a vector whose lanes count that are left
    acc[0] += acc[1] ...; halves of lanes, log2(lanes) times

The order of the operations follows from the length alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..emit.inline import Inliner, narrow
from ..words.dims import Dim, is_open, to_index
from ..words.sizes import surely
from ..words.tvm_types import Buffer, Expr
from . import argmax
from .axes import Merged
from .combiners import identities, is_extremum
from .edged_lines import EdgedLines

UNROLL = 4  # accumulators: covers the latency of an add or max (4 cycles, one port)
SHORT = 4  # lanes of lines shorter than a vector


class ReducedLines(EdgedLines):
    """A nest of reductions that can run along lines."""

    @property
    def extreme(self) -> tuple[str, str] | None:
        """The kind of the positions that are wanted, if those are; see :mod:`.argmax`."""
        return argmax.kind_of(self.phase.tensors[0].op)

    def _along(self, loops: list[Expr], merged: Merged) -> None:
        """One output: vectors run along the reduced axis, in UNROLL accumulators. Of an open length there are loops for
        long lines, for those of a few vectors, and for those shorter than one."""
        length, lanes = merged.inner, self.lanes
        if not isinstance(length, Dim):
            lanes = min(lanes, length)
            self._along_in(loops, merged, lanes, UNROLL if length >= 2 * UNROLL * lanes else 1)
            return
        kinds = ((2 * UNROLL * lanes, lanes, UNROLL), (lanes, lanes, 1), (0, min(lanes, SHORT), 1))
        longer: Expr = None
        for least, width, unroll in kinds:
            if surely(lambda: length < least):  # noqa: B023
                continue
            all_ = surely(lambda: length >= least)  # noqa: B023
            bounds = [] if all_ else [to_index(length) >= least]
            bounds += [] if longer is None else [to_index(length) < longer]
            with self.k.when(tirx.all(*bounds)) if bounds else nullcontext():
                self._along_in(loops, merged, width, unroll)
            if all_:
                break
            longer = least

    def _along_in(self, loops: list[Expr], merged: Merged, lanes: int, unroll: int) -> None:
        indices = self.indices(loops, None)
        identities = self._identities()
        accumulators = [self.k.local("acc", str(i.ty.dtype), unroll * lanes) for i in identities]
        for acc, identity in zip(accumulators, identities):
            with self.k.loop(unroll, "unroll") as u, self.k.loop(lanes, "vectorized", "v") as v:
                self.k.store(acc, u * lanes + v, identity)

        def line(outer: list[Expr]) -> None:
            chunk = unroll * lanes
            chunks, rest = divmod(merged.inner, chunk)
            if is_open([chunks]) or chunks:
                with self.k.loop(chunks, name="j") as j:
                    self.ctx.ranged(j, chunks)
                    with self.k.loop(unroll, "unroll", "u") as u, self.k.loop(lanes, "vectorized", "v") as v:
                        self.ctx.ranged(u, unroll)
                        self.ctx.ranged(v, lanes)
                        at = merged.expand(outer, j * chunk + u * lanes + v)
                        self._accumulate(accumulators, u * lanes + v, indices, at)
            if isinstance(rest, Dim):
                self._rest(accumulators, indices, merged, outer, chunks * chunk, lanes)
                return
            vectors, tail = divmod(rest, lanes)
            if vectors:
                with self.k.loop(vectors, name="j") as j, self.k.loop(lanes, "vectorized", "v") as v:
                    self.ctx.ranged(j, vectors)
                    self.ctx.ranged(v, lanes)
                    at = merged.expand(outer, chunks * chunk + j * lanes + v)
                    self._accumulate(accumulators, v, indices, at)
            if tail:
                with self.k.loop(tail, "serial" if tail == 1 else "vectorized", "v") as v:
                    self.ctx.ranged(v, tail)
                    at = merged.expand(outer, chunks * chunk + vectors * lanes + v)
                    self._accumulate(accumulators, v, indices, at)

        self._serial(merged.outer, [], line)
        self._fold(accumulators, unroll, lanes)
        for tensor, target, acc in zip(self.phase.tensors, self.targets, accumulators):
            self.store(target, indices, tirx.Cast(str(tensor.dtype), acc[0]))

    def _rest(
        self, accumulators: list[Expr], indices: list[Expr], merged: Merged, outer: list[Expr], done: Dim, lanes: int
    ) -> None:
        """The open number of elements of a line behind the first ``done``: vectors, then a vector that ends with the
        line, whose lanes count that are left, or where a line is shorter than that, one by one."""
        k, whole = self.k, to_index(merged.inner)

        def vector(start: Expr, counts: Expr = None) -> None:
            with k.loop(lanes, "vectorized", "v") as v:
                self.ctx.ranged(v, lanes)
                at = merged.expand(outer, start + v)
                self._accumulate(accumulators, v, indices, at, None if counts is None else v >= counts)

        vectors = (merged.inner - done) // lanes
        with k.loop(vectors, name="j") as j:
            self.ctx.ranged(j, vectors)
            vector(done + j * lanes)
        left = k.hold(to_index(merged.inner - done - vectors * lanes), "l")
        with k.when(tirx.all(whole >= lanes, left > 0)):
            vector(k.bind(whole - lanes, "x"), lanes - left)
        with k.when(whole < lanes), k.loop(left, name="v") as v:
            self.ctx.ranged(v, lanes)
            self._accumulate(accumulators, v, indices, merged.expand(outer, done + vectors * lanes + v))

    def _fold(self, accumulators: list[Buffer], unroll: int, lanes: int) -> None:
        """Combines all lanes into the first, in halves: log2(lanes) steps, always in the same order."""
        for u in range(1, unroll):
            with self.k.loop(lanes, "vectorized", "v") as v:
                self._combine(accumulators, v, [acc[u * lanes + v] for acc in accumulators])
        width = lanes
        while width > 1:
            half = width // 2
            if width % 2:
                self._combine(accumulators, tirx.IntImm("int32", 0), [acc[width - 1] for acc in accumulators])
            with self.k.loop(half, "vectorized" if half > 1 else "serial", "v") as v:
                self._combine(accumulators, v, [acc[half + v] for acc in accumulators])
            width = half

    def _accumulate(
        self,
        accumulators: list[Expr],
        slot: Expr,
        indices: list[Expr],
        reduce_loops: list[Expr],
        counts: Expr | None = None,
    ) -> None:
        """Combines an element with an accumulator, if it ``counts``."""
        op = self.phase.tensors[0].op
        reduce = op.body[0]
        inliner = self.ctx.inliner(self.sources())
        inliner.declare(op)
        axes = {a.var: i for a, i in zip(op.axis, indices)}
        axes.update({a.var: i + a.dom.min for a, i in zip(op.reduce_axis, reduce_loops)})
        values = [inliner.expression(s, axes) for s in reduce.source]
        condition = inliner.expression(reduce.condition, axes)
        if not (isinstance(condition, prim.IntImm) and condition.value):
            self.k.guard(condition)
            values = [tirx.if_then_else(condition, v, i) for v, i in zip(values, identities(reduce))]
        if counts is not None:
            first = 0 if self.extreme is None else 1  # no position enters without its number
            values[first:] = [tirx.Select(counts, v, i) for v, i in zip(values[first:], identities(reduce)[first:])]
        if self.extreme is None:
            self._combine(accumulators, slot, values)
            return
        value, best = self.k.bind(values[1], "x"), self.k.bind(accumulators[1][slot], "a")
        self._keep(accumulators, slot, (narrow(values[0]), value), argmax.enters(self.extreme, value, best))

    def _keep(self, accumulators: list[Buffer], slot: Expr, values: Sequence[Expr], wins: Expr) -> None:
        """Puts ``values`` in place of what is in the accumulators, where they win."""
        for acc, value in zip(accumulators, values):
            self.k.store(acc, slot, tirx.Select(wins, value, acc[slot]))

    def _identities(self) -> list[Expr]:
        """What accumulators begin with; positions of extremes with 0, in 32 bits."""
        position, *rest = identities(self.phase.tensors[0].op.body[0])
        return [position if self.extreme is None else tirx.IntImm("int32", 0), *rest]

    def _combine(self, accumulators: list[Buffer], slot: Expr, values: list[Expr]) -> None:
        if self.extreme is not None:
            pair = tuple(self.k.bind(v, "x") for v in values)
            own = tuple(self.k.bind(acc[slot], "a") for acc in accumulators)
            self._keep(accumulators, slot, pair, argmax.comes_before(self.extreme, pair, own))
            return
        combiner = self.phase.tensors[0].op.body[0].combiner
        inliner = Inliner({}, self.k.bind, self.k.guard)
        mapping: dict[Expr, Expr] = {}
        for var, acc in zip(combiner.lhs, accumulators):
            mapping[var] = acc[slot] if len(accumulators) == 1 else self.k.bind(acc[slot], "a")
        for var, value in zip(combiner.rhs, values):
            mapping[var] = value if len(values) == 1 and not is_extremum(combiner) else self.k.bind(value, "x")
        results = [inliner.expression(r, mapping) for r in combiner.result]
        for acc, result in zip(accumulators, results):
            self.k.store(acc, slot, result)
