"""One loop nest of the general generator: coordinates, merged axes, loops. Maps and reductions are kinds of it.

Trailing axes are merged while every access stays linear in them, so that a 56 x 56 map is one axis of 3136:

    for h: for w: y[h * 56 + w] = f(x[h * 56 + w])     ->     for i: y[i] = f(x[i])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..emit.builder import KernelBuilder
from ..emit.inline import Source, key, narrow
from ..emit.register_transpose import side_of
from ..kernel.context import Channel, Context
from ..kernel.work_sharing import bands, has_bands
from ..words.dims import is_open
from ..words.group import Box, Request, Value, dtype_bytes
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Buffer, Expr, Operation
from .axes import Merged, depends, linear_coefficients, occurs
from .open_places import NOTE, named
from .phases import Phase

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

SHORT = 512  # elements of a task
TASKS, FEW_TASKS = 64, 4  # of a loop, and of one whose tasks are short for each core
PARALLEL_WORK = 32 * 1024  # element operations below which a launch costs more than it saves
LOCAL_WORK = 8 * 1024  # where cores take bands of rows, the data that need not move counts as well
BAND_BYTES = 4096  # of one channel: shorter bands share too many cache lines where channels are not blocked


class Owner(Protocol):
    """The kernel that a nest is part of."""

    request: Request
    ctx: Context
    k: KernelBuilder
    block: int
    stored: dict[tuple[Operation, int], StageMemory | Value]
    notes: list[str]

    def repeats(self) -> bool:
        """True if an element of a map may be computed twice: nothing that it reads is overwritten by what it makes."""


@dataclass
class StageMemory:
    """Where a stored stage lives: a buffer, and how indices beyond the prefix map to it."""

    buffer: Buffer
    shape: tuple[int, ...]
    skip: int  # leading axes that are not part of the address (one row at a time)
    lanes: int  # trailing lanes (blocked kernels), 0 otherwise
    dims: tuple[int, ...] = ()
    offset: Expr = 0  # of index zero in the buffer
    step: int = 0  # from one row to the next, where the buffer holds several


class Nest:
    """What the nests of maps (maps.py) and of reductions (reduction_nest.py) share."""

    def __init__(
        self, staged: Owner, phase: Phase, row: list[Expr], targets: list[Value | StageMemory], parallel: bool
    ) -> None:
        self.s, self.phase, self.row, self.targets, self.parallel = staged, phase, row, targets, parallel
        self.ctx, self.k = staged.ctx, staged.k
        self.choices: list[Expr] = []  # what the element asks for whose accesses were looked at last
        self.divided: list[tuple[Expr, Expr]] = []  # and which axes it divides, by what
        self.beside: tuple[int, int] | None = None  # an axis whose elements, so many, are computed side by side
        self.places: list[Expr] = []  # the element's row and column in the tensor, where they have names
        self.blocked = bool(staged.block) and len(phase.shape) > 1
        self.lanes = staged.block if self.blocked else self._width()

    def _width(self) -> int:
        sizes = [dtype_bytes(str(t.dtype)) for t in self.phase.tensors]
        return max(1, self.s.request.target.vector_bits // 8 // max(max(sizes), 4))

    # -- coordinates -----------------------------------------------------------------------------

    def extents(self) -> list[Expr]:
        """Loop extents of the axes beyond the row; the channel axis counts blocks."""
        dims: list[Expr] = list(boxed(self.phase.shape, self.s.request.box))
        if self.ctx.size:
            dims[2:4] = self.ctx.size
        if self.blocked:
            dims[1] = -(-dims[1] // self.lanes)
        return dims[len(self.row):]

    def indices(self, loops: Sequence[Expr], lane: Expr | None) -> list[Expr]:
        """Logical indices from row and loop variables; sets the context's channel."""
        full = [*self.row, *loops]
        if self.places:
            full[2:4] = self.places
        elif self.ctx.origin is not None:
            for axis in range(max(2, len(self.row)), 4):
                full[axis] = full[axis] + self.ctx.origin[axis - 2]
        if self.blocked:
            block = full[1]
            channel = block * self.lanes + lane
            self.ctx.channel = Channel(channel, block, lane, self.lanes, self.phase.shape[1])
            full[1] = channel
        else:
            self.ctx.channel = None
        return full

    def sources(self) -> dict[tuple[Operation, int], Source]:
        table: dict[tuple[Operation, int], Expr] = {}
        own = {t.op for t in self.phase.tensors}
        for tensor_key, place in self.s.stored.items():
            if tensor_key[0] in own:
                continue
            if isinstance(place, StageMemory):
                table[tensor_key] = lambda indices, p=place: self._read(p, indices)
            else:
                table[tensor_key] = self.ctx.source(place)
        return table

    def _read(self, place: StageMemory, indices: Sequence[Expr]) -> Expr:
        position = self._address(place, indices)
        if self.ctx.log is not None:
            self.ctx.log.append(position)
        load = place.buffer[position]
        if self.k.written is not None and not place.lanes and self.ctx.origin is None:
            self.k.written.row = (load, indices[-1], place.dims[-1])
        return load

    def _address(self, place: StageMemory, indices: Sequence[Expr]) -> Expr:
        total: Expr = tirx.IntImm("int32", 0)
        lane: Expr | None = None
        for axis, index in enumerate(indices):
            if place.lanes and axis == 1:
                channel = self.ctx.channel
                assert channel is not None
                block, lane = channel.block, channel.lane
                index = block
            if axis >= place.skip:
                if self.ctx.origin is not None and axis in (2, 3):
                    index = index - self.ctx.origin[axis - 2]
                total = total * place.dims[axis] + narrow(index)
        if lane is not None:
            total = total * place.lanes + lane
        return self.ctx.analyzer.simplify(total + place.offset)

    def store(self, target: Value | StageMemory, indices: Sequence[Expr], value: Expr) -> None:
        if isinstance(target, Value):
            self.ctx.write(target, indices, value)
            return
        position = self._address(target, indices)
        if self.ctx.log is not None:
            self.ctx.log.append(position)
        self.k.store(target.buffer, position, value)

    # -- maps ------------------------------------------------------------------------------------

    def _positions(self, coordinates: Sequence[Expr]) -> list[Expr]:
        """The flat positions of all accesses of one element, as expressions."""
        log, _ = self._dry(list(coordinates), 0)
        return [tirx.IntImm("int32", p) if isinstance(p, int) else p for p in log]

    def square_side(self, axis: int) -> int:
        """Rows of the squares that can be transposed in registers; 0 if not all reads across memory run along it."""
        marks = [self.ctx.ranged(tirx.Var(f"m{i}", "int32"), e) for i, e in enumerate(self.extents())]
        coefficients = linear_coefficients(self._positions(marks), marks)
        if coefficients is None or any(c[-1] not in (-1, 0, 1) and c[axis] != 1 for c in coefficients):
            return 0
        widest = max(dtype_bytes(v.dtype) for v in (*self.ctx.graph.group.inputs, *self.ctx.graph.group.outputs))
        return side_of(self.s.request.target.vector_bits, widest)

    def _vector(self, merged: Merged, loops: list[Expr], start: Expr, width: int) -> None:
        with self.k.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
            self.ctx.ranged(v, width)
            self._element(self.indices(merged.expand(loops, start + v), None))

    def _lanes(self, loops: list[Expr]) -> None:
        self.places = named(self.ctx, self.phase.shape, [*self.row, *loops], lambda: self._each_lane(loops))
        if self.places and NOTE not in self.s.notes:
            self.s.notes.append(NOTE)
        self._each_lane(loops)
        self.places = []

    def _each_lane(self, loops: list[Expr]) -> None:
        with self.k.loop(self.lanes, "vectorized", "v") as v:
            self.ctx.ranged(v, self.lanes)
            self._element(self.indices(loops, v))

    def _element(self, indices: list[Expr]) -> None:
        inliner = self.ctx.inliner(self.sources())
        axis, count = self.beside or (0, 1)
        for place in range(count):
            at = [*indices[:axis], tirx.IntImm("int32", place), *indices[axis + 1 :]] if self.beside else indices
            for tensor, target in zip(self.phase.tensors, self.targets):
                value = inliner.at(tensor, at) if key(tensor) not in inliner.sources else None
                self.store(target, at, value)

    def _loops(self, extents: Sequence[int], body: Expr) -> None:
        """Loops over ``extents``; the leading ones are one parallel loop where that pays."""
        if self.ctx.size:
            self._serial(list(extents), [], body)
            return
        if self._banded() and len(extents) > 2 and tuple(extents) == tuple(self.extents()[: len(extents)]):
            self._banded_loops(list(extents), body)
            return
        total = product(extents)
        split = 0
        if self._worth_a_launch() and (is_open([total]) or total > 1):
            tasks = 1
            while split < len(extents) and usual(tasks) < self._most_tasks(tasks * extents[split]):
                tasks *= extents[split]
                split += 1
        if not split:
            self._serial(list(extents), [], body)
            return
        tasks = product(extents[:split])
        with self.k.loop(tasks, "parallel", "p") as p:
            self.ctx.ranged(p, tasks)
            heads: list[Expr] = []
            rest: Expr = p
            for e in reversed(extents[1:split]):
                heads.append(tirx.floormod(rest, e))
                rest = tirx.floordiv(rest, e)
            heads.append(rest)
            heads.reverse()
            heads = [self.ctx.ranged(self.k.bind(h, "h"), e) if not isinstance(h, prim.IntImm) and split > 1 else h
                     for h, e in zip(heads, extents)]
            self._serial(list(extents[split:]), heads, body)

    def _most_tasks(self, tasks: SizeLike) -> int:
        """As many as loops are shared in, of which ``tasks`` are the next number. Of short ones at the usual size none
        more where only larger sizes are worth a launch, as their beginning counts, and of open sizes a few for each
        core, as each divides to find where it is."""
        if self._work() >= usual(tasks) * SHORT:
            return TASKS
        if self._work() < PARALLEL_WORK:
            return 1
        return FEW_TASKS * self.s.request.workers if is_open([tasks]) else TASKS

    def _banded(self) -> bool:
        """True if cores take bands of rows: of images, by axis 2, where there are cores to share the work."""
        shape, workers = self.phase.shape, self.s.request.workers
        if len(shape) < 4 or self.row or workers == 1 or not self.parallel:
            return False
        if not has_bands(self._height(), workers):
            return False
        band = usual(product(shape[2:])) // workers * dtype_bytes(str(self.phase.tensors[0].dtype))
        if self.blocked:
            return self.ctx.launches.pays(self._work(), LOCAL_WORK, ())
        return self._worth_a_launch() and band >= BAND_BYTES

    def _height(self) -> int:
        """Rows that cores can share."""
        return self.phase.shape[2]

    def _banded_loops(self, extents: list[int], body: Expr) -> None:
        def first(image: Expr, part: Expr, parts: int) -> None:
            if len(self.phase.shape) == 4 and not self.k.conditions:  # else behind all branches
                self.ctx.fill_parts(self.targets, image, part, parts)

        with bands(self.ctx, extents[0], extents[1], extents[2], True, first=first) as (image, group, row):
            self._serial(extents[3:], [image, group, row], body)

    def _serial(self, extents: list[int], done: list[Expr], body: Expr, kind: str = "serial") -> None:
        if not extents:
            body(done)
            return
        with self.k.loop(extents[0], kind) as i:
            self.ctx.ranged(i, extents[0])
            self._serial(extents[1:], [*done, i], body, kind)

    def _worth_a_launch(self) -> bool:
        return self.parallel and self.ctx.launches.pays(self._work(), PARALLEL_WORK, self.phase.shape)

    def _work(self) -> int:
        return usual(product(self.phase.shape)) * self._reduction_size()

    def _reduction_size(self) -> int:
        if not self.phase.reduce:
            return 1
        return usual(product(dim_of(a.dom.extent) for a in self.phase.tensors[0].op.reduce_axis))

    # -- merging axes ----------------------------------------------------------------------------

    def _merge(self, extents: list[int], which: int) -> Merged:
        """Merges trailing loop axes (0: a map's own, 1: those reduced, 2: a reduction's outputs) while every access
        stays linear."""
        if not extents:
            return Merged([], 1, 0, True)
        marks = [tirx.Var(f"m{i}", "int32") for i in range(len(extents))]
        log, values = self._dry(marks, which)
        count, contiguous = 1, False
        coefficients = linear_coefficients(log, marks)
        if coefficients is not None:
            last = [c[-1] for c in coefficients]
            free = not occurs(values, marks[-1]) if which != 1 else True
            contiguous = all(c in (0, 1) for c in last) and any(c == 1 for c in last)
            while count < len(extents) and free:
                axis = len(extents) - 1 - count
                if occurs(values, marks[axis]) or occurs(values, marks[axis + 1]):
                    break
                step = extents[axis + 1]
                if not all(c[axis] == c[axis + 1] * step for c in coefficients):
                    break
                count += 1
        elif which == 1:
            contiguous = self._contiguous_vectors(extents)
        inner = product(extents[len(extents) - count:])
        return Merged(extents[: len(extents) - count], inner, count, contiguous)

    def _contiguous_vectors(self, extents: list[int]) -> bool:
        """True if each vector of the last reduced axis lies in one piece, though the axis doesn't: channels in blocks,
        read through a transpose."""
        outer = [self.ctx.ranged(tirx.Var("m", "int32"), e) for e in extents[:-1]]
        vector = self.ctx.ranged(tirx.Var("t", "int32"), -(-extents[-1] // self.lanes))
        lane = self.ctx.ranged(tirx.Var("v", "int32"), self.lanes)
        log, _ = self._dry([*outer, vector * self.lanes + lane], 1)
        steps = linear_coefficients(log, [lane])
        return steps is not None and all(s[0] in (0, 1) for s in steps) and any(s[0] == 1 for s in steps)

    def _dry(self, marks: list[Expr], which: int, lane: Expr | None = None) -> tuple[list[Expr], list[Expr]]:
        """All flat positions that one element touches, and all other values the axes flow into. ``lane`` is that of
        blocks of channels."""
        ctx = self.ctx
        ctx.log = []
        with self.k.capture() as named:
            inliner = ctx.inliner(self.sources())
            inliner.values = []
            tensor = self.phase.tensors[0]
            if which == 0:
                indices = self.indices(marks, lane)
                for t, target in zip(self.phase.tensors, self.targets):
                    inliner.at(t, indices)
                    self.store(target, indices, tirx.Cast(t.expr_ty(), tirx.IntImm("int32", 0)))
            else:
                outputs: list[Expr] = marks if which == 2 else [tirx.Var("o", "int32") for _ in self.extents()]
                reduced = marks if which == 1 else [tirx.Var("r", "int32") for _ in tensor.op.reduce_axis]
                inliner.declare(tensor.op)
                indices = self.indices(outputs, None)
                axes = {a.var: i for a, i in zip(tensor.op.axis, indices)}
                axes.update({a.var: m + a.dom.min for a, m in zip(tensor.op.reduce_axis, reduced)})
                if which == 2:
                    for t, target in zip(self.phase.tensors, self.targets):
                        self.store(target, indices, tirx.Cast(t.expr_ty(), tirx.IntImm("int32", 0)))
                for part in [*tensor.op.body[0].source, tensor.op.body[0].condition]:
                    inliner.expression(part, axes)
            log, ctx.log = ctx.log, None
        self.choices, self.divided = inliner.choices, inliner.divided
        if is_open(self.phase.shape) and any(depends(s, m) for s in named for m in marks if isinstance(m, tirx.Var)):
            log.append(tirx.floormod(marks[-1], 3))  # a position has a name, behind which is arithmetic of the axes
        return log, inliner.values


def boxed(shape: Sequence[int], box: Box | None) -> tuple[int, ...]:
    """``shape`` with the rows and columns of ``box``."""
    return tuple(shape) if box is None else (*shape[:2], box.rows, box.columns)
