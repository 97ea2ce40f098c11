"""Which input elements an operator reads, found by walking its TE expression at concrete coordinates.

An oracle for regions that knows nothing of them: it interprets index arithmetic and conditions as integers, follows
reads through all stages, and collects the coordinates at which placeholders are read. Conditions that depend on data
count both arms.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import tvm
from halotile.schedules.emit.inline import key
from halotile.schedules.operators.kind import Facts
from halotile.schedules.words.group import Node, Value
from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

_NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    prim.Add: lambda a, b: a + b,
    prim.Sub: lambda a, b: a - b,
    prim.Mul: lambda a, b: a * b,
    prim.Div: lambda a, b: int(a / b) if isinstance(a, int) else a / b,
    prim.Mod: lambda a, b: int(math.fmod(a, b)),
    prim.FloorDiv: lambda a, b: a // b,
    prim.FloorMod: lambda a, b: a % b,
    prim.EQ: lambda a, b: a == b,
    prim.NE: lambda a, b: a != b,
    prim.LT: lambda a, b: a < b,
    prim.LE: lambda a, b: a <= b,
    prim.GT: lambda a, b: a > b,
    prim.GE: lambda a, b: a >= b,
    prim.And: lambda a, b: a and b,
    prim.Or: lambda a, b: a or b,
    prim.Max: max,
    prim.Min: min,
}


class Dependence:
    """``reads[value]`` are the coordinates at which ``value`` has been read so far."""

    def __init__(self, node: Node) -> None:
        graph = Facts(node).graph
        self.tensors = graph.tensors
        self.values = {key(graph.tensors[v]): v for v in dict.fromkeys(node.inputs)}
        self.reads: dict[Value, set[tuple[int, ...]]] = {}
        self._known: dict[Any, Any] = {}

    def box(self, output: Value, box: Iterable[tuple[int, int]]) -> dict[Value, tuple[tuple[int, int], ...]]:
        """The hull of what every element of ``box`` reads, by value."""
        for at in itertools.product(*(range(*s) for s in box)):
            self.element(self.tensors[output], at)
        return {
            v: tuple((min(a), max(a) + 1) for a in zip(*found)) for v, found in self.reads.items() if found
        }

    def element(self, tensor: te.Tensor, at: tuple[int, ...]) -> Any:
        """The number at ``at`` if it does not depend on data, else None."""
        name = (key(tensor), at)
        if name in self._known:
            return self._known[name]
        value = self.values.get(key(tensor))
        number = None
        if value is not None:
            assert all(0 <= i < n for i, n in zip(at, value.shape)), f"{value} is read at {at}"
            self.reads.setdefault(value, set()).add(at)
            if value.constant is not None:
                number = value.constant[at].item()
        else:
            assert all(0 <= i < int(n) for i, n in zip(at, tensor.shape)), f"{tensor} is read at {at}"
            axes = {a.var: i for a, i in zip(tensor.op.axis, at)}
            number = self._number(tensor.op.body[tensor.value_index], axes)
        self._known[name] = number
        return number

    def _number(self, expr: Any, axes: dict[Any, Any]) -> Any:
        kind = type(expr)
        if kind in (prim.IntImm, prim.FloatImm):
            return expr.value
        if kind is tirx.Var:
            return axes.get(expr)
        if kind in _NUMBERS:
            a, b = self._number(expr.a, axes), self._number(expr.b, axes)
            return None if a is None or b is None else _NUMBERS[kind](a, b)
        if kind is prim.Cast:
            number = self._number(expr.value, axes)
            return int(number) if number is not None and "int" in str(expr.ty.dtype) else number
        if kind is prim.Not:
            number = self._number(expr.a, axes)
            return None if number is None else not number
        if kind is prim.Select:
            return self._choice(expr.condition, expr.true_value, expr.false_value, axes)
        if kind is prim.Let:
            return self._number(expr.body, {**axes, expr.var: self._number(expr.value, axes)})
        if kind is tirx.Reduce:
            for point in itertools.product(*(range(int(a.dom.extent)) for a in expr.axis)):
                inner = {**axes, **{a.var: p for a, p in zip(expr.axis, point)}}
                for source in expr.source:
                    self._number(source, inner)
            return None
        assert isinstance(expr, Call), f"{kind} in an expression"
        name = expr.op.name if isinstance(expr.op, tvm.ir.Op) else ""
        if name == "te.tensor_load":
            at = tuple(self._number(i, axes) for i in expr.args[1:])
            assert None not in at, "a position depends on data"
            return self.element(expr.args[0], tuple(int(i) for i in at))
        if name.endswith("if_then_else"):
            return self._choice(*expr.args[:3], axes)
        numbers = [self._number(a, axes) for a in expr.args]
        if name.endswith("abs") and None not in numbers:
            return abs(numbers[0])
        return None

    def _choice(self, condition: Any, yes: Any, no: Any, axes: dict[Any, Any]) -> Any:
        known = self._number(condition, axes)
        if known is not None:
            return self._number(yes if known else no, axes)
        self._number(yes, axes)
        self._number(no, axes)
        return None
