"""Builds the kernel of a chain in double-buffered stripes: the members' kernels, and a driver in the exact sequence.

    open the scratchpad
    for event of the sequence (schedules/scratchpad/double_buffer.py):
        load, store      one 2-D transfer for each value: a plane's rows are one line where its columns are all there,
                         else every plane has a transfer of its own, a row a line
        wait             for every transfer of that stripe
        compute          the stripe's steps, on the buffers of its turn
    close it

The driver's code has no loops: every event is a few calls with constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx

from ...errors import several
from ..emit.builder import KernelBuilder
from ..tiled.kernel import GroupBuilder, TiledKernel
from ..tiled.operands import Operand, part_operands
from ..tiled.program import Call
from ..tiled.window_ops import build_margins
from ..words.alignment import aligned
from ..words.group import Packed, Request, Scratch, Scratchpad, Value, dtype_bytes
from ..words.layout import Layout
from ..words.stripe_plan import Part, StripePlan
from ..words.tile_plan import Task, TilePlan, Window
from ..words.tvm_types import Buffer, Expr, PrimFunc
from .double_buffer import double_buffered

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

RUNTIME = "halotile_scratchpad_"
MOST_TRANSFERS = 256  # of one event: a quarter of what the reference has room for, as four events may be under way


@dataclass(frozen=True)
class Geometry:
    """A 2-D transfer: offsets in bytes from the window's and the value's start, and strides, in bytes."""

    window: int
    memory: int
    line_bytes: int
    lines: int
    window_stride: int
    memory_stride: int


def transfers(part: Part, window: Layout, memory: Layout) -> tuple[Geometry, ...]:
    """The 2-D transfers that move ``part`` between a window and the whole value: one if rows are contiguous."""
    size = dtype_bytes(part.value.dtype)
    lanes = memory.block or 1
    rows, columns = part.rows[1] - part.rows[0], part.columns[1] - part.columns[0]
    planes = 1
    for d in memory.physical_shape[:2]:
        planes *= d
    origin = (0, 0, part.rows[0], part.columns[0])
    start = memory.offset(origin, 0, 0) if memory.block else memory.offset(origin)
    local = (part.rows[0] - part.base[0]) * window.strides[2] + (part.columns[0] - part.base[1]) * window.strides[3]
    line = columns * lanes
    if line == window.strides[2] == memory.strides[2] or rows == 1:
        strides = window.strides[1] * size, memory.strides[1] * size
        return (Geometry(local * size, start * size, rows * line * size, planes, *strides),)
    return tuple(
        Geometry(
            (local + p * window.strides[1]) * size,
            (start + p * memory.strides[1]) * size,
            line * size,
            rows,
            window.strides[2] * size,
            memory.strides[2] * size,
        )
        for p in range(planes)
    )


@dataclass(frozen=True, eq=False)
class StripedKernel(TiledKernel):
    """``scratchpad`` is how many bytes of it the kernel uses."""

    scratchpad: int = 0


def build_striped(plan: StripePlan, whole: Request) -> StripedKernel:
    """The kernel of a chain in stripes. ``whole`` asks for the group that the plan stands for, in the layouts of all
    values."""
    return _Striped(_as_tiles(plan), whole, 1, stripes=plan).striped()


def scratch_bytes(plan: StripePlan, whole: Request) -> int:
    """The scratchpad memory of the plan with the kernels' own scratch, exactly."""
    return build_striped(plan, whole).scratchpad


def most_transfers(plan: StripePlan, layouts: Mapping[Value, Layout]) -> int:
    """The 2-D transfers of the event that has most."""

    def count(part: Part) -> int:
        memory = layouts.get(part.value) or Layout.plain(part.value.shape)
        return len(transfers(part, plan.streams[part.value].layout, memory))

    return max(sum(map(count, parts)) for s in plan.stripes for parts in (s.loads, s.stores))


def _as_tiles(plan: StripePlan) -> TilePlan:
    """The plan with streams as windows (at the first of their offsets) and the stripes' own steps."""
    windows = {v: Window(v, s.layout, s.offsets[0]) for v, s in plan.streams.items()}
    task = plan.tiles.tasks[0]
    steps = tuple(s.steps for s in plan.stripes)
    return replace(
        plan.tiles,
        windows={**plan.tiles.windows, **windows},
        tasks=(Task(task.rows, task.columns, steps),),
        task_bytes=plan.bytes,
    )


