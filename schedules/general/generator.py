"""The general generator: any DAG of TE stages, as a few vectorised loop nests in one kernel.

It serves elementwise chains, data movement, pooling, softmax, norms, arg-reductions and every operator that has no
family of its own. The loop nest of a group with a shared prefix of axes (softmax, norms):

    parallel for row in prefix:              one launch for the whole group
        for phase in phases:                 scratch of one row, in cache
            for rest of the axes: vector

and without one (elementwise, pooling): each phase is a parallel nest of its own.

Vectors run over channel lanes where the output is blocked, else over the innermost axis, merged with its
neighbours as long as every access stays contiguous (so that 56 x 56 is 3136 long). A reduction over contiguous memory
keeps ``UNROLL`` vector accumulators and combines them at the end, always in the same order.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx

from ...errors import several
from ..emit.inline import Inliner, key
from ..instructions.prefetch import FIRST_LEVEL, LINE, hint
from ..kernel.context import Context
from ..kernel.work_sharing import bands, has_bands
from ..operators.te_graph import GroupGraph
from ..words.dims import Dim, is_open
from ..words.group import Group, Kernel, Request, Value, dtype_bytes
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Expr, Operation, Tensor
from .axes import is_axis
from .loop_nest import PARALLEL_WORK, StageMemory, boxed
from .maps import MapNest
from .phases import STACK_BYTES, Phase, PhasePlan, plan_phases
from .reduction_nest import ReductionNest
from .sliding_windows import WindowNest

# Elements of a stage for one of its reader's, up to which it is stored and not computed again at each place where it
# is read. With two places each, e elements stored cost 3 e loads and stores and leave 2 loads of 4; in plain memory
# what is stored is also computed in whole vectors, where the reader jumps.
SPREAD_BLOCKED, SPREAD_PLAIN = 2 / 3, 4.0
SIDE = 8  # rows of windows side by side in plain memory: as many cycles as a store needs to reach the cache
PAIR = 2  # rows of norms side by side: the work of one fills the time in which the other's lanes are combined
FOUR, SHORT_ROW = 4, 512  # rows of so few bytes that become one number, whose own work does not fill it
MANY_ROWS = 4  # rows that keep the cores of common machines busy


def build_staged(request: Request) -> Kernel:
    """One kernel for ``request.group``; every value's layout may be plain, or blocked with one block size."""
    graph = GroupGraph(request.group)
    return _Staged(request, graph).build()


def opens(request: Request) -> bool:
    """True if a kernel of this group can take the size of its box at run time: one phase over channel lanes."""
    blocked = all(request.layout(v).block for v in request.group.outputs)
    return blocked and len(plan_phases(GroupGraph(request.group), request.group.outputs).phases) == 1


def opens_rows(request: Request) -> bool:
    """True if a kernel of this group, whose results lie in rows, can: one phase of maps. (Those of a known size, which
    transpose in registers and write out what repeats, are faster.)"""
    plain = not any(request.layout(v).block for v in request.group.outputs)
    phases = plan_phases(GroupGraph(request.group), request.group.outputs, spread=SPREAD_PLAIN).phases if plain else ()
    return len(phases) == 1 and not phases[0].reduce


