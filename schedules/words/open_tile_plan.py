"""The words of tiling where the size of images is open: what a planner decides once for all sizes.

Tiles have a fixed size, and there are as many as the image takes: bands of rows times blocks of columns, each gone
through in stripes from top to bottom. What a member computes in a stripe follows at run time from how far its readers
reach, by the straight lines of :class:`Link`:

    the last member ends at row b       a reader that ends at row e needs rows up to  floor((slope (e - 1) + after) / divisor)
                                        one that begins at row a needs rows from      floor((slope a + before) / divisor)
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .alignment import ALIGNMENT, aligned
from .dims import floor_div, maximum, minimum
from .group import Group, Value
from .tile_plan import MemberPlan, Window

if TYPE_CHECKING:
    from .size_like import SizeLike


@dataclass(frozen=True)
class ReaderLine:
    """What outputs [a, b) of a reader need of one axis of a value, edges of the tensor aside."""

    slope: int
    divisor: int
    before: int
    after: int

    def start(self, a: int) -> int:
        """The first position that outputs from ``a`` on need."""
        return (self.slope * a + self.before) // self.divisor

    def end(self, b: int) -> int:
        """The position behind the last that outputs up to ``b``, itself not included, need."""
        return (self.slope * (b - 1) + self.after) // self.divisor

    @property
    def is_same(self) -> bool:
        """True if the reader needs what lies where it writes."""
        return (self.slope, self.divisor, self.before, self.after) == (1, 1, 0, 1)


@dataclass(frozen=True)
class Link:
    """Member number ``reader`` reads ``value``, as its lines say. ``outside``: it reads beyond the edges as well, and
    must find zeros there."""

    reader: int
    value: Value
    rows: ReaderLine
    columns: ReaderLine
    outside: bool


@dataclass(frozen=True, eq=False)
class Images:
    """A ``batch`` whose images take turns: members of the plan compute one. ``groups`` are those of the program, and
    ``values`` has, for what an image has a part of, the value of the program."""

    batch: SizeLike
    groups: tuple[Group, ...]
    values: Mapping[Value, Value]


@dataclass(frozen=True, eq=False)
class OpenTilePlan(MemberPlan):
    """How one tile group is computed at every size.

    ``links[m]`` are the readers of what member m makes; the last has none. Stripes have ``rows`` rows of the last
    member's output, blocks at most ``columns`` (None: all columns); ``bands`` are computed independently. ``workers``
    tiles are computed at a time, each with windows of its own. Each band begins with ``warm`` stripes in which the last
    member computes nothing, so that windows fill at their usual pace. ``whole`` members but for the last have no
    windows: others read what they make as well, and there is one band. ``sharing`` cores compute each step together, by
    rows or columns, with one set of windows; 1: each worker has tiles of its own. ``images``: those of a batch take
    turns; None: there is one, or all are computed at once.
    Member m computes multiples of ``units[m]`` rows, but at the end, and begins and ends at multiples of
    ``alignments[m]``. ``windows``: value -> its window, of as many rows as any stripe of any size needs; ``task_bytes``
    of them together, which may be open. ``at_once``: images of at most ``rows`` rows have one stripe and none before
    it, from which windows keep nothing. Images of at most ``small`` positions of the last member's output are one tile
    of one stripe: all of a member, whose steps the cores share where images are fewer than they. ``expected``: rows
    and columns that each member computes at a time, mostly.
    """

    members: tuple[Group, ...]
    links: tuple[tuple[Link, ...], ...]
    rows: int
    columns: int | None
    bands: int
    workers: int
    warm: int
    units: tuple[int, ...]
    alignments: tuple[tuple[int, int], ...]
    windows: Mapping[Value, Window]
    task_bytes: SizeLike
    expected: tuple[tuple[int, int], ...]
    whole: frozenset[int] = frozenset()
    sharing: int = 1
    room: int | None = None
    images: Images | None = None
    extra_work: float = 1.0  # at the sizes that were planned for
    notes: tuple[str, ...] = ()
    modes: Mapping[Value, str] = field(default_factory=dict)
    at_once: bool = False
    small: int = 0

    @property
    def most_bands(self) -> int:
        """The bands where there are fewer blocks than workers."""
        return self.bands if self.columns is None else max(self.bands, self.workers)

    @property
    def used(self) -> SizeLike:
        """The most workers that have tiles, which may be open: each needs windows of its own."""
        if self.images is None or self.columns is not None or self.sharing > 1:
            return self.workers
        return minimum(self.workers, self.images.batch * self.bands)

    @property
    def in_tiles(self) -> SizeLike:
        """1 for images that are cut into tiles, 0 for those that are one."""
        return in_tiles(self.members[-1], self.small)

    def bytes_with(self, beside: SizeLike) -> SizeLike:
        """The bytes of all windows, and of ``beside``, what a core holds beside them."""
        own = aligned(self.task_bytes)
        apart = maximum(own + beside, ALIGNMENT) * self.used
        if self.sharing > 1:
            return own + maximum(beside, ALIGNMENT) * self.sharing
        if not self.small or self.workers == 1:
            return apart
        together = own + maximum(beside, ALIGNMENT) * self.used
        many = self.in_tiles
        if self.images is not None:
            many = maximum(many, minimum(1, floor_div(self.images.batch, self.workers)))
        return together + many * (apart - together)

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of the program that the members compute."""
        return self.members if self.images is None else self.images.groups

    def of(self, value: Value) -> Value:
        """The value of the program of which ``value`` is one image's part, where images take turns."""
        return value if self.images is None else self.images.values.get(value, value)

    @property
    def column_step(self) -> int:
        """Columns that blocks begin at multiples of."""
        own = self.alignments[-1][1]
        if self.columns is None:
            return own
        return next(s for s in (4 * own, 2 * own, own) if self.columns % s == 0)

    def keeps(self, member: int) -> bool:
        """True if the window of ``member`` may hold rows from one stripe to the next; False if its one reader computes
        the very rows that it computes."""
        own = self.links[member]
        if member in self.whole:
            return False
        return not (len(own) == 1 and own[0].rows.is_same and self.units[member] == self.units[own[0].reader])

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Values that the members write whole, to memory."""
        return tuple(self.of(v) for g in self.members for v in g.outputs if v not in self.windows)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """Values that the members read and others make."""
        made = {v for g in self.members for v in g.outputs}
        return tuple(dict.fromkeys(self.of(v) for g in self.members for v in g.inputs if v not in made))


def in_tiles(last: Group, small: int) -> SizeLike:
    """1 where ``last`` makes more than ``small`` positions, else 0."""
    height, width = last.outputs[0].shape[2:]
    return minimum(1, floor_div(height * width, small + 1)) if small else 1
