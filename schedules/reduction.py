"""Loop nests of reductions: lanes across outputs, or lanes along the reduced axis.

    across   each lane reduces on its own (channel lanes, or neighbouring outputs)
    along    one output: vectors run along contiguous memory in UNROLL accumulators, combined in halves at the end

Either way the order of the operations is fixed, so the bits are the same on every run and for every thread count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir.prim import expr as prim

from .inline import Inliner
from .nest import Merged, Nest

UNROLL = 4  # accumulators: covers the latency of an add or max (4 cycles, one port)


class ReductionNest(Nest):
    """Emits one reduction phase."""

    def emit(self) -> None:
        op = self.phase.tensors[0].op
        first = op.body[0]
        reduce_extents = [int(a.dom.extent) for a in op.reduce_axis]
        if 0 in reduce_extents:
            self._loops(self.extents(), lambda loops: self._constant(loops, first))
            return
        if self.blocked:
            self._loops(self.extents(), lambda loops: self._across(loops, None, self.lanes))
            return
        extents = self.extents()
        over_k = self._merge(reduce_extents, 1)
        if over_k.contiguous and over_k.inner >= 2 * self.lanes:
            self._loops(extents, lambda loops: self._along(loops, over_k))
            return
        if extents:
            inner = extents[-1]
            vectors, tail = divmod(inner, self.lanes)

            def line(loops: list[Any]) -> None:
                if vectors:
                    with self.k.loop(vectors, name="j") as j:
                        self.ctx.ranged(j, vectors)
                        self._across(loops, j * self.lanes, self.lanes)
                if tail:
                    self._across(loops, tirx.IntImm("int32", vectors * self.lanes), tail)

            self._loops(extents[:-1], line)
            return
        self._loops(extents, lambda loops: self._along(loops, over_k))

    def _constant(self, loops: list[Any], first: Any) -> None:
        width = self.lanes if self.blocked else 1
        with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
            indices = self.indices(loops, v)
            for target, identity in zip(self.targets, _identities(first)):
                self.store(target, indices, identity)

    def _across(self, loops: list[Any], start: Any, width: int) -> None:
        """A vector of outputs: each lane reduces on its own."""
        op = self.phase.tensors[0].op
        reduce = op.body[0]
        accumulators = [self.k.local("acc", str(i.ty.dtype), max(width, 1)) for i in reduce.combiner.identity_element]
        for acc, identity in zip(accumulators, _identities(reduce)):
            with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                self.k.store(acc, v, identity)

        def step(reduce_loops: list[Any]) -> None:
            with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                self.ctx.ranged(v, width)
                full = self.indices(loops if start is None else [*loops, start + v], v)
                self._accumulate(accumulators, v, full, reduce_loops)

        self._serial([int(a.dom.extent) for a in op.reduce_axis], [], step)
        with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
            self.ctx.ranged(v, width)
            full = self.indices(loops if start is None else [*loops, start + v], v)
            for target, acc in zip(self.targets, accumulators):
                self.store(target, full, acc[v])

    def _along(self, loops: list[Any], merged: Merged) -> None:
        """One output: vectors run along the reduced axis, in UNROLL accumulators."""
        op = self.phase.tensors[0].op
        reduce = op.body[0]
        lanes = min(self.lanes, merged.inner)
        unroll = UNROLL if merged.inner >= 2 * UNROLL * lanes else 1
        indices = self.indices(loops, None)
        accumulators = [
            self.k.local("acc", str(i.ty.dtype), unroll * lanes) for i in reduce.combiner.identity_element
        ]
        for acc, identity in zip(accumulators, _identities(reduce)):
            with self.k.loop(unroll, "unroll") as u, self.k.loop(lanes, "vectorized", "v") as v:
                self.k.store(acc, u * lanes + v, identity)

        def line(outer: list[Any]) -> None:
            chunk = unroll * lanes
            chunks, rest = divmod(merged.inner, chunk)
            if chunks:
                with self.k.loop(chunks, name="j") as j:
                    self.ctx.ranged(j, chunks)
                    with self.k.loop(unroll, "unroll", "u") as u, self.k.loop(lanes, "vectorized", "v") as v:
                        at = merged.expand(outer, j * chunk + u * lanes + v)
                        self._accumulate(accumulators, u * lanes + v, indices, at)
            vectors, tail = divmod(rest, lanes)
            if vectors:
                with self.k.loop(vectors, name="j") as j, self.k.loop(lanes, "vectorized", "v") as v:
                    at = merged.expand(outer, chunks * chunk + j * lanes + v)
                    self._accumulate(accumulators, v, indices, at)
            if tail:
                with self.k.loop(tail, "vectorized" if tail > 1 else "serial", "v") as v:
                    at = merged.expand(outer, chunks * chunk + vectors * lanes + v)
                    self._accumulate(accumulators, v, indices, at)

        self._serial(merged.outer, [], line)
        self._fold(accumulators, unroll, lanes)
        for target, acc in zip(self.targets, accumulators):
            self.store(target, indices, acc[0])

    def _fold(self, accumulators: list[Any], unroll: int, lanes: int) -> None:
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

    def _accumulate(self, accumulators: list[Any], slot: Any, indices: list[Any], reduce_loops: list[Any]) -> None:
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
            values = [tirx.if_then_else(condition, v, i) for v, i in zip(values, _identities(reduce))]
        self._combine(accumulators, slot, values)

    def _combine(self, accumulators: list[Any], slot: Any, values: list[Any]) -> None:
        combiner = self.phase.tensors[0].op.body[0].combiner
        inliner = Inliner({}, self.k.bind, self.k.guard)
        mapping: dict[Any, Any] = {}
        for var, acc in zip(combiner.lhs, accumulators):
            mapping[var] = acc[slot] if len(accumulators) == 1 else self.k.bind(acc[slot], "a")
        for var, value in zip(combiner.rhs, values):
            mapping[var] = value if len(values) == 1 and not _is_extremum(combiner) else self.k.bind(value, "x")
        results = [inliner.expression(r, mapping) for r in combiner.result]
        for acc, result in zip(accumulators, results):
            self.k.store(acc, slot, result)

def _is_extremum(combiner: Any) -> bool:
    return isinstance(combiner.result[0], (prim.Max, prim.Min))


def _identities(reduce: Any) -> list[Any]:
    """The combiner's identities; the largest finite number stands for infinity in TOPI's max and min."""
    result = []
    for identity in reduce.combiner.identity_element:
        if isinstance(identity, prim.FloatImm) and str(identity.ty.dtype) in ("float16", "float32", "float64"):
            limit = float(np.finfo(str(identity.ty.dtype)).max)
            if abs(identity.value) == limit:
                identity = tirx.FloatImm(identity.ty, float(np.copysign(np.inf, identity.value)))
        result.append(identity)
    return result

