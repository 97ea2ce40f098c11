"""What a tile group of open size runs: spans of rows and columns from those of the readers, and calls of parts.

Numbers that grow from stripe to stripe lie in a small table on the stack: where each member is, what its window begins
with, and its columns (:class:`_State`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..emit.open_sizes import sizes_of
from ..words.atoms import variable
from ..words.dims import is_dim, to_index, to_relax
from ..words.group import Kernel, Packed, Scratch, Value
from ..words.open_tile_plan import Link, OpenTilePlan, ReaderLine
from ..words.sizes import symbols_of
from ..words.tvm_types import Buffer, Expr, PrimFunc
from .core_sharing import WIDE

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

FAR = 1 << 30  # behind every row that an image may have
SHARED = 4  # columns that a core's share is a multiple of: tiles of transforms


@dataclass
class _State:
    """What changes from stripe to stripe, for every member: ``end`` where it should be, ``done`` where it is, ``base``
    the first row of its window; ``left`` and ``right`` of its columns, which a tile keeps."""

    k: KernelBuilder
    members: int
    buffer: Buffer = None

    def __post_init__(self) -> None:
        self.buffer = self.k.local("state", "int32", len(_WORDS) * self.members)

    def get(self, word: str, member: int) -> Expr:
        return self.buffer[tirx.IntImm("int32", _WORDS.index(word) * self.members + member)]

    def set(self, word: str, member: int, number: Expr) -> None:
        self.k.store(self.buffer, _WORDS.index(word) * self.members + member, _index(number))


_WORDS = ("end", "done", "base", "left", "right")


@dataclass
class Driver:
    plan: OpenTilePlan
    parts: Sequence[Kernel]
    names: Sequence[str]
    operands: Sequence[Value | Packed | Scratch]
    offsets: Mapping[Any, SizeLike]
    room: Expr  # bytes of a worker's windows and what it holds beside
    alone: Expr  # bytes of that alone
    computes: Sequence[Sequence[tuple[int, Kernel]]]
    fills: Mapping[Value, int] = field(default_factory=dict)
    shifts: Mapping[Value, int] = field(default_factory=dict)
    apart: Mapping[Any, SizeLike] = field(default_factory=dict)  # an image's part of a value -> bytes to the next one's
    image: Expr = None
    k: Any = None
    pointers: dict[Value | Packed | Scratch, Expr] = field(default_factory=dict)
    producer: dict[Value, int] = field(default_factory=dict)
    bytes: dict[SizeLike, Expr] = field(default_factory=dict)
    sharing: int = field(init=False)  # cores of each step
    cores: Expr = field(init=False)  # the same, of which a run may have fewer
    small: Expr = None  # true where the image is one tile

    def __post_init__(self) -> None:
        self.sharing = self.cores = self.plan.sharing

    def function(self, before: Sequence[int]) -> PrimFunc:
        """The PrimFunc; the parts ``before`` are called once, first."""
        plan = self.plan
        k = self.k = KernelBuilder("driver")
        self.pointers = {o: k.pointer(f"p{i}", "uint8", 1) for i, o in enumerate(self.operands)}
        self.producer = {v: i for i, g in enumerate(plan.members) for v in g.outputs}
        self._hold_bytes()
        for part in before:
            self._call(part, [], _index(0))
        height, width = self._size(len(plan.members) - 1)
        unit, step, workers = plan.units[-1], plan.column_step, plan.workers
        blocks = k.bind(tirx.floordiv(width + (plan.columns - 1), plan.columns), "b") if plan.columns else _index(1)
        if plan.small:
            self.small = k.bind(_index(to_index(plan.in_tiles)) < 1, "s")
            blocks = k.bind(tirx.Select(self.small, _index(1), blocks), "b")
        row_units = k.bind(tirx.floordiv(height + (unit - 1), unit), "u")
        column_units = k.bind(tirx.floordiv(width + (step - 1), step), "u")
        images = _index(1 if plan.images is None else to_index(plan.images.batch))
        enough = blocks * images >= workers if plan.images is not None else blocks >= workers
        bands = k.bind(tirx.Select(enough, _index(plan.bands), _index(plan.most_bands)), "m")
        if plan.small:
            bands = k.bind(tirx.Select(self.small, _index(1), bands), "m")
        each = k.bind(blocks * bands, "n")
        tasks = each if plan.images is None else k.bind(each * images, "n")
        fewer = is_dim(plan.used)
        used = k.bind(tirx.min(tirx.max(tasks, 1), workers), "u") if fewer else _index(workers)
        apart = []
        if plan.small and workers > 1:
            shared = k.bind(tirx.all(self.small, images < workers), "c")
            with k.when(shared):
                self._shared(images, height, width)
            apart = [tirx.Not(shared)]
        with (
            _where(k, apart),
            k.loop(workers, "parallel" if workers > 1 else "serial", "w") as w,
            _where(k, [w < used] * fewer),
        ):
            first = tirx.floordiv(w * tasks, used)
            state = _State(k, len(plan.members))
            with k.loop(tirx.floordiv((w + 1) * tasks, used) - first, name="t") as t:
                task = k.hold(first + t)
                if plan.images is not None:
                    self.image = k.hold(tirx.floordiv(task, each))
                    task = k.hold(tirx.floormod(task, each))
                band, block = tirx.floordiv(task, blocks), tirx.floormod(task, blocks)
                rows = [k.hold(tirx.min(_cut(band + i, row_units, bands, unit), height)) for i in (0, 1)]
                columns = [k.hold(tirx.min(_cut(block + i, column_units, blocks, step), width)) for i in (0, 1)]
                with k.when(tirx.all(rows[0] < rows[1], columns[0] < columns[1])):
                    self._task(state, rows, columns, w)
        return k.finish({"tirx.noalias": False})

    def _shared(self, images: Expr, height: Expr, width: Expr) -> None:
        """Images that are one tile, one after the other: the workers compute each member together."""
        plan, k = self.plan, self.k
        self.sharing, self.cores = plan.workers, _index(to_index(plan.used))
        state = _State(k, len(plan.members))
        with k.loop(images, name="i") as image, k.when(tirx.all(height > 0, width > 0)):
            if plan.images is not None:
                self.image = image
            self._task(state, (_index(0), height), (_index(0), width), _index(0))
        self.sharing = self.cores = 1

    def _hold_bytes(self) -> None:
        """Numbers of bytes that depend on sizes, which every call may need, computed once."""
        every = (self.room, self.alone, *self.offsets.values(), *self.apart.values())
        for dim in dict.fromkeys(filter(is_dim, every)):
            buffer = self.k.local("bytes", "int64", 1)
            self.k.store(buffer, 0, _wide(dim))
            self.bytes[dim] = buffer[0]

    def _bytes(self, dim: SizeLike) -> Expr:
        return self.bytes[dim] if is_dim(dim) else _wide(dim)

    def _size(self, member: int) -> tuple[Expr, Expr]:
        """Rows and columns of what ``member`` makes."""
        rows, columns = self.plan.members[member].outputs[0].shape[2:]
        return _index(to_index(rows)), _index(to_index(columns))

    # -- a tile ------------------------------------------------------------------------------------

    def _task(self, state: _State, rows: Sequence[Expr], columns: Sequence[Expr], worker: Expr) -> None:
        plan, k = self.plan, self.k
        last = len(plan.members) - 1
        for word, number in (("left", columns[0]), ("right", columns[1]), ("done", rows[0]), ("base", rows[0])):
            state.set(word, last, number)
        for member in reversed(range(last)):
            self._begin(state, member)
        warm: Expr = _index(plan.warm)
        height: Expr = _index(plan.rows)
        if plan.at_once and plan.warm:
            warm = k.hold(tirx.Select(self._size(last)[0] <= plan.rows, _index(0), warm))
        if self.small is not None:
            warm = k.hold(tirx.Select(self.small, _index(0), warm))
            height = k.hold(tirx.Select(self.small, rows[1] - rows[0], height))
        stripes = k.hold(tirx.floordiv(rows[1] - rows[0] + (height - 1), height) + warm)
        with k.loop(stripes, name="s") as s:
            state.set("end", last, tirx.min(rows[0] + (s + 1 - warm) * height, rows[1]))
            for member in reversed(range(last)):
                self._ends(state, member, s + 1 >= stripes)
            for member in range(last + 1):
                self._member(state, member, worker)

    def _begin(self, state: _State, member: int) -> None:
        """Columns, and the first row, of a member whose readers have theirs."""
        height, width = self._size(member)
        if member in self.plan.whole:
            for word, number in (("done", 0), ("base", 0), ("left", 0), ("right", width)):
                state.set(word, member, number)
            return
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

    def _start(self, link: Link, line: ReaderLine, at: Expr, size: Expr) -> Expr:
        """What a reader that begins at ``at`` begins to read with."""
        first = _start(line, tirx.max(at, 0))
        return first if link.outside else tirx.max(tirx.min(first, size - 1), 0)

    def _ends(self, state: _State, member: int, over: Expr) -> None:
        """Where a member should be, so that its readers can get where they should be; at the end of what lies whole
        when all stripes are ``over``."""
        height, _ = self._size(member)
        ends = []
        for link in self.plan.links[member]:
            rows, _ = self._size(link.reader)
            end = _end(link.rows, tirx.min(state.get("end", link.reader), rows))
            ends.append(end if link.outside else tirx.min(end, height))
        end = _up(self.k, _most(ends), self.plan.units[member], height)
        state.set("end", member, tirx.Select(over, height, tirx.min(end, height)) if member in self.plan.whole else end)

    def _member(self, state: _State, member: int, worker: Expr) -> None:
        """One member in one stripe."""
        k, plan, group = self.k, self.plan, self.plan.members[member]
        height, width = self._size(member)
        done = k.hold(state.get("done", member))
        end = k.hold(tirx.max(state.get("end", member), done))
        left, right = k.hold(state.get("left", member)), k.hold(state.get("right", member))
        if plan.links[member] and member not in plan.whole:
            needed = []
            for link in plan.links[member]:
                rows, _ = self._size(link.reader)
                at = state.get("done", link.reader)
                first = self._start(link, link.rows, at, height)
                needed.append(tirx.Select(at >= rows, _index(FAR), first))
            new = k.hold(tirx.min(_down(_least(needed), plan.alignments[member][0]), done))
            old = k.hold(state.get("base", member))
            state.set("base", member, new)
            if self.sharing == plan.sharing:  # else there is one stripe
                with k.when(tirx.all(old < new, new < done)):
                    self._shift([self.shifts[v] for v in group.outputs if v in self.shifts], (new - old, done - new),
                            (left, right), worker)  # fmt: skip
        state.set("done", member, end)
        rows = [k.hold(_within(n, height)) for n in (done, end)]
        columns = [k.hold(_within(n, width)) for n in (left, right)]
        with k.when(done < end), self._cores(worker) as core:
            for value in group.outputs:
                if value in self.fills:
                    with _where(k, [tirx.EQ(core, 0)] if self.sharing > 1 else []):
                        self._fill(state, value, (done, end), (left, right), rows, columns, core)
            if self.sharing > 1:
                rows, columns = self._share(member, rows, columns, core)
            with k.when(tirx.all(rows[0] < rows[1], columns[0] < columns[1])):
                self._compute(state, member, rows, columns, core)

    @contextmanager
    def _cores(self, worker: Expr) -> Iterator[Expr]:
        """Where cores share steps, all of them, which wait for each other behind it; else the worker."""
        if self.sharing == 1:
            yield worker
            return
        fewer = not isinstance(self.cores, int | tirx.IntImm)
        with self.k.loop(self.sharing, "parallel", "core") as core, _where(self.k, [core < self.cores] * fewer):
            yield core

    def _shift(self, parts: Sequence[int], rows: Sequence[Expr], columns: Sequence[Expr], worker: Expr) -> None:
        """Kept rows move up: each core its columns, where they share steps."""
        if not parts:
            return
        sharing = self.sharing
        with self._cores(worker) as core:
            for part in parts:
                if sharing == 1:
                    self._call(part, rows, core)
                    continue
                count = columns[1] - columns[0]
                first = tirx.floordiv(core * count, sharing)
                self._call(part, [*rows, first, tirx.floordiv((core + 1) * count, sharing) - first], core)

    def _share(self, member: int, rows: Sequence[Expr], columns: Sequence[Expr], core: Expr) -> tuple[Expr, Expr]:
        """A core's rows and columns of a step: columns of wide images and of steps of few rows, else rows."""
        k, sharing = self.k, self.cores
        units = self.plan.alignments[member]
        width = self._size(len(self.plan.members) - 1)[1]
        across = k.hold(tirx.Cast("int32", tirx.any(width >= WIDE * sharing, rows[1] - rows[0] < sharing * units[0])))

        def cut(span: Sequence[Expr], unit: int, at: Expr) -> Expr:
            place = _down(span[0] + tirx.floordiv(at * (span[1] - span[0]), sharing), unit)
            return tirx.Select(at >= sharing, span[1], tirx.max(place, span[0]))

        found = []
        for span, unit, other in ((rows, units[0], 1), (columns, math.lcm(units[1], SHARED), 0)):
            own = [k.hold(tirx.Select(across == other, span[i], cut(span, unit, core + i))) for i in (0, 1)]
            found.append(own)
        return found[0], found[1]

    def _compute(self, state: _State, member: int, rows: Sequence[Expr], columns: Sequence[Expr], worker: Expr) -> None:
        k = self.k
        size = k.hold(rows[1] - rows[0]), k.hold(columns[1] - columns[0])
        own = {"row": rows[0], "column": columns[0], "rows": size[0], "columns": size[1]}
        larger: list[Expr] = []
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
        self, state: _State, value: Value, new: Sequence[Expr], across: Sequence[Expr],
        rows: Sequence[Expr], columns: Sequence[Expr], worker: Expr,
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

    def _call(self, number: int, numbers: Sequence[Expr], worker: Expr) -> None:
        arguments = []
        part, scratch = self.parts[number], self.pointers[self.operands[-1]]
        for operand in part.operands:
            own = self.plan.of(operand) if isinstance(operand, Value) else operand
            if own in self.pointers:
                apart = self.apart.get(operand)
                at = 0 if apart is None else tirx.Cast("int64", self.image) * self._bytes(apart)
                arguments.append(tirx.address_of(self.pointers[own][at]))
                continue
            at = self._bytes(self.offsets[operand])
            if self.sharing == 1 or isinstance(operand, Scratch):
                each = self.room if self.sharing == 1 else self.alone
                at = tirx.Cast("int64", worker) * self._bytes(each) + at
            arguments.append(tirx.address_of(scratch[at]))
        sizes = sizes_of(part.function)
        numbers = [_index(n) for n in numbers]
        self.k.add(tirx.Evaluate(tirx.call_extern("int32", self.names[number], *arguments, *numbers, *sizes)))


