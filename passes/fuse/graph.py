"""From a Relax function to the flat graph that fusion works on: values and nodes.

Views cost nothing: a reshape, squeeze or expand_dims is a node like any other here, and fusion or the memory plan
makes it vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tvm
from tvm import relax
from tvm.ir import Call

from ...errors import UnsupportedError
from ...schedules.words.group import Node, Value
from ...schedules.words.provenance import names_of
from ...schedules.words.sizes import dim_of
from ...schedules.words.tvm_types import Attribute, Binding, Expr, Type

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike


@dataclass(frozen=True)
class ProgramGraph:
    """Nodes in program order; constants are Values with data."""

    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]


def build_graph(module: tvm.IRModule) -> ProgramGraph:
    """The graph of ``main``, whose shapes may be open; every binding is an operator call, a tuple or a tuple item."""
    return _GraphBuilder(module["main"]).build()


class _GraphBuilder:
    def __init__(self, function: relax.Function) -> None:
        self.function = function
        self.values: dict[Expr, Attribute] = {}
        self.nodes: list[Node] = []
        self.constants: dict[object, Value] = {}

    def build(self) -> ProgramGraph:
        inputs = []
        for param in self.function.params:
            value = Value(param.name, *_type(param.ty, param.name))
            self.values[param] = value
            inputs.append(value)
        for block in self.function.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self._binding(binding)
        body = self.function.body.body
        result = self._operand(body)
        outputs = result if isinstance(result, tuple) else (result,)
        return ProgramGraph(tuple(inputs), tuple(outputs), tuple(self.nodes))

    def _binding(self, binding: Binding) -> Value | tuple[Value, ...]:
        expr = binding.value
        if isinstance(expr, Call) and isinstance(expr.op, tvm.ir.Op):
            return self._call(binding.var, expr, names_of(binding.span))
        return self._operand(expr)

    def _call(self, var: Expr, call: Call, sources: tuple[str, ...]) -> Value | tuple[Value, ...]:
        name = var.name
        operands = tuple(self._operand(a) for a in call.args)
        ty = var.ty
        if isinstance(ty, relax.TupleType) or hasattr(ty, "fields"):
            results = tuple(Value(f"{name}.{i}", *_type(f, name)) for i, f in enumerate(ty.fields))
        else:
            results = (Value(name, *_type(ty, name)),)
        self.nodes.append(Node(name, call.op.name, call, operands, results, sources))
        return results if len(results) > 1 or hasattr(ty, "fields") else results[0]

    def _operand(self, expr: Expr) -> Attribute:
        if isinstance(expr, relax.TupleGetItem):
            return self._operand(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.Tuple):
            return tuple(self._operand(f) for f in expr.fields)
        if expr in self.values:
            return self.values[expr]
        if isinstance(expr, tvm.ir.GenericConst):
            return self._constant(expr)
        return expr

    def _constant(self, expr: Expr) -> Value:
        if expr in self.constants:
            return self.constants[expr]
        array = expr.value.numpy()
        shape, dtype = _type(expr.ty, "constant")
        value = Value(f"const{len(self.constants)}", shape, dtype, array)
        self.constants[expr] = value
        return value


def _type(ty: Type, name: str) -> tuple[tuple[SizeLike, ...], str]:
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        raise UnsupportedError(f"value '{name}' has no static tensor type; fix the open dimensions with --shape")
    return tuple(map(dim_of, ty.shape)), str(ty.dtype.dtype)
