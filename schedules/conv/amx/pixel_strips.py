"""Where the data of a strip lies for the matrix unit if it has few channels: pixels of a few words, whose neighbours
fill a register's row.

    pixel      channels of ``deep`` rows of the kernel that follow each other, two numbers a word, zeros behind the last
    row of A   16 words: neighbouring pixels, as many taps of a row. The next output's begins ``stride`` pixels on
    step       ``deep`` rows of taps by as many columns as a row of A has pixels

So 7 x 7 taps of three channels are seven steps (28 of 32 terms each, an eighth tap of zero weights), 3 x 3 two, 5 x 5
of one channel two; 49, 9 and 25 if a step were a tap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...instructions.amx import PAIRS, ROWS, SUMS
from ..facts import ConvFacts


@dataclass(frozen=True)
class Pixels:
    """``deep`` rows of the kernel in ``words`` words, a power of two."""

    deep: int
    words: int

    @property
    def across(self) -> int:
        """Pixels of a row of A."""
        return PAIRS // self.words


@dataclass(frozen=True)
class Step:
    """``row`` of the kernel and ``column``, in pixels, that a step begins with."""

    row: int
    column: int


@dataclass(frozen=True)
class PixelStrip:
    """``rows`` of outputs, whole."""

    facts: ConvFacts
    pixels: Pixels
    rows: int

    @property
    def columns(self) -> int:
        return self.facts.out_spatial[1]

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        facts, pixels = self.facts, self.pixels
        width = (facts.kernel[1] - 1) * facts.dilation[1] + 1
        return tuple(
            Step(row, column)
            for row in range(0, facts.kernel[0], pixels.deep)
            for column in range(0, width, pixels.across)
        )

    @property
    def phases(self) -> tuple[int, ...]:
        """Rows of the input that planes begin with: each has every ``stride``-th."""
        return tuple(sorted({s.row * self.facts.dilation[0] % self.facts.strides[0] for s in self.steps}))

    @property
    def apart(self) -> int:
        """Words from an output's place to the next one's."""
        return self.facts.strides[1] * self.pixels.words

    @property
    def pitch(self) -> int:
        """Places of a row, whose pixels hold all that registers of its outputs read."""
        last = max(s.column for s in self.steps) + self.pixels.across
        return self.columns - 1 + -(-last // self.facts.strides[1])

    def reach(self, phase: int) -> int:
        """Rows that the plane has below those of the outputs."""
        down, step = self.facts.dilation[0], self.facts.strides[0]
        return max(s.row * down // step for s in self.steps if s.row * down % step == phase)

    @property
    def height(self) -> int:
        return self.rows + max(map(self.reach, self.phases))

    @property
    def places(self) -> int:
        """The positions of a plane, padding included."""
        return self.height * self.pitch

    @property
    def row_pixels(self) -> int:
        return self.pitch * self.facts.strides[1]

    @property
    def filled(self) -> int:
        """Pixels of a row that hold numbers of the input or its margins; others hold zeros."""
        facts = self.facts
        return min(self.row_pixels, facts.data.shape[3] + facts.before[1] + facts.margins()[3][1])

    @property
    def vectors(self) -> int:
        """The vectors of sixteen pixels that are made for a strip."""
        return sum(self.rows + self.reach(p) for p in self.phases) * -(-self.filled // PAIRS)

    def spread(self, rows: int, columns: int) -> int:
        """Places from the first of ``rows x columns`` outputs to the last."""
        return (rows - 1) * self.pitch + columns

    def elements(self, channels: int, parts: int) -> int:
        """Words of a core's scratch, with what the last registers read beyond the end."""
        del channels
        return len(self.phases) * parts * self.places * self.apart + (SUMS + 1) * ROWS * self.apart + 2 * PAIRS

    def offsets(self, phase: int) -> list[int]:
        """Words that each step reads behind a place, where planes are ``phase`` words apart."""
        down, step = self.facts.dilation[0], self.facts.strides[0]
        found = []
        for s in self.steps:
            row, plane = s.row * down // step, self.phases.index(s.row * down % step)
            found.append(plane * phase + row * self.pitch * self.apart + s.column * self.pixels.words)
        return found

    def slots(self) -> list[tuple[int, int] | None]:
        """(row of the kernel behind the pixel's first, channel) of each number of a pixel; None is zero."""
        own = [(row, channel) for row in range(self.pixels.deep) for channel in range(self.facts.channels)]
        return [own[i] if i < len(own) else None for i in range(2 * self.pixels.words)]

    def terms(self) -> np.ndarray:
        """[step][pair][2] -> which of [channel][row][column] of the weights stands there, -1 for none."""
        facts, slots = self.facts, self.slots()
        found = np.full((len(self.steps), PAIRS, 2), -1)
        for i, pair, half in np.ndindex(found.shape):
            pixel, word = divmod(pair, self.pixels.words)
            slot = slots[2 * word + half]
            column, between = divmod(self.steps[i].column + pixel, facts.dilation[1])
            if slot is None or between or column >= facts.kernel[1]:
                continue
            row = self.steps[i].row + slot[0]
            if row < facts.kernel[0]:
                found[i, pair, half] = (slot[1] * facts.kernel[0] + row) * facts.kernel[1] + column
        return found


def pixel_strips(facts: ConvFacts) -> Iterator[PixelStrip]:
    """Strips of all heights, with pixels of any number of the kernel's rows, whose rows are wide enough."""
    height = facts.out_spatial[0]
    down = dict.fromkeys(-(-height // parts) for parts in range(1, height + 1))
    for deep in range(1, facts.kernel[0] + 1):
        words = 1 << max(0, (deep * facts.channels + 1) // 2 - 1).bit_length()
        if words > PAIRS // 2:
            return
        for rows in down:
            strip = PixelStrip(facts, Pixels(deep, words), rows)
            if strip.filled >= PAIRS:
                yield strip
