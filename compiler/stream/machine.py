"""A stream that runs: rows in, steps, rows out. Memory does not depend on the height of the image.

    with model.open() as stream:
        stream.push(rows)              any number of rows, any time
        stream.ready()                 rows that can be pulled
        stream.pull()                  these rows
        stream.finish()                no more come: the last rows become ready
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...errors import RunError, did_you_mean, several
from ..guard import guarded
from .statistics import Gathered
from .words import UNKNOWN, Port, StreamPlan

if TYPE_CHECKING:
    from ..runtime.loader import LoadedModel
    from ..spec import TensorSpec


class Stream:
    """One image on its way through the steps of a library. ``still`` are the inputs that do not stream, by name."""

    def __init__(
        self,
        loaded: LoadedModel,
        plan: StreamPlan,
        still: Mapping[str, object] | None = None,
        threads: int | None = None,
        *,
        poison: bool = False,
    ) -> None:
        """``poison`` fills what must never be read with NaN, for tests."""
        self.plan = plan
        specs = {s.name: s for s in loaded.inputs}
        results = {s.name: s for s in loaded.outputs}
        self._rows = {p.name: _zeros(specs[p.name]) for p in plan.inputs}
        self._feeds = [(feed, _zeros(specs[feed.name])) for feed in plan.feeds]
        self._out = {p.name: _zeros(results[p.name]) for p in plan.outputs}
        self._poison = poison
        first = [_zeros(specs[s.input]) for s in plan.states]
        self._states = [first, [a if s.single else np.zeros_like(a) for s, a in zip(plan.states, first)]]
        for state, array in zip(plan.states, self._states[0]):
            if not np.isnan(state.fill):
                array.fill(state.fill)
            elif poison and array.dtype.kind == "f":
                array.fill(np.nan)
        self._numbers = {name: _zeros(specs[name]) for s in plan.statistics for name in s.inputs}
        self._parts = {name: _zeros(results[name]) for s in plan.statistics for name in s.outputs}
        self._whole = {name: _zeros(results[name]) for name in plan.still}
        self.sink: Callable[[Port, np.ndarray], None] | None = None  # takes rows at once, in place of pull
        self._gathered: list[Gathered] = []
        self._giving = True
        fed = {f.name: a for f, a in self._feeds}
        inputs = {**self._rows, **fed, **self._numbers, **_still(plan, specs, still or {})}
        self._run = []
        shared = {s.output: s.input for s in plan.states if s.single}
        for one, other in ((0, 1), (1, 0)):
            given = {s.input: self._states[one][i] for i, s in enumerate(plan.states)}
            left = {s.output: self._states[other][i] for i, s in enumerate(plan.states)}
            taken = {**self._out, **left, **self._parts, **self._whole}
            self._run.append(loaded.bind({**inputs, **given}, taken, threads, shared))
        self._ready: dict[str, deque[np.ndarray]] = {p.name: deque() for p in plan.outputs}
        self._given = {p.name: 0 for p in plan.inputs}
        self._waiting = {p.name: 0 for p in plan.outputs}
        self._step, self._height = 0, UNKNOWN

    @property
    def state_bytes(self) -> int:
        """Bytes that are kept from step to step, and of the rows that a step takes and gives; for any height."""
        arrays = [*self._states[0], *self._rows.values(), *self._out.values(), *self._parts.values()]
        arrays += [a for s, a in zip(self.plan.states, self._states[1]) if not s.single]
        return sum(a.nbytes for a in arrays)

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
                own[...] = arrays[port.name][_rows(port.axis, a, a + own.shape[port.axis])]
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
            (port, self._rows[port.name][_rows(port.axis, at - self._step * port.count, end - self._step * port.count)])
            for port, at, end in self._next(part)
        ]

    def came(self, part: int) -> None:
        """The next ``part`` rows of the first input, and as much of the others, are where they go."""
        full = part == self.space
        for port, _, end in self._next(part):
            self._given[port.name] = end
        if full:
            self._advance()

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
                self._rows[each.name][_rows(each.axis, used, each.count)] = np.nan
        self._height = height
        for _ in range(self._step, self.plan.steps(height)):
            self._advance()

    def _advance(self) -> None:
        """One step on the rows that have come."""
        for feed, array in self._feeds:
            feed.fill(array, self._step, self._height)
        self._run[self._step % 2]()
        for found in self._gathered:
            found.add(self._parts, found.about.rows_in(self._step, self._height))
        self._step += 1
        for port in self.plan.outputs if self._giving else ():
            first = (self._step - 1) * port.count - port.delay
            low, high = max(0, -first), min(port.count, port.height.at(self._height) - first)
            if high > low:
                rows = self._out[port.name][_rows(port.axis, low, high)]
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
                queue.appendleft(part[_rows(port.axis, missing, part.shape[port.axis])])
                part = part[_rows(port.axis, 0, missing)]
            parts.append(part)
            missing -= part.shape[port.axis]
        self._waiting[port.name] -= wanted
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts or [self._out[port.name][_rows(port.axis, 0, 0)]], axis=port.axis)

    def _port(self, name: str | None) -> Port:
        ports = {p.name: p for p in self.plan.outputs}
        if name is None and len(ports) == 1:
            return self.plan.outputs[0]
        if name not in ports:
            asked = "say which output" if name is None else f"the stream has no output '{name}'"
            raise RunError(f"{asked}: its outputs are {', '.join(ports)}")
        return ports[name]

    def gather(self, level: int) -> None:
        """Makes this the pass of a level, which gathers the level's statistics for the passes behind it."""
        self._giving = level == self.plan.giving
        self._gathered = [Gathered(s) for s in self.plan.statistics if s.level == level]

    def gathered(self) -> dict[str, np.ndarray]:
        """The numbers that the pass has found."""
        pairs = [(g.about.inputs, g.numbers()) for g in self._gathered]
        return {name: array for names, arrays in pairs for name, array in zip(names, arrays)}

    def used(self) -> dict[str, np.ndarray]:
        """The statistics that it uses."""
        return {name: array.copy() for name, array in self._numbers.items()}

    def use(self, numbers: Mapping[str, np.ndarray]) -> None:
        """Uses statistics of passes before."""
        for name, array in numbers.items():
            self._numbers[name][...] = array

    def still(self) -> dict[str, np.ndarray]:
        """The outputs without rows, which follow from the statistics alone, those of this pass included."""
        self.use(self.gathered())
        self._run[self._step % 2]()
        return {name: array.copy() for name, array in self._whole.items()}

    def kept(self) -> dict[str, np.ndarray]:
        """What the next step needs, between two steps: their number and the states."""
        states = {s.input: a.copy() for s, a in zip(self.plan.states, self._states[self._step % 2])}
        parts = {f"{i}:{j}": a for i, g in enumerate(self._gathered) for j, a in enumerate(g.kept())}
        numbers = {name: a.copy() for name, a in self._numbers.items()}
        return {"step": np.int64(self._step), **states, **parts, **numbers}  # type: ignore[dict-item]

    def go_on(self, kept: Mapping[str, np.ndarray]) -> None:
        """Continues behind what :meth:`kept` was told of."""
        self._step = int(kept["step"])
        for state, array in zip(self.plan.states, self._states[self._step % 2]):
            array[...] = kept[state.input]
        self.use({name: kept[name] for name in self._numbers})
        for i, found in enumerate(self._gathered):
            found.go_on(tuple(kept[f"{i}:{j}"] for j in range(3)))
        for port in self.plan.inputs:
            self._given[port.name] = self._step * port.count

    def close(self) -> None:
        """Lets go of the memory. Harmless when repeated."""
        self._run, self._ready = [], {name: deque() for name in self._ready}
        self._height = 0

    def __enter__(self) -> Stream:
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


def _rows(axis: int, first: int, end: int) -> tuple[slice, ...]:
    return (slice(None),) * axis + (slice(first, end),)


def _zeros(spec: TensorSpec) -> np.ndarray:
    from ..runtime.loader import numpy_dtype

    return np.zeros(spec.shape, numpy_dtype(spec.dtype))


def _still(plan: StreamPlan, specs: Mapping[str, TensorSpec], still: Mapping[str, object]) -> dict[str, np.ndarray]:
    """The inputs that do not stream, as they are given."""
    own = {p.name for p in plan.inputs} | {s.input for s in plan.states} | {f.name for f in plan.feeds}
    own |= {name for s in plan.statistics for name in s.inputs}
    found = {}
    for name, spec in specs.items():
        if name in own:
            continue
        if name not in still:
            raise RunError(f"input '{name}' is missing: it does not stream, and is given when the stream is opened")
        array = np.array(still[name], order="C")
        if array.shape != tuple(spec.shape) or str(array.dtype) != spec.dtype:
            raise RunError(f"input '{name}' takes {spec.dtype} of shape {spec.shape}, got {array.dtype} {array.shape}")
        found[name] = array
    return found
