"""An algorithm for convolutions: what it offers for a request, or why it refuses, and the kernel that it builds.

Whoever wants to know how a convolution is computed (its family, the planner of tile groups, the tuner, a report) asks
:func:`.select.select` for a Choice; nobody else knows which algorithms there are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..math.stored_weights import stored_bytes
from ..words.choice import AlgorithmRefusal, Choice, OwnPlan
from ..words.group import Kernel, Request, Value, dtype_bytes
from .box_cost import Costing, MemberCost, direct_cost
from .facts import ConvFacts


@dataclass(frozen=True)
class Held:
    """With at most ``room`` bytes a core beside what it reads and writes (None: any number), a kernel holds ``bytes``
    on all cores together, and takes ``share`` of the time that its algorithm's cost says."""

    room: int | None = None
    bytes: int = 0
    share: float = 1.0


def plain_bytes(request: Request, facts: ConvFacts) -> int:
    """Bytes of the weights as the policy stores them, untransformed."""
    elements = facts.weight.elements
    return elements * (stored_bytes(elements, request.policy.weights) or dtype_bytes(facts.weight.dtype))


class ConvAlgorithm(ABC):
    """One way to compute convolutions. Its plans are plain data, equal where they mean the same kernel."""

    name: str
    boxes_in_place = False  # True if boxes may write over a residual that they read
    any_size = False  # True if its kernels of whole layers take open sizes
    alone = False  # True if tuning tries nothing else where this is chosen, and this nowhere else

    @abstractmethod
    def offers(self, request: Request, facts: ConvFacts) -> Choice | AlgorithmRefusal:
        """The best plan for the request; ``facts`` are those of its box, where it has one."""

    @abstractmethod
    def build(self, request: Request, facts: ConvFacts, plan: OwnPlan) -> Kernel:
        """The kernel of a plan that was offered for the same request."""

    def cost(self, ask: Costing, plan: OwnPlan) -> MemberCost:
        """What boxes of the convolution cost, where ``plan`` is chosen for all of it."""
        return direct_cost(ask)

    def label(self, plan: OwnPlan) -> str:
        """The name of a plan among the candidates of tuning, and in databases of measured choices."""
        return self.name

    def candidates(self, request: Request, facts: ConvFacts) -> Iterable[Sequence[OwnPlan]]:
        """Classes of plans that are worth a measurement, the best of each class first; near twins share a class."""
        return ()

    def smaller(self, plan: OwnPlan, least: tuple[int, int], times: int) -> OwnPlan:
        """The plan for boxes of fewer than ``least`` (rows, columns), which are the fewest that ``plan`` computes, with
        about so many times fewer columns; it reads the same weights. None if there is none."""
        return None

    def peers(self, request: Request, facts: ConvFacts, plan: OwnPlan) -> Sequence[tuple[OwnPlan, float]]:
        """Plans that read the same weights as ``plan``, itself first, each with the cycles of one of its tiles: images
        of open size take the one of the fewest. None where ``plan`` has no peers."""
        return ()

    def larger(self, request: Request, facts: ConvFacts, plan: OwnPlan) -> OwnPlan:
        """The plan that reads the same weights as ``plan``, for the outputs of ``facts``, which are larger than those
        that it was chosen for; ``plan`` itself where none is better."""
        return plan

    def pays(self, request: Request, facts: ConvFacts, plan: OwnPlan, images: int) -> bool:
        """True if ``plan``, which was chosen for larger outputs, is expected to be faster than the general algorithm at
        those of ``facts``, of so many ``images``."""
        return True

    def form(self, plan: OwnPlan) -> str:
        """What weights are transformed to."""
        return self.name

    def expected(self, request: Request, facts: ConvFacts, plan: OwnPlan, images: int) -> float | None:
        """Predicted cycles of ``plan``, which may have been chosen for others, at the outputs of ``facts``, of so many
        ``images``; None where nothing predicts them."""
        return None

    def overwrites(self, request: Request, facts: ConvFacts, plan: OwnPlan) -> tuple[Value, ...]:
        """The inputs whose memory the output may take."""
        return ()

    def loads(self, facts: ConvFacts, plan: OwnPlan) -> float | None:
        """How often a kernel loads an element of the data as a part of a vector of channels, on average; None where it
        loads single elements."""
        return None

    def stored(self, request: Request, facts: ConvFacts, plan: OwnPlan) -> int:
        """Bytes of the weights in the library, in the form that the kernel reads; padding lanes aside."""
        return plain_bytes(request, facts)

    def held(self, request: Request, facts: ConvFacts, plan: OwnPlan) -> int:
        """Bytes that one core holds beside what the kernel reads and writes."""
        return 0

    def holds(self, request: Request, facts: ConvFacts, plan: OwnPlan, less: bool) -> list[Held]:
        """What the kernel of a whole layer holds; and if ``less``, what it would with less and less room."""
        return [Held()]

    def choice(self, plan: object = None, cycles: float = math.inf, sure: bool = False) -> Choice:
        return Choice(self.name, plan, self.label(plan), cycles, sure)

    def refuses(self, reason: str) -> AlgorithmRefusal:
        return AlgorithmRefusal(self.name, reason)
