"""The kernel of a tile group whose images have any size: tiles are fixed, and what each computes follows at run time.

    parallel for worker: for tile of the worker:            a band of rows by a block of columns
      columns of every member, from the last to the first
      for stripe:
        rows that every member should have, likewise
        for member:  kept rows move up; fills outside of the tensor; the member on what is new

Cores may share each step of one tile instead (:mod:`.open_driver`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...errors import several
from ..words.alignment import ALIGNMENT, aligned
from ..words.dims import maximum, minimum
from ..words.group import Box, Kernel, Request, Scratch, Value, dtype_bytes
from ..words.layout import Layout
from ..words.open_tile_plan import OpenTilePlan
from .box_support import box_alignment
from .kernel import TiledKernel, box_target
from .open_boxes import box_kernels
from .open_driver import Driver
from .operands import part_operands
from .window_ops import build_fill, build_margins, build_part_shift, build_shift

if TYPE_CHECKING:
    from ..words.tvm_types import Expr, PrimFunc


def build_open_tiled(plan: OpenTilePlan, whole: Request) -> TiledKernel:
    """The kernel of a tile group of open size. ``whole`` asks for the group that the plan stands for, in the layouts of
    all values."""
    return _OpenTilesBuilder(plan, whole).build()


def open_requests(plan: OpenTilePlan, whole: Request) -> list[Request]:
    """What asks for the kernel of each member's boxes."""
    target = box_target(whole.target)
    inner = {**whole.layouts, **_parts(plan, whole), **{v: w.layout for v, w in plan.windows.items()}}
    weights = sum(v.bytes for m in plan.members for v in m.inputs if v.constant is not None)
    limits = replace(whole.limits, crowded=weights > target.l2_bytes // 2, room=plan.room)
    found = []
    for member, expected in zip(plan.members, plan.expected):
        units = box_alignment(member)
        windowed = frozenset(v for v in (*member.inputs, *member.outputs) if v in plan.windows)
        rows, columns = (max(u, n // u * u) for n, u in zip(expected, units))
        box = Box(rows, columns, windowed, True, units)
        found.append(
            replace(whole, group=member, layouts=inner, target=target, limits=limits, box=box, choice=None)
        )
    return found


def _parts(plan: OpenTilePlan, whole: Request) -> dict[Value, Layout]:
    """How the part lies that one image has of what lies whole."""
    values = {} if plan.images is None else plan.images.values
    return {v: replace(whole.layout(of), shape=v.shape) for v, of in values.items()}


@dataclass
class _OpenTilesBuilder:
    plan: OpenTilePlan
    whole: Request
    parts: list[Kernel] = field(default_factory=list)
    fills: dict[Value, int] = field(default_factory=dict)  # value -> its part
    shifts: dict[Value, int] = field(default_factory=dict)

    def build(self) -> TiledKernel:
        """The kernel: parts, driver, operands and scratch."""
        plan = self.plan
        requests = open_requests(plan, self.whole)
        computes = []
        for request in requests:
            kernels = list(box_kernels(request))
            computes.append([(self._part(kernel), kernel) for kernel in kernels])
        for member, links in enumerate(plan.links[:-1]):
            for value in () if member in plan.whole else plan.members[member].outputs:
                layout = plan.windows[value].layout
                if any(link.outside for link in links):
                    self.fills[value] = self._part(build_fill(value, layout, 0.0))
                if plan.keeps(member):
                    build = build_part_shift if plan.sharing > 1 else build_shift
                    self.shifts[value] = self._part(build(value, layout))
        before = []
        for request, group in zip(requests, plan.groups):
            values = tuple(plan.of(v) for v in request.group.outputs if v not in plan.windows)
            if any(self.whole.layout(v).margins for v in values):
                whole = replace(request, group=group, layouts=self.whole.layouts, box=None)
                before.append(self._part(build_margins(group, whole, values)))
        start = aligned(plan.task_bytes)
        most = {part: self._most(m) for m, kernels in enumerate(computes) for part, _ in kernels}
        named, offsets, end = part_operands(self.parts, start, plan.windows, most)
        operands = list(dict.fromkeys(plan.of(o) if isinstance(o, Value) else o for o in named))
        operands.append(Scratch(plan.bytes_with(end - start)))
        room, alone = maximum(end, ALIGNMENT), maximum(end - start, ALIGNMENT)
        parts = _parts(plan, self.whole)
        apart = {v: layout.elements * dtype_bytes(layout.held(v.dtype)) for v, layout in parts.items()}

        def driver(names: tuple[str, ...]) -> PrimFunc:
            found = Driver(plan, self.parts, names, operands, offsets, room, alone, computes)
            found.fills, found.shifts, found.apart = self.fills, self.shifts, apart
            return found.function(before)

        workspace: Expr = 0
        for part in self.parts:
            workspace = maximum(workspace, part.workspace)
        return TiledKernel(
            function=driver(tuple(f"part{i}" for i in range(len(self.parts)))),
            operands=tuple(operands),
            outputs=plan.outputs,
            schedule=self._describe(),
            flops=sum(kernels[0][1].flops for kernels in computes),
            workspace=workspace,
            notes=tuple(dict.fromkeys((*plan.notes, *(n for p in self.parts for n in p.notes)))),
            parts=tuple(self.parts),
            driver=driver,
        )

    def _most(self, member: int) -> tuple[Expr, Expr]:
        """The most rows and columns of a member that a step computes."""
        plan, output = self.plan, self.plan.members[member].outputs[0]
        rows, columns = output.shape[2:]
        if output in plan.windows:
            held = plan.windows[output].layout.shape[2:]
        else:
            held = (rows if member in plan.whole else plan.rows, columns if plan.columns is None else plan.columns)
            held = tuple(all_ - plan.in_tiles * (all_ - minimum(all_, own)) for own, all_ in zip(held, (rows, columns)))
        return minimum(rows, held[0]), minimum(columns, held[1])

    def _part(self, kernel: Kernel) -> int:
        self.parts.append(kernel)
        return len(self.parts) - 1

    def _describe(self) -> str:
        plan = self.plan
        columns = "all columns" if plan.columns is None else several(plan.columns, "column")
        text = f"open tiles, {several(len(plan.members), 'member')}, {several(plan.rows, 'row')} by {columns}"
        text += f", {several(plan.bands, 'band')}, {several(len(plan.windows), 'ring')}, "
        text += f"{several(len(self.parts), 'part')}"
        if plan.images is not None:
            text += ", image by image"
        if plan.sharing > 1:
            text += f", {plan.sharing} cores share each step"
        return f"{text}, work x {plan.extra_work:.2f}"
