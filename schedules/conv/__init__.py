"""The convolution family: facts of a node, the algorithms that compute it, and which of them does."""

from __future__ import annotations

from .box_cost import Costing, MemberCost
from .facts import ConvFacts
from .family import (
    CONVOLUTIONS,
    TRANSPOSED_CONVOLUTIONS,
    InputNeeds,
    builds_conv,
    chosen,
    conv_cost,
    input_needs,
    overwritten_in_boxes,
    supports_conv,
    times_loaded,
)
from .scratch import Beside, besides, held_in_box

__all__ = [
    "CONVOLUTIONS",
    "TRANSPOSED_CONVOLUTIONS",
    "Beside",
    "ConvFacts",
    "Costing",
    "InputNeeds",
    "MemberCost",
    "besides",
    "builds_conv",
    "chosen",
    "conv_cost",
    "held_in_box",
    "input_needs",
    "overwritten_in_boxes",
    "supports_conv",
    "times_loaded",
]
