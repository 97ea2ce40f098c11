"""Images that are read between their elements (GridSample): at places known at run time, in no order."""

from __future__ import annotations

from ...schedules.operators.registry import attributes
from ...schedules.words.dims import is_dim
from ...schedules.words.group import Group, Value
from ...schedules.words.sizes import product, usual

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
    if is_dim(image.shape[1]):
        return None
    rank = len(image.shape) - 2
    places = product(grid.shape[1:-1]) * TAPS[attributes(nodes[0].call)["mode"]] ** rank
    found = [v for v in group.inputs if v is image] or [v for v in group.inputs if v.shape == image.shape]
    return found[0] if len(found) == 1 and SAVED * usual(places) >= usual(product(image.shape[2:])) else None
