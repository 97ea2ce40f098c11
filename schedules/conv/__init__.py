"""The convolution family: facts of a node, choice of a register tile, and the kernels."""

from __future__ import annotations

from .build import InputNeeds, build_conv, input_needs, overwritten, share_by_halves, supports_conv
from .facts import ConvFacts

__all__ = [
    "ConvFacts",
    "InputNeeds",
    "build_conv",
    "input_needs",
    "overwritten",
    "share_by_halves",
    "supports_conv",
]
