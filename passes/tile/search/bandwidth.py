"""How fast one core moves data, in bytes a cycle, by where the data lies.

    second level   a vector every second cycle; a working set leaves it gradually
    third level    where there is one, in proportion to what the target says of a stream that is asked for ahead
    memory         a board's bandwidth, shared by the threads; else what was measured elsewhere

The shares and rates that a target does not state are fitted constants (targets/fitted.toml, ``memory``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....targets.fitted import Memory
from ....targets.target import Target

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
    fitted: Memory

    @staticmethod
    def of(target: Target, threads: int) -> Rates:
        """The rates of ``threads`` cores of ``target``. A second level that is the last one counts as shared by the
        cores, as it is in all chips built so."""
        fitted = target.fitted.memory
        near = fitted.near * target.vector_bits / 16
        large = target.l3_bytes >= 2 * fitted.others  # large chips have as many channels more
        memory = 2 * fitted.shared if large else fitted.shared
        if target.bandwidth and not target.native:
            memory = fitted.reached * target.bandwidth / (target.hertz or fitted.clock) / max(1, threads)
        far, ahead = min(fitted.in_order * target.far_bytes, near), float(target.far_bytes)
        l2, l3 = max(1, target.l2_bytes), target.l3_bytes
        return Rates(near, far, ahead, min(far, memory), l2, l3, bool(l3), fitted)

    @property
    def hides(self) -> bool:
        """True if stores to lines that fell out of the second level cost what others do."""
        return self.ahead >= self.fitted.hidden

    @property
    def kept(self) -> float:
        """Bytes of a working set that the third level serves."""
        return max(self.fitted.far_share * self.l3, self.l3 - self.fitted.others)

    @property
    def stays(self) -> float:
        """Bytes of rings whose lines a large third level still has a stripe later: 44 MB of them, EDSR's at 640x360 in
        one group, have 0.87 of the untiled speed, rings that save rows and share 32 to 59 MB 0.99 to 1.02. Of smaller
        ones, ``kept`` says enough."""
        stay = self.fitted.stay
        return stay if self.kept > stay else math.inf

    def inner(self, cores: Numbers = 1) -> Numbers:
        """Bytes of a working set of ``cores`` together that the second level serves."""
        return self.fitted.near_share * self.l2 * (cores if self.private else 1)

    def at(self, footprint: Numbers, cores: Numbers = 1, gathered: bool = False) -> Numbers:
        """Bytes a cycle of one core where ``footprint`` bytes are in use, on ``cores`` together."""
        missed = self._missed(footprint, cores)
        far, memory = (min(r, self.ahead) if gathered else r for r in (self.far, self.memory))
        return 1 / (missed / np.where(footprint <= self.kept, far, memory) + (1 - missed) / self.near)

    def moves(self, footprint: Numbers) -> Numbers:
        """Bytes a cycle of kernels that compute little of what they read: depthwise convolutions, pools and maps of
        whole tensors. Where a line comes from the third level, and the one that makes room for it goes there, they
        reach 6.5 bytes a cycle behind a mesh that gives 10 (Emerald Rapids: MobileNetV2's layers 0.80 to 1.14 of the
        time so expected, pools of ResNet-50 and U-Net 0.94 to 1.27, DenseNet's maps 0.81 to 1.23). Cores together
        keep no more of a layer than one: two take half of its time."""
        missed = self._missed(footprint, 1)
        return 1 / (missed / np.where(footprint <= self.kept, self.cold, self.memory) + (1 - missed) / self.near)

    @property
    def cold(self) -> float:
        """Bytes a cycle of one core for what no layer of this run has read or written yet: the inputs of the model."""
        return min(self.far, self.fitted.moves * self.ahead) if self.private else self.memory

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
        return np.minimum(1.0, np.log(share) / math.log(self.fitted.beyond / self.fitted.near_share))
