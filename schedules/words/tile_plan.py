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
    """Scratch for a part of ``value``: ``rows x columns`` of it from a base that moves, ``offset`` bytes into the
    task's scratch. ``layout`` is that part's: the shape of the window, the block of the value, no margins."""

    value: Value
    layout: Layout
    offset: int


@dataclass(frozen=True)
class Compute:
    """Member ``member`` computes ``rows x columns`` of its outputs. ``bases`` has, for each windowed value that it
    reads or writes, the position that the first element of the window holds at this moment."""

    member: int
    rows: Span
    columns: Span
    bases: Mapping[Value, tuple[int, int]]


@dataclass(frozen=True)
class Fill:
    """``rows x columns`` of the window of ``value`` become ``number``: places outside of the tensor."""

    value: Value
    rows: Span
    columns: Span
    base: tuple[int, int]
    number: float = 0.0


@dataclass(frozen=True)
class Shift:
    """The rows ``keep`` of the window of ``value``, whose base was ``base``, move to its start: the new base row is
    ``keep[0]``. ``columns``: of these alone (None: of all)."""

    value: Value
    keep: Span
    base: tuple[int, int]
    columns: Span | None = None


@dataclass(frozen=True)
class Copy:
    """``rows`` of the window of ``source``, whose base is ``base``, go to that of ``target``, from its row ``at`` on:
    rows that a ring saves until the next stripe, while others use its bytes, or that return. ``columns``: of these
    alone (None: of all)."""

    source: Value
    target: Value
    rows: Span
    base: tuple[int, int]
    columns: Span | None = None
    at: int = 0


Step = Compute | Fill | Shift | Copy


@dataclass(frozen=True)
class Task:
    """One band and column block: ``stripes`` are lists of steps, in order."""

    rows: Span
    columns: Span
    stripes: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True, eq=False)
class TilePlan:
    """How one tile group is computed. ``modes`` says for each value that stays inside how it is kept: ``ring`` or
    ``recompute``. ``windows`` has those of saved rows, too, under values of their own. ``task_bytes`` is the scratch of
    one task. ``sharing`` cores compute each step together, by columns or rows, one task after the other; 1: each has
    tasks of its own. ``room``: the most bytes that a member's kernel may hold beside its windows on each core (None:
    any number). ``inplace``: outputs of members that take over an input, which has the same window: the member reads it
    at its own place only. ``wholes``: values whose window is a part of that of a concatenation, with this, which
    computes nothing. ``takes``: values written whole that may lie where an input lies, if nobody reads it afterwards:
    the rows that are written are those that no step reads any more."""

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
        """True for the step of a concatenation whose parts were computed where they belong."""
        return isinstance(step, Compute) and self.members[step.member].outputs[0] in self.wholes.values()

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values that are written whole."""
        return tuple(v for g in self.members for v in g.outputs if v not in self.windows)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that are read and made elsewhere."""
        made = {v for g in self.members for v in g.outputs}
        return tuple(dict.fromkeys(v for g in self.members for v in g.inputs if v not in made))
