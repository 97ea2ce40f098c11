"""The kernel of a tile group whose images have any size: tiles are fixed, and what each computes follows at run time.

    parallel for worker: for tile of the worker:            a band of rows by a block of columns
      columns of every member, from the last to the first
      for stripe:
        rows that every member should have, likewise
        for member:  kept rows move up; fills outside of the tensor; the member on what is new

Numbers that grow from stripe to stripe lie in a small table on the stack: where each member is, what its window begins
with, and its columns (:class:`_State`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..emit.open_sizes import sizes_of
from ..words.dims import is_dim, maximum, to_index, to_relax, variable
from ..words.group import Box, Kernel, Packed, Request, Scratch, Value
from ..words.open_tile_plan import Line, Link, OpenTilePlan
from ..words.sizes import symbols_of
from .box_support import box_alignment
from .kernel import TiledKernel, aligned, box_target
from .open_boxes import box_kernels
from .window_ops import build_fill, build_margins, build_shift

FAR = 1 << 30  # behind every row that an image may have


def build_open_tiled(plan: OpenTilePlan, whole: Request) -> TiledKernel:
    """The kernel of a tile group of open size. ``whole`` asks for the group that the plan stands for, in the layouts of
    all values."""
    return _Builder(plan, whole).build()


def open_requests(plan: OpenTilePlan, whole: Request) -> list[Request]:
    """What asks for the kernel of each member's boxes."""
    target = box_target(whole.target)
    inner = {**whole.layouts, **{v: w.layout for v, w in plan.windows.items()}}
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


@dataclass
class _Builder:
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
            kernels = list(box_kernels(request, lambda _: False))
            computes.append([(self._part(kernel), kernel) for kernel in kernels])
        for member, links in enumerate(plan.links[:-1]):
            for value in plan.members[member].outputs:
                layout = plan.windows[value].layout
                if any(link.outside for link in links):
                    self.fills[value] = self._part(build_fill(value, layout, 0.0))
                if plan.keeps(member):
                    self.shifts[value] = self._part(build_shift(value, layout))
        before = []
        for request in requests:
            values = tuple(v for v in request.group.outputs if v not in plan.windows)
            if any(request.layout(v).margins for v in values):
                whole = replace(request, box=None)
                before.append(self._part(build_margins(request.group, whole, values)))
        offsets, room = self._scratch()
        scratch = Scratch(room * plan.workers)
        operands: list[Value | Packed | Scratch] = []
        for part in self.parts:
            for operand in part.operands:
                if not isinstance(operand, Scratch) and operand not in plan.windows and operand not in operands:
                    operands.append(operand)
        operands.append(scratch)

        def driver(names: tuple[str, ...]) -> Any:
            found = _Driver(plan, self.parts, names, operands, offsets, room, computes)
            found.fills, found.shifts = self.fills, self.shifts
            return found.function(before)

        workspace: Any = 0
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

    def _part(self, kernel: Kernel) -> int:
        self.parts.append(kernel)
        return len(self.parts) - 1

    def _scratch(self) -> tuple[dict[Any, Any], Any]:
        """Byte offsets in a worker's scratch of windows and of the parts' own scratch, and the size of it all."""
        offsets: dict[Any, Any] = {v: w.offset for v, w in self.plan.windows.items()}
        start = end = aligned(self.plan.task_bytes)
        for part in self.parts:  # one runs at a time
            at = start
            for operand in part.operands:
                if isinstance(operand, Scratch):
                    offsets[operand] = at
                    at = aligned(at + operand.bytes)
            end = maximum(end, at)
        return offsets, maximum(end, 64)

    def _describe(self) -> str:
        plan = self.plan
        columns = "all columns" if plan.columns is None else f"{plan.columns} columns"
        text = f"open tiles, {len(plan.members)} members, {plan.rows} rows by {columns}, {plan.bands} bands"
        return f"{text}, {len(plan.windows)} rings, {len(self.parts)} parts, work x {plan.extra_work:.2f}"


