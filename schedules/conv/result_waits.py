"""Where a tile of a convolution waits for the lines of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kernel.unrolled_steps import UNROLLED
from .facts import ConvFacts

if TYPE_CHECKING:
    from ...targets.target import Target
    from ..words.size_like import SizeLike

SHORT = 256  # steps of a reduction after which waiting for the lines of its result counts for nothing
SHORT_OF_FEW = 64  # the same of so few channels that LLVM writes all of them out, on x86-64


def waits_for_results(target: Target, facts: ConvFacts, channels: SizeLike) -> bool:
    """True if a tile of a convolution waits for the lines of its results, unless its reduction, of so many ``channels``
    at each tap, asks for them.

    Asking takes addresses, about 25 instructions a tap beside the 84 multiply-adds of 3 channels on 14 positions, and
    LLVM moves no load past it, but the multiply-adds of the channels before: in a stream of 880 columns all 42 numbers
    to repeat came first, and each multiply-add of a layer of 5x5 taps had a move to or from the stack (282 ns a pixel
    with them, 79 without). Without asking, 7x7 taps of stride 4 take 0.93 of the time, 8x8 of stride 8 0.91; 3x3 of
    stride 1 take 1.07 to 1.13 without, and go on asking (Cascade Lake)."""
    few = target.triple.startswith("x86_64") and isinstance(channels, int) and channels < UNROLLED
    return facts.group_in * facts.taps <= (SHORT_OF_FEW if few else SHORT)
