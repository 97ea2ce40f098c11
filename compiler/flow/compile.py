"""The kernel of a group that is a loop or a branch, its bodies taken through the stages of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...schedules.words.group import CONTROL, Group
from ..invariants import check_stage
from ..state import STAGES, Build
from .kernel import FlowKernel, build_flow
from .program import FlowProgram

if TYPE_CHECKING:
    from ...schedules.words.tvm_types import Expr


def is_flow(group: Group) -> bool:
    """True for a group that is a loop or a branch."""
    return group.anchor is not None and group.anchor.operator in CONTROL


def flow_kernel(build: Build, group: Group, stages: Mapping[str, Callable[[Build], None]]) -> FlowKernel:
    """The kernel of ``group`` in ``build``; ``stages`` are the pipeline's, by name. A group that is asked for twice is
    compiled once."""
    if group not in build.flows:
        build.flows[group] = build_flow(group, lambda body: _program(build, body, stages))
    return build.flows[group]


def _program(build: Build, body: Expr, stages: Mapping[str, Callable[[Build], None]]) -> FlowProgram:
    """What runs a body: it goes from the simplification to the plan. Budgets of memory and wishes for tiles are of the
    model around it."""
    from tvm import IRModule

    given = build.options
    whole = not isinstance(given.tile, Mapping) and given.memory_budget is None
    tile = given.tile if whole else "off"
    options = replace(given, tile=tile, memory_budget=None, explain=False, dump_ir=None)
    inner = Build(build.source, options, imported=build.imported, module=IRModule({"main": body}))
    for stage in STAGES[1 : STAGES.index("assemble")]:
        stages[stage](inner)
        if options.check:
            check_stage(inner, stage)
    return FlowProgram(inner.graph.inputs, inner.graph.outputs, inner.kernels, inner.places, inner.memory)
