"""How a tensor lies in memory: an index map from logical coordinates to a position in a flat buffer.

    logical  (n, c, h, w)
    plain    n, c, h, w                      row-major
    blocked  n, c // v, h + top, w + left, c % v    NCHW[v]c with margins

Margins are physical border elements around the spatial axes that hold zeros (for bytes: the one that stands for zero),
so that a padded convolution reads past the edge without a check. Channels are padded to a multiple of ``v``; those
lanes always hold zeros, an invariant that every kernel which writes a blocked tensor keeps. Some rows of a larger
tensor are a tensor as well, with room between its planes that is not its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .dims import as_dim
from .sizes import product

if TYPE_CHECKING:
    from .size_like import SizeLike
    from .tvm_types import Expr


@dataclass(frozen=True)
class Layout:
    """The index map of a tensor of logical ``shape``. ``block`` splits axis 1 (channels) into blocks of that many
    lanes, 0 leaves it whole; ``margins`` has (before, after) for each axis, or is empty, and ``fill`` is the number
    that margins hold. ``stored`` is the type that elements have in memory, where that is narrower than the value's."""

    shape: tuple[SizeLike, ...]
    block: int = 0
    margins: tuple[tuple[int, int], ...] = ()
    fill: int = 0
    stored: str = ""
    room: int = 0

    @staticmethod
    def plain(shape: Sequence[int]) -> Layout:
        """The row-major layout of ``shape``."""
        return Layout(tuple(map(as_dim, shape)))

    @staticmethod
    def blocked(
        shape: Sequence[int], block: int, margins: Sequence[tuple[int, int]] = (), fill: int = 0, room: int = 0
    ) -> Layout:
        """The layout of ``shape`` in blocks of ``block`` channels, with ``margins`` if any of them is not zero."""
        clean = tuple((int(a), int(b)) for a, b in margins)
        if not any(a or b for a, b in clean):
            return Layout(tuple(map(as_dim, shape)), block, room=room)
        return Layout(tuple(map(as_dim, shape)), block, clean, fill, room=room)

    def window(self, rows: int, columns: int) -> Layout:
        """The layout of a window of ``rows x columns`` (axes 2 and 3) of such a tensor: the same block, no margins."""
        return self.alike((*self.shape[:2], rows, columns))

    def alike(self, shape: Sequence[SizeLike]) -> Layout:
        """The layout of another ``shape``: the same block, no margins, elements stored alike."""
        return Layout.blocked(shape, self.block).storing(self.stored)

    def storing(self, dtype: str) -> Layout:
        """The same layout with elements of ``dtype`` in memory; empty: of the value's own."""
        return self if dtype == self.stored else replace(self, stored=dtype)

    def held(self, dtype: str) -> str:
        """The type in memory of a value of ``dtype``."""
        return self.stored or dtype

    @property
    def is_plain(self) -> bool:
        """True if the layout is row-major, without blocks, margins or room."""
        return not self.block and not self.margins and not self.room

    def margin(self, axis: int) -> tuple[int, int]:
        """(before, after) of ``axis``, in elements."""
        return self.margins[axis] if self.margins else (0, 0)

    @property
    def ends_meet(self) -> bool:
        """True if rows lie end to end: each begins behind the last element of the one before."""
        return not self.room and not any(self.margin(len(self.shape) - 1))

    @cached_property
    def physical_shape(self) -> tuple[SizeLike, ...]:
        """The dims of the buffer: margins and room included, channels as blocks, and the lanes of a block last."""
        dims = [s + sum(self.margin(i)) for i, s in enumerate(self.shape)]
        if self.room:
            dims[2] += self.room
        if self.block:
            dims[1] = -(-self.shape[1] // self.block)
            dims.append(self.block)
        return tuple(dims)

    @property
    def elements(self) -> SizeLike:
        """Elements of the buffer, margins and padding lanes included."""
        return product(self.physical_shape)

    @cached_property
    def strides(self) -> tuple[SizeLike, ...]:
        """Row-major strides of the physical shape, in elements."""
        dims, strides = self.physical_shape, []
        step: SizeLike = 1
        for d in reversed(dims):
            strides.append(step)
            step *= d
        return tuple(reversed(strides))

    def offset(self, indices: Sequence[Expr], block_index: Expr | None = None, lane: Expr | None = None) -> Expr:
        """Flat position of logical ``indices`` (ints or expressions). ``block_index`` and ``lane``, where given, stand
        for the channel instead of ``indices[1]``, which saves a division."""
        strides = self.strides
        total: Expr = 0
        for axis, index in enumerate(indices):
            if axis == 1 and self.block:
                block = block_index if block_index is not None else index // self.block
                rest = lane if lane is not None else index % self.block
                total = total + block * strides[1] + rest
            else:
                total = total + (index + self.margin(axis)[0]) * strides[axis]
        return total

    def pack(self, array: np.ndarray) -> np.ndarray:
        """``array`` (logical) as a contiguous physical array, margins holding
        ``fill``, padding lanes zero."""
        array = np.asarray(array).reshape(self.shape)
        if self.is_plain:
            return np.ascontiguousarray(array)
        array = np.pad(array, [self.margin(i) for i in range(array.ndim)], constant_values=self.fill)
        if self.room:
            array = np.pad(array, [(0, self.room if i == 2 else 0) for i in range(array.ndim)])
        if self.block:
            lanes = (0, -self.shape[1] % self.block)
            array = np.pad(array, [lanes if i == 1 else (0, 0) for i in range(array.ndim)])
        if self.block:
            n, c, *spatial = array.shape
            array = np.moveaxis(array.reshape(n, c // self.block, self.block, *spatial), 2, -1)
        return np.ascontiguousarray(array)

    def unpack(self, array: np.ndarray) -> np.ndarray:
        """The logical array of a physical one: the inverse of :meth:`pack`."""
        array = np.asarray(array).reshape(self.physical_shape)
        if self.block:
            array = np.moveaxis(array, -1, 2)
            array = array.reshape(array.shape[0], -1, *array.shape[3:])
        crop = []
        for axis, size in enumerate(self.shape):
            before = 0 if (axis == 1 and self.block) else self.margin(axis)[0]
            crop.append(slice(before, before + size))
        return np.ascontiguousarray(array[tuple(crop)])

    def __str__(self) -> str:
        if self.is_plain:
            return f"plain {self.stored}".strip()
        text = f"C{self.block}" if self.block else "plain"
        if self.margins:
            text += " margins " + ",".join(f"{a}+{b}" for a, b in self.margins)
        if self.room:
            text += f" within {self.physical_shape[2]} rows"
        return f"{text} {self.stored}" if self.stored else text
