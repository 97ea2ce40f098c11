"""What the kernel of a product is predicted to take, by the algorithm that was chosen for it."""

from __future__ import annotations

from dataclasses import replace

from ..instructions.bf16_parts import products_of
from ..instructions.int8_dot import row_multiplier
from ..words.group import Request
from ..words.sizes import usual
from .amx_blocks import ProductShape, choose_registers
from .amx_int8 import unit_cycles
from .facts import MatmulFacts
from .pairs import pair_cycles
from .register_tile import group_space, least_cost
from .select import Amx, AmxBytesMatmul, Pairs, StrassenMatmul, select
from .strassen import rows_of_image, seven_cycles


def matmul_cycles(request: Request) -> float:
    """Cycles of the request's product on one core, weights near at hand."""
    assert request.group.anchor is not None
    facts = MatmulFacts.of(request.group.anchor)
    alone = replace(request, policy=replace(request.policy, threads=1))
    taken, target = select(alone, facts).algorithm, request.target
    times = 1 if facts.flat else usual(facts.output.elements) // max(1, usual(facts.m * facts.n))
    if facts.of_bytes and taken == AmxBytesMatmul.name:
        return unit_cycles(target, facts)
    if not facts.of_bytes and taken == Amx.name:
        rows = facts.rows if facts.flat else facts.m
        shape = ProductShape(rows, facts.k, facts.n, 1, products_of(request.policy))
        return times * choose_registers(target, shape, 1)[0]
    if taken == Pairs.name:
        return times * pair_cycles(target, usual(facts.rows if facts.flat else facts.m), facts.k, facts.n)
    if taken == StrassenMatmul.name:
        rows = rows_of_image(facts)
        fewer = seven_cycles(target, rows, facts.k, facts.n, facts.output.dtype)
        if fewer is not None:
            return fewer * (facts.rows // rows)
    rows, vectors, row_bytes, elements = group_space(row_multiplier(target, facts.a.dtype), request.group, facts)
    if not facts.flat:
        rows = max(1, usual(facts.m))
    return times * usual(facts.steps) * least_cost(
        row_multiplier(target, facts.a.dtype), rows, vectors, row_bytes, elements
    )
