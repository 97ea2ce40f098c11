"""Images that are read between their elements (GridSample): at places known at run time, in no order."""

from __future__ import annotations

import math

from ...schedules.operators.registry import attributes
from ...schedules.words.group import Group, Value

OPERATOR = "halotile.grid_sample"
SAVED = 4  # elements that are laid out anew in the time that one read of an element takes longer than that of a vector
TAPS = {"nearest": 1, "linear": 2, "cubic": 4}  # along an axis


def sampled_image(group: Group) -> Value | None:
    """The input image that GridSample of ``group`` reads, or that it is made of, if enough places are read for the
    image to be laid out in channel blocks first; else None."""
    nodes = [n for n in group.nodes if n.operator == OPERATOR]
    if len(nodes) != 1:
        return None
    image, grid = nodes[0].operands
    rank = len(image.shape) - 2
    places = math.prod(grid.shape[1:-1]) * TAPS[attributes(nodes[0].call)["mode"]] ** rank
    found = [v for v in group.inputs if v is image] or [v for v in group.inputs if v.shape == image.shape]
    return found[0] if len(found) == 1 and SAVED * places >= math.prod(image.shape[2:]) else None
