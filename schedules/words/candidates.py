"""What a family may choose among, and what it takes: the first choice of its own estimate, or what was measured to win.

A decision's key says what its kernels' times depend on (shapes, cores), a candidate's name all that is chosen: a name
that is found again means the same kernel. Measuring (compiler/tune.py) builds a model once for every rank of candidate,
``policy.tuning.candidate``; a build with ``policy.tuning.chosen``, key -> name, takes the winners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from .group import Decision, Kernel, Request
from .policy import Tuning

MOST = 8  # candidates that are worth a measurement


@dataclass(frozen=True)
class Candidate:
    """One way to compute a group; ``make`` builds its kernel."""

    name: str
    make: Callable[[], Kernel]


def decide(request: Request, key: str, candidates: Sequence[Candidate]) -> Kernel:
    """The kernel of the candidate that ``request`` asks for. The first is the family's own choice."""
    names = [c.name for c in candidates]
    tuning = request.policy.tuning or Tuning()
    rank = tuning.candidate
    index = rank if rank < min(MOST, len(names)) else 0
    wanted = tuning.chosen.get(key)
    notes: tuple[str, ...] = ()
    if wanted in names:
        index = names.index(wanted)
        notes = (f"measured faster than {names[0]}",) if index else ()
    elif wanted is not None:
        notes = (f"tuned choice {wanted} is none of today's; tune again",)
    kernel = candidates[index].make()
    decision = Decision(key, names[index], names[0], min(MOST, len(names)))
    return replace(kernel, decision=decision, notes=(*kernel.notes, *notes))


def conditions(request: Request) -> str:
    """The end of every key: the cores that share the work, and how weights are stored."""
    return f"{request.target.cores} cores, {request.policy.weights} weights"


def alternating(classes: Iterable[Sequence[Candidate]]) -> Iterator[Candidate]:
    """The best of every class, then the second of every class, and so on: near twins of one class come late."""
    for row in zip_longest(*classes):
        yield from (c for c in row if c is not None)


def own_first(own: str, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, each name once, with the one called ``own`` in front."""
    found = {c.name: c for c in candidates}
    return [found.pop(own), *found.values()]
