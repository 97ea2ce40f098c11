"""Which algorithm computes a matrix product: the first of the list that offers to."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..instructions.amx import may_split
from ..instructions.bf16_pairs import may_pair
from ..instructions.int8_dot import row_multiplier
from ..words.choice import AlgorithmRefusal, Choice, OwnPlan
from ..words.dims import is_open
from ..words.group import Kernel, Request
from .amx_int8 import build_matrix_bytes, bytes_pay
from .amx_int8_open import build_open_bytes
from .amx_kernel import build_matrix
from .estimate import matrix_pays, pairs_expected
from .facts import MatmulFacts
from .int8_dot import build_bytes
from .open_columns import build_open_columns, columns_tile, columns_tiles
from .packed import build_packed
from .pairs import build_pairs
from .register_tile import best_tiles, tile_space
from .scaled_integers import build_numbers, weights_in_numbers
from .shared_weights import shared_tile
from .strassen import build_strassen, strassen_pays

Tile = tuple[int, int]  # rows by vectors in registers


class MatmulAlgorithm(ABC):
    """One way to compute products. Plans are register tiles, or None where there is one alone."""

    name: str

    @abstractmethod
    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        """The best plan for the request."""

    @abstractmethod
    def build(self, request: Request, facts: MatmulFacts, plan: OwnPlan) -> Kernel:
        """The kernel of a plan that was offered for the same request."""

    def tiles(self, request: Request, facts: MatmulFacts) -> list[Choice]:
        """Register tiles that are worth a measurement, the best first."""
        return []

    def refuses(self, reason: str) -> AlgorithmRefusal:
        return AlgorithmRefusal(self.name, reason)


class _InTiles(MatmulAlgorithm):
    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        return self._in(shared_tile(request, facts))

    def tiles(self, request: Request, facts: MatmulFacts) -> list[Choice]:
        found = best_tiles(row_multiplier(request.target, facts.a.dtype), *tile_space(request, facts))
        return [self._in(tile) for tile in found]

    def _in(self, tile: Tile) -> Choice:
        return Choice(self.name, tile, f"matmul {tile[0]}x{tile[1]}")


class Amx(MatmulAlgorithm):
    name = "the matrix unit"

    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        if not may_split(request):
            return self.refuses("the target has no such unit, or float32 must not be split into parts for it")
        if not matrix_pays(request, facts):
            return self.refuses("not applicable, or expected to be no faster than multiply-adds of vectors")
        return Choice(self.name, None, self.name)

    def build(self, request: Request, facts: MatmulFacts, plan: None) -> Kernel:
        return build_matrix(request, facts)


class Pairs(MatmulAlgorithm):
    name = "pairs of bfloat16"

    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        if not may_pair(request.target, request.policy):
            return self.refuses("precision bfloat16 was not asked for, or the target has no instruction for it")
        if not pairs_expected(request, facts):
            return self.refuses("not applicable, or expected to be no faster than float32")
        return Choice(self.name, None, self.name)

    def build(self, request: Request, facts: MatmulFacts, plan: None) -> Kernel:
        return build_pairs(request, facts)


class StrassenMatmul(MatmulAlgorithm):
    name = "seven products"

    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        if is_open(facts.output.shape):
            return self.refuses("halves need a fixed number of rows")
        if not request.policy.strassen:
            return self.refuses("sums keep their order, or memory goes before speed")
        if not strassen_pays(request, facts):
            return self.refuses("not applicable, or expected to be no faster than eight")
        return Choice(self.name, None, self.name)

    def build(self, request: Request, facts: MatmulFacts, plan: None) -> Kernel:
        return build_strassen(request, facts)


class ScaledIntegers(_InTiles):
    name = "weights in bytes with scales"

    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        if not is_open(facts.output.shape) and strassen_pays(request, facts):
            return self.refuses("seven products are ahead")
        if weights_in_numbers(request, facts) is None:
            return self.refuses("the weights are no integers with scales, or reading them as such is slower")
        return super().offers(request, facts)

    def build(self, request: Request, facts: MatmulFacts, plan: Tile) -> Kernel:
        return build_numbers(request, facts, plan, weights_in_numbers(request, facts))


class PackedMatmul(_InTiles):
    name = "register tiles"

    def build(self, request: Request, facts: MatmulFacts, plan: Tile) -> Kernel:
        return build_packed(request, facts, plan)


class AmxBytesMatmul(MatmulAlgorithm):
    name = "the matrix unit"

    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        if not bytes_pay(request, facts):
            return self.refuses("the target has no such unit, or vectors are expected to be as fast")
        return Choice(self.name, None, self.name)

    def build(self, request: Request, facts: MatmulFacts, plan: None) -> Kernel:
        return (build_open_bytes if is_open(facts.output.shape) else build_matrix_bytes)(request, facts)


class Int8DotMatmul(_InTiles):
    name = "register tiles"

    def build(self, request: Request, facts: MatmulFacts, plan: Tile) -> Kernel:
        return build_bytes(request, facts, plan)


class OpenColumns(MatmulAlgorithm):
    name = "register tiles of open columns"

    def offers(self, request: Request, facts: MatmulFacts) -> Choice | AlgorithmRefusal:
        return self._in(columns_tile(request, facts))

    def tiles(self, request: Request, facts: MatmulFacts) -> list[Choice]:
        return [self._in(tile) for tile in columns_tiles(request, facts)]

    def build(self, request: Request, facts: MatmulFacts, plan: Tile) -> Kernel:
        return build_open_columns(request, facts, plan)

    def _in(self, tile: Tile) -> Choice:
        return Choice(self.name, tile, f"matmul {tile[0]}x{tile[1]}, open columns")


#: Each is faster than those behind it wherever it offers; the last computes whatever the others refuse.
FLOATS: tuple[MatmulAlgorithm, ...] = (Amx(), Pairs(), StrassenMatmul(), ScaledIntegers(), PackedMatmul())
BYTES: tuple[MatmulAlgorithm, ...] = (AmxBytesMatmul(), Int8DotMatmul())
OPEN: tuple[MatmulAlgorithm, ...] = (OpenColumns(),)


def algorithms_for(facts: MatmulFacts) -> tuple[MatmulAlgorithm, ...]:
    if is_open((facts.k, facts.n)):
        return OPEN
    return BYTES if facts.of_bytes else FLOATS


def algorithm_of(choice: Choice, facts: MatmulFacts) -> MatmulAlgorithm:
    return next(a for a in algorithms_for(facts) if a.name == choice.algorithm)


def select(request: Request, facts: MatmulFacts) -> Choice:
    """What is taken for the request."""
    return next(o for o in (a.offers(request, facts) for a in algorithms_for(facts)) if isinstance(o, Choice))


def considered(request: Request, facts: MatmulFacts) -> list[Choice | AlgorithmRefusal]:
    """What every algorithm says of the request, in order."""
    return [a.offers(request, facts) for a in algorithms_for(facts)]


def candidates(request: Request, facts: MatmulFacts) -> list[Choice]:
    """What is worth a measurement: what is ahead of register tiles, then those."""
    offers = [o for o in considered(request, facts) if isinstance(o, Choice)]
    tiled = next(o for o in offers if o.plan is not None)
    return [*(o for o in offers if o.plan is None), *algorithm_of(tiled, facts).tiles(request, facts)]
