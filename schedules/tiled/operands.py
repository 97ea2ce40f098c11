"""What the parts of a kernel point to, and where their scratch lies in a worker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..words.alignment import aligned
from ..words.dims import maximum
from ..words.group import Kernel, Packed, Scratch, Value
from ..words.tile_plan import Window

Operand = Value | Packed | Scratch
NO_WINDOWS: Mapping[Value, Window] = MappingProxyType({})


def part_operands(
    parts: Sequence[Kernel], start: Any = 0, windows: Mapping[Value, Window] = NO_WINDOWS
) -> tuple[list[Operand], dict[Operand, Any], Any]:
    """The operands that ``parts`` share, ``windows`` and scratch aside; the byte offsets of these in a worker's memory;
    and where scratch ends. It begins at ``start`` (bytes may be open) for every part, since one runs at a time."""
    operands: list[Operand] = []
    offsets: dict[Operand, Any] = {v: w.offset for v, w in windows.items()}
    end = start
    for part in parts:
        at = start
        for operand in part.operands:
            if isinstance(operand, Scratch):
                offsets[operand] = at
                at = aligned(at + operand.bytes)
            elif operand not in windows and operand not in operands:
                operands.append(operand)
        end = maximum(end, at)
    return operands, offsets, end
