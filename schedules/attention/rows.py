"""The work between the products: phases on one row of scores, which lies in scratch and is overwritten.

The phases are those of the general generator (:mod:`..general.phases`), so a softmax here does what it does alone, in
the same order. Each phase as wide as a row takes over the memory of the rows that nothing reads after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..emit.inline import key
from ..general.loop_nest import StageMemory
from ..general.maps import MapNest
from ..general.phases import Phase, PhasePlan, _reads
from ..general.reduction_nest import ReductionNest
from ..kernel.context import Context
from ..operators.te_graph import GroupGraph
from ..words.group import Request, Value
from ..words.tvm_types import Buffer, Expr, Operation
from .facts import AttentionFacts

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


def takes_over(graph: GroupGraph, plan: PhasePlan, facts: AttentionFacts) -> list[tuple[Operation, int] | None] | None:
    """The key of the rows whose memory each phase writes to (None: memory of its own); None altogether if the last
    phase can't have that of the scores."""
    scores = key(graph.tensors[facts.scores])
    holder = {scores: scores}  # stage -> the rows in whose memory it lies
    last_read: dict[tuple[Operation, int], int] = {}
    reads = []
    stored = {key(t) for p in plan.phases for t in p.tensors}
    for number, phase in enumerate(plan.phases):
        axes = [tirx.Var(f"a{i}", "int32") for i in range(len(phase.shape))]
        found = [(key(t), indices) for t, indices in _reads(graph, phase, stored, axes)]
        reads.append((axes, found))
        last_read.update({k: number for k, _ in found})
    owners: list[tuple[Operation, int] | None] = []
    for number, (phase, (axes, found)) in enumerate(zip(plan.phases, reads)):
        owner = None
        if not phase.reduce and phase.shape == facts.scores.shape and len(phase.tensors) == 1:
            for stage, where in holder.items():
                mine = [indices for k, indices in found if k == stage]
                elementwise = all(own_element(indices, axes, phase.shape) for indices in mine)
                if mine and elementwise and last_read[stage] == number:
                    owner = where
        owners.append(owner)
        if owner is not None:
            holder = {k: w for k, w in holder.items() if w != owner}
            holder[key(phase.tensors[0])] = owner
    return owners if owners and owners[-1] == scores else None


def own_element(indices: tuple[Expr, Expr, Expr, Expr], axes: list[Expr], shape: tuple[int, ...]) -> bool:
    for index, axis, extent in zip(indices, axes, shape):
        while type(index).__name__ == "Cast":
            index = index.value
        if extent != 1 and not (hasattr(index, "same_as") and index.same_as(axis)):
            return False
    return True


class AttentionRows:
    """Emits the phases on one row; stands for the general generator towards its loop nests."""

    def __init__(
        self, request: Request, ctx: Context, graph: GroupGraph, plan: PhasePlan, facts: AttentionFacts
    ) -> None:
        self.request, self.ctx, self.graph, self.plan, self.facts = request, ctx, graph, plan, facts
        self.k: KernelBuilder = ctx.k
        self.block = 0
        self.slot: SizeLike = 0  # one row at a time
        self.stored: dict[tuple[Operation, int], StageMemory | Value] = {}
        self.notes: list[str] = []
        owners = takes_over(graph, plan, facts)
        assert owners is not None
        self.owners = owners

    def repeats(self) -> bool:
        return False  # scores are overwritten

    @property
    def own_rows(self) -> int:
        """Phases as wide as a row that need memory beside the scores."""
        wide = [p for p, o in zip(self.plan.phases, self.owners) if o is None and p.shape == self.facts.scores.shape]
        return sum(len(p.tensors) for p in wide)

    def emit(self, row: list[Expr], scores: Buffer, offset: Expr, spare: list[StageMemory]) -> None:
        """``row``: logical indices of all axes but the last; the row of scores begins at ``offset``. ``spare`` holds
        memory of one row for each of :attr:`own_rows`."""
        rank = len(self.facts.scores.shape)
        whole = StageMemory(scores, self.facts.scores.shape, rank - 1, 0, self.facts.scores.shape, offset)
        spare = list(spare)
        self.stored = {key(self.graph.tensors[self.facts.scores]): whole}
        for phase, owner in zip(self.plan.phases, self.owners):
            places = [self._memory(phase, str(t.dtype), owner, whole, spare) for t in phase.tensors]
            # a stage that is overwritten is read at the very element that is written: it may go by its old name
            self.stored.update({key(t): place for t, place in zip(phase.tensors, places)})
            targets: list[Value | StageMemory] = [*places]
            nest = ReductionNest if phase.reduce else MapNest
            nest(self, phase, row, targets, False).emit()

    def _memory(
        self,
        phase: Phase,
        dtype: str,
        owner: tuple[Operation, int] | None,
        whole: StageMemory,
        spare: list[StageMemory],
    ) -> StageMemory | Value:
        if owner is not None:
            return self.stored[owner] if owner in self.stored else whole
        skip = len(whole.shape) - 1
        if phase.shape == self.facts.scores.shape:
            return StageMemory(spare.pop(0), phase.shape, skip, 0, phase.shape)
        elements = 1
        for extent in phase.shape[skip:]:
            elements *= extent
        return StageMemory(self.k.local("s", dtype, elements), phase.shape, skip, 0, phase.shape)
