"""Where the data of a strip of outputs lies for the matrix unit: rows and columns of the input in scratch, in the order
in which a register takes them.

    outputs     rows x columns of the image, in a strip
    input       what their taps read: for strides (sy, sx) every sy-th row and sx-th column is a plane of its own
                (phase), so that neighbouring outputs read neighbouring places, whatever the strides
    places      row * pitch + column; an output's place is that of its first tap in each plane, and other taps lie at
                constant distances behind

Sixteen places that follow each other are a register. Rows of outputs follow each other, too, with ``pitch - columns``
places between them that are computed for nothing: 7 x 7 outputs of 3 x 3 taps are 61 places, four registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from ...instructions.amx import DEPTH, PAIRS, ROWS, SUMS
from ...words.dims import Dim, bounds
from ..facts import ConvFacts

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

OPEN_ROWS = 4  # of outputs, for each row that strips of images of any size share, where these are widest
LEAST_COLUMNS = 48  # of a part of the rows: what the last register of each computes for nothing counts little


@dataclass(frozen=True)
class Tap:
    """Where a tap reads: in the plane ``phase``, ``row * pitch + column`` places behind an output's own place."""

    phase: int
    row: int
    column: int


@dataclass(frozen=True)
class Strip:
    """A strip of at most ``rows x columns`` outputs, and the planes of the input that lie in scratch for it.
    ``phases``: the (row, column) of the input that each plane begins with, planes having every ``strides``-th row and
    column; ``taps``: where each tap reads, in the order of the weights."""

    rows: int
    columns: int
    strides: tuple[int, int]
    phases: tuple[tuple[int, int], ...]
    taps: tuple[Tap, ...]

    @staticmethod
    def of(facts: ConvFacts, rows: int, columns: int) -> Strip:
        """The strip of ``rows x columns`` outputs of a convolution along one or two axes."""
        kernel, strides, dilation = (_two(t) for t in (facts.kernel, facts.strides, facts.dilation))
        offsets = [[t * d for t in range(k)] for k, d in zip(kernel, dilation)]
        phases = tuple(sorted({(y % strides[0], x % strides[1]) for y, x in product(*offsets)}))
        taps = tuple(
            Tap(phases.index((y % strides[0], x % strides[1])), y // strides[0], x // strides[1])
            for y, x in product(*offsets)
        )
        return Strip(rows, columns, strides, phases, taps)

    @property
    def pitch(self) -> int:
        """Places of a row of a plane."""
        return self.columns + max(t.column for t in self.taps)

    @property
    def height(self) -> int:
        """Rows of a plane."""
        return self.rows + max(t.row for t in self.taps)

    @property
    def places(self) -> int:
        """Places of a plane."""
        return self.height * self.pitch

    def elements(self, channels: int, parts: int) -> int:
        """Words (int32) of a core's scratch: planes of all pairs of channel blocks in all ``parts``, and what the last
        registers read beyond the end."""
        found: int = self.words(-(-channels // DEPTH) * parts, self.places, self.pitch)
        return found

    def words(self, planes: int, places: SizeLike, pitch: SizeLike) -> SizeLike:
        """The same of so many ``planes`` of each phase, of ``places`` in rows of ``pitch``."""
        last = max((t.row, t.column) for t in self.taps)
        beyond = SUMS * ROWS + last[0] * pitch + last[1]
        return (len(self.phases) * planes * places + beyond) * PAIRS

    def reach(self, phase: int) -> tuple[int, int]:
        """(rows, columns) that plane number ``phase`` has beyond those of the outputs."""
        own = [t for t in self.taps if t.phase == phase]
        return max(t.row for t in own), max(t.column for t in own)

    def offsets(self, plane: int) -> list[int]:
        """For each tap, how many places behind an output's own place it reads, where planes are ``plane`` places
        apart."""
        return [t.phase * plane + t.row * self.pitch + t.column for t in self.taps]

    def spread(self, rows: int, columns: int) -> int:
        """Places from the first of ``rows x columns`` outputs to the last, both included."""
        return (rows - 1) * self.pitch + columns


def strips_of(facts: ConvFacts, size: tuple[int, int]) -> Iterator[Strip]:
    """Strips that cut ``size`` (rows, columns) of outputs into parts of about equal size, those of whole rows first."""
    height, width = size
    across = dict.fromkeys(-(-width // parts) for parts in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32))
    down = dict.fromkeys(-(-height // parts) for parts in range(1, height + 1))
    for columns in across:
        if columns < min(width, LEAST_COLUMNS):
            return
        for rows in down:
            yield Strip.of(facts, rows, columns)


def roomy(facts: ConvFacts, own: Strip, width: Dim, fits: Callable[[Strip], bool]) -> Strip:
    """The strip for images of any size, of which ``width`` is the columns of outputs: few rows of as many columns as
    ``fits`` allows, no narrower than ``own``. Kernels make more rows of narrower images
    (:meth:`.tasks.Places._fit`)."""
    rows, columns = max(1, OPEN_ROWS * max(t.row for t in own.taps)), own.columns
    most = bounds(width)[1]
    if not fits(Strip.of(facts, rows, columns)):
        return own
    step = 1
    while step:
        more = columns + step
        if more <= most and fits(Strip.of(facts, rows, more)):
            columns, step = more, 2 * step
        else:
            step //= 2
    return Strip.of(facts, rows, columns)


def _two(numbers: tuple[int, ...]) -> tuple[int, int]:
    return (1, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])
