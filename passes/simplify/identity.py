"""Operators that do nothing, alone or in pairs."""

from __future__ import annotations

from tvm import relax

from .graph import Graph, GraphNode
from .patterns import holds, ints, is_float, is_integer, is_value, split_constant
from .rule import EXACT, STRICT, Declined, Rewrite, Rule
from .zero_sign import zero_sign_matters

#: Operators that only give the same elements, in the same order, another shape.
RESHAPES = frozenset(
    ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten", "relax.nn.batch_flatten")
)


class NoOperation(Rule):
    """op(x)    ->    x, where the operator moves nothing

    reshape, broadcast or pad to the same shape, permutation in order, cast to the same dtype, concat or split of one
    piece, tile by one, slices of everything, dropout at inference. Exact: the elements and their places are the same.
    """

    name = "no-operation"
    family = "shape_slice"
    modes = EXACT
    roots = RESHAPES | {
        "relax.broadcast_to",
        "relax.permute_dims",
        "relax.astype",
        "relax.tile",
        "relax.concat",
        "relax.nn.pad",
        "relax.strided_slice",
        "item",
    }

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if len(node.inputs) != 1:
            return None
        x = node.inputs[0]
        if node.op == "item":
            if x.op == "relax.split" and node.attrs == 0 and len(x.ty.fields) == 1:
                return Rewrite(lambda b: x.inputs[0])
            if x.op == "relax.nn.dropout" and node.attrs == 0:
                return Rewrite(lambda b: x.inputs[0])
            return None
        if not graph.same_type(x, node):
            return None
        if node.op == "relax.permute_dims" and _moved(node, graph):
            return None
        if node.op == "relax.strided_slice" and not _whole(node):
            return None
        if node.op == "relax.nn.pad" and any(int(p) for p in node.attrs.pad_width):
            return None
        return Rewrite(lambda b: x)


def _moved(node: GraphNode, graph: Graph) -> bool:
    """Whether the permutation reorders any dims that hold more than one element."""
    shape = node.inputs[0].shape or ()
    kept = [a for a in permutation(node) if not graph.same_dim(shape[a], 1)]
    return kept != sorted(kept)


def _whole(node: GraphNode) -> bool:
    """Whether no stride is negative; with an unchanged shape the slice then takes every element in order."""
    strides = ints(node.raw(4)) if len(node.operands) > 4 else []
    return strides is not None and all(s == 1 for s in strides)


def permutation(node: GraphNode) -> list[int]:
    """The axes of a ``permute_dims``, all counted from the front."""
    rank = node.inputs[0].rank
    axes = node.attrs.axes
    return list(range(rank))[::-1] if axes is None else [int(a) % rank for a in axes]


class ReshapeChain(Rule):
    """reshape(reshape(x, s), t)    ->    reshape(x, t)

    Any two of reshape, expand_dims, squeeze and flatten. The inner one may have other readers: it stays for them.
    """

    name = "reshape-chain"
    family = "shape_slice"
    modes = EXACT
    roots = RESHAPES

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op not in RESHAPES or node.shape is None:
            return None
        shape = list(node.shape)
        return Rewrite(lambda b: b.call(relax.op.reshape, inner.inputs[0], shape))


class PermuteChain(Rule):
    """permute(permute(x, p), q)    ->    permute(x, p[q])"""

    name = "permute-chain"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.permute_dims",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op != "relax.permute_dims":
            return None
        first = permutation(inner)
        axes = [first[a] for a in permutation(node)]
        if axes == sorted(axes):
            return Rewrite(lambda b: inner.inputs[0])
        return Rewrite(lambda b: b.call(relax.op.permute_dims, inner.inputs[0], axes))


class PermuteAsReshape(Rule):
    """permute(x)    ->    reshape(x), where only dims of one change places

    Exact: the elements keep their order in memory.
    """

    name = "permute-as-reshape"
    family = "data_movement"
    modes = EXACT
    roots = frozenset(("relax.permute_dims",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if node.shape is None or node.inputs[0].shape is None or _moved(node, graph):
            return None
        shape = list(node.shape)
        return Rewrite(lambda b: b.call(relax.op.reshape, node.inputs[0], shape))


class CastChain(Rule):
    """cast(cast(x: A, B), C)    ->    cast(x, C), or x where A = C

    B must hold every value of A (f32 -> f64, i32 -> i64, bool -> anything); where A is a float and C an integer
    the same conversion rule then sees the same number. Narrowing in the middle is declined, and a float between
    integers of which C does not hold every A: floats that are too large have no low bits.
    """

    name = "cast-chain"
    family = "shape_slice"
    modes = EXACT
    roots = frozenset(("relax.astype",))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        inner = node.inputs[0]
        if inner.op != "relax.astype":
            return None
        x = inner.inputs[0]
        if not holds(inner.dtype, x.dtype):
            return Declined(f"{inner.dtype} does not hold every {x.dtype}")
        if node.dtype == x.dtype:
            return Rewrite(lambda b: x)
        if is_float(inner) and is_integer(x) and is_integer(node) and not holds(node.dtype, x.dtype):
            return Declined(f"{node.dtype} does not hold every {x.dtype}")
        return Rewrite(lambda b: b.call(relax.op.astype, x, node.dtype))


_NEUTRAL: dict[str, tuple[float, ...]] = {
    "relax.add": (-0.0,),
    "relax.subtract": (0.0,),
    "relax.multiply": (1.0,),
    "relax.divide": (1.0,),
    "relax.power": (1.0,),
}


class NeutralElement(Rule):
    """x * 1, x / 1, x - 0, x ** 1, x + (-0.0)    ->    x

    The constant must not broadcast ``x`` to a larger shape. ``x + 0.0`` is :class:`AddZero`'s.
    """

    name = "neutral-element"
    family = "algebra"
    modes = EXACT
    roots = frozenset(_NEUTRAL)

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None:
            return None
        x, c = pair
        ordered = node.op in ("relax.subtract", "relax.divide", "relax.power")
        if ordered and node.inputs[1] is not c:
            return None
        values: tuple[float, ...] = _NEUTRAL[node.op]
        if is_integer(c) and node.op == "relax.add":
            values = (0,)
        if not is_value(c, *values):
            return None
        if not graph.same_type(x, node):
            return Declined("the neutral constant broadcasts the operand")
        return Rewrite(lambda b: x)


class AddZero(Rule):
    """x + 0.0    ->    x

    Differs for x = -0.0, which becomes +0.0: declined where a reader could tell (a division, a power ...).
    """

    name = "add-zero"
    family = "algebra"
    modes = STRICT
    roots = frozenset(("relax.add", "relax.subtract"))

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        pair = split_constant(node)
        if pair is None or not is_value(pair[1], 0.0, -0.0):
            return None
        x, c = pair
        if node.op == "relax.subtract" and node.inputs[1] is not c:
            return None
        if not graph.same_type(x, node):
            return Declined("the neutral constant broadcasts the operand")
        if zero_sign_matters(node):
            return Declined("a reader tells -0.0 from 0.0")
        return Rewrite(lambda b: x, rounds=False)
