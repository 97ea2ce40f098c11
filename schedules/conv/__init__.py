"""The convolution family: facts of a node, choice of a register tile, and the kernels."""

from __future__ import annotations

from .build import InputNeeds, build_conv, builds_conv, input_needs, overwritten_in_boxes, supports_conv
from .facts import ConvFacts
from .rooms import Beside, besides, held_in_box

__all__ = [
    "Beside",
    "ConvFacts",
    "InputNeeds",
    "besides",
    "build_conv",
    "builds_conv",
    "held_in_box",
    "input_needs",
    "overwritten_in_boxes",
    "supports_conv",
]
