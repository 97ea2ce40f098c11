"""Zero mean and unit variance over some axes: what layer, group and instance norms share.

A plain sum loses what its terms have beyond its own last bit, so a first element is taken away before it:

    d = mean(x - first)            m = first + d, rounded          r = d - (m - first), what that rounding lost
    v = mean((x - m)^2) - r^2      y = (x - m - r) / sqrt(v + epsilon)

Where x lies far from zero, x - first and x - m are exact, and equal elements give zero. The difference in v does not
cancel: numbers near m are whole steps of m's last bit, r is half a step at most, and no such numbers whose mean lies r
beside a step have a variance below r^2. For that a pass over x costs no more than one around the mean as it is rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tvm import te, tirx

from ..words.dims import maximum, to_index
from ..words.sizes import dim_of, product, surely
from ..words.tvm_types import Expr
from .common import share_of
from .te_stages import STORED

if TYPE_CHECKING:
    from ..words.size_like import SizeLike


class Moments:
    """Sums over ``axes`` of ``x``, each a tensor of one element there; float32 at least."""

    def __init__(self, x: te.Tensor, axes: Sequence[int]) -> None:
        self.x, self.axes = x, axes
        self.dtype = "float64" if str(x.dtype) == "float64" else "float32"
        self.shape = [1 if a in axes else d for a, d in enumerate(x.shape)]
        count = product(dim_of(x.shape[a]) for a in axes)
        share = share_of(maximum(count, 1), self.dtype)  # without elements there is nothing to share, nothing to read
        first = self.stored("first", lambda i: self._first_of(i, count))
        total = self._sum("total", lambda i: self.wide(i) - first(*self.at(i)))
        self.mean = self.stored("mean", lambda i: first(*i) + total(*i) * share)
        square = self._sum("square", lambda i: self.near(i) * self.near(i))
        self._share, self._first, self._total, self._square = share, first, total, square

    def number(self, value: float) -> Expr:
        return tirx.const(value, self.dtype)

    def wide(self, i: Sequence[Expr]) -> Expr:
        return self.x(*i).astype(self.dtype)

    def _first_of(self, i: Sequence[Expr], count: SizeLike) -> Expr:
        if surely(lambda: count > 0):
            return self.wide(i)
        zero = self.number(0.0)
        return zero if count == 0 else tirx.if_then_else(to_index(count) > 0, self.wide(i), zero)

    def at(self, i: Sequence[Expr]) -> list[Expr]:
        """The place of the sums that the element at ``i`` is part of."""
        return [0 if a in self.axes else p for a, p in enumerate(i)]

    def near(self, i: Sequence[Expr]) -> Expr:
        """x less its mean as it is rounded."""
        return self.wide(i) - self.mean(*self.at(i))

    def rest(self, i: Sequence[Expr]) -> Expr:
        """What the mean has beyond that."""
        at = self.at(i)
        return self._total(*at) * self._share - (self.mean(*at) - self._first(*at))

    def variance(self, i: Sequence[Expr]) -> Expr:
        rest = self.rest(i)
        return tirx.max(self.number(0.0), self._square(*self.at(i)) * self._share - rest * rest)  # a NaN stays one

    def stored(self, name: str, value: Callable[[tuple[Expr, ...]], Expr]) -> te.Tensor:
        return te.compute(self.shape, lambda *i: value(i), name=name, attrs={STORED: True})

    def _sum(self, name: str, value: Callable[[list[Expr]], Expr]) -> te.Tensor:
        along = {a: te.reduce_axis((0, self.x.shape[a]), name=f"{name}{a}") for a in self.axes}

        def total(*i: Expr) -> Expr:
            return te.sum(value([along.get(a, p) for a, p in enumerate(i)]), axis=list(along.values()))

        return te.compute(self.shape, total, name=name)


def standardised(
    x: te.Tensor,
    axes: Sequence[int],
    epsilon: float,
    name: str,
    after: Callable[[Expr, tuple[Expr, ...]], Expr] = lambda value, _: value,
) -> te.Tensor:
    """``after((x - mean) / sqrt(variance + epsilon), indices)``, both over ``axes``, in the dtype of ``x``."""
    m = Moments(x, axes)
    inverse = m.stored("inverse", lambda i: m.number(1.0) / tirx.sqrt(m.variance(i) + m.number(epsilon)))
    shift = m.stored("shift", lambda i: m.rest(i) * inverse(*i))

    def normalised(*i: Expr) -> Expr:
        at = m.at(i)
        return after(m.near(i) * inverse(*at) - shift(*at), i).astype(str(x.dtype))

    return te.compute(x.shape, normalised, name=name)


def centred(x: te.Tensor, axes: Sequence[int], name: str) -> te.Tensor:
    """``x`` less its mean over ``axes``."""
    m = Moments(x, axes)
    return te.compute(x.shape, lambda *i: (m.near(i) - m.rest(i)).astype(str(x.dtype)), name=name)
