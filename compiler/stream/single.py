"""States that need one memory: a step has read all of what the last one left when it writes what it leaves itself.

    all = concat(state, rows)       state is copied to where all lies      1. read
    state' = the last of all        and written from there                 2. written       ->      one memory is both
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...passes.fuse.graph import ProgramGraph
from ...passes.memory.places import Places
from ...schedules.words.group import Kernel, Value
from ..frontend.importer import ImportedModel
from .words import StreamPlan


def with_single_states(
    plan: StreamPlan, step: ImportedModel, graph: ProgramGraph, kernels: Sequence[Kernel], places: Places
) -> StreamPlan:
    """``plan`` with what the order of the kernels of its ``step`` allows."""
    inputs = {s.name: v for s, v in zip(step.inputs, graph.inputs, strict=True)}
    outputs = {s.name: v for s, v in zip(step.outputs, graph.outputs, strict=True)}
    reads: dict[Value, int] = {}
    writes: dict[Value, int] = {}
    for at, kernel in enumerate(kernels):
        made = set(kernel.outputs)
        for operand in kernel.operands:
            if isinstance(operand, Value):
                root = places.root(operand)
                reads[root] = at
                if operand in made:
                    writes.setdefault(root, at)
    states = []
    for state in plan.states:
        given, left = inputs[state.input], outputs[state.output]
        own = places.root(given) is given and places.root(left) is left and left in writes
        states.append(replace(state, single=own and reads.get(given, -1) < writes[left]))
    return replace(plan, states=tuple(states))
