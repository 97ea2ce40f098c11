"""The order of transfers and computations of stripes with two buffers.

    load 0; wait load 0; load 1; compute 0; store 0;
    wait load 1; load 2; compute 1; wait store 0; store 1;
    wait load 2; load 3; compute 2; wait store 1; store 2; ...; wait store of the last

Stripe k uses buffer k mod 2 for what it reads and for what it writes. The next load starts before a stripe is computed,
into the buffer that the stripe before has left; a store is waited for before the next one starts, so that two stripes
later its buffer is free. Nothing is loaded after the last stripe, and the last store is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["load", "wait load", "compute", "store", "wait store"]


@dataclass(frozen=True)
class Event:
    """One action for one stripe. Loads and stores only start; a wait returns when they have ended."""

    action: Action
    stripe: int

    @property
    def buffer(self) -> int:
        """Which of the two windows the stripe uses."""
        return self.stripe % 2

    def __str__(self) -> str:
        return f"{self.action} {self.stripe}"


def double_buffered(stripes: int) -> tuple[Event, ...]:
    """The sequence for that many stripes (at least one)."""
    if stripes < 1:
        raise ValueError(f"{stripes} stripes")
    events = [Event("load", 0)]
    for k in range(stripes):
        events.append(Event("wait load", k))
        if k + 1 < stripes:
            events.append(Event("load", k + 1))
        events.append(Event("compute", k))
        if k:
            events.append(Event("wait store", k - 1))
        events.append(Event("store", k))
    events.append(Event("wait store", stripes - 1))
    return tuple(events)


def one_by_one(stripes: int) -> tuple[Event, ...]:
    """The events of a run without overlap: every transfer is waited for at once."""
    actions: tuple[Action, ...] = ("load", "wait load", "compute", "store", "wait store")
    return tuple(Event(action, k) for k in range(stripes) for action in actions)
