"""How fast one core moves data, in bytes a cycle, by where the data lies.

    second level   a vector every second cycle; a working set leaves it gradually
    third level    where there is one, in proportion to what the target says of a stream that is asked for ahead
    memory         a board's bandwidth, shared by the threads; MEMORY where it is only assumed

The figures without a source in the target are those of one core of the machines that we measured. They are ratios
between levels more than absolute figures, which is all that a choice between plans needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....targets.target import Target

IN_ORDER = 4 / 3  # of that, what rows read in order reach (depthwise convolutions and pools: 16 to 20 of 12)
MOVES = 0.65  # of it, what kernels reach whose time is that of reading and writing (see Rates.moves)
HIDDEN = 12.0  # from the third, asked for ahead: where it is slower, stores to it hold the arithmetic up
MEMORY = 4.0  # from memory, all cores being busy
REACHED = 0.7  # of a memory's bandwidth at best, what programs get
CLOCK = 2e9  # hertz, where the target doesn't say
NEAR_SHARE = 0.7  # of the second-level cache that a working set may fill
FAR_SHARE = 0.25  # of the third, which others use as well,
OTHERS = 96 << 20  # though no more of a large one than this
STAY = 32 << 20  # bytes that a large third level has for sure when rings come to them again, a stripe later
BEYOND = 6.0  # a working set of so many second-level caches finds nothing left in them

Numbers = Any  # a number, or an array of them


@dataclass(frozen=True)
class Rates:
    """Rates at which one core moves data, in bytes a cycle, and what the caches hold, in bytes. ``near``: from the
    second level; ``far``: from beyond it; ``ahead``: the same where tiles are gathered or weights are prefetched;
    ``memory``: from memory. ``l2`` and ``l3`` are bytes; ``private``: each core has a second level to itself, else it
    is shared by all."""

    near: float
    far: float
    ahead: float
    memory: float
    l2: int
    l3: int
    private: bool

    @staticmethod
    def of(target: Target, threads: int) -> Rates:
        """The rates of ``threads`` cores of ``target``. A second level that is the last one counts as shared by the
        cores, as it is in all chips built so."""
        near = target.vector_bits / 16
        memory = MEMORY if target.l3_bytes < 2 * OTHERS else 2 * MEMORY  # large chips have as many channels more
        if target.bandwidth and not target.native:
            memory = REACHED * target.bandwidth / (target.hertz or CLOCK) / max(1, threads)
        far, ahead = min(IN_ORDER * target.far_bytes, near), float(target.far_bytes)
        l2, l3 = max(1, target.l2_bytes), target.l3_bytes
        return Rates(near, far, ahead, min(far, memory), l2, l3, bool(l3))

    @property
    def hides(self) -> bool:
        """True if stores to lines that fell out of the second level cost what others do."""
        return self.ahead >= HIDDEN

    @property
    def kept(self) -> float:
        """Bytes of a working set that the third level serves."""
        return max(FAR_SHARE * self.l3, self.l3 - OTHERS)

    @property
    def stays(self) -> float:
        """Bytes of rings whose lines a large third level still has a stripe later: 44 MB of them, EDSR's at 640x360 in
        one group, have 0.87 of the untiled speed, rings that save rows and share 32 to 59 MB 0.99 to 1.02. Of smaller
        ones, ``kept`` says enough."""
        return STAY if self.kept > STAY else math.inf

    def inner(self, cores: Numbers = 1) -> Numbers:
        """Bytes of a working set of ``cores`` together that the second level serves."""
        return NEAR_SHARE * self.l2 * (cores if self.private else 1)

    def at(self, footprint: Numbers, cores: Numbers = 1, gathered: bool = False) -> Numbers:
        """Bytes a cycle of one core where ``footprint`` bytes are in use, on ``cores`` together."""
        missed = self._missed(footprint, cores)
        far, memory = (min(r, self.ahead) if gathered else r for r in (self.far, self.memory))
        return 1 / (missed / np.where(footprint <= self.kept, far, memory) + (1 - missed) / self.near)

    def moves(self, footprint: Numbers) -> Numbers:
        """The same for kernels that compute little of what they read: depthwise convolutions, pools and maps of whole
        tensors. Where a line comes from the third level, and the one that makes room for it goes there, they reach 6.5
        bytes a cycle behind a mesh that gives 10 (Emerald Rapids: MobileNetV2's layers 0.80 to 1.14 of the time so
        expected, pools of ResNet-50 and U-Net 0.94 to 1.27, DenseNet's maps 0.81 to 1.23). Cores together keep no more
        of a layer than one: two take half of its time."""
        missed = self._missed(footprint, 1)
        return 1 / (missed / np.where(footprint <= self.kept, self.cold, self.memory) + (1 - missed) / self.near)

    @property
    def cold(self) -> float:
        """Bytes a cycle of one core for what no layer of this run has read or written yet: the inputs of the model."""
        return min(self.far, MOVES * self.ahead) if self.private else self.memory

    def streamed(self, footprint: Numbers, cores: Numbers = 1, size: Numbers | None = None) -> Numbers:
        """Bytes a cycle of one core for weights, which are read in order and prefetched, where ``footprint`` bytes are
        in use. ``size``: bytes of the weights themselves, where what passes between two reads of them makes the
        footprint larger; whether the third level keeps them depends on that."""
        missed = self._missed(footprint, cores)
        ahead = max(self.memory, min(self.ahead, 0.8 * self.near))
        outer = np.where((footprint if size is None else size) <= self.kept, ahead, self.memory)
        return 1 / (missed / outer + (1 - missed) / (0.8 * self.near))

    def writes(self, footprint: Numbers, cores: Numbers = 1) -> Numbers:
        """How often a written byte crosses the memory's bus: twice where its line has to come from memory first, else
        once."""
        return np.where((footprint > self.kept) & (self._missed(footprint, cores) >= 1), 2, 1)

    def _missed(self, footprint: Numbers, cores: Numbers) -> Numbers:
        share = np.maximum(1.0, footprint / self.inner(cores))
        return np.minimum(1.0, np.log(share) / math.log(BEYOND / NEAR_SHARE))
