"""Chooses the kernel of a convolution group."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..group import Kernel, Node, Request, Value
from ..tuning import decide
from .candidates import candidates, decision_key, depthwise_candidates
from .choose import choose_tile
from .depthwise import build_depthwise
from .direct import build_direct, tile_space
from .facts import ConvFacts
from .few import build_few, few_applies
from .inplace import has_residual, taken_over
from .strassen import build_halves, halves_pay, halves_share
from .transposed import build_transposed, margins_of
from .winograd import build_winograd
from .winograd_choose import choose_plan

OPERATORS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
TRANSPOSED = "halotile.conv_transpose"


@dataclass(frozen=True)
class InputNeeds:
    """What a convolution wants of the tensor it reads."""

    data: Value
    depthwise: bool
    margins: tuple[tuple[int, int], ...]


def supports_conv(node: Node) -> bool:
    """True for a floating-point convolution, transposed or not, with constant weights and a non-empty output."""
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


def input_needs(node: Node) -> InputNeeds:
    """For a node that :func:`supports_conv`."""
    if node.operator == TRANSPOSED:
        return InputNeeds(node.operands[0], False, margins_of(node))
    facts = ConvFacts.of(node)
    return InputNeeds(facts.data, facts.is_depthwise, facts.margins())


def build_conv(request: Request) -> Kernel:
    """A kernel whose output layout is blocked, and whose input has the margins that :func:`input_needs` asks for."""
    assert request.group.anchor is not None
    if request.group.anchor.operator == TRANSPOSED:
        return build_transposed(request)
    facts = ConvFacts.of(request.group.anchor)
    depthwise = facts.is_depthwise and request.layout(facts.data).block > 0
    if request.box is None and "tuning" in request.options:
        found = (
            depthwise_candidates(request, facts)
            if depthwise
            else candidates(request, facts, _winograd_allowed(request, facts))
        )
        return decide(request, decision_key(request, facts), found)
    if request.box is not None:
        facts = facts.cut(request.box.rows, request.box.columns)
    if depthwise:
        return build_depthwise(request, facts)
    if few_applies(request, facts):
        return build_few(request, facts)
    if halves_pay(request, facts):
        return build_halves(request, facts)
    plan = choose_plan(request.target, facts) if _winograd_allowed(request, facts) else None
    kernel = build_winograd(request, facts, plan) if plan is not None else build_direct(request, facts)
    return replace(kernel, inplace=taken_over(request, facts, kernel.least if plan is None else None))


def overwritten(request: Request) -> tuple[Value, ...]:
    """The inputs whose memory the output of a group that :func:`supports_conv` may take, without building it."""
    anchor = request.group.anchor
    assert anchor is not None
    blocked = request.layout(request.group.outputs[0]).block
    if anchor.operator == TRANSPOSED or not blocked or not has_residual(request):
        return ()
    facts = ConvFacts.of(anchor)
    if (facts.is_depthwise and request.layout(facts.data).block > 0) or few_applies(request, facts):
        return ()
    if halves_pay(request, facts):
        return ()
    if _winograd_allowed(request, facts) and choose_plan(request.target, facts) is not None:
        return taken_over(request, facts, None)
    tile = choose_tile(request.target, *tile_space(request, facts))
    return taken_over(request, facts, (tile.rows, tile.columns))


def share_by_halves(request: Request) -> float:
    """What a whole group takes of a direct convolution's cycles, where it is computed by products of halves; else 1."""
    anchor = request.group.anchor
    if anchor is None or not supports_conv(anchor) or anchor.operator == TRANSPOSED:
        return 1.0
    facts = ConvFacts.of(anchor)
    share = None if few_applies(request, facts) else halves_share(request, facts)
    return 1.0 if share is None else min(1.0, share)


def _winograd_allowed(request: Request, facts: ConvFacts) -> bool:
    """Not under ``exact`` (sums are re-associated), not if switched off, and only between blocked tensors."""
    lanes = request.target.lanes(facts.output.dtype)
    blocked = all(request.layout(v).block == lanes for v in (facts.data, *request.group.outputs))
    return blocked and not request.exact and request.options.get("winograd") is not False
