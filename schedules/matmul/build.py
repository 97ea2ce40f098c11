"""Chooses the kernel of a matrix multiplication group."""

from __future__ import annotations

from ..group import Kernel, Node, Request
from .facts import MatmulFacts
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


def build_matmul(request: Request) -> Kernel:
    """A kernel whose operands and output are plain."""
    assert request.group.anchor is not None
    return build_packed(request, MatmulFacts.of(request.group.anchor))
