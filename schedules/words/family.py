"""A family of kernels: the groups that it computes, and how. One that has several algorithms chooses among them.

Images of open size ask more of a choice, as a library has plans for several sizes. A family that has one plan for all
of them answers nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from .choice import AlgorithmRefusal, Choice
from .group import Kernel, Request


class Family(ABC):
    """What computes groups of one kind. ``name`` is what reports call it."""

    name: str

    @abstractmethod
    def takes(self, request: Request) -> bool:
        """True if the family computes the group in the layouts that ``request`` gives."""

    @abstractmethod
    def build(self, request: Request) -> Kernel:
        """The kernel, by the request's choice if it has one."""

    def select(self, request: Request) -> Choice:
        """How :meth:`build` computes the request."""
        return Choice(self.name)

    def considered(self, request: Request) -> list[Choice | AlgorithmRefusal]:
        """What the algorithms of the family say of the request, where there are several."""
        return []

    # ------------------------------------------------------------------ images of open size

    def smaller(self, choice: Choice, least: tuple[int, int], times: int) -> Choice | None:
        """What computes boxes of fewer than ``least`` (rows, columns), the fewest that ``choice`` takes, from the same
        weights, with about so many times fewer columns; None where there is no such thing."""
        return None

    def peers(self, request: Request, choice: Choice) -> list[tuple[Choice, float]]:
        """``choice`` and others that read the same weights, each with the cycles of one of its tiles: images of open
        size take the one of the fewest. None where it is the only one."""
        return []

    def larger(self, request: Request, choice: Choice) -> Choice:
        """``choice``, which was made for a smaller box, for that of the request, with the same weights."""
        return choice

    def pays(self, request: Request, choice: Choice, images: int) -> bool:
        """True if ``choice``, which won by its cycles for a larger box, is expected to win for that of the request, in
        a batch of so many ``images``."""
        return True

    def expected(self, request: Request, choice: Choice, images: int) -> float | None:
        """Predicted cycles of ``choice``, which may have been made for another box, for that of the request, in a batch
        of so many ``images``; None where nothing predicts them."""
        return None

    def transforms(self, choice: Choice, other: Choice) -> bool:
        """True if ``choice`` transforms weights, and not to what ``other`` reads."""
        return False


@dataclass(frozen=True)
class OneWay(Family):
    """A family that computes what it takes in one way."""

    name: str
    taken: Callable[[Request], bool]
    made: Callable[[Request], Kernel]

    def takes(self, request: Request) -> bool:
        return self.taken(request)

    def build(self, request: Request) -> Kernel:
        return self.made(request)
