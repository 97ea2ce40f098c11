"""A part of a kernel's channels, which its caller says at run time.

    part 1 of 3 of 8 groups:  from 8 * 1 // 3 = 2 up to 8 * 2 // 3 = 5
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..words.group import Box
from ..words.tvm_types import Expr


@dataclass
class ChannelParts:
    """The part that a kernel of a ``box`` computes, and of how many, which ``scalar`` declares; ``groups``: the fewest
    groups of channels that a loop of it goes through."""

    k: KernelBuilder
    box: Box | None
    scalar: Callable[[str, int], Expr]
    share: tuple[Expr, Expr] | None = None
    groups: int = 1

    def own(self, groups: int) -> tuple[Expr, Expr] | None:
        """The first of so many ``groups`` of channels that the kernel computes, and how many; None for all of them.
        Every loop over groups has the same part of its own."""
        if self.box is None or not self.box.by_channels or groups == 1:
            return None
        if self.share is None:
            self.share = self.scalar("part", groups), self.scalar("parts", groups + 1)
            self.groups = groups
        self.groups = min(self.groups, groups)
        part, parts = self.share
        first, end = (self.k.hold(tirx.floordiv(at * groups, parts), "g") for at in (part, part + 1))
        return first, end - first