@dataclass
class _State:
    """What changes from stripe to stripe, for every member: ``end`` where it should be, ``done`` where it is, ``base``
    the first row of its window; ``left`` and ``right`` of its columns, which a tile keeps."""

    k: KernelBuilder
    members: int
    buffer: Any = None

    def __post_init__(self) -> None:
        self.buffer = self.k.local("state", "int32", len(_WORDS) * self.members)

    def get(self, word: str, member: int) -> Any:
        return self.buffer[tirx.IntImm("int32", _WORDS.index(word) * self.members + member)]

    def set(self, word: str, member: int, number: Any) -> None:
        self.k.store(self.buffer, _WORDS.index(word) * self.members + member, _index(number))


_WORDS = ("end", "done", "base", "left", "right")


@dataclass
class _Driver:
    plan: OpenTilePlan
    parts: Sequence[Kernel]
    names: Sequence[str]
    operands: Sequence[Any]
    offsets: Mapping[Any, Any]
    room: Any
    computes: Sequence[Sequence[tuple[int, Kernel]]]
    fills: Mapping[Value, int] = field(default_factory=dict)
    shifts: Mapping[Value, int] = field(default_factory=dict)
    k: Any = None
    pointers: dict[Any, Any] = field(default_factory=dict)
    producer: dict[Value, int] = field(default_factory=dict)

    def function(self, before: Sequence[int]) -> Any:
        """The PrimFunc; the parts ``before`` are called once, first."""
        plan = self.plan
        k = self.k = KernelBuilder("driver")
        self.pointers = {o: k.pointer(f"p{i}", "uint8", 1) for i, o in enumerate(self.operands)}
        self.producer = {v: i for i, g in enumerate(plan.members) for v in g.outputs}
        for part in before:
            self._call(part, [], _index(0))
        height, width = self._size(len(plan.members) - 1)
        unit, step, workers = plan.units[-1], plan.column_step, plan.workers
        blocks = k.bind(tirx.floordiv(width + (plan.columns - 1), plan.columns), "b") if plan.columns else _index(1)
        row_units = k.bind(tirx.floordiv(height + (unit - 1), unit), "u")
        column_units = k.bind(tirx.floordiv(width + (step - 1), step), "u")
        bands = k.bind(tirx.Select(blocks >= workers, _index(plan.bands), _index(plan.most_bands)), "m")
        tasks = k.bind(blocks * bands, "n")
        with k.loop(workers, "parallel" if workers > 1 else "serial", "w") as w:
            first = tirx.floordiv(w * tasks, workers)
            state = _State(k, len(plan.members))
            with k.loop(tirx.floordiv((w + 1) * tasks, workers) - first, name="t") as t:
                task = k.hold(first + t)
                band, block = tirx.floordiv(task, blocks), tirx.floormod(task, blocks)
                rows = [k.hold(tirx.min(_cut(band + i, row_units, bands, unit), height)) for i in (0, 1)]
                columns = [k.hold(tirx.min(_cut(block + i, column_units, blocks, step), width)) for i in (0, 1)]
                with k.when(tirx.all(rows[0] < rows[1], columns[0] < columns[1])):
                    self._task(state, rows, columns, w)
        return k.finish({"tirx.noalias": False})

    def _size(self, member: int) -> tuple[Any, Any]:
        """Rows and columns of what ``member`` makes."""
        rows, columns = self.plan.members[member].outputs[0].shape[2:]
        return _index(to_index(rows)), _index(to_index(columns))

    # -- a tile ------------------------------------------------------------------------------------

    def _task(self, state: _State, rows: Sequence[Any], columns: Sequence[Any], worker: Any) -> None:
        plan, k = self.plan, self.k
        last = len(plan.members) - 1
        for word, number in (("left", columns[0]), ("right", columns[1]), ("done", rows[0]), ("base", rows[0])):
            state.set(word, last, number)
        for member in reversed(range(last)):
            self._begin(state, member)
        stripes = tirx.floordiv(rows[1] - rows[0] + (plan.rows - 1), plan.rows) + plan.warm
        with k.loop(k.hold(stripes), name="s") as s:
            state.set("end", last, tirx.min(rows[0] + (s + (1 - plan.warm)) * plan.rows, rows[1]))
            for member in reversed(range(last)):
                self._ends(state, member)
            for member in range(last + 1):
                self._member(state, member, worker)

    def _begin(self, state: _State, member: int) -> None:
        """Columns, and the first row, of a member whose readers have theirs."""
        height, width = self._size(member)
        step_row, step_column = self.plan.alignments[member]
        row, left, right = [], [], []
        for link in self.plan.links[member]:
            rows, columns = self._size(link.reader)
            row.append(self._start(link, link.rows, state.get("done", link.reader), height))
            left.append(self._start(link, link.columns, state.get("left", link.reader), width))
            end = _end(link.columns, tirx.min(state.get("right", link.reader), columns))
            right.append(end if link.outside else tirx.min(end, width))
        first = self.k.hold(_down(_least(row), step_row))
        state.set("done", member, first)
        state.set("base", member, first)
        state.set("left", member, _down(_least(left), step_column))
        state.set("right", member, _up(self.k, _most(right), step_column, width))

    def _start(self, link: Link, line: Line, at: Any, size: Any) -> Any:
        """What a reader that begins at ``at`` begins to read with."""
        first = _start(line, tirx.max(at, 0))
        return first if link.outside else tirx.max(tirx.min(first, size - 1), 0)

    def _ends(self, state: _State, member: int) -> None:
        """Where a member should be, so that its readers can get where they should be."""
        height, _ = self._size(member)
        ends = []
        for link in self.plan.links[member]:
            rows, _ = self._size(link.reader)
            end = _end(link.rows, tirx.min(state.get("end", link.reader), rows))
            ends.append(end if link.outside else tirx.min(end, height))
        state.set("end", member, _up(self.k, _most(ends), self.plan.units[member], height))

    def _member(self, state: _State, member: int, worker: Any) -> None:
        """One member in one stripe."""
        k, plan, group = self.k, self.plan, self.plan.members[member]
        height, width = self._size(member)
        done = k.hold(state.get("done", member))
        end = k.hold(tirx.max(state.get("end", member), done))
        left, right = k.hold(state.get("left", member)), k.hold(state.get("right", member))
        if plan.links[member]:
            needed = []
            for link in plan.links[member]:
                rows, _ = self._size(link.reader)
                at = state.get("done", link.reader)
                first = self._start(link, link.rows, at, height)
                needed.append(tirx.Select(at >= rows, _index(FAR), first))
            new = k.hold(tirx.min(_down(_least(needed), plan.alignments[member][0]), done))
            old = k.hold(state.get("base", member))
            state.set("base", member, new)
            with k.when(tirx.all(old < new, new < done)):
                for value in group.outputs:
                    if value in self.shifts:
                        self._call(self.shifts[value], [new - old, done - new], worker)
        state.set("done", member, end)
        rows = [k.hold(_within(n, height)) for n in (done, end)]
        columns = [k.hold(_within(n, width)) for n in (left, right)]
        for value in group.outputs:
            if value in self.fills:
                self._fill(state, value, (done, end), (left, right), rows, columns, worker)
        with k.when(tirx.all(rows[0] < rows[1], columns[0] < columns[1])):
            self._compute(state, member, rows, columns, worker)

    def _compute(self, state: _State, member: int, rows: Sequence[Any], columns: Sequence[Any], worker: Any) -> None:
        k = self.k
        size = k.hold(rows[1] - rows[0]), k.hold(columns[1] - columns[0])
        own = {"row": rows[0], "column": columns[0], "rows": size[0], "columns": size[1]}
        larger: list[Any] = []
        for at, (part, kernel) in enumerate(self.computes[member]):
            numbers = []
            for scalar in kernel.scalars:
                if isinstance(scalar, str):
                    numbers.append(own[scalar])
                    continue
                numbers.append(state.get(("base", "left")[scalar[1]], self.producer[scalar[0]]))
            fits = tirx.all(size[0] >= kernel.least[0], size[1] >= kernel.least[1])
            conditions = [*(tirx.Not(c) for c in larger), *([fits] if at + 1 < len(self.computes[member]) else [])]
            with _where(k, conditions):
                self._call(part, numbers, worker)
            larger.append(fits)

    def _fill(
        self, state: _State, value: Value, new: Sequence[Any], across: Sequence[Any],
        rows: Sequence[Any], columns: Sequence[Any], worker: Any,
    ) -> None:  # fmt: skip
        """Zeros in those of the new rows, and left and right of them, that lie outside of the tensor."""
        k, part, member = self.k, self.fills[value], self.producer[value]
        height, width = self._size(member)
        top, bottom = tirx.min(new[1], 0), tirx.max(new[0], height)
        for low, high, a, b in (
            (new[0], top, *across),
            (bottom, new[1], *across),
            (rows[0], rows[1], across[0], tirx.min(across[1], 0)),
            (rows[0], rows[1], tirx.max(across[0], width), across[1]),
        ):
            with k.when(tirx.all(low < high, a < b)):
                at = [low - state.get("base", member), a - state.get("left", member)]
                self._call(part, [*at, high - low, b - a], worker)

    def _call(self, number: int, numbers: Sequence[Any], worker: Any) -> None:
        arguments = []
        part, scratch = self.parts[number], self.pointers[self.operands[-1]]
        for operand in part.operands:
            if operand in self.pointers:
                arguments.append(tirx.address_of(self.pointers[operand][0]))
                continue
            at = tirx.Cast("int64", worker) * _wide(self.room) + _wide(self.offsets[operand])
            arguments.append(tirx.address_of(scratch[at]))
        sizes = sizes_of(part.function)
        numbers = [_index(n) for n in numbers]
        self.k.add(tirx.Evaluate(tirx.call_extern("int32", self.names[number], *arguments, *numbers, *sizes)))


