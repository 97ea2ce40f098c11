"""Columns in strips, where rows of the whole width have no room: each strip is a stream from top to bottom.

    image   |==============================================|
    strip 0 |::::::::::::::::--|                                   what is near a cut saw padding where the image goes
    strip 1           |--::::::::::::::::--|                       on (--): it is computed again by the next strip, and
    strip 2                        |--:::::::::::::::::::::|       thrown away

All strips have the width that the step was built for. Strips follow one another, so that the source is read once for
each, and the memory is that of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
    compute."""

    axes: Mapping[str, int]
    sizes: Mapping[str, int]
    strips: tuple[StreamStrip, ...]
    work: float

    def whole(self, spec: TensorSpec) -> TensorSpec:
        """An input or output of a strip, as wide as the image's."""
        if spec.name not in self.axes:
            return spec
        shape = [self.sizes[spec.name] if a == self.axes[spec.name] else n for a, n in enumerate(spec.shape)]
        return replace(spec, shape=tuple(shape))

    def placed(self, name: str) -> tuple[int, int]:
        """The axis of a tensor that is cut, and the most columns that a strip gives of it."""
        return self.axes[name], max(b - a for a, b in (strip.placed[name] for strip in self.strips))

    def refusal(self, what: str) -> str:
        """What to say where rows come once, and in their whole width."""
        return (
            f"{what}: within its memory budget the library computes an image in {len(self.strips)} strips of columns, "
            "and reads it once for each: stream() from an array or a file, or build it with a larger budget"
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
    return Columns(dict(data["axes"]), dict(data["sizes"]), strips, float(data["work"]))


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
