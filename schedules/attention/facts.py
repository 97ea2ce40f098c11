"""The numbers of an attention group, read off its structure.

    scores = matmul(Q, K)          Q (..., T, D), K (..., D, S); batch axes broadcast
    P      = any work on rows      maps and at least one reduction along the last axis: scale, mask, softmax
    out    = matmul(P, V)          V (..., S, E)

with maps of any kind before Q, K and V (transposes, slices, scales, rotations), and behind the second product maps
that move or change elements one by one. Names of operators play no part but for the products themselves.

In float16 the scores and what becomes of them are float32: a cast stands behind the first product, and one before the
second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..words.group import Node, Value
from ..words.sizes import usual

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

DTYPES = ("float32", "float64")
HALF, WIDE = "float16", "float32"


@dataclass(frozen=True)
class AttentionFacts:
    """``first`` and ``second`` are the products; ``epilogue`` the nodes behind the second one, in program order;
    ``casts`` those behind the first product and before the second, if these are of float16."""

    first: Node
    second: Node
    epilogue: tuple[Node, ...]
    casts: tuple[Node, Node] | None = None

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
        return self.casts[0].results[0] if self.casts else self.first.results[0]

    @property
    def weights(self) -> Value:
        """What the rows of scores become: the second product's left operand, before it is narrowed."""
        return self.casts[1].operands[0] if self.casts else self.second.operands[0]

    @property
    def opaque(self) -> tuple[Node, ...]:
        """The nodes whose results the kernel has by its own loops."""
        return (self.first, self.second, *(self.casts or ())[:1])

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
