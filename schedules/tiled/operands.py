"""What the parts of a kernel point to, and where their scratch lies in a worker's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..words.alignment import aligned
from ..words.dims import maximum, minimum
from ..words.group import Kernel, Packed, Scratch, Value
from ..words.tile_plan import Window

if TYPE_CHECKING:
    from ..words.size_like import SizeLike
    from ..words.tvm_types import Expr

Operand = Value | Packed | Scratch
NO_WINDOWS: Mapping[Value, Window] = MappingProxyType({})
NO_BOXES: Mapping[int, tuple[Expr, Expr]] = MappingProxyType({})


def part_operands(
    parts: Sequence[Kernel],
    start: SizeLike = 0,
    windows: Mapping[Value, Window] = NO_WINDOWS,
    most: Mapping[int, tuple[Expr, Expr]] = NO_BOXES,
) -> tuple[list[Operand], dict[Operand, int], int]:
    """The operands that ``parts`` share, ``windows`` and scratch aside; the byte offsets of these in a worker's memory;
    and where scratch ends. It begins at ``start`` (aligned bytes, which may be open) for every part, since one runs at
    a time. ``most``: number of a part -> the most rows and columns that it computes, from which its scratch may follow.
    """
    operands: list[Operand] = []
    offsets: dict[Operand, SizeLike] = {v: w.offset for v, w in windows.items()}
    largest: SizeLike = 0
    for number, part in enumerate(parts):
        at: SizeLike = 0
        sizes = iter(scratch_bytes(part, most.get(number)))
        for operand in part.operands:
            if isinstance(operand, Scratch):
                offsets[operand] = start + at
                at = aligned(at + next(sizes))
            elif operand not in windows and operand not in operands:
                operands.append(operand)
        largest = maximum(largest, at)
    return operands, offsets, start + largest


def scratch_bytes(part: Kernel, most: tuple[Expr, Expr] | None) -> list[Expr]:
    """Bytes of each Scratch of ``part``, which computes boxes of ``most`` rows and columns; None: of any."""
    own = [o.bytes for o in part.operands if isinstance(o, Scratch)]
    if part.fitted is None or most is None:
        return own
    return [minimum(a, b) for a, b in zip(part.fitted(*most), own, strict=True)]
