"""Exact regions: for a box of an output, the box of each input that is needed, and what fills the places outside."""

from __future__ import annotations

from .box import Box, BoxRefusal, Fill, Need, Needs, Span
from .group import Demand, demand, group_needs, read_boxes
from .node import node_needs

__all__ = [
    "Box",
    "Demand",
    "Fill",
    "Need",
    "Needs",
    "BoxRefusal",
    "Span",
    "demand",
    "group_needs",
    "node_needs",
    "read_boxes",
]
