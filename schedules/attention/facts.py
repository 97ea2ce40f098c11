"""The numbers of an attention group, read off its structure.

    scores = matmul(Q, K)          Q (..., T, D), K (..., D, S); batch axes broadcast
    P      = any work on rows      maps and at least one reduction along the last axis: scale, mask, softmax
    out    = matmul(P, V)          V (..., S, E)

with maps of any kind before Q, K and V (transposes, slices, scales, rotations), and behind the second product maps
that move or change elements one by one. Names of operators play no part but for the products themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..words.group import Node, Value
from ..words.sizes import usual

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class AttentionFacts:
    """``first`` and ``second`` are the products; ``epilogue`` the nodes behind the second one, in program order."""

    first: Node
    second: Node
    epilogue: tuple[Node, ...]

    @property
    def q(self) -> Value:
        return self.first.operands[0]

    @property
    def k(self) -> Value:
        """(..., D, S): the first product's right operand."""
        return self.first.operands[1]

    @property
    def v(self) -> Value:
        return self.second.operands[1]

    @property
    def scores(self) -> Value:
        return self.first.results[0]

    @property
    def weights(self) -> Value:
        """What the rows of scores become: the second product's left operand."""
        return self.second.operands[0]

    @property
    def output(self) -> Value:
        return self.second.results[0]

    @property
    def batch(self) -> tuple[SizeLike, ...]:
        return self.output.shape[:-2]

    @property
    def rows(self) -> SizeLike:
        return self.scores.shape[-2]

    @property
    def keys(self) -> SizeLike:
        return self.scores.shape[-1]

    @property
    def depth(self) -> int:
        return self.q.shape[-1]

    @property
    def width(self) -> int:
        return self.v.shape[-1]

    @property
    def flops(self) -> int:
        return usual(2 * (self.scores.elements * self.depth + self.output.elements * self.keys))
