"""The general generator: any DAG of TE stages, as a few vectorised loop nests in one kernel.

It serves elementwise chains, data movement, pooling, softmax, norms, arg-reductions and every operator that has no family
of its own. The loop nest of a group with a shared prefix of axes (softmax, norms):

    parallel for row in prefix:              one launch for the whole group
        for phase in phases:                 scratch of one row, in cache
            for rest of the axes: vector

and without one (elementwise, pooling): each phase is a parallel nest of its own.

Vectors run over channel lanes where the output is blocked, else over the innermost axis, merged with its
neighbours as long as every access stays contiguous (so that 56 x 56 is 3136 long). A reduction over contiguous memory
keeps ``UNROLL`` vector accumulators and combines them at the end, always in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import sym, tirx
from tvm.ir.prim import expr as prim

from .context import Channel, Context
from .group import Group, Kernel, Request, Scratch, Value, dtype_bytes
from .inline import Inliner, key, narrow
from .phases import Phase, Plan, plan_phases
from .tegraph import GroupGraph

PARALLEL_WORK = 32 * 1024  # element operations below which a launch costs more than it saves
UNROLL = 4  # accumulators: covers the latency of an add or max (4 cycles, one port)
STACK_BYTES = 32 * 1024  # scratch of one row kept on the worker's stack or workspace; beyond, in the arena


def build_staged(request: Request) -> Kernel:
    """One kernel for ``request.group``; every value's layout may be plain, or blocked with one block size."""
    graph = GroupGraph(request.group)
    return _Staged(request, graph).build()


@dataclass
class _Scratch:
    """Where a stored stage lives: a buffer, and how indices beyond the prefix map to it."""

    buffer: Any
    shape: tuple[int, ...]
    skip: int  # leading axes that are not part of the address (one row at a time)
    lanes: int  # trailing lanes (blocked kernels), 0 otherwise
    dims: tuple[int, ...] = ()


