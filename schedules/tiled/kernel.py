"""Builds the kernel of a tile group: the parts that its plan calls, and what their pointers are.

    parallel for worker                            tasks are dealt to workers in contiguous runs
      for task of the worker
        for stripe: for step: call the part        numbers from the program (see program.py)

A worker's scratch holds the windows of one task and the scratch of the members' own kernels.
"""

from __future__ import annotations

import math
from collections import ChainMap, Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import several
from ...targets.target import Target
from ..dispatch import build_kernel
from ..words.alignment import aligned
from ..words.group import Box, Group, Kernel, Packed, Request, Scratch, Value
from ..words.tile_plan import Compute, Copy, Fill, Shift, Step, TilePlan
from .box_support import box_opens
from .core_sharing import Sharing
from .driver import build_driver
from .operands import part_operands
from .program import Call, DriverProgram, fold_tasks
from .window_ops import build_copy, build_fill, build_margins, build_part_copy, build_part_shift, build_shift

if TYPE_CHECKING:
    from ..words.tvm_types import Expr, PrimFunc


@dataclass(frozen=True, eq=False)
class TiledKernel(Kernel):
    """A kernel whose function calls others: ``parts``, under the names that the assembler gives them."""

    parts: tuple[Kernel, ...] = ()
    driver: Any = None

    def link(self, names: tuple[str, ...]) -> PrimFunc:
        """The driver, calling ``parts`` by these names."""
        return self.driver(names)


def build_tiled(plan: TilePlan, whole: Request, workers: int = 1) -> TiledKernel:
    """The kernel of a tile group. ``whole`` asks for the group that the plan stands for, in the layouts of all values;
    ``workers`` is how many tasks may run at once, and each has scratch of its own."""
    return GroupBuilder(plan, whole, workers).build()


def box_target(target: Target) -> Target:
    """``target`` as the kernel of a box sees it: one core, in whose caches weights stay from one box to the next."""
    return replace(target, cores=1, weights_stay=True)


