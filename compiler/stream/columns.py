"""Columns in strips, where rows of the whole width have no room: each strip is a stream from top to bottom.

    image   |==============================================|
    strip 0 |::::::::::::::::--|                                   what is near a cut saw padding where the image goes
    strip 1           |--::::::::::::::::--|                       on (--): it is computed again by the next strip, and
    strip 2                        |--:::::::::::::::::::::|       thrown away

All strips have the width that the step was built for. As many as there is room for take each step one behind the other:
each of them keeps states of its own, one arena and one step's rows serve all, and the source is read once for all of
them. Where not all have room, such groups follow one another, and the source is read once for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..spec import TensorSpec

if TYPE_CHECKING:
    from ..options import Shapes

Span = tuple[int, int]


@dataclass(frozen=True)
class StreamStrip:
    """Columns of each tensor, from and to: ``crops`` of the inputs, ``taken`` of what the strip gives of an output, and
    where they are ``placed`` in the whole."""

    crops: Mapping[str, Span]
    taken: Mapping[str, Span]
    placed: Mapping[str, Span]


@dataclass(frozen=True)
class Columns:
    """The axis that is cut, by tensor, and its whole length; the strips; and how many times the image's columns they
    compute. Each strip keeps ``held`` bytes, for which the memory budget has ``room`` beside what all strips share."""

    axes: Mapping[str, int]
    sizes: Mapping[str, int]
    strips: tuple[StreamStrip, ...]
    work: float
    room: int = 0
    held: int = 0

    def groups(self, more: int = 0) -> tuple[tuple[StreamStrip, ...], ...]:
        """The strips that take each step one behind the other, where each keeps ``more`` bytes besides: as few groups
        as there can be, of about as many strips."""
        count, most = len(self.strips), max(1, self.room // max(1, self.held + more))
        parts = -(-count // most)
        cuts = [count * i // parts for i in range(parts + 1)]
        return tuple(self.strips[a:b] for a, b in zip(cuts, cuts[1:]))

    def opens(self, rows: Sequence[TensorSpec]) -> bool:
        """Whether there is room for the states of all strips, and beside them for ``rows`` as wide as the image: inputs
        and outputs of a step."""
        return len(self.strips) * self.held + sum(self.whole(spec).nbytes for spec in rows) <= self.room

    def whole(self, spec: TensorSpec) -> TensorSpec:
        """An input or output of a strip, as wide as the image's."""
        if spec.name not in self.axes:
            return spec
        shape = [self.sizes[spec.name] if a == self.axes[spec.name] else n for a, n in enumerate(spec.shape)]
        return replace(spec, shape=tuple(shape))

    def cut(self, name: str, array: np.ndarray, spans: Mapping[str, Span]) -> np.ndarray:
        """A strip's columns of a tensor; all of what has none."""
        return array[(slice(None),) * self.axes[name] + (slice(*spans[name]),)] if name in self.axes else array

    def placed(self, name: str) -> tuple[int, int]:
        """The axis of a tensor that is cut, and the most columns that a strip gives of it."""
        return self.axes[name], max(b - a for a, b in (strip.placed[name] for strip in self.strips))

    def refusal(self, what: str) -> str:
        """What to say where rows come once, in their whole width, and there is no room for that."""
        return (
            f"{what}: within its memory budget the library has no room for rows as wide as the image, computed in "
            f"{len(self.strips)} strips of columns: stream() from an array or a file, or build it with a larger budget"
        )


@dataclass(frozen=True)
class StreamFit:
    """What a build within its budget is: rows a step, the shapes of a strip, and the bytes of its arena where that has
    to be kept small; ``note`` says it in words."""

    rows: int
    shapes: Shapes | None
    columns: Columns | None = None
    arena: int | None = None
    note: str = ""


def columns_of(data: Mapping[str, Any] | None) -> Columns | None:
    """From plain data."""
    if data is None:
        return None
    strips = tuple(
        StreamStrip(*({name: (a, b) for name, (a, b) in strip[part].items()} for part in ("crops", "taken", "placed")))
        for strip in data["strips"]
    )
    room, held = data.get("room", 0), data.get("held", 0)
    return Columns(dict(data["axes"]), dict(data["sizes"]), strips, float(data["work"]), room, held)


class ColumnWindow:
    """Some columns of an array, along ``axis``, as an array."""

    def __init__(self, array: Any, axis: int, first: int, end: int) -> None:
        self._array, self._axis, self._first = array, axis, first
        self.shape = tuple(end - first if a == axis else n for a, n in enumerate(array.shape))
        self.dtype, self.chunks = array.dtype, getattr(array, "chunks", None)

    def __getitem__(self, slices: tuple[slice, ...]) -> Any:
        return self._array[self._moved(slices)]

    def __setitem__(self, slices: tuple[slice, ...], values: Any) -> None:
        self._array[self._moved(slices)] = values

    def flush(self) -> None:
        """As the array's own does it, if it has one."""
        flush = getattr(self._array, "flush", None)
        if callable(flush):
            flush()

    def _moved(self, slices: tuple[slice, ...]) -> tuple[slice, ...]:
        whole = [*slices, *[slice(None)] * (len(self.shape) - len(slices))]
        first, end, _ = whole[self._axis].indices(self.shape[self._axis])
        whole[self._axis] = slice(first + self._first, end + self._first)
        return tuple(whole)