@contextmanager
def _where(k: KernelBuilder, conditions: Sequence[Expr]) -> Iterator[None]:
    if not conditions:
        yield
        return
    with k.when(tirx.all(*conditions)):
        yield


def _index(number: Expr) -> Expr:
    return tirx.IntImm("int32", number) if isinstance(number, int) else number


def _wide(dim: Expr) -> Expr:
    """A number of bytes in 64 bits, of the sizes that the kernel is given in 32."""
    if not is_dim(dim):
        return tirx.IntImm("int64", int(dim))
    return to_relax(dim, {name: tirx.Cast("int64", variable(name, "int32")) for name in symbols_of(dim)})


def _start(line: ReaderLine, at: Expr) -> Expr:
    return tirx.floordiv(at * line.slope + line.before, line.divisor)


def _end(line: ReaderLine, at: Expr) -> Expr:
    return tirx.floordiv((at - 1) * line.slope + line.after, line.divisor)


def _cut(part: Expr, count: Expr, parts: Expr, unit: int) -> Expr:
    return tirx.floordiv(part * count, parts) * unit


def _down(number: Expr, unit: int) -> Expr:
    return tirx.floordiv(number, unit) * unit if unit > 1 else number


def _up(k: KernelBuilder, number: Expr, unit: int, size: Expr) -> Expr:
    """``number`` rounded up to a multiple of ``unit``, but at the tensor's end."""
    if unit == 1:
        return number
    number = k.hold(number)
    rounded = tirx.floordiv(number + (unit - 1), unit) * unit
    return tirx.Select(number < size, tirx.min(rounded, size), number)


def _within(number: Expr, size: Expr) -> Expr:
    return tirx.max(tirx.min(number, size), 0)


def _least(numbers: Sequence[Expr]) -> Expr:
    found = numbers[0]
    for number in numbers[1:]:
        found = tirx.min(found, number)
    return found


def _most(numbers: Sequence[Expr]) -> Expr:
    found = numbers[0]
    for number in numbers[1:]:
        found = tirx.max(found, number)
    return found
