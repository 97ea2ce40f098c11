"""What a family may choose among, and what it takes: the first choice of its own estimate, or what was measured to win.

A decision's key says what its kernels' times depend on (shapes, cores), a candidate's label all that is chosen: a label
that is found again means the same kernel. Measuring (compiler/tune.py) builds a model once for every rank of candidate,
``policy.tuning.candidate``; a build with ``policy.tuning.chosen``, key -> label, takes the winners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from .choice import Choice, Decision
from .group import Request
from .policy import Tuning

MOST = 8  # candidates that are worth a measurement


def decide(request: Request, key: str, candidates: Sequence[Choice]) -> Choice:
    """The candidate that the build's tuning asks for: the one that was measured to win, that of the rank to be
    measured, or the first, which is the family's own choice. It carries the decision, and a note where that is another
    one than the first."""
    names = [c.label for c in candidates]
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
    decision = Decision(key, names[index], names[0], min(MOST, len(names)))
    return replace(candidates[index], decision=decision, notes=notes)


def conditions(request: Request) -> str:
    """The end of every decision's key: the cores that share the work, and how weights are stored."""
    return f"{request.target.cores} cores, {request.policy.weights} weights"


def alternating(classes: Iterable[Sequence[Choice]]) -> Iterator[Choice]:
    """The best of every class, then the second of every class, and so on, so that near twins of one class come late."""
    for row in zip_longest(*classes):
        yield from (c for c in row if c is not None)


def own_first(own: Choice, candidates: Iterable[Choice]) -> list[Choice]:
    """``own``, then the other candidates, each label once."""
    return list({c.label: c for c in (own, *candidates)}.values())
