"""Chooses the kernel of a matrix multiplication group."""

from __future__ import annotations

from ..group import Group, Kernel, Node, Request
from .facts import MatmulFacts
from .moves import along_memory, moved_only, outgoing, producers
from .packed import build_packed


def supports_matmul(node: Node) -> bool:
    """True for floating-point operands of one dtype, at least 2-D, none of them empty."""
    if node.operator != "relax.matmul":
        return False
    facts = MatmulFacts.of(node)
    return (
        len(facts.a.shape) >= 2
        and len(facts.b.shape) >= 2
        and facts.a.dtype == facts.b.dtype == facts.output.dtype
        and facts.output.dtype in ("float32", "float64")
        and facts.output.elements > 0
        and facts.k > 0
        and len(facts.output.shape) == max(len(facts.a.shape), len(facts.b.shape))
    )


def moves_problem(group: Group) -> str:
    """Why a group around one product can't be one kernel; empty if it can: only moves lie before the left operand, and
    what lies behind the result still runs along memory."""
    anchor = group.anchor
    assert anchor is not None
    facts = MatmulFacts.of(anchor)
    before = producers(group, facts.a)
    if producers(group, facts.b):
        return "the right operand is read in place or packed ahead"
    if any(v in group.outputs for n in before for v in n.results):
        return "what is moved is used elsewhere"
    if before and not moved_only(group, anchor, facts.a):
        return "the left operand is computed, or its elements lie apart"
    places = outgoing(group, anchor)
    if places is None:
        return "the elements behind it mix"
    if not all(along_memory(facts.output, places[v], v) for v in group.outputs):
        return "the last axis would lie apart"
    return ""


def build_matmul(request: Request) -> Kernel:
    """A kernel whose operands and output are plain."""
    assert request.group.anchor is not None
    return build_packed(request, MatmulFacts.of(request.group.anchor))
