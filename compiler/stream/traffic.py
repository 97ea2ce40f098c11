"""How long a step takes for each column, by how wide it is: kernels of wide steps move bytes that no cache keeps.

    wide strips      what a kernel writes has left the last cache when the next one reads it
    narrow strips    columns near the cuts are computed again, and kernels are started more often
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...passes.tile.search.bandwidth import Rates
from ...schedules.words.group import Kernel, Value
from ...targets.target import Target

if TYPE_CHECKING:
    from ..state import Build


@dataclass(frozen=True)
class Traffic:
    """Bytes that each kernel of a step reads and writes, all of their ``flops``, and what ``cores`` of the target do in
    a cycle: ``peak`` flops, ``memory`` bytes from beyond the caches, of which the last has ``kept`` bytes for sure."""

    moved: tuple[int, ...]
    flops: int
    kept: float
    memory: float
    peak: float
    exposed: float
    launch: float

    @staticmethod
    def of(build: Build) -> Traffic:
        """The traffic of a build whose memory is planned."""
        target, threads = build.options.target, build.options.policy.threads or build.options.target.cores
        return Traffic.on(target, threads, [_bytes(k) for k in build.kernels], sum(k.flops for k in build.kernels))

    @staticmethod
    def on(target: Target, threads: int, moved: Sequence[int], flops: int) -> Traffic:
        """That of kernels which move so many bytes each."""
        rates, fitted = Rates.of(target, threads), target.fitted.kernels
        kept = float(max(rates.kept, rates.inner(threads)))
        peak = 2.0 * target.lanes() * target.fma_ports * threads
        return Traffic(tuple(moved), flops, kept, rates.memory * threads, peak, fitted.exposed, fitted.launch)

    def cycles(self, share: float, aside: int = 0) -> float:
        """Predicted cycles of all columns, in steps of a ``share`` of them. Arithmetic hides a part of what moves; what
        a kernel moves beyond what the last cache keeps comes from memory. So do the ``aside`` bytes of all columns that
        each step reads and leaves, where others take their step in between."""
        beyond = sum(max(0.0, n - self.kept / share) for n in self.moved) + 2 * aside
        return self.flops / self.peak + self.exposed * beyond / self.memory + self.launch * len(self.moved) / share


def _bytes(kernel: Kernel) -> int:
    values = {v for v in (*kernel.operands, *kernel.outputs) if isinstance(v, Value)}
    return sum(int(v.bytes) for v in values)
