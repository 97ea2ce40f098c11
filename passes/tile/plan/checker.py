"""Checks a plan by going through its steps, on its own: nothing here is shared with what made it.

Every window is a grid that remembers which element of its value each place holds (or that it is filled, or nothing).

1. What a member reads is there: elements of windows at the places that the bases say, fills outside of the tensor,
   elements of whole values that this task wrote before.
2. Every element of a whole value is written once, whatever the task.
3. Windows are written within their bounds; a window written loses what other windows hold in the same bytes: of those
   at the very same place only what is written, which a member may read at its own place while it writes there. Those
   have the same fills, too.
4. Parts of a concatenation lie in its window one after the other, and its step, which no kernel computes, finds them
   there.
5. What lies where an input lies is written behind all reads of that place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....schedules.words.group import Value, dtype_bytes
from ....schedules.words.tile_plan import Compute, Copy, Fill, Shift, Span, Task, TilePlan
from .form import Needs

NOTHING, FILLED = -1, -2


@dataclass
class Checked:
    """What a check of a plan found: ``problems``, empty if the plan is right, and ``computed``, the elements (rows
    times columns) that each member computes."""

    problems: list[str] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)


def check_plan(plan: TilePlan, needs: Needs | None = None) -> Checked:
    """What is wrong with ``plan``, and what its members compute, found by going through the steps of all of its tasks
    and following what every window holds."""
    if needs is None:
        from .needs import group_needs_of

        needs = group_needs_of
    return _Checker(plan, needs).run()


class _Checker:
    def __init__(self, plan: TilePlan, needs: Needs) -> None:
        self.plan, self.needs = plan, needs
        self.found = Checked(computed=[0] * len(plan.members))
        self.writes = {v: np.zeros(v.shape[2:4], np.int16) for v in plan.outputs}
        self.owner = {v: np.full(v.shape[2:4], NOTHING, np.int32) for v in plan.outputs}
        self.bytes = {
            v: (w.offset, w.offset + w.layout.elements * dtype_bytes(w.layout.held(v.dtype)))
            for v, w in plan.windows.items()
        }
        self.grids: dict[Value, np.ndarray] = {}
        self.task = 0
        self.where = ""

    def run(self) -> Checked:
        for value, (start, end) in self.bytes.items():
            if start < 0 or end > self.plan.task_bytes:
                self._problem(f"the window of {value.name} leaves the task's {self.plan.task_bytes} bytes")
            if start % 64:
                self._problem(f"the window of {value.name} is not aligned")
        self._parts()
        self._takes()
        for number, task in enumerate(self.plan.tasks):
            self.task = number
            self._task(task)
        for value, count in self.writes.items():
            if (count != 1).any():
                row, column = (int(i) for i in np.argwhere(count != 1)[0])
                self._problem(f"{value.name} at {row}, {column} is written {int(count[row, column])} times")
        return self.found

    def _parts(self) -> None:
        """Channels lie where a reader of the concatenation looks for them."""
        for group in self.plan.members:
            whole = group.outputs[0]
            parts = [v for v in group.inputs if self.plan.wholes.get(v) is whole]
            if not parts:
                continue
            if tuple(parts) != group.inputs or whole not in self.plan.windows:
                self._problem(f"{group.name} has parts in its window, but not all")
                continue
            window = self.plan.windows[whole].layout
            plane = window.strides[1] * dtype_bytes(window.held(whole.dtype))  # of a block of channels
            channel, start = 0, self.bytes[whole][0]
            for part in parts:
                if channel % window.block or self.bytes[part][0] != start + channel // window.block * plane:
                    self._problem(f"{part.name} does not lie where {whole.name} has its channels")
                channel += part.shape[1]

    def _takes(self) -> None:
        """Tasks run in any order: none may write over what another one reads."""
        for output, value in self.plan.takes.items():
            if len(self.plan.tasks) > 1 or (output.shape, output.dtype) != (value.shape, value.dtype):
                self._problem(f"{output.name} can't lie where {value.name} lies")

    def _problem(self, text: str) -> None:
        if len(self.found.problems) < 20:
            self.found.problems.append(f"{self.where}{text}")

    def _task(self, task: Task) -> None:
        self.grids = {v: np.full((*w.layout.shape[2:4], 2), NOTHING, np.int32) for v, w in self.plan.windows.items()}
        for s, stripe in enumerate(task.stripes):
            for n, step in enumerate(stripe):
                self.where = f"task {self.task}, stripe {s}, step {n}: "
                if isinstance(step, Compute):
                    self._compute(step)
                elif isinstance(step, Fill):
                    self._fill(step)
                elif isinstance(step, Copy):
                    self._copy(step)
                else:
                    self._shift(step)
        self.where = ""

    # -- steps -----------------------------------------------------------------------------------

    def _compute(self, step: Compute) -> None:
        group = self.plan.members[step.member]
        for value in dict.fromkeys(group.inputs):
            self._reads(step, value)
        self.found.computed[step.member] += (step.rows[1] - step.rows[0]) * (step.columns[1] - step.columns[0])
        for value in group.outputs:
            if not _within(step.rows, value.shape[2]) or not _within(step.columns, value.shape[3]):
                self._problem(f"{group.name} computes {step.rows} x {step.columns}, which is not a part of {value}")
                continue
            if value not in self.plan.windows:
                part = _part(step.rows, step.columns)
                self.writes[value][part] += 1
                self.owner[value][part] = self.task
                continue
            self._beside(step, value)
            place = self._place(value, step.rows, step.columns, step.bases.get(value))
            if place is not None:
                place[:] = _elements(step.rows, step.columns)

    def _beside(self, step: Compute, output: Value) -> None:
        """What a member writes over of its inputs must lie where it reads it, and its kernel must know."""
        group, (start, end) = self.plan.members[step.member], self.bytes[output]
        for value in dict.fromkeys(group.inputs):
            a, b = self.bytes.get(value, (0, 0))
            if not (a < end and start < b):
                continue
            need = self.needs(group, value, step.rows, step.columns)
            own = need is None or (need.rows, need.columns) == (step.rows, step.columns)
            same = self._alike(value, output) and step.bases.get(value) == step.bases.get(output)
            known = self.plan.inplace.get(output) is value or self.plan.wholes.get(value) is output
            if not (own and same and known):
                self._problem(f"{group.name} writes over {value.name}, which it reads")

    def _alike(self, a: Value, b: Value) -> bool:
        """True if the windows of both are the same place, or one is that of some channels of the other."""
        one, other = self.plan.windows[a], self.plan.windows[b]
        if self.plan.wholes.get(a) is b or self.plan.wholes.get(b) is a:
            same = one.layout.shape[2:] == other.layout.shape[2:] and one.layout.block == other.layout.block
            return same and a.dtype == b.dtype
        return one.offset == other.offset and one.layout == other.layout and a.dtype == b.dtype

    def _reads(self, step: Compute, value: Value) -> None:
        made = value in self.plan.windows or value in self.owner
        if not made:
            self._reads_taken(step, value)
            return
        group = self.plan.members[step.member]
        need = self.needs(group, value, step.rows, step.columns)
        if need is None:
            return
        if need.outside is None and not (_within(need.rows, value.shape[2]) and _within(need.columns, value.shape[3])):
            self._problem(f"{group.name} would read outside of {value.name}")
            return
        inside = _clip(need.rows, value.shape[2]), _clip(need.columns, value.shape[3])
        if value not in self.plan.windows:
            if (self.owner[value][_part(*inside)] != self.task).any():
                self._problem(f"{group.name} reads {inside} of {value.name} before this task has written it")
            return
        place = self._place(value, need.rows, need.columns, step.bases.get(value), reading=True)
        if place is None:
            return
        wanted = np.full((*place.shape[:2], 2), FILLED, np.int32)
        if inside[0][0] < inside[0][1] and inside[1][0] < inside[1][1]:
            top, left = inside[0][0] - need.rows[0], inside[1][0] - need.columns[0]
            elements = _elements(*inside)
            wanted[top : top + elements.shape[0], left : left + elements.shape[1]] = elements
        if (place != wanted).any():
            row, column = (int(i) for i in np.argwhere((place != wanted).any(-1))[0])
            self._problem(
                f"{group.name} reads {value.name} at {need.rows[0] + row}, {need.columns[0] + column} and finds "
                f"{_said(place[row, column])}"
            )

    def _reads_taken(self, step: Compute, value: Value) -> None:
        """Nothing of ``value`` may be written over yet, nor by this very step."""
        over = [output for output, taken in self.plan.takes.items() if taken is value]
        group = self.plan.members[step.member]
        need = self.needs(group, value, step.rows, step.columns) if over else None
        if need is None:
            return
        part = _part(_clip(need.rows, value.shape[2]), _clip(need.columns, value.shape[3]))
        for output in over:
            here = output in group.outputs and _meet(part[0], step.rows) and _meet(part[1], step.columns)
            if here and (need.rows, need.columns) == (step.rows, step.columns):
                here = False  # each element right before it is written, which the kernel knows
            if here or self.writes[output][part].any():
                self._problem(f"{group.name} reads {value.name} where {output.name} is written over it")

    def _fill(self, step: Fill) -> None:
        height, width = step.value.shape[2:4]
        if not (_outside(step.rows, height) or _outside(step.columns, width)):
            self._problem(f"fills {step.rows} x {step.columns} of {step.value.name}, which is inside of the tensor")
        place = self._place(step.value, step.rows, step.columns, step.base)
        if place is not None:
            place[:] = FILLED if step.number == 0.0 else NOTHING
            self._share(step.value)

    def _shift(self, step: Shift) -> None:
        grid = self.grids[step.value]
        low, high = step.keep[0] - step.base[0], step.keep[1] - step.base[0]
        if not 0 <= low <= high <= grid.shape[0]:
            self._problem(f"keeps rows {step.keep} of {step.value.name}, which its window doesn't hold")
            return
        columns = _columns(step.columns, step.base[1])
        kept = grid[low:high, columns].copy()
        left = grid[high - low :, columns]  # as it was, which only fills may be
        left[left != FILLED] = NOTHING
        grid[: high - low, columns] = kept
        self._trample(step.value, (slice(0, high - low), columns))
        self._share(step.value)

    def _copy(self, step: Copy) -> None:
        source, target = self.grids[step.source], self.grids[step.target]
        low, high = step.rows[0] - step.base[0], step.rows[1] - step.base[0]
        if not 0 <= low <= high <= source.shape[0] or high - low > target.shape[0]:
            self._problem(f"copies rows {step.rows} of {step.source.name}, which a window doesn't hold")
            return
        if self.plan.windows[step.source].layout.strides[2] != self.plan.windows[step.target].layout.strides[2]:
            self._problem(f"rows of {step.source.name} are not as long where they are copied to")
        columns = _columns(step.columns, step.base[1])
        kept = source[low:high, columns].copy()
        if not 0 <= step.at <= target.shape[0] - (high - low):
            self._problem(f"copies rows {step.rows} of {step.source.name} to where a window ends")
            return
        rows = slice(step.at, step.at + high - low)
        self._trample(step.target, (rows, columns))
        target[rows, columns] = kept
        self._share(step.target)

    # -- memory ----------------------------------------------------------------------------------

    def _place(
        self, value: Value, rows: Span, columns: Span, base: tuple[int, int] | None, reading: bool = False
    ) -> np.ndarray | None:
        """The part of the window that stands for ``rows x columns``."""
        grid = self.grids[value]
        if base is None:
            self._problem(f"no base for the window of {value.name}")
            return None
        top, left = rows[0] - base[0], columns[0] - base[1]
        bottom, right = rows[1] - base[0], columns[1] - base[1]
        if not (0 <= top <= bottom <= grid.shape[0] and 0 <= left <= right <= grid.shape[1]):
            self._problem(
                f"{rows} x {columns} of {value.name} leave its window of {grid.shape[0]} x {grid.shape[1]} at {base}"
            )
            return None
        if not reading:
            self._trample(value, (slice(top, bottom), slice(left, right)))
        return grid[top:bottom, left:right]

    def _trample(self, value: Value, part: tuple[slice, slice] = (slice(None), slice(None))) -> None:
        """Other windows lose what they hold where ``part`` of this one is written."""
        start, end = self.bytes[value]
        for other, (a, b) in self.bytes.items():
            if other is not value and a < end and start < b:
                self.grids[other][part if self._alike(value, other) else slice(None)] = NOTHING

    def _share(self, value: Value) -> None:
        """Other windows at the very same place have the fills that this one has."""
        start, end = self.bytes[value]
        for other, (a, b) in self.bytes.items():
            if other is not value and (a, b) == (start, end) and self._alike(value, other):
                self.grids[other][self.grids[value] == FILLED] = FILLED


def _columns(columns: Span | None, base: int) -> slice:
    return slice(None) if columns is None else slice(columns[0] - base, columns[1] - base)


def _part(rows: Span, columns: Span) -> tuple[slice, slice]:
    return slice(*rows), slice(*columns)


def _meet(part: slice, span: Span) -> bool:
    return part.start < span[1] and span[0] < part.stop


def _elements(rows: Span, columns: Span) -> np.ndarray:
    r, c = np.arange(*rows), np.arange(*columns)
    return np.stack(np.meshgrid(r, c, indexing="ij"), -1).astype(np.int32)


def _within(span: Span, size: int) -> bool:
    return 0 <= span[0] < span[1] <= size


def _outside(span: Span, size: int) -> bool:
    return span[1] <= 0 or span[0] >= size


def _clip(span: Span, size: int) -> Span:
    low = min(max(span[0], 0), size)
    return low, max(low, min(span[1], size))


def _said(place: np.ndarray) -> str:
    row, column = int(place[0]), int(place[1])
    if row == NOTHING:
        return "nothing"
    return "a fill" if row == FILLED else f"the element at {row}, {column}"
