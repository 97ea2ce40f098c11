"""The words of stripes on a machine with a scratchpad: what a planner decides and a code generator obeys.

A chain of groups goes from top to bottom in stripes of all columns. Everything its members read and write lies in the
scratchpad: values between members in windows (rings, or computed again), as in any tile plan; values that come from
memory or go there in *streams*, two windows each, which stripes use in turn. Constants are read where they lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .group import Group, Value
from .layout import Layout
from .tile_plan import Span, Step, TilePlan


@dataclass(frozen=True)
class StreamedValue:
    """A value that passes through the scratchpad in two windows of ``layout``, used in turn, at two offsets in
    bytes."""

    value: Value
    layout: Layout
    offsets: tuple[int, int]


@dataclass(frozen=True)
class Part:
    """The transfer of ``rows x columns`` of a streamed value to or from its window, which begins at row and column
    ``base``."""

    value: Value
    rows: Span
    columns: Span
    base: tuple[int, int]


@dataclass(frozen=True)
class Stripe:
    """One stripe: transfers that load its inputs, the steps that compute it, and transfers that store its outputs."""

    loads: tuple[Part, ...]
    steps: tuple[Step, ...]
    stores: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class StripePlan:
    """How a chain is computed in double-buffered stripes. ``tiles`` has the members, the windows between them and their
    modes, ``streams`` the windows of what comes from memory or goes there, ``bytes`` the scratchpad memory of all of
    them; ``stripe_rows`` are the rows of the last output that a stripe gives."""

    tiles: TilePlan
    streams: Mapping[Value, StreamedValue]
    stripes: tuple[Stripe, ...]
    bytes: int
    stripe_rows: int

    @property
    def members(self) -> tuple[Group, ...]:
        return self.tiles.members

    @property
    def modes(self) -> Mapping[Value, str]:
        """Inner value -> "ring" or "recompute"."""
        return self.tiles.modes

    @property
    def extra_work(self) -> float:
        """Multiply-adds computed, over those of the groups computed whole."""
        return self.tiles.extra_work

    @property
    def notes(self) -> tuple[str, ...]:
        return self.tiles.notes

    @property
    def inputs(self) -> tuple[Value, ...]:
        return self.tiles.inputs

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.tiles.outputs
