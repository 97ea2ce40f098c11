"""Strips of columns side by side (:mod:`.columns`): streams that take each step one behind the other.

Each keeps states of its own; the rows of a step, what comes out of it, and the arena are one memory for all of them. A
:class:`WideStream` takes and gives rows as wide as the image: it keeps a step's rows in their whole width, strip after
strip takes its columns of them, and leaves its own columns of the rows that come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import RunError
from .columns import StreamStrip
from .machine import Stream, zeros_of
from .rows import RowStream
from .words import StreamPlan

if TYPE_CHECKING:
    from ..runtime.loader import LoadedModel
    from ..spec import TensorSpec


class WideStream(RowStream):
    """One image on its way through all of its strips, which advance together."""

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
        assert plan.columns is not None
        self.columns = plan.columns
        specs = {s.name: plan.columns.whole(s) for s in rows_of(loaded, plan)}
        given, made = ({p.name: zeros_of(specs[p.name]) for p in ports} for ports in (plan.inputs, plan.outputs))
        super().__init__(plan, given, made, poison=poison)
        self._strips = streams_of(loaded, plan, plan.columns.strips, still or {}, threads, poison=poison)

    @property
    def state_bytes(self) -> int:
        """Bytes that are kept from step to step, and of the rows that a step takes and gives; for any height."""
        own = sum(a.nbytes for a in (*self._rows.values(), *self._out.values()))
        return own + self._strips[0].state_bytes + sum(s.kept_bytes for s in self._strips[1:])

    def _compute(self) -> None:
        for strip, stream in zip(self.columns.strips, self._strips):
            rows = {name: self.columns.cut(name, a, strip.crops) for name, a in self._rows.items()}
            made = stream.follow(self._step, self._height, rows)
            for name, out in self._out.items():
                self.columns.cut(name, out, strip.placed)[...] = self.columns.cut(name, made[name], strip.taken)

    def close(self) -> None:
        """Lets go of the memory. Harmless when repeated."""
        super().close()
        for stream in self._strips:
            stream.close()


def rows_of(loaded: LoadedModel, plan: StreamPlan) -> list[TensorSpec]:
    """The inputs and outputs of a step that have rows."""
    names = {p.name for p in (*plan.inputs, *plan.outputs)}
    return [s for s in (*loaded.inputs, *loaded.outputs) if s.name in names]


def opened_stream(
    loaded: LoadedModel, plan: StreamPlan, still: Mapping[str, Any], threads: int | None, what: str
) -> RowStream:
    """A stream of rows as wide as the image. Raises RunError about ``what`` where the memory budget has no room."""
    if plan.columns is None:
        return Stream(loaded, plan, still, threads)
    if not plan.columns.opens(rows_of(loaded, plan)):
        raise RunError(plan.columns.refusal(what))
    return WideStream(loaded, plan, still, threads)


def streams_of(
    loaded: LoadedModel, plan: StreamPlan, strips: Sequence[StreamStrip | None], still: Mapping[str, Any],
    threads: int | None, *, poison: bool = False,
) -> list[Stream]:  # fmt: skip
    """Streams of these strips; of the whole image, which None stands for."""
    make = partial(Stream, poison=True) if poison else Stream
    found: list[Stream] = []
    for strip in strips:
        own = still
        if strip is not None and plan.columns is not None:
            own = {name: plan.columns.cut(name, np.asarray(a), strip.crops) for name, a in still.items()}
        found.append(make(loaded, plan, own, threads, beside=found[0] if found else None))
    return found