@contextmanager
def _where(k: KernelBuilder, conditions: Sequence[Any]) -> Iterator[None]:
    if not conditions:
        yield
        return
    with k.when(tirx.all(*conditions)):
        yield


def _index(number: Any) -> Any:
    return tirx.IntImm("int32", number) if isinstance(number, int) else number


def _wide(dim: Any) -> Any:
    """A number of bytes in 64 bits, of the sizes that the kernel is given in 32."""
    if not is_dim(dim):
        return tirx.IntImm("int64", int(dim))
    return to_relax(dim, {name: tirx.Cast("int64", variable(name, "int32")) for name in symbols_of(dim)})


def _start(line: Line, at: Any) -> Any:
    return tirx.floordiv(at * line.slope + line.before, line.divisor)


def _end(line: Line, at: Any) -> Any:
    return tirx.floordiv((at - 1) * line.slope + line.after, line.divisor)


def _cut(part: Any, count: Any, parts: Any, unit: int) -> Any:
    return tirx.floordiv(part * count, parts) * unit


def _down(number: Any, unit: int) -> Any:
    return tirx.floordiv(number, unit) * unit if unit > 1 else number


def _up(k: KernelBuilder, number: Any, unit: int, size: Any) -> Any:
    """``number`` rounded up to a multiple of ``unit``, but at the tensor's end."""
    if unit == 1:
        return number
    number = k.hold(number)
    rounded = tirx.floordiv(number + (unit - 1), unit) * unit
    return tirx.Select(number < size, tirx.min(rounded, size), number)


def _within(number: Any, size: Any) -> Any:
    return tirx.max(tirx.min(number, size), 0)


def _least(numbers: Sequence[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = tirx.min(found, number)
    return found


def _most(numbers: Sequence[Any]) -> Any:
    found = numbers[0]
    for number in numbers[1:]:
        found = tirx.max(found, number)
    return found
