"""What a rule is: a name, the float modes it belongs to, and one function that says yes, no because, or not mine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from tvm import relax
from tvm.ir import Call

from ...schedules.words.dims import Dim, to_relax
from ...schedules.words.tvm_types import Attribute, Expr
from .convert import from_call
from .graph import CONST, ITEM, Graph, GraphNode

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

#: ``exact``: bit for bit. ``strict``: NaN, infinities and integer overflow keep their meaning, rounding may differ.
#: ``finite``: no value is NaN or infinite.
FLOAT_MODES = ("exact", "strict", "finite")
EXACT = frozenset(FLOAT_MODES)
STRICT = frozenset(("strict", "finite"))


@dataclass(frozen=True)
class Declined:
    """The pattern is there, but a precondition fails; ``reason`` names it."""

    reason: str


@dataclass(frozen=True)
class Rewrite:
    """What to put in the node's place; ``build`` runs only when the rewrite is carried out.

    It returns the replacement of the node, or a dict from old nodes to their replacements. ``rounds`` says whether the
    last place of a float may differ; None: as it is for a rule that is not for ``exact`` mode.
    """

    build: Callable[[RewriteBuilder], GraphNode | dict[GraphNode, GraphNode]]
    rounds: bool | None = None


class Rule(ABC):
    """One rewrite. ``match`` is pure; ``roots`` are the operators at which it is tried (empty: everywhere)."""

    name: ClassVar[str] = ""
    family: ClassVar[str] = ""
    modes: ClassVar[frozenset[str]] = EXACT
    roots: ClassVar[frozenset[str]] = frozenset()
    #: Tried only where no other rule has anything left to do: a move that would hide a pattern from the others.
    late: ClassVar[bool] = False
    #: Tried once no other rule has anything left to do, and none is tried behind it.
    last: ClassVar[bool] = False

    @abstractmethod
    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        """What to put in ``node``'s place, why a precondition fails, or None where the pattern is not there."""


class RewriteBuilder:
    """Makes the nodes of a rewrite; types are inferred by Relax, names and places come from the replaced node."""

    def __init__(self, graph: Graph, origin: GraphNode) -> None:
        self._graph = graph
        self._origin = origin
        self.created: list[GraphNode] = []

    def const(self, array: np.ndarray | Attribute) -> GraphNode:
        value = np.asarray(array)
        dtype = str(value.dtype)
        node = GraphNode(CONST, [], (), None, relax.TensorType(list(value.shape), dtype))
        node.value = value
        return self._enter(node)

    def call(self, function: Callable[..., Expr], *args: object, **attributes: Attribute) -> GraphNode:
        """``function`` is a constructor of ``relax.op`` (or ours); nodes among its arguments stand for themselves."""
        table: dict[Expr, GraphNode] = {}

        def expr(value: Attribute) -> Attribute:
            if isinstance(value, GraphNode):
                table[value.var] = value
                return value.var
            if isinstance(value, (list, tuple)) and any(isinstance(v, GraphNode) for v in value):
                return type(value)(expr(v) for v in value)
            return value

        call = function(*map(expr, args), **{k: expr(v) for k, v in attributes.items()})
        call = self._graph.normalizer.normalize(call)
        if not isinstance(call, Call):
            raise TypeError(f"{function} does not make a call")
        return self._enter(from_call(call, table.__getitem__))

    def same(self, node: GraphNode, *inputs: GraphNode) -> GraphNode:
        """The operator of ``node`` with its attributes on other inputs; its type is inferred again if theirs differ."""
        copy = GraphNode(node.op, list(inputs), node.operands, node.attrs, node.ty)
        if not all(self._graph.same_type(a, b) for a, b in zip(inputs, node.inputs, strict=True)):
            args: list[Expr] = []
            for operand in node.operands:
                if isinstance(operand, int):
                    args.append(inputs[operand].var)
                elif isinstance(operand, tuple):
                    args.append(relax.Tuple([inputs[k].var for k in operand]))
                else:
                    args.append(operand)
            copy._shape = False
            alike = node.op == "relax.strided_slice" and self._graph.same_shape(inputs[0].shape, node.inputs[0].shape)
            if alike and node.shape is not None:
                copy.ty = relax.TensorType(list(node.shape), inputs[0].dtype)  # which Relax may know less well
                return self._enter(copy)
            copy.ty = self._graph.normalizer.normalize(Call(relax_op(node.op), args, node.attrs)).ty
        return self._enter(copy)

    def typed(self, node: GraphNode, shape: tuple[SizeLike, ...], *inputs: GraphNode) -> GraphNode:
        """The operator of ``node`` on other inputs, where the shape of its result is known, but not to Relax."""
        dims = list(shape)
        ty = relax.TensorType(dims, node.dtype)
        return self._enter(GraphNode(node.op, list(inputs), node.operands, node.attrs, ty))

    def shaped(self, shape: tuple[SizeLike, ...], function: Callable[..., Expr], *args: Attribute) -> GraphNode:
        """The call that ``function`` makes, where the shape of its result is known better than Relax infers it; the
        first argument has its dtype."""
        table = {a.var: a for a in args if isinstance(a, GraphNode)}
        call = function(*(a.var if isinstance(a, GraphNode) else a for a in args))
        typed = Call(call.op, call.args, call.attrs, ret_ty=relax.TensorType(list(shape), args[0].dtype))
        return self._enter(from_call(typed, table.__getitem__))

    def dim(self, value: SizeLike) -> SizeLike:
        """A number or dim as an expression of the graph's own variables."""
        return to_relax(value, self._graph.symbols) if isinstance(value, Dim) else value

    def item(self, source: GraphNode, index: int) -> GraphNode:
        return self._enter(GraphNode(ITEM, [source], (0,), index, source.ty.fields[index]))

    def _enter(self, node: GraphNode) -> GraphNode:
        node.name = self._origin.name
        node.order = (*self._origin.order, -1.0, len(self.created))
        self.created.append(node)
        return self._graph.link(node)


def filled(b: RewriteBuilder, like: GraphNode, value: float | bool) -> GraphNode:
    """A tensor of one value with the shape and dtype of ``like``; where that is open, one number broadcast to it."""
    if like.static:
        return b.const(np.full(like.shape or (), value, like.array_dtype))
    return b.call(relax.op.broadcast_to, b.const(np.full((), value, like.array_dtype)), list(like.shape or ()))


def relax_op(name: str) -> Expr:
    from tvm.ir import Op

    return Op.get(name)
