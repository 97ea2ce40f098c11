"""The convolution family: facts of a node, choice of a register tile, and the kernels."""

from __future__ import annotations

from .facts import ConvFacts
from .family import InputNeeds, build_conv, builds_conv, input_needs, overwritten_in_boxes, supports_conv
from .scratch import Beside, besides, held_in_box

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
