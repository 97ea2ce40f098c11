"""What a Winograd kernel of whole numbers does between its transforms: V[xi] * U[xi] by products of pairs of int16
(schedules/instructions/int8_dot.py), in register tiles as for float32 (products.py).

V lies as there, in int16; a pair of neighbouring channels is a word of it. U, of int32, lies as [chunk][matrix][word]
[vector][lane]: the weights of the same two channels. What lies behind the last channel meets zero weights. Sums are
right modulo 2**32, whatever they are on the way.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ...instructions.int8_dot import PAIRS, dot, per_word
from ...kernel.unrolled_steps import unrolled
from ...words.group import Packed
from ...words.tvm_types import Buffer, Expr
from ..kernel import ConvKernel
from .plan import WinogradPlan, terms
from .prefetch import Ahead
from .products import RegisterTiles, ScratchPart
from .transform import Transform
from .weights import Weights, transformed

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

PAIR = per_word(PAIRS)


class PairWeights(Weights):
    """In pairs of channels of a plane."""

    @property
    def dtype(self) -> str:
        return "int32"

    @property
    def words(self) -> int:
        """Of a plane."""
        return terms(self.conv.facts.channels, self.plan)

    @property
    def depth(self) -> int:
        return self.plan.planes * self.words

    def packed(self) -> Packed:
        plan, weight = self.plan, self.conv.facts.weight
        chunks, width = plan.chunks_per_group * plan.groups, plan.vectors * self.conv.lanes
        make = partial(pack_pairs, np.asarray(weight.constant), plan.transform, chunks, width)
        return Packed(f"w_{weight.name}", make, chunks * plan.transform.matrices * self.depth * width, self.dtype)


def pack_pairs(weight: np.ndarray, transform: Transform, chunks: int, width: int) -> np.ndarray:
    """[O, I, planes..., rows, columns] -> [chunk][matrix][plane and word][width] of int32; zero for outputs past the
    last, and for the partner of a last channel that has none."""
    channels = weight.shape[1]
    words = -(-channels // PAIR)
    planes = weight[0, 0].size // int(np.prod(transform.kernel)) * transform.planes
    packed = np.zeros((chunks, transform.matrices, planes, words * PAIR, width), np.int16)
    for chunk, made in transformed(weight, transform, chunks, width):
        packed[chunk, :, :, :channels, : made.shape[-1]] = made.reshape(len(made), planes, channels, -1)
    apart = packed.reshape(chunks, transform.matrices, planes * words, PAIR, width)
    return np.ascontiguousarray(apart.swapaxes(-1, -2)).view("<i4")[..., 0]


class PairTiles(RegisterTiles):
    """Register tiles of int32."""

    weights: PairWeights

    def __init__(self, conv: ConvKernel, plan: WinogradPlan) -> None:
        super().__init__(conv, plan)
        self.dtype = PAIRS
        self.weights = PairWeights(conv, plan)

    def fill(self, data: ScratchPart, count: Expr) -> None:
        """Nothing: whatever lies in slots without a tile does no harm."""

    def multiply(
        self, data: ScratchPart, products: ScratchPart, chunk: Expr, count: Expr, hints: tuple[Ahead, Expr]
    ) -> None:
        k, plan, lanes = self.k, self.plan, self.lanes
        rows, vectors = plan.rows, plan.vectors
        tiles: SizeLike = plan.row_tiles
        if not isinstance(count, int):
            tiles = tirx.floordiv(count + (rows - 1), rows)
        with k.loop(self.t.products, name="xi") as xi:
            self.ctx.ranged(xi, self.t.products)
            with k.loop(tiles, name="r") as panel:
                self.ctx.ranged(panel, plan.row_tiles)
                matrix = self.weights.matrix(chunk, self._matrix(xi))
                ask = self.weights.hints(panel, matrix)
                acc = k.local("acc", "int32", rows * vectors * lanes)
                with k.loop(rows * vectors, "unroll", "z") as z:
                    k.store(acc, _run(z * lanes, lanes), tirx.Broadcast(tirx.IntImm("int32", 0), lanes))
                for first, step, blocks, depth in self._runs():
                    words = -(-depth // PAIR)
                    with k.loop(blocks, name="cb") as cb:
                        with unrolled(self.ctx, self.conv.request.target, words, "c") as word:
                            block = first + cb * step
                            right = self.weights.at(matrix, self._word(block, word))
                            ask(right, self._word(block, word))
                            self._multiply(acc, data, self._left(xi, panel, block, word * PAIR), right)
                with k.loop(rows * vectors, "unroll", "e") as e:
                    at = products.base + xi * self.product_plane + (panel * (rows * vectors) + e) * lanes
                    k.store(products.buffer, _run(at, lanes), acc[_run(e * lanes, lanes)])

    def _multiply(self, acc: Buffer, data: ScratchPart, left: Expr, right: Expr) -> None:
        """One word of every row by the vectors of weights from ``right`` on."""
        k, plan, lanes = self.k, self.plan, self.lanes
        with k.loop(plan.rows, "unroll", "y") as y:
            word = tirx.reinterpret("int32", data.buffer[_run(data.base + left + y * self.apart, PAIR)])
            broadcast = tirx.Broadcast(word, lanes)
            with k.loop(plan.vectors, "unroll", "b") as b:
                slot = _run((y * plan.vectors + b) * lanes, lanes)
                factors = self.weights.given[_run(right + b * lanes, lanes)]
                k.store(acc, slot, dot(self.conv.request.target, acc[slot], broadcast, factors, wraps=True))

    def _word(self, block: Expr, word: Expr) -> Expr:
        """Which term of a sum a word of a block is: planes follow each other without what fills up blocks."""
        each = self.lanes // PAIR
        missing = self.blocks * each - self.weights.words
        if self.plan.planes == 1 or not missing:
            return block * each + word
        return block * each + word - tirx.floordiv(block, self.blocks) * missing


def _run(first: Expr, count: int) -> Expr:
    return tirx.Ramp(first, tirx.IntImm("int32", 1), count)
