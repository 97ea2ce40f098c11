"""What a member's kernel needs of a value, from the exact regions of its nodes.

Kernels of the convolution family read past the edges of what they read, and must find zeros there; all other kernels
decide about edges themselves and never read outside of the tensor.
"""

from __future__ import annotations

from ....schedules.conv import supports_conv
from ....schedules.operators.regions import BoxRefusal, group_needs
from ....schedules.words.group import Group, Value
from ....schedules.words.tile_plan import Span
from .form import NeededPart, Untileable, hull


def group_needs_of(group: Group, value: Value, rows: Span, columns: Span) -> NeededPart | None:
    """The part of ``value`` that ``rows x columns`` of all outputs of ``group`` need; None if that is nothing."""
    zeros = group.anchor is not None and supports_conv(group.anchor)
    spans: list[Span | None] = [None, None]
    for output in group.outputs:
        box = ((0, output.shape[0]), (0, output.shape[1]), rows, columns)
        needs = group_needs(group, output, box)
        if isinstance(needs, BoxRefusal):
            raise Untileable(f"{group.name}: {needs.reason}")
        for one in needs:
            if one.value is not value:
                continue
            wanted = one.box if zeros and one.fill == "zero" else one.inside
            if wanted is not None:
                spans = [hull(s, w) for s, w in zip(spans, wanted[2:4])]
    if spans[0] is None or spans[1] is None:
        return None
    return NeededPart(spans[0], spans[1], 0.0 if zeros else None)
