"""The numbers of a matrix multiplication, read once off its node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..instructions.int8_dot import per_word
from ..words.group import Node, Value, dtype_bytes

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


@dataclass(frozen=True)
class MatmulFacts:
    """(..., M, K) x (..., K, N) -> (..., M, N), operands at least 2-D; batch axes broadcast."""

    a: Value
    b: Value
    output: Value

    @staticmethod
    def of(node: Node) -> MatmulFacts:
        return MatmulFacts(node.operands[0], node.operands[1], node.results[0])

    @property
    def m(self) -> SizeLike:
        return self.a.shape[-2]

    @property
    def k(self) -> int:
        return self.a.shape[-1]

    @property
    def n(self) -> int:
        return self.b.shape[-1]

    @property
    def batch(self) -> tuple[SizeLike, ...]:
        return self.output.shape[:-2]

    @property
    def of_bytes(self) -> bool:
        """True for sums of products of bytes (:mod:`.int8_dot`)."""
        return self.output.dtype == "int32"

    @property
    def steps(self) -> int:
        """Multiply-adds that an element takes: one for each of K, or for each word of bytes."""
        return -(-self.k // per_word(self.a.dtype)) if self.of_bytes else self.k

    @property
    def row_bytes(self) -> int:
        """Bytes from one row of A to the next."""
        return self.k * dtype_bytes(self.a.dtype)

    @property
    def flops(self) -> SizeLike:
        return 2 * self.output.elements * self.k

    @property
    def work(self) -> SizeLike:
        """Operations as :attr:`flops` counts them, where a step of the target's instruction counts for one term."""
        return 2 * self.output.elements * self.steps

    @property
    def packs(self) -> bool:
        """True if B is one constant matrix, to be laid out in panels at compile time."""
        return self.b.constant is not None and all(s == 1 for s in self.b.shape[:-2])

    @property
    def rows(self) -> SizeLike:
        """Rows of A that meet the same B: with one B for all, batch and M are one axis."""
        total = self.m
        if self.flat:
            for s in self.batch:
                total *= s
        return total

    @property
    def flat(self) -> bool:
        """True if all batches of A lie behind one another and share B."""
        return all(s == 1 for s in self.b.shape[:-2]) and self.a.shape[:-2] == self.batch
