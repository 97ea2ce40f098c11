"""What kind of thing a node is to the fusion engine, read off its TE expression rather than a table of names.

view        the same elements in the same order: no work at all in a plain layout
injective   maps only: every output element is an expression of input elements
reduce      maps and reductions that read each input element about once (softmax, norms, means)
anchor      a sum of products with a family of its own (convolution, matrix multiplication)
stencil     reductions that read input elements many times (pooling, contractions without a family)
opaque      holds a stage written as loops (sorting, scanning)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from tvm import te, tirx

from ..emit.inline import Inliner, Source, key
from ..words.group import Group, Node, Value
from ..words.sizes import dim_of, product, usual
from ..words.tvm_types import Expr, Operation
from .te_graph import GroupGraph
from .te_stages import COSTLY, is_costly, is_reduce

VIEWS = {"relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten", "relax.memory.view"}
MOST_WRITTEN_OUT = 12  # operators behind a sum of products: longer chains are not repeated for each vector of a tile
_FACTS = "facts"
_WIDENING = {"sin", "cos", "pow"}
_FUNCTIONS = COSTLY - {"if_then_else"}
ANCHORS = {
    "relax.nn.conv1d": "conv",
    "relax.nn.conv2d": "conv",
    "relax.nn.conv3d": "conv",
    "halotile.conv_transpose": "conv",
    "halotile.dot_conv": "conv",
    "relax.matmul": "matmul",
}


@dataclass(frozen=True, eq=False)
class Facts:
    """A node, its TE stages, and what follows from them."""

    node: Node

    @cached_property
    def graph(self) -> GroupGraph:
        inputs = tuple(dict.fromkeys(self.node.inputs))
        return GroupGraph(Group(self.node.name, (self.node,), inputs, self.node.results))

    @cached_property
    def stages(self) -> list[te.Tensor]:
        return self.graph.stages(self.node.results)

    @cached_property
    def kind(self) -> str:
        if self.node.operator in VIEWS:
            return "view"
        if self.node.operator in ANCHORS:
            return "anchor"
        if any(not isinstance(t.op, te.ComputeOp) for t in self.stages):
            return "opaque"
        if not any(is_reduce(t) for t in self.stages):
            return "injective"
        size = max((usual(v.elements) for v in self.node.inputs), default=1)
        for t in self.stages:
            if is_reduce(t):
                if usual(product(map(dim_of, (*t.shape, *(a.dom.extent for a in t.op.reduce_axis))))) > size:
                    return "stencil"
        return "reduce"

    @cached_property
    def costly(self) -> bool:
        """True if an element takes more than a few plain instructions."""
        return any(is_costly(t) for t in self.stages)

    @cached_property
    def calls_functions(self) -> bool:
        """True if an element takes a function of more than one instruction: exponentials, logarithms, roots and the
        like, by whatever name the operator goes."""
        return any(is_costly(t, _FUNCTIONS) for t in self.stages)

    @cached_property
    def widens(self) -> bool:
        """True if an element is computed in float64 from many constants (math/trigonometry.py, math/powers.py): they
        take the vector registers of whatever is around them."""
        return any(is_costly(t, _WIDENING) for t in self.stages)

    @cached_property
    def interpolates(self) -> bool:
        """True if an element is made of several elements of one input: such work repeated in an unrolled loop grows."""
        if self.kind != "injective":
            return False
        inputs = [v for v in self.node.inputs if v.constant is None]
        return any(len(self.reads(v)) > 1 and not self.elementwise_in(v) for v in inputs)

    @cached_property
    def _reads(self) -> dict[Value, list[tuple[list[Expr], tuple[Expr, ...]]]]:
        return {}

    def reads(self, value: Value) -> list[tuple[list[Expr], tuple[Expr, ...]]]:
        """The (axes, indices) of every read of ``value`` by the node's outputs (maps only)."""
        if value not in self._reads:
            self._reads[value] = self._found_reads(value)
        return self._reads[value]

    def _found_reads(self, value: Value) -> list[tuple[list[Expr], tuple[Expr, ...]]]:
        found: list[tuple[list[Expr], tuple[Expr, ...]]] = []
        for result in self.node.results:
            axes = [tirx.Var(f"a{i}", "int32") for i in range(len(result.shape))]

            def watch(indices: tuple[Expr, ...], axes: list[Expr] = axes) -> Expr:
                found.append((axes, indices))
                return tirx.Var("read", self.graph.tensors[value].expr_ty())

            sources: dict[tuple[Operation, int], Source] = {}
            for v in dict.fromkeys(self.node.inputs):
                tensor = self.graph.tensors[v]
                other = lambda _indices, t=tensor: tirx.Var("other", t.expr_ty())  # noqa: E731
                sources[key(tensor)] = watch if v is value else other
            Inliner(sources).at(self.graph.tensors[result], axes)
        return found

    def elementwise_in(self, value: Value) -> bool:
        """True if the node's one output has ``value``'s shape and reads it only at the element it writes."""
        if self.kind != "injective" or len(self.node.results) != 1:
            return False
        shape = self.node.results[0].shape
        if shape != value.shape:
            return False
        reads = self.reads(value)
        return bool(reads) and all(
            all(s == 1 or _is_axis(i, a) for i, a, s in zip(indices, axes, shape)) for axes, indices in reads
        )


def facts_of(node: Node) -> Facts:
    """The facts of a node, found once for all who ask: they live as long as the node."""
    known: dict[str, Facts] = vars(node)
    if _FACTS not in known:
        known[_FACTS] = Facts(node)
    return known[_FACTS]


def is_long(nodes: Iterable[Node]) -> bool:
    """True if what follows a sum of products is too long to be written out once for each register of a tile: calls of
    functions, and chains of many operators, such as those that round to bytes and back. A loop over the tile's vectors,
    which lie in memory for it, is as fast then, and its code is a tenth and less."""
    facts = [facts_of(n) for n in nodes]
    return any(f.costly for f in facts) or sum(f.kind == "injective" for f in facts) > MOST_WRITTEN_OUT


def _is_axis(index: Expr, axis: Expr) -> bool:
    while type(index).__name__ == "Cast":
        index = index.value
    return hasattr(index, "same_as") and index.same_as(axis)
