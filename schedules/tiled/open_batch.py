"""Which images of an open batch a kernel computes: those from one on, by where its pointers begin and the number that
it takes for the batch's.

    5 images, 2 cores:  core 0: images 0 and 1, the upper rows of image 4      core 1: images 2 and 3, its lower rows

Bands of rows alone leave cores waiting where images have few: of three rows, one core has two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from ..words.atoms import KNOWN
from ..words.dims import Dim, bounds, to_index
from ..words.group import Packed, Request, Scratch, Value, dtype_bytes
from ..words.sizes import NOTHING, multiple_of, symbols_of
from ..words.tvm_types import Expr

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

Share = tuple[Expr, Expr]  # the first image, and how many


@dataclass(frozen=True)
class ImagesOfBatch:
    """The images of a batch, whose number is ``symbol``: (elements from one to the next, bytes of one) of those values
    that have them."""

    symbol: str
    number: Expr
    apart: dict[Value, tuple[SizeLike, int]]

    @staticmethod
    def of(request: Request, values: Sequence[Value]) -> ImagesOfBatch | None:
        """None where the batch has one size or depends on more than one symbol, where kernels may rely on more images
        than a core is given, or where a value has the batch elsewhere than along its first axis."""
        batch = request.group.outputs[0].shape[0]
        symbol = str(batch)
        if not isinstance(batch, Dim) or symbols_of(batch) != {symbol} or not _may_be_any(batch, symbol):
            return None
        apart = {}
        for value in values:
            first, *others = value.shape or (1,)
            if any(symbol in symbols_of(d) for d in others) or symbol in symbols_of(first) and first != batch:
                return None
            if first == batch:
                layout = request.layout(value)
                apart[value] = layout.strides[0], dtype_bytes(layout.held(value.dtype))
        return ImagesOfBatch(symbol, to_index(batch), apart)

    def begin(self, operand: Value | Packed | Scratch, some: Share) -> Expr:
        """The byte at which the first of the images lies."""
        if not isinstance(operand, Value) or operand not in self.apart:
            return tirx.IntImm("int32", 0)
        elements, size = self.apart[operand]
        return tirx.Cast("int64", some[0]) * tirx.Cast("int64", to_index(elements)) * tirx.IntImm("int64", size)

    def counted(self, sizes: Sequence[Expr], some: Share) -> list[Expr]:
        """``sizes`` as a kernel is told them, of so many images."""
        return [some[1] if size.name == self.symbol else size for size in sizes]


def _may_be_any(batch: Dim, symbol: str) -> bool:
    """True if nothing that is known of the batch forbids a part of it: no least number above one, no multiple, no
    relation to other sizes."""
    related = [d for d, *_ in KNOWN.get()] + list(NOTHING.get())
    alone = not any(symbol in symbols_of(d) for d in related)
    return alone and multiple_of(symbol) == 1 and bounds(batch)[0] <= 1
