"""Chooses the kernel of a convolution group."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ..instructions.amx import may_split
from ..instructions.int8_dot import FEW as FEW_CHANNELS
from ..words.candidates import decide
from ..words.group import Box, Group, Kernel, Node, Request, Value
from .amx.choose import MARGIN, MatrixPlan, few_plan, float_cycles, matrix_plan
from .amx.few_channels import build_pixels
from .amx.int8_choose import BytesPlan, bytes_plan
from .amx.int8_kernel import build_matrix_bytes
from .amx.kernel import build_matrix
from .amx.pixel_strips import PixelStrip
from .candidates import DEPTHWISE, DOTS, FEW, GROUPED, HALVES, Way, candidates, decision_key
from .direct.depthwise import build_depthwise
from .direct.few_outputs import build_few, few_applies, writes_plain
from .direct.int8_dot import build_bytes
from .direct.kernel import build_direct, has_left_over, has_narrow, once_pays, own_tile, rest_of
from .direct.small_groups import build_grouped, grouped_applies
from .facts import BYTES, OPERATORS, ConvFacts
from .register_tile import Tile
from .residual_in_place import has_residual, taken_over
from .strassen import build_halves, halves_bytes, halves_share
from .transposed import build_transposed, margins_of
from .winograd.choose import choose_plan
from .winograd.few_channels import build_few_winograd
from .winograd.kernel import build_winograd
from .winograd.plan import Plan, held_bytes

TRANSPOSED = "halotile.conv_transpose"
BOX_ROWS = 4  # of the boxes by which it is decided whether they write over what they read


@dataclass(frozen=True)
class InputNeeds:
    """What a convolution wants of the tensor it reads: margins that hold ``fill``, and channel blocks, where there are
    ``few`` channels, of so many (0: none)."""

    data: Value
    depthwise: bool
    margins: tuple[tuple[int, int], ...]
    fill: int = 0
    few: int = 0


def supports_conv(node: Node) -> bool:
    """True for a floating-point convolution, transposed or not, or one of bytes, with constant weights and a non-empty
    output."""
    if node.operator == BYTES:
        return node.operands[1].constant is not None and all(v.elements > 0 for v in (*node.inputs, *node.results))
    if node.operator not in (*OPERATORS, TRANSPOSED) or len(node.operands) != 2:
        return False
    data, weight, output = node.operands[0], node.operands[1], node.results[0]
    return (
        weight.constant is not None
        and data.dtype == weight.dtype == output.dtype
        and output.dtype in ("float32", "float64")
        and output.elements > 0
        and weight.elements > 0
        and data.elements > 0
        and (node.operator == TRANSPOSED or str(node.call.attrs.data_layout).startswith("NC"))
    )


def builds_conv(group: Group, block: Callable[[Value], int]) -> bool:
    """True if :func:`build_conv` computes the group in layouts of so many lanes (0: plain)."""
    if group.anchor is None or not supports_conv(group.anchor):
        return False
    return block(group.outputs[0]) > 0 or writes_plain(group, block)


def input_needs(node: Node) -> InputNeeds:
    """For a node that :func:`supports_conv`."""
    if node.operator == TRANSPOSED:
        return InputNeeds(node.operands[0], False, margins_of(node))
    facts = ConvFacts.of(node)
    few = FEW_CHANNELS if facts.of_bytes else 0
    return InputNeeds(facts.data, facts.is_depthwise, facts.margins(), facts.fill, few)


def build_conv(request: Request) -> Kernel:
    """A kernel in layouts that :func:`builds_conv` accepts; its input has the margins of :func:`input_needs`."""
    assert request.group.anchor is not None
    if request.group.anchor.operator == TRANSPOSED:
        return build_transposed(request)
    facts = ConvFacts.of(request.group.anchor)
    if request.box is None and request.policy.tuning is not None:
        own, winograd = own_way(request, facts), _winograd_allowed(request, facts)
        found = candidates(request, facts, own, winograd, partial(_make, request, facts))
        return decide(request, decision_key(request, facts), found)
    if request.box is not None:
        facts = facts.cut(request.box.rows, request.box.columns)
    return _make(request, facts, own_way(request, facts))


def overwritten(request: Request) -> tuple[Value, ...]:
    """The inputs whose memory the output of a group that :func:`supports_conv` may take, without building it."""
    anchor = request.group.anchor
    assert anchor is not None
    if not _may_overwrite(request):
        return ()
    facts = ConvFacts.of(anchor)
    return _overwritten(request, facts, own_way(request, facts))


def _may_overwrite(request: Request) -> bool:
    """Plain outputs are written by others than those that add to what lies there."""
    group = request.group
    assert group.anchor is not None
    blocked = request.layout(group.outputs[0]).block > 0
    return blocked and group.anchor.operator != TRANSPOSED and has_residual(request)


def overwritten_in_boxes(request: Request, unit: int | None = None) -> tuple[Value, ...]:
    """The inputs whose windows the output's may be, in a tile group whose boxes have multiples of ``unit`` columns
    (None: all): where register tiles that compute no output twice take hardly longer."""
    group, anchor = request.group, request.group.anchor
    if anchor is None or not builds_conv(group, lambda v: request.layout(v).block) or not _may_overwrite(request):
        return ()
    if len(group.outputs[0].shape) != 4:
        return ()
    height, width = group.outputs[0].shape[2:]
    box = Box(max(1, min(BOX_ROWS, height)), width, frozenset(group.outputs), True)
    request = replace(request, box=box, limits=replace(request.limits, once=unit or width))
    facts = ConvFacts.of(anchor).cut(box.rows, box.columns)
    ways = own_way(request, facts), own_tile(request, facts)
    if any(not isinstance(way, Plan | Tile) for way in ways):
        return ()
    if isinstance(ways[0], Tile) and not once_pays(request, facts):
        return ()
    fitting = [_overwritten(request, facts, way) for way in ways]
    return tuple(v for v in group.inputs if all(v in f for f in fitting))


def own_way(request: Request, facts: ConvFacts) -> Way:
    """What the family takes by its own estimate; every question about a convolution's kernel begins here."""
    if facts.of_bytes:
        return bytes_plan(request, facts) or DOTS
    if facts.is_depthwise and request.layout(facts.data).block > 0:
        return DEPTHWISE
    if few_applies(request, facts):
        return FEW
    if grouped_applies(request, facts):
        return GROUPED
    room = request.limits.room
    matrix, share = matrix_plan(request, facts) or few_plan(request, facts), halves_share(request, facts)
    split = may_split(request)
    plan = choose_plan(request.target, facts, split=split) if _winograd_allowed(request, facts) else None
    if plan is not None and room is not None and held_bytes(request.target.lanes(), facts.channels, plan) > room:
        plan = choose_plan(request.target, facts, room, split)
    if matrix is not None:
        others = plan.cycles if plan is not None else float_cycles(request.target, facts) * (share or 1.0)
        margin = 1.0 if plan is not None and plan.products else MARGIN  # both round as much
        if matrix.cycles * request.workers / request.target.cores < margin * others:
            return matrix
    if share is not None and (room is None or halves_bytes(request, facts) <= room * request.workers):
        return HALVES
    return plan if plan is not None else own_tile(request, facts)


