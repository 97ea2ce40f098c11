"""The same groups at given sizes: what estimates and regions ask, which count in numbers.

Every value, node and layout of a program of open sizes has a twin whose shape is a number; a twin's operator has the
same attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import tvm
from tvm import relax
from tvm.ir import Call

from ....schedules.words.dims import Open, is_dim
from ....schedules.words.group import Group, Node, Value
from ....schedules.words.layout import Layout
from ....schedules.words.sizes import dim_of, value_of
from ....schedules.words.tvm_types import Attribute, Expr, Type
from ...memory.places import Places

if TYPE_CHECKING:
    from ....schedules.words.size_like import SizeLike


@dataclass(eq=False)
class Twins:
    """The twins at ``sizes`` of the symbols, each made once."""

    sizes: Mapping[str, int]
    values: dict[Value, Value] = field(default_factory=dict)
    groups: dict[Group, Group] = field(default_factory=dict)
    nodes: dict[Node, Node] = field(default_factory=dict)

    def value(self, value: Value) -> Value:
        """The value at the sizes; the same one if nothing of it is open."""
        if value not in self.values:
            shape = self.shape(value.shape)
            self.values[value] = value if shape == value.shape else Value(value.name, shape, value.dtype)
        return self.values[value]

    def shape(self, shape: Sequence[SizeLike]) -> tuple[int, ...]:
        return tuple(self.number(d) for d in shape)

    def number(self, dim: SizeLike) -> int:
        return value_of(dim, self.sizes) if is_dim(dim) else dim

    def layout(self, layout: Layout) -> Layout:
        """The layout at the sizes."""
        return replace(layout, shape=self.shape(layout.shape))

    def layouts(self, layouts: Mapping[Value, Layout]) -> dict[Value, Layout]:
        return {self.value(v): self.layout(layout) for v, layout in layouts.items()}

    def places(self, places: Places) -> Places:
        """The aliases at the sizes."""
        views = {self.value(v): self.value(w) for v, w in places.views.items()}
        slices = {self.value(v): (self.value(w), self.number(at)) for v, (w, at) in places.slices.items()}
        return Places(views, slices)

    def group(self, group: Group) -> Group:
        """The group at the sizes."""
        if group not in self.groups:
            inputs, outputs = (tuple(map(self.value, values)) for values in (group.inputs, group.outputs))
            nodes = tuple(map(self._node, group.nodes))
            anchor = None if group.anchor is None else self._node(group.anchor)
            self.groups[group] = Group(group.name, nodes, inputs, outputs, anchor, group.notes)
        return self.groups[group]

    def _node(self, node: Node) -> Node:
        if node not in self.nodes:
            operands = tuple(map(self._operand, node.operands))
            results = tuple(map(self.value, node.results))
            self.nodes[node] = Node(node.name, node.operator, self._call(node.call), operands, results, node.sources)
        return self.nodes[node]

    def _operand(self, operand: Attribute) -> Attribute:
        if isinstance(operand, Value):
            return self.value(operand)
        if isinstance(operand, tuple):
            return tuple(self._operand(o) if isinstance(o, (Value, tuple)) else self._field(o) for o in operand)
        return self._argument(operand)

    def _call(self, call: Expr) -> Expr:
        """The call on arguments of these sizes."""
        args = [self._argument(a) for a in call.args]
        return Call(call.op, args, call.attrs, ret_ty=self._type(call.ty))

    def _argument(self, expr: Expr) -> Expr:
        if isinstance(expr, relax.ShapeExpr):
            return relax.ShapeExpr([self._size(d) for d in expr.values])
        if isinstance(expr, relax.Tuple):
            return relax.Tuple(list(map(self._field, expr.fields)))
        if isinstance(expr, tvm.ir.GenericConst) or not isinstance(getattr(expr, "ty", None), relax.TensorType):
            return expr
        return relax.Var(getattr(expr, "name", "v"), self._type(expr.ty))

    def _field(self, expr: Expr) -> Expr:
        """A field of a tuple: bounds of slices are numbers, which may follow from sizes."""
        if not isinstance(getattr(expr, "ty", None), tvm.ir.PrimType) or isinstance(expr, tvm.tirx.IntImm):
            return self._argument(expr)
        try:
            return tvm.tirx.IntImm("int64", self.number(dim_of(expr)))
        except Open:  # depends on data
            return expr

    def _type(self, type_: Type) -> Type:
        if isinstance(type_, relax.TensorType) and type_.shape is not None:
            return relax.TensorType([self._size(d) for d in type_.shape], str(type_.dtype.dtype))
        if hasattr(type_, "fields"):
            return relax.TupleType([self._type(f) for f in type_.fields])
        return type_

    def _size(self, expr: Expr) -> int:
        return self.number(dim_of(expr))
