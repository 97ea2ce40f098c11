"""Rows in, rows out: what of a stream is the same however its steps are computed.

    with model.open() as stream:
        stream.push(rows)              any number of rows, any time
        stream.ready()                 rows that can be pulled
        stream.pull()                  these rows
        stream.finish()                no more come: the last rows become ready
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from ...errors import RunError, did_you_mean, several
from ..guard import guarded
from .words import UNKNOWN, Port, StreamPlan

Own = TypeVar("Own", bound="RowStream")


class RowStream(ABC):
    """One image on its way: rows of a step wait in ``rows`` until it has all, and come out of it in ``out``, by the
    names of inputs and outputs."""

    def __init__(
        self, plan: StreamPlan, rows: dict[str, np.ndarray], out: dict[str, np.ndarray], *, poison: bool = False
    ) -> None:
        """``poison`` fills what must never be read with NaN, or the largest whole number, for tests."""
        self.plan, self._rows, self._out, self._poison = plan, rows, out, poison
        self.sink: Callable[[Port, np.ndarray], None] | None = None  # takes rows at once, in place of pull
        self._giving = True
        self._ready: dict[str, deque[np.ndarray]] = {p.name: deque() for p in plan.outputs}
        self._given = {p.name: 0 for p in plan.inputs}
        self._waiting = {p.name: 0 for p in plan.outputs}
        self._step, self._height = 0, UNKNOWN

    @abstractmethod
    def _compute(self) -> None:
        """The rows of a step, from the rows that have come."""

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes that are kept from step to step, and of the rows that a step takes and gives; for any height."""

    @property
    def finished(self) -> bool:
        """Whether the last rows of the image have been pushed."""
        return self._height != UNKNOWN

    @guarded
    def push(self, rows: Mapping[str, np.ndarray] | object) -> None:
        """Takes any number of rows: an array of the one input, or arrays by name, of the same part of the image."""
        if self.finished:
            raise RunError("the stream is finished: no rows can follow; open another for the next image")
        arrays = self._arrays(rows)
        self.together({port.name: arrays[port.name].shape[port.axis] for port in self.plan.inputs})
        first = self.plan.inputs[0]
        total, done = arrays[first.name].shape[first.axis], 0
        while done < total:
            part = min(self.space, total - done)
            for port, own in self.next_rows(part):
                a = done * port.count // first.count
                own[...] = arrays[port.name][rows_along(port.axis, a, a + own.shape[port.axis])]
            self.came(part)
            done += part

    def together(self, rows: Mapping[str, int]) -> None:
        """Raises RunError unless these rows of the inputs are the same part of the image."""
        first = self.plan.inputs[0]
        for port in self.plan.inputs[1:]:
            if rows[port.name] * first.count != rows[first.name] * port.count:
                raise RunError(
                    f"{rows[first.name]} rows of input '{first.name}' came with {rows[port.name]} of '{port.name}', "
                    "which are not as much of the image"
                )

    @property
    def space(self) -> int:
        """Rows of the first input until the next step."""
        first = self.plan.inputs[0]
        return (self._step + 1) * first.count - self._given[first.name]

    def next_rows(self, part: int) -> list[tuple[Port, np.ndarray]]:
        """Where the next ``part`` rows of the first input go, and as much of the others; then they :meth:`came`."""
        return [
            (port, self._rows[port.name][rows_along(port.axis, *(n - self._step * port.count for n in (at, end)))])
            for port, at, end in self._next(part)
        ]

    def came(self, part: int) -> bool:
        """The next ``part`` rows of the first input, and as much of the others, are where they go; True if they were
        those that a step waited for, which is done."""
        full = part == self.space
        for port, _, end in self._next(part):
            self._given[port.name] = end
        if full:
            self.advance()
        return full

    def _next(self, part: int) -> list[tuple[Port, int, int]]:
        """Of each input the rows that follow, from and to."""
        first = self.plan.inputs[0]
        end = self._given[first.name] + part
        return [(port, self._given[port.name], end * port.count // first.count) for port in self.plan.inputs]

    def _arrays(self, rows: object) -> dict[str, np.ndarray]:
        """What was pushed, checked."""
        names = [p.name for p in self.plan.inputs]
        if not isinstance(rows, Mapping):
            if len(names) > 1:
                raise RunError(f"this network takes rows of {', '.join(names)}: push them together, by name")
            rows = {names[0]: rows}
        for name in rows:
            if name not in names:
                near = did_you_mean(name, names)
                raise RunError(f"the stream has no input '{name}'; its inputs are {', '.join(names)}{near}")
        missing = [name for name in names if name not in rows]
        if missing:
            raise RunError(f"rows of input '{missing[0]}' are missing")
        arrays = {name: np.asarray(rows[name]) for name in names}
        for port in self.plan.inputs:
            _check(port, arrays[port.name], self._rows[port.name])
        return arrays

    @guarded
    def finish(self) -> None:
        """No more rows come: those that are still owed become ready. Harmless when repeated."""
        if self.finished:
            return
        self.end()
        while self.owes:
            self.advance()

    def end(self) -> None:
        """No more rows come: the height of the image is known. Steps that are still owed are for others to take."""
        port = self.plan.inputs[0]
        given = self._given[port.name]
        height = given * port.height.period // port.height.steps
        while port.height.at(height) < given:
            height += 1
        if port.height.at(height) != given:
            raise RunError(
                f"{several(given, 'row')} of input '{port.name}' have come, and the network needs a multiple of "
                f"{self.plan.multiple} rows of the image"
            )
        if refusal := self.plan.refusal(height):
            raise RunError(refusal)
        if self._poison:
            for each in self.plan.inputs:
                used = self._given[each.name] - self._step * each.count
                rows = self._rows[each.name]
                never = np.nan if rows.dtype.kind == "f" else np.iinfo(rows.dtype).max
                rows[rows_along(each.axis, used, each.count)] = never
        self._height = height

    @property
    def owes(self) -> bool:
        """Whether steps follow behind the last rows."""
        return self.finished and self._step < self.plan.steps(self._height)

    def advance(self) -> None:
        """One step on the rows that have come."""
        self._compute()
        self._step += 1
        for port in self.plan.outputs if self._giving else ():
            first = (self._step - 1) * port.count - port.delay
            low, high = max(0, -first), min(port.count, port.height.at(self._height) - first)
            if high > low:
                rows = self._out[port.name][rows_along(port.axis, low, high)]
                if self.sink is not None:
                    self.sink(port, rows)
                    continue
                self._ready[port.name].append(rows.copy())
                self._waiting[port.name] += high - low

    @guarded
    def ready(self, name: str | None = None) -> int:
        """Rows of an output that can be pulled; of the one output if no name is given."""
        return self._waiting[self._port(name).name]

    @guarded
    def pull(self, name: str | None = None, count: int | None = None) -> np.ndarray:
        """The next ``count`` rows of an output, or all that are ready."""
        port = self._port(name)
        waiting = self._waiting[port.name]
        wanted = waiting if count is None else int(count)
        if not 0 <= wanted <= waiting:
            raise RunError(f"{wanted} rows of output '{port.name}' were asked for, and {waiting} are ready")
        queue, parts, missing = self._ready[port.name], [], wanted
        while missing:
            part = queue.popleft()
            if part.shape[port.axis] > missing:
                queue.appendleft(part[rows_along(port.axis, missing, part.shape[port.axis])])
                part = part[rows_along(port.axis, 0, missing)]
            parts.append(part)
            missing -= part.shape[port.axis]
        self._waiting[port.name] -= wanted
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts or [self._out[port.name][rows_along(port.axis, 0, 0)]], axis=port.axis)

    def _port(self, name: str | None) -> Port:
        ports = {p.name: p for p in self.plan.outputs}
        if name is None and len(ports) == 1:
            return self.plan.outputs[0]
        if name not in ports:
            asked = "say which output" if name is None else f"the stream has no output '{name}'"
            raise RunError(f"{asked}: its outputs are {', '.join(ports)}")
        return ports[name]

    def close(self) -> None:
        """Lets go of the memory. Harmless when repeated."""
        self._ready = {name: deque() for name in self._ready}
        self._height = 0

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check(port: Port, array: np.ndarray, own: np.ndarray) -> None:
    """Raises RunError unless the array is rows of that input."""
    found = tuple(n for a, n in enumerate(array.shape) if a != port.axis)
    wanted = tuple(n for a, n in enumerate(own.shape) if a != port.axis)
    if array.ndim != own.ndim or found != wanted:
        shown = ", ".join("rows" if a == port.axis else str(n) for a, n in enumerate(own.shape))
        raise RunError(f"input '{port.name}' takes rows of shape ({shown}), got {array.shape}")
    small = array.dtype.kind in "ui" and array.dtype.itemsize <= 2 and own.dtype.kind == "f"
    if array.dtype != own.dtype and not small:
        raise RunError(f"input '{port.name}' takes {own.dtype}, or uint8 and uint16 that become it, got {array.dtype}")


def rows_along(axis: int, first: int, end: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(first, end),)
