"""The ways to compute one convolution, as candidates to be measured."""

from __future__ import annotations

from ..words.candidates import alternating, conditions, own_first
from ..words.choice import Choice
from ..words.group import Request
from .facts import ConvFacts
from .select import algorithm_of, algorithms_for, fits_storage


def decision_key(request: Request, facts: ConvFacts) -> str:
    """Everything about the convolution that its time depends on, but for what is fused around it."""
    kind = "blocked" if request.layout(facts.data).block else "plain"
    shapes = ("x".join(map(str, t)) for t in (facts.data.shape, facts.weight.shape, facts.output.shape))
    steps = f"strides {facts.strides} dilation {facts.dilation} pads {facts.before} {facts.after}"
    text = f"conv {facts.output.dtype} {' '.join(shapes)} {steps} groups {facts.groups} {kind}"
    return f"{text}, {conditions(request)}"


def candidates(request: Request, facts: ConvFacts, own: Choice) -> list[Choice]:
    """What is worth a measurement, the family's ``own`` choice first: the best plan of every class of every algorithm,
    then the second ones."""
    taken = algorithm_of(own)
    every = [taken] if taken.alone else [a for a in algorithms_for(facts) if not a.alone]
    classes = [
        [a.choice(plan) for plan in plans if fits_storage(a, request, facts, plan)]
        for a in every
        for plans in a.candidates(request, facts)
    ]
    found = list(alternating(classes))
    return found if taken.alone else own_first(own, found)  # an algorithm that is alone has its own first
