"""What a member costs on one core, in cycles, from the target's facts and the choices that its generator makes.

    arithmetic   register tiles of the convolution families, their waste at a box's edges included
    weights      bytes that a box reads of them (transformed ones for Winograd)
    bytes        of inputs and outputs, a position; how fast they move depends on where they lie

The rates are those of one core of the machines that we measured, in bytes a cycle; they are ratios between levels more
than absolute figures, which is all that a choice between plans needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...schedules.classify import Facts
from ...schedules.conv import ConvFacts, supports_conv
from ...schedules.conv.choose import choose_tile
from ...schedules.conv.winograd_choose import best_plan, choose_plan, scratch_bytes
from ...schedules.group import Group, Value, dtype_bytes
from ...schedules.layout import Layout
from ...targets.target import Target

STACK_BYTES = 64 * 1024  # scratch up to this lies on the stack
NEAR = 32.0  # bytes a cycle from the second-level cache
FAR = 7.0  # from the third
MEMORY = 4.5  # from memory, all cores being busy
EXPOSED = 0.4  # of the shorter of arithmetic and traffic, the part that the longer one doesn't hide
PHASED = 0.8  # the same where a kernel first moves data and then computes (Winograd's transforms and products)
LAUNCH = 2000.0  # cycles to start a kernel on all cores and wait for the last
CALL = 250.0  # cycles to call a part of a tile group
LOOP = 1.0  # cycles that a step of a reduction spends beside its arithmetic
NEAR_SHARE = 0.7  # of the second-level cache that a working set may fill
FAR_SHARE = 0.6  # of the third
BEYOND = 6.0  # a working set of so many second-level caches finds nothing left in them


@dataclass(frozen=True)
class MemberCost:
    """``unit`` output positions are computed at a time, in ``cycles``."""

    unit: tuple[int, int]
    cycles: float
    weights: int
    positions: int
    scratch: int = 0  # bytes that the kernel takes beside what it reads and writes
    exposed: float = EXPOSED

    def box(self, rows: float, columns: float) -> float:
        """Cycles of a box of ``rows x columns``."""
        return self.cycles * math.ceil(rows / self.unit[0]) * math.ceil(columns / self.unit[1])


def member_cost(group: Group, layouts: Mapping[Value, Layout], target: Target, exact: bool) -> MemberCost:
    """The cost of ``group``, by the kernel family that builds it."""
    alone = target if target.cores == 1 else _alone(target)
    output = group.outputs[0]
    positions = math.prod(output.shape[2:]) if len(output.shape) > 2 else 1
    lanes = target.lanes(output.dtype)
    vectors = output.shape[0] * -(-output.shape[1] // lanes) if len(output.shape) > 1 else 1
    extra = 0.5 * vectors * (len(group.nodes) - 1)
    anchor = group.anchor
    if anchor is not None and supports_conv(anchor) and len(output.shape) == 4:
        weights = anchor.operands[1].bytes
        if anchor.operator == "halotile.conv_transpose":
            steps = anchor.operands[0].elements * math.prod(anchor.operands[1].shape[1:]) / positions
            return MemberCost((1, 1), 1.3 * steps / lanes / target.fma_ports + extra, weights, positions)
        facts = ConvFacts.of(anchor)
        if facts.is_depthwise:
            cycles = vectors * (facts.taps + 0.5) / min(2, target.fma_ports)
            return MemberCost((1, 1), cycles + extra, weights, positions)
        if not exact and choose_plan(alone, facts) is not None:
            plan = best_plan(alone, facts)
            assert plan is not None
            m, t = plan.transform.m, plan.transform
            tiles = output.shape[0] * plan.tiles[0] * plan.tiles[1]
            transformed = t.products * facts.channels * plan.chunks * plan.vectors * lanes * 4
            stream = transformed / FAR
            scratch = sum(s for s in scratch_bytes(lanes, facts.channels, plan) if s > STACK_BYTES)
            cycles = max(plan.cycles - stream, 0.5 * plan.cycles) / tiles * output.shape[0]
            return MemberCost((m, m), cycles + extra * m * m, transformed, positions, scratch, PHASED)
        return MemberCost(*_direct(facts, target, lanes, extra), weights, positions)
    work = 0.0
    for node in group.nodes:
        work += _map_cycles(node.operator, sum(r.elements for r in node.results), lanes, Facts(node).kind, node)
    return MemberCost((1, 1), work / positions, 0, positions)


def _direct(facts: ConvFacts, target: Target, lanes: int, extra: float) -> tuple[tuple[int, int], float]:
    blocks = -(-facts.outputs // lanes)
    height, width = facts.out_spatial
    limit = blocks if facts.groups == 1 else max(1, facts.group_out // lanes if facts.group_out % lanes == 0 else 1)
    tile = choose_tile(target, height, width, blocks, limit)
    step = LOOP + max(
        tile.positions * tile.blocks / target.fma_ports,
        (tile.positions + tile.blocks) / 2,
        float(target.fma_latency),
    )
    span = facts.channels if facts.groups == 1 else max(facts.group_in, lanes)
    cycles = facts.data.shape[0] * blocks / tile.blocks * span * facts.taps * step
    return (tile.rows, tile.columns), cycles + extra * tile.positions


def _map_cycles(operator: str, elements: int, lanes: int, kind: str, node: object) -> float:
    if kind == "stencil":
        taps = getattr(node.call.attrs, "pool_size", None)  # type: ignore[attr-defined]
        return elements / lanes * (math.prod(int(k) for k in taps) if taps is not None else 9) * 1.2
    if any(word in operator for word in ("permute", "transpose", "reshape", "resize", "slice", "pad", "gather")):
        return elements / lanes * 8.0  # moves that seldom run over whole vectors
    costly = any(word in operator for word in ("sigmoid", "tanh", "exp", "erf", "gelu", "silu"))
    return elements / lanes * (12.0 if costly else 2.0)


def _alone(target: Target) -> Target:
    from dataclasses import replace

    return replace(target, cores=1)


def value_bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    """Bytes of ``value`` in memory, padding lanes and margins included."""
    layout = layouts.get(value)
    return (layout.elements if layout is not None else value.elements) * dtype_bytes(value.dtype)


def position_bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    """Bytes of one row and column of ``value``, over its batch and channels."""
    layout = layouts.get(value)
    block = layout.block if layout is not None else 0
    channels = -(-value.shape[1] // block) * block if block else value.shape[1]
    return value.shape[0] * channels * dtype_bytes(value.dtype)


def joined(arithmetic: float, traffic: float, exposed: float) -> float:
    """Cycles of arithmetic and memory traffic side by side."""
    return max(arithmetic, traffic) + exposed * min(arithmetic, traffic)


def rate(footprint: float, target: Target, cores: int) -> float:
    """Bytes a cycle at which a core moves data of which ``footprint`` bytes are in use, on ``cores`` together."""
    inner = NEAR_SHARE * max(1, target.l2_bytes) * cores
    if footprint <= inner:
        return NEAR
    outer = FAR if footprint <= FAR_SHARE * target.l3_bytes else MEMORY
    missed = min(1.0, math.log(footprint / inner) / math.log(BEYOND / NEAR_SHARE))
    return 1 / (missed / outer + (1 - missed) / NEAR)
