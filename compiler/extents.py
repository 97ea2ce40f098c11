"""Extent: what a user says of one dimension, as text: a name, a range with a multiple, the size to plan for.

    n                  is called n
    64..2160:32        from 64 to 2160, in multiples of 32; either end may be left out
    h:64..2160:32@720  the same, called h, planned for 720
    ?                  as the model has it
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..errors import ShapeError
from .spec import Symbol

UNTOLD = "?"
_RANGE = re.compile(r"(?:(?P<name>.+):)?\s*(?P<low>\d*)\.\.(?P<high>\d*)(?::(?P<multiple>\d+))?(?:@(?P<typical>\d+))?")
_NAME = re.compile(r"(?P<name>[^:@,]*[^\W\d][^:@,]*)(?:@(?P<typical>\d+))?")
_FORM = "a number, a name, low..high, low..high:multiple or name:low..high:multiple"


@dataclass(frozen=True)
class Extent:
    """``high`` None is no limit; ``name`` None keeps the model's; ``typical`` None leaves it to the build."""

    name: str | None = None
    low: int = 0
    high: int | None = None
    multiple: int = 1
    typical: int | None = None

    @staticmethod
    def parse(text: str) -> Extent:
        """The extent that ``text`` writes; raises ShapeError for anything else, and for one that allows no size."""
        text = text.strip()
        if text == UNTOLD:
            return Extent()
        found = _RANGE.fullmatch(text) or (None if ".." in text else _NAME.fullmatch(text))
        if found is None:
            raise ShapeError(f"{text!r} is no dimension; write {_FORM}")
        given = {key: value for key, value in found.groupdict().items() if value}
        name = given.pop("name", "").strip() or None
        if name == UNTOLD:
            name = None
        numbers = {key: int(value) for key, value in given.items()}
        return Extent(name, **numbers).checked(text)

    def checked(self, text: str) -> Extent:
        """Itself, if there are sizes that it allows, and the typical one is among them."""
        if self.multiple < 1:
            raise ShapeError(f"dimension {text!r}: nothing is a multiple of {self.multiple}; give 1 or more")
        if self.high is not None and self.low > self.high:
            raise ShapeError(f"dimension {text!r}: its least size {self.low} is more than its largest {self.high}")
        if self.high is not None and self.largest < self.least:
            raise ShapeError(f"dimension {text!r}: no multiple of {self.multiple} is from {self.low} to {self.high}")
        if self.typical is not None and not self.low <= self.typical <= (math.inf if self.high is None else self.high):
            raise ShapeError(f"dimension {text!r}: the size to plan for, {self.typical}, is not {self.sizes}")
        return self

    @property
    def least(self) -> int:
        """The least multiple that is allowed."""
        return -(-self.low // self.multiple) * self.multiple

    @property
    def largest(self) -> float:
        """The largest multiple that is allowed."""
        return math.inf if self.high is None else self.high // self.multiple * self.multiple

    @property
    def bounded(self) -> bool:
        return (self.low, self.high, self.multiple) != (0, None, 1)

    @property
    def sizes(self) -> str:
        """The allowed sizes in words."""
        return sizes_text(self.low, self.high, self.multiple)

    def allows(self, size: int) -> bool:
        return self.least <= size <= self.largest and size % self.multiple == 0

    def __str__(self) -> str:
        high = "" if self.high is None else self.high
        bounds = f"{self.low or ''}..{high}" if self.bounded or self.name is None else ""
        multiple = f":{self.multiple}" if self.multiple > 1 else ""
        typical = f"@{self.typical}" if self.typical is not None else ""
        if self == Extent():
            return UNTOLD
        return ":".join(filter(None, (self.name, bounds))) + multiple + typical


def sizes_text(low: int, high: float | None, multiple: int = 1) -> str:
    """Sizes in words: ``a multiple of 32 from 64 to 2144``."""
    most = None if high is None or math.isinf(high) else int(high)
    return "any size" if (low, most, multiple) == (0, None, 1) else Symbol("", low, most, multiple).allowed


def checked_dimension(dim: str) -> int | str:
    """A dimension from text: a number, or an extent in its one form; ShapeError for neither."""
    text = dim.strip()
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    extent = Extent.parse(text)
    if extent.least == extent.largest:
        return extent.least
    return str(extent)
