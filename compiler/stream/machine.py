"""A stream that runs: rows in, steps, rows out. Memory does not depend on the height of the image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...errors import RunError
from .rows import RowStream
from .statistics import Gathered
from .words import Feed, StreamPlan

if TYPE_CHECKING:
    from ..runtime.loader import LoadedModel
    from ..spec import TensorSpec


class Stream(RowStream):
    """One image on its way through the steps of a library. ``still`` are the inputs that do not stream, by name."""

    def __init__(
        self,
        loaded: LoadedModel,
        plan: StreamPlan,
        still: Mapping[str, object] | None = None,
        threads: int | None = None,
        *,
        beside: Stream | None = None,
        poison: bool = False,
    ) -> None:
        """``beside``: another stream of the library, whose memory for the rows of a step is this one's as well, so that
        the other's are taken before this one goes on. ``poison`` fills what must never be read with NaN, for tests."""
        specs = {s.name: s for s in loaded.inputs}
        results = {s.name: s for s in loaded.outputs}
        rows = beside._rows if beside else {p.name: zeros_of(specs[p.name]) for p in plan.inputs}
        out = beside._out if beside else {p.name: zeros_of(results[p.name]) for p in plan.outputs}
        super().__init__(plan, rows, out, poison=poison)
        feeds = beside._feeds if beside else [(feed, zeros_of(specs[feed.name])) for feed in plan.feeds]
        self._feeds: list[tuple[Feed, np.ndarray]] = feeds
        first = [zeros_of(specs[s.input]) for s in plan.states]
        self._states = [first, [a if s.single else np.zeros_like(a) for s, a in zip(plan.states, first)]]
        for state, array in zip(plan.states, self._states[0]):
            if not np.isnan(state.fill):
                array.fill(state.fill)
            elif poison and array.dtype.kind == "f":
                array.fill(np.nan)
        self._numbers = {name: zeros_of(specs[name]) for s in plan.statistics for name in s.inputs}
        parts = [name for s in plan.statistics for name in s.outputs]
        self._parts: dict[str, np.ndarray] = beside._parts if beside else {n: zeros_of(results[n]) for n in parts}
        self._whole: dict[str, np.ndarray] = beside._whole if beside else {n: zeros_of(results[n]) for n in plan.still}
        self._gathered: list[Gathered] = []
        fed = {f.name: a for f, a in self._feeds}
        inputs = {**self._rows, **fed, **self._numbers, **_still(plan, specs, still or {})}
        self._run = []
        shared = {s.output: s.input for s in plan.states if s.single}
        for one, other in ((0, 1), (1, 0)):
            given = {s.input: self._states[one][i] for i, s in enumerate(plan.states)}
            left = {s.output: self._states[other][i] for i, s in enumerate(plan.states)}
            taken = {**self._out, **left, **self._parts, **self._whole}
            self._run.append(loaded.bind({**inputs, **given}, taken, threads, shared))

    @property
    def state_bytes(self) -> int:
        """Bytes that are kept from step to step, and of the rows that a step takes and gives; for any height."""
        arrays = [*self._rows.values(), *self._out.values(), *self._parts.values()]
        return self.kept_bytes + sum(a.nbytes for a in arrays)

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept from step to step."""
        arrays = [*self._states[0], *(a for s, a in zip(self.plan.states, self._states[1]) if not s.single)]
        return sum(a.nbytes for a in arrays)

    def _compute(self) -> None:
        """The rows of a step, from the rows that have come."""
        for feed, array in self._feeds:
            feed.fill(array, self._step, self._height)
        self._run[self._step % 2]()
        for found in self._gathered:
            found.add(self._parts, found.about.rows_in(self._step, self._height))

    def follow(self, step: int, height: int, rows: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """The rows that come out of a step whose ``rows`` another has gathered, until any stream takes the next one."""
        for name, own in self._rows.items():
            own[...] = rows[name]
        self._step, self._height = step, height
        self._compute()
        return self._out

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
        """What the next step needs, between two steps: their number and the states. They are its own arrays, no copies,
        for which there is no memory."""
        states = {s.input: a for s, a in zip(self.plan.states, self._states[self._step % 2])}
        parts = {f"{i}:{j}": a for i, g in enumerate(self._gathered) for j, a in enumerate(g.kept())}
        return {"step": np.int64(self._step), **states, **parts, **self._numbers}  # type: ignore[dict-item]

    def go_on(self, kept: Callable[[str], np.ndarray]) -> None:
        """Continues behind what :meth:`kept` was told of, which ``kept`` gives by its names."""
        self._step = int(kept("step"))
        for state, array in zip(self.plan.states, self._states[self._step % 2]):
            array[...] = kept(state.input)
        self.use({name: kept(name) for name in self._numbers})
        for i, found in enumerate(self._gathered):
            found.go_on(tuple(kept(f"{i}:{j}") for j in range(3)))
        for port in self.plan.inputs:
            self._given[port.name] = self._step * port.count

    def close(self) -> None:
        """Lets go of the memory. Harmless when repeated."""
        super().close()
        self._run = []


def zeros_of(spec: TensorSpec) -> np.ndarray:
    """An array for it."""
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
