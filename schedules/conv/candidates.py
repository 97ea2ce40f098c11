"""The ways to compute one convolution, as candidates to be measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..words.candidates import Candidate, alternating, conditions, own_first
from ..words.group import Kernel, Request
from .algorithm import Choice
from .facts import ConvFacts
from .select import algorithm_of, algorithms_for, label


def decision_key(request: Request, facts: ConvFacts) -> str:
    """Everything about the convolution that its time depends on, but for what is fused around it."""
    kind = "blocked" if request.layout(facts.data).block else "plain"
    shapes = ("x".join(map(str, t)) for t in (facts.data.shape, facts.weight.shape, facts.output.shape))
    steps = f"strides {facts.strides} dilation {facts.dilation} pads {facts.before} {facts.after}"
    text = f"conv {facts.output.dtype} {' '.join(shapes)} {steps} groups {facts.groups} {kind}"
    return f"{text}, {conditions(request)}"


def candidates(
    request: Request, facts: ConvFacts, own: Choice, make: Callable[[Choice], Kernel]
) -> list[Candidate]:
    """What is worth a measurement, the family's ``own`` choice first: the best plan of every class of every algorithm,
    then the second ones."""
    every = (algorithm_of(own),) if algorithm_of(own).alone else algorithms_for(facts)
    classes = [
        [Candidate(label(c), partial(make, c)) for c in (Choice(a.name, plan) for plan in plans)]
        for a in every
        for plans in a.candidates(request, facts)
    ]
    if algorithm_of(own).alone:  # its plans are all there is
        return list(alternating(classes))
    return own_first(label(own), [Candidate(label(own), partial(make, own)), *alternating(classes)])
