"""Which loops cores share: those of enough work at the size that is planned for, and where sizes are open those that
have enough at larger ones. One core computes the latter until they have (codegen/launches.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..words.dims import is_open

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

LARGER = 16  # times the usual work: so much more of it is expected of open sizes


@dataclass
class Launches:
    """Of the loops of a kernel for so many ``workers``. ``since``: times the usual size, from which on the first of
    them is worth a launch."""

    workers: int
    since: float = math.inf

    def pays(self, work: float, least: float, sizes: Iterable[SizeLike]) -> bool:
        """True if cores share a loop of as much ``work`` as there is at the usual size: from ``least`` on; of open
        ``sizes`` also where larger ones may bring so much."""
        times = least / max(work, 1)
        shared = times <= (LARGER if self.workers > 1 and is_open(sizes) else 1)
        if shared:
            self.since = min(self.since, times)
        return shared
