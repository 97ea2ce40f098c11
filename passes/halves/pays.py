"""Whether float16 is expected to be faster than float32: twice the lanes, but none of the Winograd transforms that
multiply rounding errors by more than float16 has digits for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ...schedules.conv.facts import OPERATORS, ConvFacts
from ...schedules.conv.winograd.choose import choose_plan
from ...schedules.conv.winograd.cost import direct_cycles
from ...schedules.instructions.amx import has_matrix_unit
from ...schedules.words.group import Node as Plain
from ...schedules.words.group import Value
from ...schedules.words.policy import Policy
from ...targets.target import Target
from ..simplify.graph import GraphNode

if TYPE_CHECKING:
    from ...schedules.words.tvm_types import Attribute

HALF, WIDE = "float16", "float32"


def slower(products: Sequence[GraphNode], target: Target, policy: Policy, chosen: bool = False) -> str:
    """Why the ``products`` are left in float32, all of them, since blocks of channels of both kinds differ; empty where
    float16 is expected to be faster, memory counts, or they are ``chosen`` for being faster."""
    if policy.parts and has_matrix_unit(target):
        return f"the matrix unit of {target.id} is faster with parts of float32"
    if chosen or not policy.speed:
        return ""
    work = [_multiply_adds(n) for n in products]
    wide, half = (sum(w * _share(n, target, policy, d) for n, w in zip(products, work)) for d in (WIDE, HALF))
    return "Winograd's transforms are expected to be faster in float32" if wide < half / 2 else ""


def _multiply_adds(node: GraphNode) -> float:
    """Multiply-adds of a product of static shape."""
    weight, result = node.inputs[1], node
    outputs = float(math.prod(result.shape or ()))
    if node.op == "relax.matmul":
        return outputs * (weight.shape or (1,))[0]
    if node.op in OPERATORS:
        return outputs * math.prod((weight.shape or ())[1:])
    return float(math.prod(node.inputs[0].shape or ())) * math.prod((weight.shape or ())[1:])


def _share(node: GraphNode, target: Target, policy: Policy, dtype: str) -> float:
    """The part of the direct form's time that the best form in ``dtype`` takes."""
    if node.op not in OPERATORS or not policy.winograd or policy.small_weights:
        return 1.0
    facts = facts_of(node, dtype)
    plan = choose_plan(target, facts)
    return 1.0 if plan is None else min(1.0, plan.cycles / direct_cycles(target, facts))


def facts_of(node: GraphNode, dtype: str) -> ConvFacts:
    """Of a convolution of static shape, in ``dtype``."""
    data, weight = (Value(i.name, tuple(i.shape or ()), dtype) for i in node.inputs)
    weight = Value(weight.name, weight.shape, weight.dtype, node.inputs[1].array)
    output = Value(node.name, tuple(node.shape or ()), dtype)
    call: Attribute = SimpleNamespace(attrs=node.attrs)
    return ConvFacts.of(Plain(node.name, node.op, call, (data, weight), (output,)))
