"""Explicit padding moves into the operator that pads anyway."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tvm import relax

from ...schedules.words.tvm_types import Expr
from .facts import nonnegative
from .graph import Graph, GraphNode
from .patterns import scalar
from .rule import EXACT, STRICT, Declined, Rewrite, Rule

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

_CONVOLUTIONS = {f"relax.nn.conv{d}d": getattr(relax.op.nn, f"conv{d}d") for d in (1, 2, 3)}
_MAX_POOLS = {f"relax.nn.max_pool{d}d": getattr(relax.op.nn, f"max_pool{d}d") for d in (1, 2, 3)}
_AVERAGE_POOLS = {f"relax.nn.avg_pool{d}d": getattr(relax.op.nn, f"avg_pool{d}d") for d in (1, 2, 3)}


def constant_padding(node: GraphNode) -> tuple[list[int], list[int], float] | None:
    """(begin, end, fill) of a node that pads with one known value, in either of the forms the importer makes."""
    if node.op == "relax.nn.pad" and node.attr("pad_mode") == "constant":
        width = [int(w) for w in node.attr("pad_width")]
        return width[0::2], width[1::2], float(node.attr("pad_value"))
    if node.op == "halotile.pad":
        fill = scalar(node.inputs[1])
        if fill is None:
            return None
        return [int(b) for b in node.attr("begin")], [int(e) for e in node.attr("end")], float(fill)
    return None


class _PadInto(Rule):
    """A window operator whose operand is padded along rows, columns and depth by one known value."""

    family = "folds"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        found = constant_padding(node.inputs[0])
        if found is None:
            return None
        begin, end, fill = found
        if any(begin[:2]) or any(end[:2]):
            return Declined("it pads the batch or the channels")
        if min(begin + end) < 0:
            return Declined("it cuts instead of padding")
        x = node.inputs[0].inputs[0]
        padding = [int(p) + q for p, q in zip(node.attr("padding"), begin[2:] + end[2:])]
        reason = self.objection(node, x, padding, fill)
        return Declined(reason) if reason else Rewrite(lambda b: b.call(*self.written(node, x, padding)))

    @abstractmethod
    def objection(self, node: GraphNode, x: GraphNode, padding: list[int], fill: float) -> str:
        """Why ``node`` with ``padding`` in all is not the same; empty when it is."""

    @abstractmethod
    def written(self, node: GraphNode, x: GraphNode, padding: list[int]) -> tuple[SizeLike, ...]:
        """The call: a constructor and its operands."""


class PadIntoConvolution(_PadInto):
    """conv(pad(x, 0), W, pads)    ->    conv(x, W, pads + pad)

    The fill must be 0.0 and the batch and channels unpadded. Exact: the same products are added.
    """

    name = "pad-into-convolution"
    modes = EXACT
    roots = frozenset(_CONVOLUTIONS)

    def objection(self, node: GraphNode, x: GraphNode, padding: list[int], fill: float) -> str:
        negative = fill != 0 or math.copysign(1, fill) < 0
        return f"it pads with {fill}, a convolution with zero" if negative else ""

    def written(self, node: GraphNode, x: GraphNode, padding: list[int]) -> tuple[SizeLike, ...]:
        names = ("strides", "dilation", "groups", "data_layout", "kernel_layout", "out_layout")
        attributes = {k: node.attr(k) for k in names}
        return partial(_CONVOLUTIONS[node.op], padding=padding, **attributes), x, node.inputs[1]


def _pool(function: Callable[..., Expr], node: GraphNode, padding: list[int], count_include_pad: bool) -> Expr:
    attributes = {k: node.attr(k) for k in ("pool_size", "strides", "dilation", "layout")}
    ceil = bool(node.attr("ceil_mode"))
    return partial(function, padding=padding, ceil_mode=ceil, count_include_pad=count_include_pad, **attributes)


class PadIntoMaxPool(_PadInto):
    """max_pool(pad(x, -inf))    ->    max_pool(x, pads)

    Zero padding is the same only where ``x`` can't be negative; it is declined otherwise. Every window must hold at
    least one real element.
    """

    name = "pad-into-max-pool"
    modes = EXACT
    roots = frozenset(_MAX_POOLS)

    def objection(self, node: GraphNode, x: GraphNode, padding: list[int], fill: float) -> str:
        if fill != -math.inf and not (fill == 0 and nonnegative(x)):
            return f"it pads with {fill}, which can exceed the elements"
        if any(d != 1 for d in node.attr("dilation")):
            return "a dilated window may lie in the padding with all its elements"
        if node.attr("ceil_mode"):
            return "a window that ceil_mode adds may lie in the padding entirely"
        reach = [k - 1 for k in node.attr("pool_size")]
        outside = any(p > r for p, r in zip(padding, reach + reach))
        return "a window would lie in the padding entirely" if outside else ""

    def written(self, node: GraphNode, x: GraphNode, padding: list[int]) -> tuple[SizeLike, ...]:
        return _pool(_MAX_POOLS[node.op], node, padding, False), x


class PadIntoAveragePool(_PadInto):
    """avg_pool(pad(x, 0))    ->    avg_pool(x, pads, count_include_pad)

    The pool itself must not pad yet, or count its own padding too. The divisor then stays the window's size.
    """

    name = "pad-into-average-pool"
    modes = STRICT
    roots = frozenset(_AVERAGE_POOLS)

    def objection(self, node: GraphNode, x: GraphNode, padding: list[int], fill: float) -> str:
        if fill != 0:
            return f"it pads with {fill}, a pool with zero"
        if any(node.attr("padding")) and not node.attr("count_include_pad"):
            return "the pool's own padding is not counted"
        return "windows that ceil_mode adds count differently" if node.attr("ceil_mode") else ""

    def written(self, node: GraphNode, x: GraphNode, padding: list[int]) -> tuple[SizeLike, ...]:
        return _pool(_AVERAGE_POOLS[node.op], node, padding, True), x


class PadOfPad(Rule):
    """pad(pad(x, a), b)    ->    pad(x, a + b), for one and the same constant fill"""

    name = "pad-of-pad"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.nn.pad",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op != "relax.nn.pad":
            return None
        outer, first = constant_padding(node), constant_padding(inner)
        if outer is None or first is None:
            return Declined("a border is reflected or repeated")
        if min(*first[0], *first[1], *outer[0], *outer[1]) < 0:
            return Declined("one of them cuts")
        if outer[2] != first[2] or math.copysign(1, outer[2]) != math.copysign(1, first[2]):
            return Declined(f"one pads with {first[2]}, the other with {outer[2]}")
        width = [int(a) + int(b) for a, b in zip(node.attr("pad_width"), inner.attr("pad_width"))]
        return Rewrite(lambda b: b.call(relax.op.nn.pad, inner.inputs[0], width, "constant", outer[2]))
