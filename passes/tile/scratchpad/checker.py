"""Checks a plan of stripes by going through it: loads, steps and stores, with two buffers for every stream.

On top of what plan/checker.py proves for the steps: what a stripe reads of its streams was loaded into the buffer
of its turn (or filled), what it stores is what was computed there, and every element of the outputs is stored once.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....schedules.words.group import Value, dtype_bytes
from ....schedules.words.stripe_plan import Part, Stripe, StripePlan
from ....schedules.words.tile_plan import Compute, Copy, Fill, Span, Window
from ..plan.checker import NOTHING, Checked, _Checker
from ..plan.needs import group_needs_of


def check_stripes(plan: StripePlan) -> Checked:
    """What is wrong with ``plan``, and what its members compute, found by going through its loads, steps and stores."""
    return _StripeChecker(plan).run()


class _StripeChecker(_Checker):
    def __init__(self, plan: StripePlan) -> None:
        windows = {v: Window(v, s.layout, s.offsets[0]) for v, s in plan.streams.items()}
        tiles = replace(plan.tiles, windows={**plan.tiles.windows, **windows}, task_bytes=plan.bytes)
        super().__init__(tiles, group_needs_of)
        self.stripes = plan
        self.stored = {v: np.zeros(v.shape[2:4], np.int16) for v in plan.outputs}

    def run(self) -> Checked:
        self._buffers_apart()
        self.grids = {v: self._empty(v) for v in self.plan.windows}
        turns: list[dict[Value, np.ndarray]] = [{v: self._empty(v) for v in self.stripes.streams} for _ in range(2)]
        for number, stripe in enumerate(self.stripes.stripes):
            buffers = turns[number % 2]
            for value in self.stripes.streams:
                buffers[value] = self._empty(value)
                self.grids[value] = buffers[value]
            self.where = f"stripe {number}: "
            for part in stripe.loads:
                self._load(part)
            self._steps(stripe)
            for part in stripe.stores:
                self._store(part)
        for value, count in self.stored.items():
            if (count != 1).any():
                self._problem(f"{value.name} is not stored once everywhere")
        return self.found

    def _steps(self, stripe: Stripe) -> None:
        """The steps, on the windows as they are: rings live on between stripes."""
        for step in stripe.steps:
            if isinstance(step, Compute):
                self._compute(step)
            elif isinstance(step, Fill):
                self._fill(step)
            elif isinstance(step, Copy):
                self._copy(step)
            else:
                self._shift(step)

    def _empty(self, value: Value) -> np.ndarray:
        return np.full((*self.plan.windows[value].layout.shape[2:4], 2), NOTHING, np.int32)

    def _buffers_apart(self) -> None:
        """Windows alive together share bytes only where the tile plan says so; streams share none."""
        end = max((w.offset + _bytes(w) for w in self.stripes.tiles.windows.values()), default=0)
        spans: list[Span] = [(0, end)]
        for value, stream in self.stripes.streams.items():
            size = stream.layout.elements * dtype_bytes(value.dtype)
            spans += [(at, at + size) for at in stream.offsets]
        spans.sort()
        if any(b[0] < a[1] for a, b in zip(spans, spans[1:])) or spans[-1][1] > self.stripes.bytes:
            self._problem("buffers overlap, or leave the plan's bytes")

    def _load(self, part: Part) -> None:
        place = self._place(part.value, part.rows, part.columns, part.base)
        if place is not None:
            place[:] = _elements(part)

    def _store(self, part: Part) -> None:
        place = self._place(part.value, part.rows, part.columns, part.base, reading=True)
        if place is None or (place != _elements(part)).any():
            self._problem(f"stores {part.rows} of {part.value.name}, which were not all computed")
        self.stored[part.value][slice(*part.rows), slice(*part.columns)] += 1


def _bytes(window: Window) -> int:
    return window.layout.elements * dtype_bytes(window.value.dtype)


def _elements(part: Part) -> np.ndarray:
    grid = np.meshgrid(np.arange(*part.rows), np.arange(*part.columns), indexing="ij")
    return np.stack(grid, -1).astype(np.int32)
