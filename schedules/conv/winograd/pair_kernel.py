"""Winograd convolution of bytes, less their zero, in int16 and int32: the bits of the direct sums.

    V[xi] = BT d B          int16, within which they stay (whole_transform.py)
    M[xi] = V[xi] * U[xi]   int32, modulo 2**32
    y = AT M A / scale      int32: the odd part by its inverse modulo 2**32, the power of two by a shift

F(4x4, 3x3) takes a quarter of the direct form's multiply-adds, F(2x2, 3x3) four ninths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir.prim import expr as prim

from ...instructions.int8_dot import PAIRS
from ...math.wrapping import combined, number, plus, times
from ...words.group import Kernel, Request
from ...words.tvm_types import Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel
from .axis_transform import Apply
from .kernel import WinogradKernel, build_winograd
from .pair_products import PairTiles
from .plan import WinogradPlan
from .products import Products
from .whole_transform import quotient_of


def build_pairs(request: Request, facts: ConvFacts, plan: WinogradPlan) -> Kernel:
    """The kernel of a convolution of bytes by ``plan``."""

    def made(conv: ConvKernel, plan: WinogradPlan) -> WinogradKernel:
        return PairWinogradKernel(conv, plan, alone=True)

    return build_winograd(request, facts, plan, made)


@dataclass(frozen=True)
class WholeElement:
    """An element that a transform computes with: sums wrap."""

    value: Expr

    @property
    def dtype(self) -> str:
        return str(self.value.ty.dtype)

    def __add__(self, other: WholeElement) -> WholeElement:
        return WholeElement(plus(self.value, other.value))

    def __sub__(self, other: WholeElement) -> WholeElement:
        return WholeElement(combined(prim.Sub, self.value, other.value))

    def __rmul__(self, factor: int) -> WholeElement:
        return WholeElement(times(self.value, number(factor, self.dtype)))


class PairWinogradKernel(WinogradKernel):
    """The emitter, whose elements are whole numbers."""

    def _products(self) -> Products:
        return PairTiles(self.conv, self.plan)

    @property
    def data_dtype(self) -> str:
        return PAIRS

    def _numbers(self, apply: Callable[..., list[Expr]], extent: int) -> Callable[[float], Expr]:
        return int

    def _applied(self, apply: Apply, values: Sequence[Expr], number: Callable[[float], Expr]) -> list[Expr]:
        def name(whole: WholeElement) -> WholeElement:
            return WholeElement(self.k.bind(whole.value))

        return [whole.value for whole in apply([WholeElement(v) for v in values], number, name)]

    def _outputs(self, values: Sequence[Expr]) -> list[Expr]:
        shift, factor = quotient_of(self.t)
        found = super()._outputs(values)
        if factor != 1:
            found = [times(v, number(factor, "int32")) for v in found]
        return [combined(prim.RShift, v, tirx.IntImm("int32", shift)) for v in found] if shift else found