@dataclass
class _Striped(GroupBuilder):
    stripes: StripePlan = None  # type: ignore[assignment]
    memory: list[Value] = field(default_factory=list)

    def striped(self) -> StripedKernel:
        self.prepare()
        calls = [[self._call(s) for s in steps] for steps in self.plan.tasks[0].stripes]
        before = self._margins_in_memory()
        inner, offsets, total = part_operands(self.parts, aligned(self.plan.task_bytes), self.plan.windows)
        self.memory = list(self.stripes.streams)
        operands: list[Operand] = [*self.memory, *(o for o in inner if o not in self.memory), Scratchpad(total)]

        def driver(names: tuple[str, ...]) -> PrimFunc:
            return _LineDriver(self, names, operands, offsets, calls, before, total).build()

        count = len(self.stripes.stripes)
        return StripedKernel(
            function=driver(tuple(f"part{i}" for i in range(len(self.parts)))),
            operands=tuple(operands),
            outputs=self.stripes.outputs,
            schedule=f"striped, {several(len(self.plan.members), 'member')}, {several(count, 'stripe')} of "
            f"{several(self.stripes.stripe_rows, 'row')}",
            flops=self._flops([calls]),
            workspace=max((p.workspace for p in self.parts), default=0),
            notes=self.plan.notes,
            parts=tuple(self.parts),
            driver=driver,
            scratchpad=total,
        )

    def _margins_in_memory(self) -> list[int]:
        """Zeros in the margins of what is stored: transfers don't touch them."""
        found = []
        for request in self.requests:
            whole = replace(request, layouts=self.whole.layouts)
            values = tuple(v for v in request.group.outputs if v in self.stripes.streams)
            if any(whole.layout(v).margins for v in values):
                found.append(
                    self._part(("margins", *values), lambda r=whole, v=values: build_margins(r.group, r, v))
                )
        return found


class _LineDriver:
    """Writes the straight line of calls."""

    def __init__(
        self,
        striped: _Striped,
        names: tuple[str, ...],
        operands: list[Operand],
        offsets: Mapping[Operand, SizeLike],
        calls: list[list[Call]],
        before: list[int],
        total: int,
    ) -> None:
        self.striped, self.names, self.operands = striped, names, operands
        self.offsets, self.calls, self.before, self.total = offsets, calls, before, total
        self.k = KernelBuilder("driver")
        self.pointers: dict[Value | Packed | Scratch, Expr] = {}
        self.requests: Buffer | None = None

    def build(self) -> PrimFunc:
        plan = self.striped.stripes
        for i, operand in enumerate(self.operands):
            self.pointers[operand] = self.k.pointer(f"p{i}", "uint8", 1 << 40)
        for index in self.before:
            operands = self.striped.parts[index].operands
            self._extern(self.names[index], *(self._at(self.pointers[o], 0) for o in operands))
        # requests that nobody has awaited: at most those of two loads and two stores
        room = most_transfers(plan, self.striped.whole.layouts)
        self.requests = self.k.local("requests", "int32", 4 * max(1, room))
        scratch = self.pointers[self.operands[-1]]
        self._extern(RUNTIME + "open", self._at(scratch, 0), tirx.IntImm("int64", self.total))
        for event in double_buffered(len(plan.stripes)):
            stripe = plan.stripes[event.stripe]
            parts = stripe.loads if event.action.endswith("load") else stripe.stores
            slot = (event.buffer + (0 if event.action.endswith("load") else 2)) * room
            if event.action == "compute":
                self._extern(RUNTIME + "compute", tirx.IntImm("int32", event.stripe))
                for call in self.calls[event.stripe]:
                    self._compute(call, event.buffer)
                continue
            for part in parts:
                for geometry in self._transfers(part):
                    if event.action.startswith("wait"):
                        self._extern(RUNTIME + "wait", self.requests[slot])
                    else:
                        self._start(event.action, part.value, geometry, event.buffer, slot)
                    slot += 1
        self._extern(RUNTIME + "close")
        return self.k.finish()

    def _transfers(self, part: Part) -> tuple[Geometry, ...]:
        memory = self.striped.whole.layouts.get(part.value) or Layout.plain(part.value.shape)
        return transfers(part, self.striped.stripes.streams[part.value].layout, memory)

    def _start(self, action: str, value: Value, g: Geometry, buffer: int, slot: int) -> None:
        stream = self.striped.stripes.streams[value]
        numbers = (g.line_bytes, g.lines, g.window_stride, g.memory_stride)
        request = tirx.call_extern(
            "int32",
            RUNTIME + action,
            self._at(self.pointers[self.operands[-1]], stream.offsets[buffer] + g.window),
            self._at(self.pointers[value], g.memory),
            *(tirx.IntImm("int64", n) for n in numbers),
        )
        self.k.store(self.requests, slot, request)

    def _compute(self, call: Call, buffer: int) -> None:
        arguments = []
        for operand in self.striped.parts[call.part].operands:
            stream = self.striped.stripes.streams.get(operand) if isinstance(operand, Value) else None
            if stream is not None:
                arguments.append(self._at(self.pointers[self.operands[-1]], stream.offsets[buffer]))
            elif operand in self.offsets:
                arguments.append(self._at(self.pointers[self.operands[-1]], self.offsets[operand]))
            else:
                arguments.append(self._at(self.pointers[operand], 0))
        self._extern(self.names[call.part], *arguments, *(tirx.IntImm("int32", n) for n in call.numbers))

    def _extern(self, name: str, *arguments: Expr) -> None:
        self.k.add(tirx.Evaluate(tirx.call_extern("int32", name, *arguments)))

    @staticmethod
    def _at(buffer: Buffer, offset: int) -> Expr:
        return tirx.address_of(buffer[tirx.IntImm("int64", offset)])