class _Staged:
    def __init__(self, request: Request, graph: GroupGraph) -> None:
        self.request = request
        self.group: Group = request.group
        self.graph = graph
        self.ctx = Context(request, graph, self.group.name)
        self.k = self.ctx.k
        blocks = {request.layout(v).block for v in self.group.outputs} - {0}
        self.block = blocks.pop() if blocks else 0
        blocked = () if self.block else tuple(v for v in self.group.inputs if request.layout(v).block)
        spread = SPREAD_BLOCKED if self.block else SPREAD_PLAIN
        boxed = request.box is not None
        self.plan: PhasePlan = plan_phases(graph, self.group.outputs, blocked, spread, bool(self.block), boxed)
        self.stored: dict[tuple[Operation, int], StageMemory | Value] = {}
        self.notes: list[str] = []

    # -- the whole kernel ------------------------------------------------------------------------

    def build(self) -> Kernel:
        prefix = self.plan.prefix
        for table in self.plan.tables:
            self._phase(table, [], parallel=False)
        if self.request.box is None:
            self.ctx.expect_margins()
        if prefix and len(self.plan.phases) > 1 and not self._few_rows(prefix) and not self._shares_images():
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
            workspace=self.k.workspace,
            inplace=self._inplace(),
            notes=tuple(self.notes),
            scalars=tuple(self.ctx.scalars),
            since=self.ctx.launches.since,
        )

    def _describe(self) -> str:
        kind = f"lanes {self.block}" if self.block else "plain"
        if len(self.plan.phases) == 1 and not self.plan.phases[0].reduce:
            return f"map, {kind}"
        return f"staged, {several(len(self.plan.phases), 'phase')}, prefix {self.plan.prefix}, {kind}"

    def _work(self) -> int:
        total = 0
        for phase in self.plan.phases:
            work = product(phase.shape)
            if phase.reduce:
                work *= product(dim_of(a.dom.extent) for a in phase.tensors[0].op.reduce_axis)
            total += usual(work)
        return total

    def _inplace(self) -> tuple[Value, ...]:
        """Inputs that the output may overwrite: one map phase, read at the very position that is written."""
        phases = self.plan.phases
        if len(phases) != 1 or self.request.box is not None or phases[0].reduce or len(self.group.outputs) != 1:
            return ()
        output = self.group.outputs[0]
        layout = self.request.layout(output)
        if layout.margins:
            return ()
        tensor = phases[0].tensors[0]
        axes = [tirx.Var(f"a{i}", "int32") for i in range(len(output.shape))]
        identical: dict[Value, bool] = {}

        def watch(value: Value) -> Expr:
            def read(indices: tuple[Expr, ...]) -> Expr:
                same = len(indices) == len(axes) and all(
                    (e == 1) or is_axis(i, a) for i, a, e in zip(indices, axes, output.shape)
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

    def repeats(self) -> bool:
        return not self._inplace()

    def _row_extents(self, prefix: int) -> list[int]:
        shape = boxed(self.plan.phases[-1].shape, self.request.box)
        blocked_axis = self.block and prefix > 1
        return [-(-e // self.block) if (blocked_axis and i == 1) else e for i, e in enumerate(shape[:prefix])]

    def _few_rows(self, prefix: int) -> bool:
        """True if rows are too few for the cores, but so large that each phase is worth a launch of its own."""
        rows = usual(product(self._row_extents(prefix)))
        return rows < MANY_ROWS and self._work() >= PARALLEL_WORK * len(self.plan.phases)

    def _shares_images(self) -> bool:
        """True for means of images whose rows lie with the cores that wrote them (see ReductionNest)."""
        first = next((p for p in self.plan.phases if p.reduce), None)
        return first is not None and ReductionNest(self, first, [], [], parallel=True).shares_images()

    def _rows(self, prefix: int) -> None:
        extents = self._row_extents(prefix)
        self.ctx.fill_pending()
        rows = product(extents)
        several = is_open([rows]) or rows > 1
        parallel = several and self.ctx.launches.pays(self._work(), PARALLEL_WORK, [rows])
        if parallel and self._deals_bands(prefix):
            with bands(self.ctx, extents[0], extents[1], extents[2], True) as indices:
                for phase in self.plan.phases:
                    self._phase(phase, list(indices), parallel=False)
            return
        side = self._side(prefix, rows)
        blocks = -(-rows // side)
        with self.k.loop(blocks, "parallel" if parallel else "serial", "row") as block:
            self.ctx.ranged(block, blocks)
            count = side if rows % side == 0 else tirx.min(side, rows - block * side)
            for phase in self.plan.phases:
                targets = self._targets(phase, prefix, side)
                with self.k.loop(count, name="r") as r:
                    self.ctx.ranged(r, side)
                    self.stored = {t: _at_row(place, r) for t, place in self.stored.items()}
                    row = self._row(block * side + r, extents)
                    if phase is self.plan.phases[-1]:
                        self._ask_for_row(block * side + r + side, extents)
                    self._emit_phase(phase, row, [_at_row(t, r) for t in targets], parallel=False)

    def _ask_for_row(self, number: Expr, extents: list[int]) -> None:
        """Hints that the lines of all that lies in rows will be read or written at row ``number``, where pairs of rows
        leave room for the next two: between rows sums and lines of the output wait for the second-level cache. Longer
        rows wait for their arithmetic, and have been asked for by the processor."""
        target, rows = self.request.target, product(extents)
        room = 2 * PAIR * usual(self._row_bytes(rows)) <= target.l1_bytes // 3
        windows = any(p.stands_for is not None for p in self.plan.phases)
        if not room or windows or self._side(len(extents), rows) != PAIR or target.fma_ports < 2:
            return
        for value in (*self.group.inputs, *self.group.outputs):
            size, line = value.elements // rows, LINE // dtype_bytes(value.dtype)
            in_rows = list(value.shape[: len(extents)]) == extents and self.request.layout(value).is_plain
            if value.constant is not None or not in_rows or isinstance(size, Dim) or size < line:
                continue
            with self.k.loop(size // line, name="l") as part:
                place = number * size + self.ctx.ranged(part, size // line) * line
                hint(self.k, self.ctx.buffer(value), place, FIRST_LEVEL, value in self.group.outputs)

    def _row_bytes(self, rows: int) -> int:
        """What a row reads and writes, without constants."""
        moved = [v for v in (*self.group.inputs, *self.group.outputs) if v.constant is None]
        return sum(v.elements * dtype_bytes(v.dtype) for v in moved) // rows

    def _row(self, number: Expr, extents: list[int]) -> list[Expr]:
        """The indices of the row of that number. The first axis longer than 1 takes the whole rest, and those before it
        are 0: that the last block's numbers end with the rows is more than the simplifier knows."""
        indices: list[Expr] = []
        rest = number
        first = next((i for i, e in enumerate(extents) if e != 1), 0)
        for e in reversed(extents[first + 1 :]):
            indices.append(self.ctx.analyzer.simplify(tirx.floormod(rest, e)))
            rest = self.ctx.analyzer.simplify(tirx.floordiv(rest, e))
        indices += [rest, *[tirx.IntImm("int32", 0)] * first] if extents else []
        indices.reverse()
        indices = self.ctx.rows.noted(indices, extents, number)
        if self.ctx.origin is not None:
            indices[2:] = [i + o for i, o in zip(indices[2:], self.ctx.origin)]
        return indices

    def _deals_bands(self, prefix: int) -> bool:
        """True for rows of windows, which read those of other rows: cores take the bands that they have written."""
        windows = any(p.stands_for is not None for p in self.plan.phases)
        rows, workers = self.plan.phases[-1].shape[2:3], self.request.workers
        return windows and prefix == 3 and workers > 1 and has_bands(rows[0], workers) and self.request.box is None

    def _side(self, prefix: int, count: int) -> int:
        """How many of the ``count`` rows take turns in every phase. Where windows read what was stored just before, a
        load that spans two stores waits until both are in the cache; over channel lanes each load is of one store."""
        if self.request.box is not None or count == 1:
            return 1
        count = usual(count)
        if not any(p.stands_for is not None for p in self.plan.phases):
            return self._turns(count)
        if self.block:
            return 1
        rows = [p.tensors[0] for p in self.plan.phases if p.values[0] is None]
        elements = max(usual(product(map(dim_of, t.shape[prefix:]))) for t in rows)
        return max(1, min(SIDE, STACK_BYTES // (elements * max(dtype_bytes(str(t.dtype)) for t in rows))))

    def _turns(self, count: int) -> int:
        """Rows of plain memory that are summed take turns in pairs, short ones of which a sum is all that is left in
        fours, if these leave most of the first-level cache free and the cores enough to share."""
        row = usual(self._row_bytes(product(self._row_extents(self.plan.prefix))))
        if self.block or not any(p.reduce for p in self.plan.phases):
            return 1
        most = min(count // (MANY_ROWS * self.request.workers), self.request.target.l1_bytes // max(1, 3 * row))
        short = row <= SHORT_ROW and all(usual(v.elements) == count for v in self.group.outputs)
        return next((t for t in (FOUR, PAIR) if t <= most and (t == PAIR or short)), 1)

    # -- one phase -------------------------------------------------------------------------------

    def _phase(self, phase: Phase, row: list[Expr], parallel: bool) -> None:
        """One loop nest over the axes of ``phase`` beyond ``row`` (whose axis 1 is a block index if blocked)."""
        self._emit_phase(phase, row, self._targets(phase, len(row)), parallel)

    def _emit_phase(self, phase: Phase, row: list[Expr], targets: list[Value | StageMemory], parallel: bool) -> None:
        if 0 in phase.shape:
            return
        if phase.reduce:
            WindowNest(self, phase, row, targets, parallel).emit()
        else:
            MapNest(self, phase, row, targets, parallel).emit()
        if not row:
            self.ctx.fill_pending(targets)

    def _targets(self, phase: Phase, skip: int, side: int = 1) -> list[Value | StageMemory]:
        """Where ``phase`` stores; scratch of rows on the stack has room for ``side`` of them."""
        targets: list[Value | StageMemory] = []
        for tensor, value in zip(phase.tensors, phase.values):
            if value is not None:
                targets.append(value)
                if phase.reduce:
                    self._keep(phase, tensor, value)
                continue
            dims = list(boxed(phase.shape, self.request.box))
            lanes = self.block if len(dims) > 1 and self.block else 0
            if lanes:
                dims[1] = -(-dims[1] // lanes)
            kept = dims[skip:]
            elements = product(kept) * max(1, lanes)
            dtype = str(tensor.dtype)
            bytes_ = elements * dtype_bytes(dtype)
            if skip and isinstance(bytes_, Dim):
                buffer = self.k.local("s", dtype, elements * side)
                scratch = StageMemory(buffer, phase.shape, skip, lanes, tuple(dims), step=elements)
            elif skip and bytes_ <= STACK_BYTES:
                room = elements * side
                buffer = self.k.local("s", dtype, room, "local" if room * dtype_bytes(dtype) <= 256 else "global")
                scratch = StageMemory(buffer, phase.shape, skip, lanes, tuple(dims), step=elements)
            else:
                elements = product(dims) * max(1, lanes)
                buffer = self.ctx.scratch(elements, dtype)
                scratch = StageMemory(buffer, phase.shape, 0, lanes, tuple(dims))
            self._keep(phase, tensor, scratch)
            targets.append(scratch)
        return targets

    def _keep(self, phase: Phase, tensor: Tensor, place: StageMemory | Value) -> None:
        self.stored[key(tensor)] = place
        if phase.stands_for is not None:
            self.stored[key(phase.stands_for)] = place


def _at_row(place: StageMemory | Value, row: Expr) -> StageMemory | Value:
    """``place`` for one of the rows that share it."""
    if isinstance(place, Value) or place.step == 0:
        return place
    return replace(place, offset=row * place.step)
