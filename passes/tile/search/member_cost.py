"""What a member costs on one core, in cycles, from the target's facts and the choices that its generator makes.

    arithmetic   register tiles of the convolution families, their waste at a box's edges included
    weights      bytes that a box reads of them (transformed ones for Winograd)
    bytes        of inputs and outputs, a position; how fast they move depends on where they lie (bandwidth.py)

Cycles that no fact of the target tells are fitted constants (targets/fitted.toml, ``kernels``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ....schedules.conv import ConvFacts, Costing, MemberCost, conv_cost, supports_conv
from ....schedules.conv.box_cost import Known, Numbers
from ....schedules.matmul.facts import MatmulFacts
from ....schedules.operators.kind import Facts, facts_of
from ....schedules.words.group import Request, Value, dtype_bytes
from ....schedules.words.layout import Layout
from ....targets.fitted import Kernels

MATMUL = "relax.matmul"


def member_cost(request: Request, known: Known | None = None) -> MemberCost:
    """The cost of a request's group, by the algorithm that computes it: of boxes of any size, in kernels for one core,
    where the request has a box; else of the kernel of the whole. ``known``: see :class:`~.box_cost.Fit`."""
    group, target = request.group, request.target
    output = group.outputs[0]
    lanes = target.channel_block(output.dtype)
    vectors = output.shape[0] * -(-output.shape[1] // lanes) if len(output.shape) > 1 else 1
    anchor = group.anchor
    fitted = target.fitted.kernels
    others = (facts_of(n) for n in group.nodes if n is not anchor)
    extra = vectors * sum(fitted.function if f.calls_functions else fitted.epilogue for f in others)
    positions = max(1, math.prod(output.shape[2:]))  # none are left of a state that has no length
    if anchor is not None and supports_conv(anchor) and len(output.shape) == 4:
        if anchor.operator == "halotile.conv_transpose":
            steps = anchor.operands[0].elements * math.prod(anchor.operands[1].shape[1:]) / positions
            cycles = fitted.transposed * steps / lanes / target.fma_ports + extra
            return MemberCost((1, 1), cycles, anchor.operands[1].bytes, positions)
        return conv_cost(request, Costing(request, ConvFacts.of(anchor), extra, {} if known is None else known))
    work, weights = 0.0, 0
    for node in group.nodes:
        if node.operator == MATMUL:
            depth = MatmulFacts.of(node).steps
            work += sum(r.elements for r in node.results) * depth / lanes / target.fma_ports
            weights += sum(v.bytes for v in node.inputs if v.constant is not None)
            continue
        work += _map_cycles(facts_of(node), lanes, fitted)
    moves = MATMUL not in group.operators
    return MemberCost((1, 1), work / positions, weights, positions, moves=moves)


def _map_cycles(facts: Facts, lanes: int, fitted: Kernels) -> float:
    operator, elements = facts.node.operator, sum(r.elements for r in facts.node.results)
    if facts.kind == "stencil":
        taps = getattr(facts.node.call.attrs, "pool_size", None)
        return elements / lanes * (math.prod(int(k) for k in taps) if taps is not None else 9) * fitted.tap
    if any(word in operator for word in ("permute", "transpose", "reshape", "resize", "slice", "pad", "gather")):
        return elements / lanes * fitted.move
    if operator == "halotile.standardise":
        return elements / lanes * fitted.norm
    return elements / lanes * (fitted.function if facts.calls_functions else fitted.element)


def value_bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    """Bytes of ``value`` in memory, padding lanes and margins included."""
    layout = layouts.get(value)
    if layout is None:
        return value.elements * dtype_bytes(value.dtype)
    return layout.elements * dtype_bytes(layout.held(value.dtype))


def position_bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    """Bytes of one row and column of ``value``, over its batch and channels."""
    layout = layouts.get(value)
    block = layout.block if layout is not None else 0
    channels = -(-value.shape[1] // block) * block if block else value.shape[1]
    held = layout.held(value.dtype) if layout is not None else value.dtype
    return value.shape[0] * channels * dtype_bytes(held)


def joined(arithmetic: Numbers, traffic: Numbers, exposed: Numbers) -> Numbers:
    """Cycles of arithmetic and memory traffic side by side."""
    return np.maximum(arithmetic, traffic) + exposed * np.minimum(arithmetic, traffic)
