"""The words of tiling: what a planner decides and a code generator obeys.

A tile group is a connected set of fused groups that are computed together, box by box. Its work is cut into *tasks*
(a band of rows times a block of columns), which are independent of one another and run on any core in any order. A
task goes through its band in stripes from top to bottom and keeps what its members exchange in *windows*: parts of
the values, in scratch memory of its own.

All positions are those of the whole tensor, half-open; rows are axis 2 and columns axis 3 of N, C, H, W values. A
window holds all of the batch and the channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .group import Group, Value
from .layout import Layout

Span = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Scratch for a part of ``value``: ``rows x columns`` from a base that moves from stripe to stripe. It lies
    ``offset`` bytes into the task's scratch, in ``layout``: the shape of the window, the block of the value, no
    margins."""

    value: Value
    layout: Layout
    offset: int


@dataclass(frozen=True)
class Compute:
    """The step in which member number ``member`` computes ``rows x columns`` of its outputs. ``bases`` has, for each
    windowed value that it reads or writes, the (row, column) of the value that the window's first element holds at this
    moment."""

    member: int
    rows: Span
    columns: Span
    bases: Mapping[Value, tuple[int, int]]


@dataclass(frozen=True)
class Fill:
    """The step that writes ``number`` to ``rows x columns`` of the window of ``value``, places outside of the tensor.
    ``base``: the (row, column) that the window's first element holds."""

    value: Value
    rows: Span
    columns: Span
    base: tuple[int, int]
    number: float = 0.0


@dataclass(frozen=True)
class Shift:
    """The step that moves the rows ``keep`` of the window of ``value`` to its start: its base was ``base``, its new
    base row is ``keep[0]``. ``columns``: of these alone (None: of all)."""

    value: Value
    keep: Span
    base: tuple[int, int]
    columns: Span | None = None


@dataclass(frozen=True)
class Copy:
    """The step that copies ``rows`` of the window of ``source``, whose base is ``base``, into the window of ``target``,
    from that one's row ``at`` on: rows that a ring saves until the next stripe, while others use its bytes, or rows
    that return. ``columns``: of these alone (None: of all)."""

    source: Value
    target: Value
    rows: Span
    base: tuple[int, int]
    columns: Span | None = None
    at: int = 0


Step = Compute | Fill | Shift | Copy


@dataclass(frozen=True)
class Task:
    """One band of rows by one column block. ``stripes`` are lists of steps, from top to bottom."""

    rows: Span
    columns: Span
    stripes: tuple[tuple[Step, ...], ...]


class MemberPlan:
    """What a plan's members read and write together, ``windows`` aside."""

    members: tuple[Group, ...]
    windows: Mapping[Value, Window]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values that the members write whole, to memory."""
        return tuple(v for g in self.members for v in g.outputs if v not in self.windows)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that the members read and others make."""
        made = {v for g in self.members for v in g.outputs}
        return tuple(dict.fromkeys(v for g in self.members for v in g.inputs if v not in made))


@dataclass(frozen=True, eq=False)
class TilePlan(MemberPlan):
    """How one tile group is computed: its members' steps, task by task.

    ``windows``: value -> its window; those of saved rows are there too, under values of their own. ``task_bytes``: the
    scratch of one task. ``modes``: inner value -> "ring" or "recompute". ``sharing`` cores compute each step together,
    by columns or rows, one task after the other; 1: each has tasks of its own. ``room``: the scratch limit of a
    member's kernel, in bytes a core (None: any number). ``inplace``: output of a member -> the input of the same window
    that it overwrites, which the member reads at its own place only. ``wholes``: value -> the concatenation whose
    window its own is a part of; such a concatenation computes nothing. ``takes``: value written whole -> the input in
    whose memory it may lie if nobody reads that afterwards, since only rows are written that no step reads any more.
    """

    members: tuple[Group, ...]
    windows: Mapping[Value, Window]
    tasks: tuple[Task, ...]
    task_bytes: int
    modes: Mapping[Value, str] = field(default_factory=dict)
    extra_work: float = 1.0  # multiply-adds computed, over those of the untiled group
    notes: tuple[str, ...] = ()
    sharing: int = 1
    room: int | None = None
    inplace: Mapping[Value, Value] = field(default_factory=dict)
    wholes: Mapping[Value, Value] = field(default_factory=dict)
    takes: Mapping[Value, Value] = field(default_factory=dict)

    def is_done(self, step: Step) -> bool:
        """True if ``step`` computes a concatenation whose parts were computed in its window: nothing is left to do."""
        return isinstance(step, Compute) and self.members[step.member].outputs[0] in self.wholes.values()
