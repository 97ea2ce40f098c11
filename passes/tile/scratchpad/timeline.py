"""Predicts when every load, computation and store of a sequence of stripes starts and ends.

The processor goes through the events in order: it starts transfers (which costs it the time to issue one), computes,
and waits. Loads and stores run beside it, each kind one after the other in the order in which they were started (or all
on one engine, where the machine has only one).

    processor   issue load 1 | compute 0 .......... | issue store 0 | wait load 1 | ...
    loads       load 0 ..... | load 1 ......
    stores                                            store 0 ......

The critical path goes back from the end: every bar starts when the one that it had to wait for has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....schedules.scratchpad.double_buffer import Event, double_buffered, one_by_one

Clock = tuple[float, int | None]  # a time, and the bar that ended then


@dataclass(frozen=True)
class StripeCosts:
    """Seconds of one stripe: the transfers, the computation, and what starting and waiting take of the processor."""

    load: float
    compute: float
    store: float
    issue_load: float = 0.0
    wait_load: float = 0.0
    issue_store: float = 0.0
    wait_store: float = 0.0


@dataclass(frozen=True)
class Bar:
    """``event`` on one lane ("processor", "load" or "store") from ``start`` to ``end``, in seconds. ``after`` is the
    index of the bar whose end it waited for, None if it began at once."""

    event: Event
    lane: str
    start: float
    end: float
    after: int | None

    @property
    def is_work(self) -> bool:
        """True for a transfer or a computation, False for the cost of issuing one or waiting."""
        return self.lane != "processor" or self.event.action == "compute"


@dataclass(frozen=True)
class Timeline:
    """All bars, in the order in which they were scheduled."""

    bars: tuple[Bar, ...]

    @property
    def seconds(self) -> float:
        """The time at which the last bar ends."""
        return max((b.end for b in self.bars), default=0.0)

    @property
    def critical_path(self) -> tuple[Bar, ...]:
        """Bars from the first one to the one that ends last, each waiting for the end of the one before it."""
        path: list[Bar] = []
        at: int | None = max(range(len(self.bars)), key=lambda i: self.bars[i].end, default=None)
        while at is not None:
            path.append(self.bars[at])
            at = self.bars[at].after
        return tuple(reversed(path))

    def work(self, action: str) -> tuple[Bar, ...]:
        """The bars of all loads, stores or computations."""
        return tuple(b for b in self.bars if b.is_work and b.event.action == action)


def predict(stripes: Sequence[StripeCosts], overlap: bool = True, engines: int = 2) -> Timeline:
    """The timeline of the double-buffered sequence, or of stripes one by one; ``engines`` 1: loads and stores share."""
    sequence = double_buffered(len(stripes)) if overlap else one_by_one(len(stripes))
    return simulate(sequence, stripes, engines)


def simulate(sequence: Sequence[Event], stripes: Sequence[StripeCosts], engines: int = 2) -> Timeline:
    """The timeline of ``sequence``, whose stripes take what ``stripes`` says; ``engines`` 1: loads and stores share
    one."""
    run = _Clocks()
    transfers: dict[tuple[str, int], int] = {}
    for event in sequence:
        costs = stripes[event.stripe]
        if event.action == "compute":
            run.processor(event, costs.compute)
        elif event.action in ("load", "store"):
            is_load = event.action == "load"
            run.processor(event, costs.issue_load if is_load else costs.issue_store)
            engine = event.action if engines > 1 else "any"
            transfer = run.transfer(event, engine, costs.load if is_load else costs.store)
            transfers[event.action, event.stripe] = transfer
        else:
            action = event.action.removeprefix("wait ")
            run.wait(transfers[action, event.stripe])
            run.processor(event, costs.wait_load if action == "load" else costs.wait_store)
    return Timeline(tuple(run.bars))


class _Clocks:
    """Clocks of the processor and the engines, each with the bar that set it."""

    def __init__(self) -> None:
        self.bars: list[Bar] = []
        self.now: Clock = (0.0, None)
        self.engines: dict[str, Clock] = {}

    def _bar(self, event: Event, lane: str, since: Clock, seconds: float) -> Clock:
        if not seconds:  # takes no time: what follows waits for what came before
            return since
        self.bars.append(Bar(event, lane, since[0], since[0] + seconds, since[1]))
        return since[0] + seconds, len(self.bars) - 1

    def processor(self, event: Event, seconds: float) -> None:
        self.now = self._bar(event, "processor", self.now, seconds)

    def transfer(self, event: Event, engine: str, seconds: float) -> int:
        free = self.engines.get(engine, (0.0, None))
        since = free if free[0] > self.now[0] else self.now
        self.bars.append(Bar(event, event.action, since[0], since[0] + seconds, since[1]))
        self.engines[engine] = since[0] + seconds, len(self.bars) - 1
        return len(self.bars) - 1

    def wait(self, transfer: int) -> None:
        if self.bars[transfer].end > self.now[0]:
            self.now = self.bars[transfer].end, transfer
