"""Loop nests of reductions: lanes across outputs, or lanes along the reduced axis.

    across   each lane reduces on its own (channel lanes, or SIDE vectors of neighbouring outputs)
    along    one output: vectors run along contiguous memory in UNROLL accumulators, combined in halves at the end

Either way the order of the operations is fixed, so the bits are the same on every run and for every thread count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Range
from tvm.ir.prim import expr as prim

from ..emit.inline import Inliner, narrow
from ..kernel.work_sharing import bands
from ..words.dims import Dim, is_open
from ..words.group import Value, dtype_bytes
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Buffer, Expr
from . import argmax
from .axes import Merged
from .combiners import identities, is_extremum
from .loop_nest import Nest

UNROLL = 4  # accumulators: covers the latency of an add or max (4 cycles, one port)
FEW_LINES = 8  # lines of outputs that are too few for the cores: their tiles are the tasks then
EDGE = 16  # outputs at either end of a row that may be computed apart from the vectors between
SIDE = 4  # vectors of outputs that reduce side by side: the same latency, and 256 bytes of each row

Place = Callable[[Any, Any], "list[Any]"]


class ReductionNest(Nest):
    """Emits one reduction phase."""

    def _width(self) -> int:
        if self.extreme is None:
            return super()._width()
        size = dtype_bytes(str(self.phase.tensors[0].op.body[0].source[1].ty.dtype))
        return max(1, self.s.request.target.vector_bits // 8 // max(size, 4))

    @property
    def extreme(self) -> tuple[str, str] | None:
        """The kind of the positions that are wanted, if those are; see :mod:`.argmax`."""
        return argmax.kind_of(self.phase.tensors[0].op)

    def emit(self) -> None:
        op = self.phase.tensors[0].op
        first = op.body[0]
        reduce_extents = [dim_of(a.dom.extent) for a in op.reduce_axis]
        if 0 in reduce_extents:
            self._loops(self.extents(), lambda loops: self._constant(loops, first))
            return
        if self.sums_images():
            self._image(*reduce_extents)
            return
        if self._emit_windows():
            return
        if self.blocked:
            self._loops(self.extents(), lambda loops: self._across(lambda _u, _v: loops, self.lanes))
            return
        extents = self.extents()
        over_k = self._merge(reduce_extents, 1)
        if over_k.contiguous and usual(over_k.inner) >= 2 * self.lanes:
            self._loops(extents, lambda loops: self._along(loops, over_k))
            return
        if extents:
            merged = self._merge(extents, 2)
            if self._worth_a_launch() and usual(product(merged.outer)) < FEW_LINES:
                self._serial(merged.outer, [], lambda loops: self._across_line(merged, loops, "parallel"))
            else:
                self._loops(merged.outer, lambda loops: self._across_line(merged, loops))
            return
        self._loops(extents, lambda loops: self._along(loops, over_k))

    def _emit_windows(self) -> bool:
        """Emits windows that are computed side by side (sliding_windows.py); False where these are none."""
        return False

    def _constant(self, loops: list[Any], first: Expr) -> None:
        width = self.lanes if self.blocked else 1
        with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
            indices = self.indices(loops, v)
            for target, identity in zip(self.targets, identities(first)):
                self.store(target, indices, identity)

    def sums_images(self) -> bool:
        """True if whole images in channel blocks become one element a channel, with one combiner."""
        op, shape = self.phase.tensors[0].op, self.phase.shape
        whole = self.blocked and len(shape) == 4 and shape[2:] == (1, 1) and self.ctx.origin is None
        return whole and len(op.reduce_axis) == 2 and len(self.phase.tensors) == 1

    def shares_images(self) -> bool:
        """True if cores take bands of the images' rows, as those who wrote them: one sum a row, then the rows' sums."""
        return self.sums_images() and self._banded()

    def _height(self) -> int:
        """Rows of what is read, where those are summed before the image."""
        return dim_of(self.phase.tensors[0].op.reduce_axis[0].dom.extent) if self.sums_images() else self.phase.shape[2]

    def _image(self, height: int, width: int) -> None:
        """Sums of rows, then the sum of those, in the same order however many cores share them."""
        k, lanes = self.k, self.lanes
        dtype, extents = str(self.phase.tensors[0].dtype), self.extents()
        zero = tirx.IntImm("int32", 0)

        def store(loops: list[Expr], total: Buffer) -> None:
            with k.loop(lanes, "vectorized", "v") as v:
                self.ctx.ranged(v, lanes)
                self.store(self.targets[0], self.indices(loops, v), total[v])

        if not self.shares_images():

            def image(loops: list[Expr]) -> None:
                total = self._started(dtype, 1)
                with k.loop(height, name="y") as y:
                    self.ctx.ranged(y, height)
                    acc = self._row(loops, y, width, dtype)
                    with k.loop(lanes, "vectorized", "v") as v:
                        self._combine([total], v, [acc[v]])
                store(loops, total)

            self._loops(extents, image)
            return
        images, groups = extents[:2]
        sums = self.ctx.scratch(images * groups * height * lanes, dtype)
        with bands(self.ctx, images, groups, height, True) as (n, group, y):
            acc = self._row([n, group, zero, zero], y, width, dtype)
            with k.loop(lanes, "vectorized", "v") as v:
                k.store(sums, ((n * groups + group) * height + y) * lanes + v, acc[v])

        def rows(loops: list[Any]) -> None:
            total = self._started(dtype, 1)
            with k.loop(height, name="y") as y, k.loop(lanes, "vectorized", "v") as v:
                self._combine([total], v, [sums[((loops[0] * groups + loops[1]) * height + y) * lanes + v]])
            store(loops, total)

        self._serial(extents, [], rows)

    def _started(self, dtype: str, sets: int) -> Buffer:
        acc = self.k.local("acc", dtype, sets * self.lanes)
        with self.k.loop(sets, "unroll", "u") as u, self.k.loop(self.lanes, "vectorized", "v") as v:
            self.k.store(acc, u * self.lanes + v, identities(self.phase.tensors[0].op.body[0])[0])
        return acc

    def _row(self, loops: list[Expr], y: Expr, width: int, dtype: str) -> Buffer:
        """The sum of one row of one channel block, in its first vector."""
        k, lanes = self.k, self.lanes
        chains = UNROLL if usual(width) >= 2 * UNROLL else 1
        acc = self._started(dtype, chains)
        rounds, rest = divmod(width, chains)
        for first, count, side in ((0, rounds, chains), (rounds, 1, rest)):
            if not is_open((count, side)) and not (count and side):
                continue
            kind = "serial" if isinstance(side, Dim) else "unroll"
            with k.loop(count, name="r") as r, k.loop(side, kind, "u") as u, k.loop(lanes, "vectorized", "v") as v:
                self.ctx.ranged(r, count if isinstance(count, Dim) else max(1, count))
                self.ctx.ranged(u, chains)
                self.ctx.ranged(v, lanes)
                self._accumulate([acc], u * lanes + v, self.indices(loops, v), [y, (first + r) * chains + u])
        for c in range(1, chains):
            with k.loop(lanes, "vectorized", "v") as v:
                self._combine([acc], v, [acc[c * lanes + v]])
        return acc

    def _across_line(self, merged: Merged, loops: list[Expr], kind: str = "serial") -> None:
        """All vectors of outputs along the (merged) last axis: in tiles of SIDE, then one by one, then the tail.

        Where a choice depends on the position (the padding beside a row), outputs are computed one by one. Lines whose
        windows all lie within the image have code of their own, without the choices of those above and below.
        """
        whole = self._whole_lines(merged, loops)
        if whole is None:
            self._line_of_outputs(merged, loops, kind)
            return
        line = (loops or self.row)[-1]
        inside = tirx.all(line >= whole[0], line < whole[1])
        with self.k.when(inside):
            known = self.k.bind(line, "y")
            self.ctx.analyzer.bind(known, Range(*whole))
            row = self.row
            if loops:
                self._line_of_outputs(merged, [*loops[:-1], known], kind)
            else:
                self.row = [*row[:-1], known]
                self._line_of_outputs(merged, loops, kind)
                self.row = row
        with self.k.when(tirx.any(line < whole[0], line >= whole[1])):
            self._line_of_outputs(merged, loops, kind)

    def _line_of_outputs(self, merged: Merged, loops: list[Expr], kind: str) -> None:
        first, last = self._inside(merged)
        vectors, tail = divmod(last - first, self.lanes)
        tiles, single = divmod(vectors, SIDE)
        chains = not usual(tiles)  # equal numbers have equal sums all along the line
        for begin, end in ((0, first), (last, merged.inner)):
            if begin != end:
                with self.k.loop(end - begin, name="x") as x:
                    self.ctx.ranged(x, end - begin)
                    self._across(self._vectors(merged, loops, x + begin), 1, chained=chains)
        done = first
        for count, side in ((tiles, SIDE), (single, 1)):
            if not (is_open([count]) or count):
                continue
            with self.k.loop(count, kind, "j") as j:
                self.ctx.ranged(j, count)
                self._across(self._vectors(merged, loops, j * (side * self.lanes) + done), self.lanes, side, chains)
            done += count * side * self.lanes
        if isinstance(tail, Dim):
            with self.k.loop(tail, name="x") as x:
                self.ctx.ranged(x, self.lanes)
                self._across(self._vectors(merged, loops, x + done), 1, chained=chains)
        elif tail:
            # a whole vector that ends there, if there is room: it computes some outputs again. Not in a row of scratch,
            # where the next phase would wait for stores that overlap what it loads.
            width = self.lanes if vectors and all(isinstance(t, Value) for t in self.targets) else tail
            self._across(self._vectors(merged, loops, done + tail - width), width, chained=chains)

    def _whole_lines(self, merged: Merged, loops: list[Expr]) -> tuple[int, int] | None:
        """The indices of the axis before the last between its edges, if a choice depends on it beside those only."""
        if merged.count != 1 or not (loops or self.row) or self.ctx.origin is not None:
            return None
        lines = merged.outer[-1] if loops else self.phase.shape[len(self.row) - 1]
        if is_open((lines, merged.inner)) or lines < 4 or not self._chooses(merged, 0, merged.inner, (0, lines)):
            return None
        edge = min(EDGE, lines // 4)
        width = merged.inner

        def free(first: int, last: int) -> bool:
            return not self._chooses(merged, 0, width, (first, last))

        first = next((e for e in range(edge + 1) if free(e, lines - edge)), None)
        if first is None:
            return None
        return first, next(lines - e for e in range(edge + 1) if free(first, lines - e))

    def _inside(self, merged: Merged) -> tuple[int, int]:
        """The positions of the last axis between its edges, where no choice depends on them; all, if there are none."""
        whole = merged.inner
        if merged.count != 1 or isinstance(whole, Dim) or not self._chooses(merged, 0, whole):
            return 0, whole
        edge = min(EDGE, whole // 4)
        first = next((e for e in range(edge + 1) if not self._chooses(merged, e, whole - edge)), None)
        if first is None:
            return 0, whole
        return first, next(whole - e for e in range(edge + 1) if not self._chooses(merged, first, whole - e))

    def _chooses(self, merged: Merged, first: int, last: int, lines: tuple[int, int] | None = None) -> bool:
        """True if a choice is left that depends on the position, known to be in [first, last); or, with ``lines``, on
        the index of the line, known to be among them."""
        op = self.phase.tensors[0].op
        position = tirx.Var("x", "int32")
        self.ctx.analyzer.bind(position, Range(first, last))
        line = tirx.Var("y", "int32")
        own = self.row
        if lines is not None:
            self.ctx.analyzer.bind(line, Range(*lines))
        known = len(self.k.guards)
        with self.k.capture():
            inliner = self.ctx.inliner(self.sources())
            inliner.declare(op)
            outer: list[Any] = [self.ctx.ranged(tirx.Var("o", "int32"), e) for e in merged.outer]
            if lines is not None and outer:
                outer[-1] = line
            elif lines is not None:
                self.row = [*own[:-1], line]
            axes = {a.var: i for a, i in zip(op.axis, self.indices(merged.expand(outer, position), None))}
            for a in op.reduce_axis:
                axes[a.var] = self.ctx.ranged(tirx.Var("r", "int32"), dim_of(a.dom.extent)) + a.dom.min
            for source in op.body[0].source:
                inliner.expression(source, axes)
        self.row = own
        found = self.k.guards[known:]
        del self.k.guards[known:]
        wanted = position if lines is None else line
        return any(v.same_as(wanted) for c in found for v in tirx.analysis.undefined_vars(c))

    def _vectors(self, merged: Merged, loops: list[Expr], start: Expr) -> Place:
        """The vectors of outputs that lie behind one another from ``start``."""
        return lambda u, v: merged.expand(loops, start + u * self.lanes + v)

    def _across(
        self, place: Place, width: int, side: int = 1, chained: bool = True, written: bool = False
    ) -> None:
        """``side`` vectors of outputs, each lane reducing on its own; ``place`` gives the indices of a vector and lane.

        Vectors side by side hide the latency of the combiner and read longer runs of each row. A single vector takes
        the innermost reduced axis in UNROLL interleaved chains instead, where that is long and others do so too.
        ``written``: the reduced axes are written out.
        """
        op = self.phase.tensors[0].op
        kind = "vectorized" if width > 1 else "serial"
        extents = [dim_of(a.dom.extent) for a in op.reduce_axis]
        chains = UNROLL if chained and side == 1 and usual(extents[-1]) >= 2 * UNROLL else 1
        sets = side * chains
        identities = self._identities()
        accumulators = [self.k.local("acc", str(i.ty.dtype), sets * width) for i in identities]
        for acc, identity in zip(accumulators, identities):
            with self.k.loop(sets, "unroll", "u") as u, self.k.loop(width, kind, "v") as v:
                self.k.store(acc, u * width + v, identity)

        def element(u: Expr, slot: Expr, reduce_loops: list[Expr]) -> None:
            with self.k.loop(width, kind, "v") as v:
                self.ctx.ranged(v, width)
                self._accumulate(accumulators, slot * width + v, self.indices(place(u, v), v), reduce_loops)

        def in_chains(outer: list[Any]) -> None:
            rounds, rest = divmod(extents[-1], chains)
            with self.k.loop(rounds, name="r") as r, self.k.loop(chains, "unroll", "u") as u:
                self.ctx.ranged(r, rounds)
                element(0, u, [*outer, r * chains + u])
            if is_open([rest]) or rest:
                with self.k.loop(rest, "serial" if isinstance(rest, Dim) else "unroll", "u") as u:
                    self.ctx.ranged(u, chains)
                    element(0, u, [*outer, rounds * chains + u])

        def sided(reduce_loops: list[Expr]) -> None:
            with self.k.loop(side, "unroll", "u") as u:
                self.ctx.ranged(u, side)
                element(u, u, reduce_loops)

        if chains > 1:
            self._serial(extents[:-1], [], in_chains)
        else:
            self._serial(extents, [], sided, "unroll" if written else "serial")
        for c in range(1, chains):
            with self.k.loop(width, kind, "v") as v:
                self._combine(accumulators, v, [acc[c * width + v] for acc in accumulators])
        with self.k.loop(side, "unroll", "u") as u, self.k.loop(width, kind, "v") as v:
            self.ctx.ranged(u, side)
            self.ctx.ranged(v, width)
            full = self.indices(place(u, v), v)
            for tensor, target, acc in zip(self.phase.tensors, self.targets, accumulators):
                self.store(target, full, tirx.Cast(str(tensor.dtype), acc[u * width + v]))

    def _along(self, loops: list[Expr], merged: Merged) -> None:
        """One output: vectors run along the reduced axis, in UNROLL accumulators."""
        lanes = self.lanes if isinstance(merged.inner, Dim) else min(self.lanes, merged.inner)
        unroll = UNROLL if usual(merged.inner) >= 2 * UNROLL * lanes else 1
        indices = self.indices(loops, None)
        identities = self._identities()
        accumulators = [self.k.local("acc", str(i.ty.dtype), unroll * lanes) for i in identities]
        for acc, identity in zip(accumulators, identities):
            with self.k.loop(unroll, "unroll") as u, self.k.loop(lanes, "vectorized", "v") as v:
                self.k.store(acc, u * lanes + v, identity)

        def line(outer: list[Any]) -> None:
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
            vectors, tail = divmod(rest, lanes)
            if is_open([vectors]) or vectors:
                with self.k.loop(vectors, name="j") as j, self.k.loop(lanes, "vectorized", "v") as v:
                    self.ctx.ranged(j, vectors)
                    self.ctx.ranged(v, lanes)
                    at = merged.expand(outer, chunks * chunk + j * lanes + v)
                    self._accumulate(accumulators, v, indices, at)
            if is_open([tail]) or tail:
                with self.k.loop(tail, "serial" if is_open([tail]) or tail == 1 else "vectorized", "v") as v:
                    self.ctx.ranged(v, lanes if isinstance(tail, Dim) else tail)
                    at = merged.expand(outer, chunks * chunk + vectors * lanes + v)
                    self._accumulate(accumulators, v, indices, at)

        self._serial(merged.outer, [], line)
        self._fold(accumulators, unroll, lanes)
        for tensor, target, acc in zip(self.phase.tensors, self.targets, accumulators):
            self.store(target, indices, tirx.Cast(str(tensor.dtype), acc[0]))

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

    def _accumulate(self, accumulators: list[Any], slot: Expr, indices: list[Expr], reduce_loops: list[Expr]) -> None:
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
        mapping: dict[Any, Any] = {}
        for var, acc in zip(combiner.lhs, accumulators):
            mapping[var] = acc[slot] if len(accumulators) == 1 else self.k.bind(acc[slot], "a")
        for var, value in zip(combiner.rhs, values):
            mapping[var] = value if len(values) == 1 and not is_extremum(combiner) else self.k.bind(value, "x")
        results = [inliner.expression(r, mapping) for r in combiner.result]
        for acc, result in zip(accumulators, results):
            self.k.store(acc, slot, result)
