"""Loop nests of reductions: lanes across outputs, or lanes along the reduced axis.

    across   each lane reduces on its own (channel lanes, or SIDE vectors of neighbouring outputs)
    along    one output: vectors run along contiguous memory in UNROLL accumulators, combined in halves at the end

Either way the order of the operations is fixed, so the bits are the same on every run and for every thread count.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ..kernel.work_sharing import bands
from ..words.dims import Dim, is_open, to_index
from ..words.group import Value, dtype_bytes
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Buffer, Expr
from .axes import Merged
from .combiners import identities
from .reduced_lines import UNROLL, ReducedLines

FEW_LINES = 8  # lines of outputs that are too few for the cores: their tiles are the tasks then
SIDE = 4  # vectors of outputs that reduce side by side: the same latency, and 256 bytes of each row

Place = Callable[[Expr, Expr], "list[Expr]"]


class ReductionNest(ReducedLines):
    """Emits one reduction phase."""

    def _width(self) -> int:
        if self.extreme is None:
            return super()._width()
        size = dtype_bytes(str(self.phase.tensors[0].op.body[0].source[1].ty.dtype))
        return max(1, self.s.request.target.vector_bits // 8 // max(size, 4))

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

    def _constant(self, loops: list[Expr], first: Expr) -> None:
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

        def rows(loops: list[Expr]) -> None:
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
        inside = tirx.all(line >= whole[0], line < to_index(whole[1]))
        with self.k.when(inside):
            known = self.k.bind(line, "y")
            self.ctx.between(known, *whole)
            row = self.row
            if loops:
                self._line_of_outputs(merged, [*loops[:-1], known], kind)
            else:
                self.row = [*row[:-1], known]
                self._line_of_outputs(merged, loops, kind)
                self.row = row
        with self.k.when(tirx.any(line < whole[0], line >= to_index(whole[1]))):
            self._line_of_outputs(merged, loops, kind)

    def _line_of_outputs(self, merged: Merged, loops: list[Expr], kind: str) -> None:
        first, last = self._inside(merged)
        if isinstance(merged.inner, Dim):
            self._open_line(merged, loops, kind, (first, last))
            return
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
            if not count:
                continue
            with self.k.loop(count, kind, "j") as j:
                self.ctx.ranged(j, count)
                self._across(self._vectors(merged, loops, j * (side * self.lanes) + done), self.lanes, side, chains)
            done += count * side * self.lanes
        if tail:
            # a whole vector that ends there, if there is room: it computes some outputs again. Not in a row of scratch,
            # where the next phase would wait for stores that overlap what it loads.
            width = self.lanes if vectors and all(isinstance(t, Value) for t in self.targets) else tail
            self._across(self._vectors(merged, loops, done + tail - width), width, chained=chains)

    def _open_line(self, merged: Merged, loops: list[Expr], kind: str, inside: tuple[Expr, Dim]) -> None:
        """As :meth:`_line_of_outputs`, of an open number of outputs, those ``inside`` without choices; the last vector
        is moved back where there is room."""
        k, whole, lanes = self.k, to_index(merged.inner), self.lanes
        first, last = inside
        begin: Expr = 0
        end = whole
        if first != 0 or last != merged.inner:
            begin = k.hold(tirx.min(first, whole), "b")
            end = k.hold(tirx.max(to_index(last), begin), "e")
        chains = not usual(merged.inner // (lanes * SIDE))

        def one_by_one(start: Expr, stop: Expr) -> None:
            with k.loop(stop - start, name="x") as x:
                self.ctx.ranged(x, merged.inner)
                self._across(self._vectors(merged, loops, x + start), 1, chained=chains)

        def vectors(start: Expr, side: int) -> None:
            at = k.bind(start, "x")
            if isinstance(at, tirx.Var):
                self.ctx.between(at, first, last - side * lanes + 1)
            self._across(self._vectors(merged, loops, at), lanes, side, chains)

        if first != 0:
            one_by_one(0, begin)
        if last != merged.inner:
            one_by_one(end, whole)
        tiles = k.hold(tirx.floordiv(end - begin, lanes * SIDE), "t")
        with k.loop(tiles, kind, "j") as j:
            vectors(begin + j * (lanes * SIDE), SIDE)
        done = k.hold(begin + tiles * (lanes * SIDE), "d")
        with k.loop(tirx.floordiv(end - done, lanes), kind, "j") as j:
            vectors(done + j * lanes, 1)
        with k.when(tirx.all(end - begin >= lanes, tirx.NE(tirx.floormod(end - begin, lanes), 0))):
            vectors(end - lanes, 1)
        with k.when(end - begin < lanes):
            one_by_one(begin, end)

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

        def in_chains(outer: list[Expr]) -> None:
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
