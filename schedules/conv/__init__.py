"""The convolution family: facts of a node, the algorithms that compute it, and which of them does."""

from __future__ import annotations

from .box_cost import Costing, MemberCost
from .facts import ConvFacts
from .family import (
    InputNeeds,
    build_conv,
    builds_conv,
    chosen,
    considered_convs,
    conv_cost,
    conv_expected,
    conv_pays,
    conv_peers,
    conv_transforms,
    input_needs,
    larger_conv,
    overwritten_in_boxes,
    select_conv,
    supports_conv,
    times_loaded,
)
from .scratch import Beside, besides, held_in_box
from .select import smaller as smaller_conv

__all__ = [
    "Beside",
    "ConvFacts",
    "Costing",
    "InputNeeds",
    "MemberCost",
    "besides",
    "build_conv",
    "builds_conv",
    "chosen",
    "considered_convs",
    "conv_cost",
    "conv_expected",
    "conv_pays",
    "conv_peers",
    "conv_transforms",
    "held_in_box",
    "input_needs",
    "larger_conv",
    "overwritten_in_boxes",
    "select_conv",
    "smaller_conv",
    "supports_conv",
    "times_loaded",
]