class _Staged:
    def __init__(self, request: Request, graph: GroupGraph) -> None:
        self.request = request
        self.group: Group = request.group
        self.graph = graph
        self.ctx = Context(request, graph, self.group.name)
        self.k = self.ctx.k
        self.plan: Plan = plan_phases(graph, self.group.outputs)
        blocks = {request.layout(v).block for v in self.group.outputs} - {0}
        self.block = blocks.pop() if blocks else 0
        self.stored: dict[Any, _Scratch | Value] = {}
        self.scratch_bytes: list[int] = []
        self.notes: list[str] = []

    # -- the whole kernel ------------------------------------------------------------------------

    def build(self) -> Kernel:
        prefix = self.plan.prefix
        for value in self.group.outputs:
            self.ctx.fill_margins(value)
        if prefix and len(self.plan.phases) > 1:
            self._rows(prefix)
        else:
            for phase in self.plan.phases:
                self._phase(phase, [], parallel=True)
        function = self.k.finish()
        return Kernel(
            function=function,
            operands=tuple(self.ctx.operands),
            outputs=self.group.outputs,
            schedule=self._describe(),
            flops=self._work(),
            inplace=self._inplace(),
            notes=tuple(self.notes),
        )

    def _describe(self) -> str:
        kind = f"lanes {self.block}" if self.block else "plain"
        if len(self.plan.phases) == 1 and not self.plan.phases[0].reduce:
            return f"map, {kind}"
        return f"staged, {len(self.plan.phases)} phases, prefix {self.plan.prefix}, {kind}"

    def _work(self) -> int:
        total = 0
        for phase in self.plan.phases:
            work = int(np.prod(phase.shape, dtype=np.int64))
            if phase.reduce:
                work *= int(np.prod([int(a.dom.extent) for a in phase.tensors[0].op.reduce_axis], dtype=np.int64))
            total += work
        return total

    def _inplace(self) -> tuple[Value, ...]:
        """Inputs that the output may overwrite: one map phase, read at the very position that is written."""
        phases = self.plan.phases
        if len(phases) != 1 or phases[0].reduce or len(self.group.outputs) != 1:
            return ()
        output = self.group.outputs[0]
        layout = self.request.layout(output)
        if layout.margins:
            return ()
        tensor = phases[0].tensors[0]
        axes = [tirx.Var(f"a{i}", "int32") for i in range(len(output.shape))]
        identical: dict[Value, bool] = {}

        def watch(value: Value) -> Any:
            def read(indices: tuple[Any, ...]) -> Any:
                same = len(indices) == len(axes) and all(
                    (e == 1) or _is_axis(i, a) for i, a, e in zip(indices, axes, output.shape)
                )
                identical[value] = identical.get(value, True) and same
                return tirx.Var("read", self.graph.tensors[value].expr_ty())

            return read

        sources = {key(self.graph.tensors[v]): watch(v) for v in self.group.inputs}
        Inliner(sources).at(tensor, axes)
        return tuple(
            v
            for v, same in identical.items()
            if same and v.constant is None and v.shape == output.shape and v.dtype == output.dtype
            and self.request.layout(v) == layout
        )

    def _rows(self, prefix: int) -> None:
        shape = self.plan.phases[-1].shape
        blocked_axis = self.block and prefix > 1
        extents = [-(-e // self.block) if (blocked_axis and i == 1) else e for i, e in enumerate(shape[:prefix])]
        rows = int(np.prod(extents, dtype=np.int64))
        parallel = rows > 1 and self._work() >= PARALLEL_WORK
        with self.k.loop(rows, "parallel" if parallel else "serial", "row") as row:
            self.ctx.ranged(row, rows)
            indices: list[Any] = []
            rest = row
            for e in reversed(extents):
                indices.append(self.ctx.analyzer.simplify(tirx.floormod(rest, e)) if len(indices) < prefix - 1 else rest)
                rest = self.ctx.analyzer.simplify(tirx.floordiv(rest, e))
            indices.reverse()
            for phase in self.plan.phases:
                self._phase(phase, indices, parallel=False)

    # -- one phase -------------------------------------------------------------------------------

    def _phase(self, phase: Phase, row: list[Any], parallel: bool) -> None:
        """One loop nest over the axes of ``phase`` beyond ``row`` (whose axis 1 is a block index if blocked)."""
        if 0 in phase.shape:
            return
        targets = self._targets(phase, len(row))
        nest = _Nest(self, phase, row, targets, parallel)
        if phase.reduce:
            nest.reduce()
        else:
            nest.map()

    def _targets(self, phase: Phase, skip: int) -> list[Value | _Scratch]:
        targets: list[Value | _Scratch] = []
        for tensor, value in zip(phase.tensors, phase.values):
            if value is not None:
                targets.append(value)
                if phase.reduce:
                    self.stored[key(tensor)] = value
                continue
            dims = list(phase.shape)
            lanes = self.block if len(dims) > 1 and self.block else 0
            if lanes:
                dims[1] = -(-dims[1] // lanes)
            kept = dims[skip:]
            elements = int(np.prod(kept, dtype=np.int64)) * max(1, lanes)
            dtype = str(tensor.dtype)
            bytes_ = elements * dtype_bytes(dtype)
            if skip and bytes_ <= STACK_BYTES:
                buffer = self.k.local("s", dtype, elements, "local" if bytes_ <= 256 else "global")
                scratch = _Scratch(buffer, phase.shape, skip, lanes, tuple(dims))
            else:
                elements = int(np.prod(dims, dtype=np.int64)) * max(1, lanes)
                buffer = self.k.pointer(self.k.fresh("scratch"), dtype, elements)
                self.ctx.operands.append(_arena(self, elements * dtype_bytes(dtype)))
                scratch = _Scratch(buffer, phase.shape, 0, lanes, tuple(dims))
            self.stored[key(tensor)] = scratch
            targets.append(scratch)
        return targets


def _arena(staged: _Staged, bytes_: int) -> Scratch:
    staged.scratch_bytes.append(bytes_)
    return Scratch(bytes_)


class _Nest:
    """Emits one phase."""

    def __init__(
        self, staged: _Staged, phase: Phase, row: list[Any], targets: list[Value | _Scratch], parallel: bool
    ) -> None:
        self.s, self.phase, self.row, self.targets, self.parallel = staged, phase, row, targets, parallel
        self.ctx, self.k = staged.ctx, staged.k
        self.blocked = bool(staged.block) and len(phase.shape) > 1
        self.lanes = staged.block if self.blocked else self._width()

    def _width(self) -> int:
        sizes = [dtype_bytes(str(t.dtype)) for t in self.phase.tensors]
        return max(1, self.s.request.target.vector_bits // 8 // max(max(sizes), 4))

    # -- coordinates -----------------------------------------------------------------------------

    def extents(self) -> list[int]:
        """Loop extents of the axes beyond the row; the channel axis counts blocks."""
        dims = list(self.phase.shape)
        if self.blocked:
            dims[1] = -(-dims[1] // self.lanes)
        return dims[len(self.row):]

    def indices(self, loops: Sequence[Any], lane: Any) -> list[Any]:
        """Logical indices from row and loop variables; sets the context's channel."""
        full = [*self.row, *loops]
        if self.blocked:
            block = full[1]
            channel = block * self.lanes + lane
            self.ctx.channel = Channel(channel, block, lane, self.lanes, self.phase.shape[1])
            full[1] = channel
        else:
            self.ctx.channel = None
        return full

    def sources(self) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        own = {t.op for t in self.phase.tensors}
        for tensor_key, place in self.s.stored.items():
            if tensor_key[0] in own:
                continue
            if isinstance(place, _Scratch):
                table[tensor_key] = lambda indices, p=place: self._read(p, indices)
            else:
                table[tensor_key] = self.ctx.source(place)
        return table

    def _read(self, place: _Scratch, indices: Sequence[Any]) -> Any:
        position = self._address(place, indices)
        if self.ctx.log is not None:
            self.ctx.log.append(position)
        return place.buffer[position]

    def _address(self, place: _Scratch, indices: Sequence[Any]) -> Any:
        total: Any = tirx.IntImm("int32", 0)
        lane: Any = None
        for axis, index in enumerate(indices):
            if place.lanes and axis == 1:
                channel = self.ctx.channel
                assert channel is not None
                block, lane = channel.block, channel.lane
                index = block
            if axis >= place.skip:
                total = total * place.dims[axis] + narrow(index)
        if lane is not None:
            total = total * place.lanes + lane
        return self.ctx.analyzer.simplify(total)

    def store(self, target: Value | _Scratch, indices: Sequence[Any], value: Any) -> None:
        if isinstance(target, Value):
            self.ctx.write(target, indices, value)
            return
        position = self._address(target, indices)
        if self.ctx.log is not None:
            self.ctx.log.append(position)
        self.k.store(target.buffer, position, value)

    # -- maps ------------------------------------------------------------------------------------

    def map(self) -> None:
        extents = self.extents()
        if self.blocked:
            self._loops(extents, lambda loops: self._lanes(loops))
            return
        merged = self._merge(extents, 0)
        outer, inner = merged.outer, merged.inner
        work = int(np.prod(extents, dtype=np.int64))
        if not outer and self.parallel and work >= PARALLEL_WORK:
            # one long axis: cores take chunks of whole vectors
            vectors, tail = divmod(inner, self.lanes)
            chunk = max(1, 4096 // self.lanes)
            chunks = -(-vectors // chunk)
            with self.k.loop(chunks, "parallel", "c") as c:
                self.ctx.ranged(c, chunks)
                count = tirx.min(vectors - c * chunk, chunk)
                with self.k.loop(count, name="j") as j:
                    self._vector(merged, [], (c * chunk + j) * self.lanes, self.lanes)
            if tail:
                self._vector(merged, [], tirx.IntImm("int32", vectors * self.lanes), tail)
            return
        self._loops(outer, lambda loops: self._line(merged, loops))

    def _line(self, merged: _Merged, loops: list[Any]) -> None:
        vectors, tail = divmod(merged.inner, self.lanes)
        if vectors:
            with self.k.loop(vectors, name="j") as j:
                self.ctx.ranged(j, vectors)
                self._vector(merged, loops, j * self.lanes, self.lanes)
        if tail:
            self._vector(merged, loops, tirx.IntImm("int32", vectors * self.lanes), tail)

    def _vector(self, merged: _Merged, loops: list[Any], start: Any, width: int) -> None:
        with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
            self.ctx.ranged(v, width)
            self._element(self.indices(merged.expand(loops, start + v), None))

    def _lanes(self, loops: list[Any]) -> None:
        with self.k.loop(self.lanes, "vectorized", "v") as v:
            self.ctx.ranged(v, self.lanes)
            self._element(self.indices(loops, v))

    def _element(self, indices: list[Any]) -> None:
        inliner = self.ctx.inliner(self.sources())
        for tensor, target in zip(self.phase.tensors, self.targets):
            value = inliner.at(tensor, indices) if key(tensor) not in inliner.sources else None
            self.store(target, indices, value)

    def _loops(self, extents: Sequence[int], body: Any) -> None:
        """Loops over ``extents``; the leading ones are one parallel loop where that pays."""
        total = int(np.prod(extents, dtype=np.int64)) if extents else 1
        work = int(np.prod(self.phase.shape, dtype=np.int64)) * self._reduction_size()
        split = 0
        if self.parallel and work >= PARALLEL_WORK and total > 1:
            tasks = 1
            while split < len(extents) and tasks < 64:
                tasks *= extents[split]
                split += 1
        if not split:
            self._serial(list(extents), [], body)
            return
        tasks = int(np.prod(extents[:split], dtype=np.int64))
        with self.k.loop(tasks, "parallel", "p") as p:
            self.ctx.ranged(p, tasks)
            heads: list[Any] = []
            rest: Any = p
            for e in reversed(extents[1:split]):
                heads.append(tirx.floormod(rest, e))
                rest = tirx.floordiv(rest, e)
            heads.append(rest)
            heads.reverse()
            heads = [self.ctx.ranged(self.k.bind(h, "h"), e) if not isinstance(h, prim.IntImm) and split > 1 else h
                     for h, e in zip(heads, extents)]
            self._serial(list(extents[split:]), heads, body)

    def _serial(self, extents: list[int], done: list[Any], body: Any) -> None:
        if not extents:
            body(done)
            return
        with self.k.loop(extents[0]) as i:
            self.ctx.ranged(i, extents[0])
            self._serial(extents[1:], [*done, i], body)

    def _reduction_size(self) -> int:
        if not self.phase.reduce:
            return 1
        return int(np.prod([int(a.dom.extent) for a in self.phase.tensors[0].op.reduce_axis], dtype=np.int64))

    # -- reductions ------------------------------------------------------------------------------

    def reduce(self) -> None:
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

    def _along(self, loops: list[Any], merged: _Merged) -> None:
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

    # -- merging axes ----------------------------------------------------------------------------

    def _merge(self, extents: list[int], which: int) -> _Merged:
        """Merges trailing loop axes (0: the map's own, 1: the reduction's) while all accesses stay linear."""
        if not extents:
            return _Merged([], 1, 0, True)
        marks = [tirx.Var(f"m{i}", "int32") for i in range(len(extents))]
        log, values = self._dry(marks, which)
        count, contiguous = 1, False
        coefficients = _coefficients(log, marks)
        if coefficients is not None:
            last = [c[-1] for c in coefficients]
            free = not _occurs(values, marks[-1]) if which == 0 else True
            contiguous = all(c in (0, 1) for c in last) and any(c == 1 for c in last)
            while count < len(extents) and free:
                axis = len(extents) - 1 - count
                if _occurs(values, marks[axis]) or _occurs(values, marks[axis + 1]):
                    break
                step = extents[axis + 1]
                if not all(c[axis] == c[axis + 1] * step for c in coefficients):
                    break
                count += 1
        inner = int(np.prod(extents[len(extents) - count:], dtype=np.int64))
        return _Merged(extents[: len(extents) - count], inner, count, contiguous)

    def _dry(self, marks: list[Any], which: int) -> tuple[list[Any], list[Any]]:
        """All flat positions that one element touches, and all other values the axes flow into."""
        ctx = self.ctx
        ctx.log = []
        with self.k.capture():
            inliner = ctx.inliner(self.sources())
            inliner.values = []
            tensor = self.phase.tensors[0]
            if which == 0:
                indices = self.indices(marks, None)
                for t, target in zip(self.phase.tensors, self.targets):
                    inliner.at(t, indices)
                    self.store(target, indices, tirx.Cast(t.expr_ty(), tirx.IntImm("int32", 0)))
            else:
                outer = [tirx.Var("o", "int32") for _ in self.extents()]
                inliner.declare(tensor.op)
                axes = {a.var: i for a, i in zip(tensor.op.axis, self.indices(outer, None))}
                axes.update({a.var: m for a, m in zip(tensor.op.reduce_axis, marks)})
                for part in [*tensor.op.body[0].source, tensor.op.body[0].condition]:
                    inliner.expression(part, axes)
            log, ctx.log = ctx.log, None
        return log, inliner.values


@dataclass
class _Merged:
    """Loop axes of which the last ``count`` are one axis of ``inner`` elements."""

    outer: list[int]
    inner: int
    count: int
    contiguous: bool

    def expand(self, loops: Sequence[Any], position: Any) -> list[Any]:
        """All axes' indices: merged axes are zero but the last, whose stride makes up for them."""
        zero = tirx.IntImm("int32", 0)
        return [*loops, *([zero] * (self.count - 1)), *([position] if self.count else [])]


def _coefficients(log: Sequence[Any], marks: list[Any]) -> list[list[int]] | None:
    result = []
    for position in log:
        if isinstance(position, int):
            position = tirx.IntImm("int32", position)
        linear = sym.detect_linear_equation(position, marks)
        if not len(linear):
            return None
        if not all(isinstance(c, prim.IntImm) for c in linear[:-1]):
            return None
        result.append([int(c.value) for c in linear[:-1]])
    return result


def _occurs(values: Sequence[Any], mark: Any) -> bool:
    return any(v.same_as(mark) for value in values for v in tirx.analysis.undefined_vars(value))


def _is_axis(index: Any, axis: Any) -> bool:
    while isinstance(index, prim.Cast):
        index = index.value
    return hasattr(index, "same_as") and index.same_as(axis)


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