def _make(request: Request, facts: ConvFacts, way: Way) -> Kernel:
    if way == DOTS:
        return build_bytes(request, facts)
    if isinstance(way, BytesPlan):
        return build_matrix_bytes(request, facts, way)
    if way == FEW:
        return build_few(request, facts)
    if way == GROUPED:
        return build_grouped(request, facts)
    if way == HALVES:
        return build_halves(request, facts)
    if isinstance(way, Plan):
        kernel = (build_few_winograd if way.plain else build_winograd)(request, facts, way)
    elif isinstance(way, MatrixPlan):
        few = isinstance(way.strip, PixelStrip)
        kernel = (build_pixels if few else build_matrix)(request, facts, way)
    elif isinstance(way, Tile):
        kernel = build_direct(request, facts, way)
    else:
        return build_depthwise(request, facts, way if isinstance(way, int) else None)
    return replace(kernel, inplace=_overwritten(request, facts, way))


def _overwritten(request: Request, facts: ConvFacts, way: Way) -> tuple[Value, ...]:
    if isinstance(way, Plan | MatrixPlan):
        return taken_over(request, facts, None)
    if not isinstance(way, Tile):
        return ()
    rows = 1 if has_left_over(request, facts) else way.rows  # none is computed again
    rest = rest_of(request, facts, way)
    columns = math.lcm(way.columns, rest.columns if rest is not None else 1)
    return taken_over(request, facts, (rows, 1 if has_narrow(request, facts) else columns))


def _winograd_allowed(request: Request, facts: ConvFacts) -> bool:
    """Not under ``exact`` (sums are re-associated), not if switched off, and only between blocked tensors, and from
    plain ones of few channels."""
    lanes = request.target.lanes(facts.output.dtype)
    blocked = all(request.layout(v).block == lanes for v in request.group.outputs)
    blocked = blocked and request.layout(facts.data).block == (0 if facts.is_plain else lanes)
    return blocked and request.policy.winograd
