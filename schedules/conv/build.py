"""Chooses the kernel of a convolution group."""

from __future__ import annotations

from ..group import Kernel, Node, Request
from .depthwise import build_depthwise
from .direct import build_direct
from .facts import ConvFacts

OPERATORS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


def supports_conv(node: Node) -> bool:
    """True for a floating-point convolution with constant weights and a non-empty output."""
    if node.operator not in OPERATORS or len(node.operands) != 2:
        return False
    facts = ConvFacts.of(node)
    attrs = node.call.attrs
    return (
        facts.weight.constant is not None
        and facts.data.dtype == facts.weight.dtype == facts.output.dtype
        and facts.output.dtype in ("float32", "float64")
        and facts.output.elements > 0
        and facts.weight.elements > 0
        and str(attrs.data_layout).startswith("NC")
    )


def build_conv(request: Request) -> Kernel:
    """A kernel whose output layout is blocked, and whose input has the margins that ``ConvFacts.margins`` asks for."""
    assert request.group.anchor is not None
    facts = ConvFacts.of(request.group.anchor)
    if facts.is_depthwise and request.layout(facts.data).block:
        return build_depthwise(request, facts)
    return build_direct(request, facts)
