"""Columns of a product, in panels of a few vectors: those of one width form a region, a nest of loops of its own.

    50 columns, tiles of 2 vectors of 8       48 in three panels of 2 vectors, then 2 columns in one of a vector
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


@dataclass(frozen=True)
class Region:
    """Output columns ``first + [0, panels * vectors * lanes)``; ``last`` is the width of the very last vector.
    ``back``: where the last panel begins if it is moved back to end with the columns."""

    first: SizeLike
    panels: SizeLike
    vectors: int
    last: int
    back: SizeLike = None


def whole_regions(columns: int, width: int, lanes: int) -> list[Region]:
    """Whole panels of ``width`` vectors, then one of the vectors that are left."""
    full_vectors, rest = divmod(columns, lanes)
    panels, left = divmod(full_vectors, width)
    regions = []
    if panels:
        regions.append(Region(0, panels, width, lanes))
    if left or rest:
        first = panels * width * lanes
        regions.append(Region(first, 1, left + (1 if rest else 0), rest or lanes))
    return regions


def in_panels(b: np.ndarray, regions: Sequence[Region], lanes: int, streams: bool) -> np.ndarray:
    """[steps, N] in the panels of ``regions``, zeros behind the last column; ``streams``: a panel's vectors lie one
    after the other, not its steps."""
    parts = []
    for region in regions:
        columns = region.panels * region.vectors * lanes
        part = np.zeros((len(b), columns), b.dtype)
        have = b[:, region.first : region.first + columns]
        part[:, : have.shape[1]] = have
        part = part.reshape(len(b), region.panels, region.vectors, lanes)
        parts.append(part.transpose((1, 2, 0, 3) if streams else (1, 0, 2, 3)).reshape(-1))
    return np.ascontiguousarray(np.concatenate(parts))
