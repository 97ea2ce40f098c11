"""Which images of open size a kernel computes: those with as many rows and columns as it is faster from on, or with
fewer of one of them that its tiles fit as well.

    rows >= 9 and columns >= 9                     as large as the smallest image for which F(4x4) pays
    rows * columns >= 81, no tile holds less       29 x 4 is 8 tiles of 14.5 outputs, 9 x 9 is 9 tiles of 9 outputs
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from ..words.dims import Dim, is_open, maximum, minimum, to_index
from ..words.sizes import product, surely
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

Least = tuple[Dim, int]  # what an image must have, and how many of it at least


@dataclass(frozen=True)
class ImageNeeds:
    """``all_of``: pairs that all have to hold. ``least``: those of images that any kernel's tiles fit as well, which
    hold wherever the kernel computes. ``image``: rows and columns where such images are another kernel's without
    ``all_of``, the smallest (rows, columns) that pays, and those of a tile."""

    all_of: tuple[Least, ...]
    least: tuple[Least, ...]
    image: tuple[tuple[Dim, Dim], tuple[int, int], tuple[int, int]] | None = None

    @staticmethod
    def of(size: Sequence[SizeLike], since: tuple[int, int], tile: tuple[int, int]) -> ImageNeeds:
        """Of a kernel with a ``tile`` that pays from ``since`` on, for images of ``size``."""
        rows, columns = size
        all_of = _open_ones(zip(size, since))
        if since == tile or not all(is_open([n]) for n in size):
            return ImageNeeds(all_of, all_of)
        least = _open_ones([(rows, tile[0]), (columns, tile[1]), (product(size), since[0] * since[1])])
        return ImageNeeds(all_of, least, ((rows, columns), since, tile))

    def and_also(self, dim: Dim, number: int) -> ImageNeeds:
        """The same, and so many of ``dim``."""
        more = (*self.all_of, (dim, number)), (*self.least, (dim, number))
        return replace(self, all_of=more[0], least=more[1])

    def condition(self) -> Expr | None:
        """Whether the image of the run is the kernel's; None for all."""
        if not self.all_of:
            return None
        inside = _hold(self.all_of)
        if self.image is None:
            return inside
        return tirx.any(inside, tirx.all(_hold(self.least), self._fits()))

    def _fits(self) -> Expr:
        """Whether tiles hold no fewer outputs than in the smallest square that pays."""
        assert self.image is not None
        size, since, tile = self.image
        area, tiles = _wide(1), _wide(1)
        for dim, step in zip(size, tile):
            area = area * _wide(to_index(dim))
            tiles = tiles * _wide(tirx.floordiv(to_index(dim) + (step - 1), step))
        own = [-(-n // step) for n, step in zip(since, tile)]
        return area * (own[0] * own[1]) >= tiles * (since[0] * since[1])


@dataclass(frozen=True)
class BatchNeeds:
    """Any of ``options``: those of a single image, and those of smaller ones of which there are more."""

    options: tuple[ImageNeeds, ...]

    @staticmethod
    def of(
        size: Sequence[SizeLike], since: tuple[int, int], tile: tuple[int, int],
        batch: SizeLike, batches: Sequence[tuple[int, tuple[int, int]]],
    ) -> BatchNeeds:  # fmt: skip
        """Of a kernel with a ``tile`` that pays from ``since`` on for images of ``size``; and, in a ``batch`` of so
        many images or more, from each size of ``batches`` on."""
        alone = ImageNeeds.of(size, since, tile)
        if not alone.all_of or not isinstance(batch, Dim):
            return BatchNeeds((alone,))
        others = (ImageNeeds.of(size, own, tile).and_also(batch, images) for images, own in batches)
        return BatchNeeds((alone, *others))

    @property
    def called(self) -> SizeLike:
        """1 for all sizes at which the kernel may be called, and 0 for most others."""
        found: SizeLike = 0
        for needs in self.options:
            found = maximum(found, product([minimum(1, dim // number) for dim, number in needs.least]))
        return found

    def and_also(self, dim: Dim, number: int) -> BatchNeeds:
        """The same, and so many of ``dim``."""
        return BatchNeeds(tuple(needs.and_also(dim, number) for needs in self.options))

    def condition(self) -> Expr | None:
        """Whether the images of the run are the kernel's; None for all."""
        conditions = [needs.condition() for needs in self.options]
        return None if conditions[0] is None else tirx.any(*conditions)


def _open_ones(pairs: Iterable[tuple[SizeLike, int]]) -> tuple[Least, ...]:
    """Those of which not every image has so many."""
    return tuple((dim, n) for dim, n in pairs if not surely(lambda: dim >= n))  # noqa: B023


def _hold(pairs: Sequence[Least]) -> Expr:
    return tirx.all(*(to_index(dim) >= number for dim, number in pairs))


def _wide(value: Expr | int) -> Expr:
    return tirx.IntImm("int64", value) if isinstance(value, int) else tirx.Cast("int64", value)
