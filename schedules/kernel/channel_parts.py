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
    """The part that a kernel of a ``box`` computes, and of how many, which ``scalar`` declares; ``fewest``: groups of
    channels that a loop of it goes through."""

    k: KernelBuilder
    box: Box | None
    scalar: Callable[[str], Expr]
    share: tuple[Expr, Expr] | None = None
    fewest: int | None = None

    @property
    def groups(self) -> int:
        """Of channels, that callers may share: one where a loop of the kernel goes through all channels at once."""
        return self.fewest or 1

    def own(self, groups: int) -> tuple[Expr, Expr] | None:
        """The first of so many ``groups`` of channels that the kernel computes, and how many; None for all of them.
        Every loop over groups has the same part of its own."""
        if self.box is None or not self.box.by_channels:
            return None
        self.fewest = min(self.fewest or groups, groups)
        if groups == 1:
            return None
        if self.share is None:
            self.share = self.scalar("part"), self.scalar("parts")
        part, parts = self.share
        first, end = (self.k.hold(tirx.floordiv(at * groups, parts), "g") for at in (part, part + 1))
        return first, end - first
