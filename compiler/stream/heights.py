"""Heights of values as formulas of the image's height."""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = 1 << 60  # the height of an image whose end has not come


@dataclass(frozen=True)
class Height:
    """Rows of a value whose image has h rows, a multiple of some number: steps * (h // period) + rest[h % period]."""

    period: int
    steps: int
    rest: tuple[int, ...]

    def at(self, rows: int) -> int:
        """The height where the image has that many rows."""
        if rows == UNKNOWN:
            return UNKNOWN
        return self.steps * (rows // self.period) + self.rest[rows % self.period]