@dataclass
class GroupBuilder:
    """Makes the parts of a tile group's kernel and the driver that calls them. ``whole`` is the request for the group
    that the plan stands for."""

    plan: TilePlan
    whole: Request
    workers: int
    parts: list[Kernel] = field(default_factory=list)
    known: dict[object, int] = field(default_factory=dict)
    opens: dict[int, bool] = field(default_factory=dict)

    def build(self) -> TiledKernel:
        """The kernel: parts, driver, operands and scratch."""
        self.prepare()
        tasks = [[self._calls(stripe) for stripe in task.stripes] for task in self.plan.tasks]
        program = fold_tasks(tasks)
        before = self._margins()
        start = aligned(self.plan.task_bytes)
        operands, offsets, worker_bytes = part_operands(self.parts, start, self.plan.windows)
        sharing = self.plan.sharing
        workers = 1 if sharing > 1 else max(1, min(self.workers, len(tasks)))
        table = Packed("tasks", program.table)
        scratch = Scratch(worker_bytes * workers)
        if sharing > 1:
            worker_bytes -= start
            scratch = Scratch(start + worker_bytes * sharing)
        operands += [table, scratch]

        def driver(names: tuple[str, ...]) -> PrimFunc:
            return build_driver(
                self.parts, names, operands, offsets, program, before, workers, worker_bytes, len(tasks), sharing
            )

        return TiledKernel(
            function=driver(tuple(f"part{i}" for i in range(len(self.parts)))),
            operands=tuple(operands),
            outputs=self.plan.outputs,
            schedule=self._describe(program),
            flops=self._flops(tasks),
            workspace=max((p.workspace for p in self.parts), default=0),
            notes=tuple(dict.fromkeys((*self.plan.notes, *(n for p in self.parts for n in p.notes)))),
            takes=self.plan.takes,
            parts=tuple(self.parts),
            driver=driver,
        )

    # -- parts -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The members' requests, and the sizes of their boxes."""
        target = box_target(self.whole.target)
        inner = {**self.whole.layouts, **{v: w.layout for v, w in self.plan.windows.items()}}
        weights = sum(v.bytes for m in self.plan.members for v in m.inputs if v.constant is not None)
        crowded = weights > target.l2_bytes // 2
        limits = replace(self.whole.limits, crowded=crowded, room=self.plan.room)
        self._sizes()
        self.requests = []
        for member, boxes in zip(self.plan.members, self.boxes):
            own = limits
            if self._over(member):  # is read before
                own = replace(limits, once=math.gcd(*(columns for _, columns in boxes)))
            policy = self.whole.policy.narrowed(member.weighed)
            self.requests.append(
                replace(self.whole, group=member, layouts=inner, target=target, limits=own, policy=policy)
            )

    def _over(self, member: Group) -> set[Value]:
        """What ``member`` reads and writes over."""
        both = ChainMap(dict(self.plan.inplace), dict(self.plan.takes))
        return {both[v] for v in member.outputs if v in both and both[v] in member.inputs}

    def _part(self, key: tuple[Value | float | str, ...], make: Any) -> int:
        if key not in self.known:
            self.known[key] = len(self.parts)
            self.parts.append(make())
        return self.known[key]

    def _calls(self, stripe: Sequence[Step]) -> list[Call]:
        if self.plan.sharing == 1:
            return [self._call(s) for s in stripe if not self.plan.is_done(s)]
        parts = [p for p in self.sharing.stripe(stripe) if not self.plan.is_done(p[2])]
        return [replace(self._call(part), phase=at, core=core) for at, core, part in parts]

    def _call(self, step: Step) -> Call:
        if isinstance(step, Fill):
            layout = self.plan.windows[step.value].layout
            part = self._part(
                ("fill", step.value, step.number), lambda: build_fill(step.value, layout, step.number)
            )
            start = (step.rows[0] - step.base[0], step.columns[0] - step.base[1])
            return Call(part, (*start, _size(step.rows), _size(step.columns)))
        if isinstance(step, Shift):
            layout = self.plan.windows[step.value].layout
            if step.columns is not None:
                part = self._part(("part shift", step.value), lambda: build_part_shift(step.value, layout))
                own = (step.columns[0] - step.base[1], _size(step.columns))
                return Call(part, (step.keep[0] - step.base[0], _size(step.keep), *own))
            part = self._part(("shift", step.value), lambda: build_shift(step.value, layout))
            return Call(part, (step.keep[0] - step.base[0], _size(step.keep)))
        if isinstance(step, Copy):
            layouts = self.plan.windows[step.source].layout, self.plan.windows[step.target].layout
            moved: tuple[int, ...] = (step.rows[0] - step.base[0], _size(step.rows), step.at)
            if step.columns is not None:
                make = partial(build_part_copy, step.source, step.target, *layouts)
                part = self._part(("part copy", step.source, step.target), make)
                return Call(part, (*moved, step.columns[0] - step.base[1], _size(step.columns)))
            make = partial(build_copy, step.source, step.target, *layouts)
            part = self._part(("copy", step.source, step.target), make)
            return Call(part, moved)
        return self._compute(step)

    def _compute(self, step: Compute) -> Call:
        rows, columns = _size(step.rows), _size(step.columns)
        request = self.requests[step.member]
        member = request.group
        windowed = frozenset(v for v in (*member.inputs, *member.outputs) if v in self.plan.windows)
        part = None
        if (rows, columns) != (usual := self.usual[step.member]) or self.varied[step.member]:
            part = self._open(step.member, request, Box(*usual, windowed, True), rows, columns)
        if part is None:
            box = Box(rows, columns, windowed, steps=self.steps[step.member])
            part = self._part(
                ("compute", step.member, rows, columns), lambda: build_kernel(replace(request, box=box))
            )
        taken = self._over(member)
        assert taken <= set(self.parts[part].inplace), f"{member.name} can't write over what it reads"
        own = {"row": step.rows[0], "column": step.columns[0], "rows": rows, "columns": columns}
        numbers = []
        for scalar in self.parts[part].scalars:
            numbers.append(own[scalar] if isinstance(scalar, str) else step.bases[scalar[0]][scalar[1]])
        return Call(part, tuple(numbers))

    def _open(self, member: int, request: Request, box: Box, rows: int, columns: int) -> int | None:
        """The part that computes boxes of any size, if there is one and this box is large enough for it."""
        if member not in self.opens:
            self.opens[member] = box_opens(request)
        if not self.opens[member]:
            return None
        part = self._part(("compute", member), lambda: build_kernel(replace(request, box=box)))
        least = self.parts[part].least
        return part if rows >= least[0] and columns >= least[1] else None

    def _sizes(self) -> None:
        """The most frequent box of each member, whether there are others, and what all begin at multiples of."""
        sizes: list[Counter[tuple[int, int]]] = [Counter() for _ in self.plan.members]
        steps = [(0, 0) for _ in self.plan.members]
        self.sharing = Sharing(self.plan)
        for task in self.plan.tasks:
            for stripe in task.stripes:
                for step in stripe:
                    if not isinstance(step, Compute) or self.plan.is_done(step):
                        continue
                    parts: list[Expr] = [step]
                    if self.plan.sharing > 1:
                        parts = [part for _, part in self.sharing.parts(step)]
                    for part in parts:
                        sizes[step.member][_size(part.rows), _size(part.columns)] += 1
                        rows, columns = steps[step.member]
                        steps[step.member] = math.gcd(rows, part.rows[0]), math.gcd(columns, part.columns[0])
        self.boxes = sizes
        self.steps = steps
        self.usual = [max(s, key=lambda box: (s[box], box)) if s else (1, 1) for s in sizes]
        self.varied = [len(s) > 1 for s in sizes]

    def _margins(self) -> list[int]:
        """Parts that run once, before all tasks."""
        found = []
        for request in self.requests:
            values = tuple(v for v in request.group.outputs if v not in self.plan.windows)
            if any(request.layout(v).margins for v in values):
                found.append(
                    self._part(("margins", *values), lambda r=request, v=values: build_margins(r.group, r, v))
                )
        return found

    def _flops(self, tasks: list[list[list[Call]]]) -> int:
        return sum(self.parts[call.part].flops for task in tasks for stripe in task for call in stripe)

    def _describe(self, program: DriverProgram) -> str:
        plan = self.plan
        rings = sum(1 for mode in plan.modes.values() if mode == "ring")
        text = f"tiled, {several(len(plan.members), 'member')}, {several(len(plan.tasks), 'task')}"
        longest = max((len(t.stripes) for t in plan.tasks), default=0)
        text += f" of up to {several(longest, 'stripe')}, {several(rings, 'ring')}, {several(len(self.parts), 'part')}"
        if plan.sharing > 1:
            text += f", {plan.sharing} cores share each step"
        return text + f", work x {plan.extra_work:.2f}"


def _size(span: tuple[int, int]) -> int:
    return span[1] - span[0]
