"""What every group of a program is predicted to take, computed whole: the cost model's estimate, group by group.

Products count by the algorithm that each of them takes, which the planner of tiles, whose boxes hold none, has no need
to tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ....schedules.dispatch import family_of
from ....schedules.matmul import PRODUCTS
from ....schedules.matmul.cost import matmul_cycles
from ....schedules.operators.kind import facts_of
from ....schedules.words.group import CONTROL, Group, Value
from ....schedules.words.layout import Layout
from ....schedules.words.policy import Policy
from ....targets.target import Target
from ...memory.places import Places
from .model import SearchModel
from .program import Program


def predicted_cycles(
    groups: Sequence[Group],
    layouts: dict[Value, Layout],
    places: Places,
    placed: Sequence[Value],
    target: Target,
    policy: Policy,
    closing: frozenset[Value] = frozenset(),
) -> list[float]:
    """Cycles of each group on the policy's threads, memory traffic and the kernel's start included."""
    program = Program(groups, layouts, places, frozenset(placed))
    model = SearchModel(program, target, policy.threads or target.cores, policy, closing)
    found = []
    for i, group in enumerate(groups):
        if group.anchor is not None and group.anchor.operator in CONTROL:
            found.append(0.0)  # nobody knows how often it runs
            continue
        if group.anchor is not None and family_of(model.request(group)) is PRODUCTS:
            _count_product(model, i)
        found.append(model.whole(i).cycles * _vectors(group, target))
    return found


def _count_product(model: SearchModel, index: int) -> None:
    """Lets the model take the cycles of the chosen algorithm for those of a product, and of what is fused around it."""
    group, cost = model.program.groups[index], model.cost(index)
    output, fitted = group.outputs[0], model.target.fitted.kernels
    others = (n for n in group.nodes if n is not group.anchor)
    around = sum(fitted.function if facts_of(n).calls_functions else fitted.epilogue for n in others)
    own = matmul_cycles(model.request(group)) + around * output.elements / model.target.lanes(output.dtype)
    model.whole_costs[group] = replace(cost, cycles=own / cost.positions)


def _vectors(group: Group, target: Target) -> float:
    """Registers that a block of channels of a convolution's sums takes: two of float32 where float16 lies beside."""
    if group.anchor is None or len(group.outputs[0].shape) != 4:
        return 1.0
    dtype = group.anchor.results[0].dtype
    return math.ceil(target.channel_block(dtype) / target.lanes(dtype)) if dtype == "float32" else 1.0
