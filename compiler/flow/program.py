"""A body as a program: its kernels in order, and where everything that they touch lies.

A body goes through the same stages as a model, from the simplification to the memory plan. Its inputs and results lie
where its surroundings put them, its constants are those of the library, all else in a block of memory that the kernel
of the loop or branch takes from the arena, by a plan of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...passes.memory.open_offsets import Slot, in_order
from ...passes.memory.places import Places
from ...passes.memory.plan import MemoryPlan
from ...schedules.words.alignment import aligned
from ...schedules.words.dims import maximum
from ...schedules.words.group import Kernel, Value

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike


@dataclass(frozen=True, eq=False)
class FlowProgram:
    """What runs a body: ``kernels`` in order on the values of its graph, which ``places`` and ``memory`` place."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    kernels: tuple[Kernel, ...]
    places: Places
    memory: MemoryPlan

    @property
    def bytes(self) -> SizeLike:
        """What its block of memory takes: a number, or a dim where sizes are open."""
        if not self.memory.sizes:
            return self.memory.planned_bytes
        total: SizeLike = 0
        for _, end in self.ends().values():
            total = maximum(total, end)
        return total

    def ends(self) -> dict[int, tuple[SizeLike, SizeLike]]:
        """Where the buffers of open sizes begin and end, by slot."""
        found: dict[int, tuple[SizeLike, SizeLike]] = {}
        for slot in in_order(self.memory.below):
            begin: SizeLike = 0
            for under in self.memory.below[slot]:
                begin = maximum(begin, found[under][1])
            found[slot] = begin, begin + aligned(self.memory.sizes[slot])
        return found

    def offsets(self) -> dict[SizeLike, SizeLike]:
        """Where values and scratch begin in the block, by root."""
        ends = self.ends() if self.memory.sizes else {}
        return {o: ends[p.number][0] if isinstance(p, Slot) else p for o, p in self.memory.offsets.items()}
