"""Whose memory is a value's? Views rename a value, slices are a part of one; both cost nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...schedules.words.group import Value


@dataclass(frozen=True)
class Places:
    """The aliases of a program. ``views``: value -> the value with the same bytes. ``slices``: value -> (the value that
    it lies in, offset in bytes)."""

    views: Mapping[Value, Value] = field(default_factory=dict)
    slices: Mapping[Value, tuple[Value, int]] = field(default_factory=dict)

    def resolve(self, value: Value) -> tuple[Value, int]:
        """The value that owns the memory, and the byte offset in it."""
        offset = 0
        while True:
            if value in self.views:
                value = self.views[value]
            elif value in self.slices:
                value, more = self.slices[value]
                offset += more
            else:
                return value, offset

    def root(self, value: Value) -> Value:
        """The value that owns the memory of ``value``."""
        return self.resolve(value)[0]

    def parts(self) -> set[Value]:
        """All values that others are slices of."""
        return {self.root(base) for base, _ in self.slices.values()}


def places_of(given: Places | Mapping[Value, Value]) -> Places:
    """``given`` as Places; a plain mapping is one of views."""
    return given if isinstance(given, Places) else Places(dict(given))
