"""How long the expressions of groups are, written out: what decides whether one kernel can hold a chain of moves.

    gather of a gather of a gather:      x[..., t3[t2[t1[i]]]]         where each index is used once
                                         x[..., w(t3[w(t2[w(t1[i])])])], w(a) = select(a < 0, a + n, a): 3^3 and more

An expression is written from its output backwards, and an operator is written as often as it is read at different
places; an index is written into every read that it leads to, and may stand several times in the next one. So lengths
multiply along a chain of moves, and they are counted here on small tuples before anybody writes the expression. Values
have names: whoever reads one at the same place reads the name. Indices have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import tvm
from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.prim import expr as prim

from ..emit.inline import key
from ..emit.written_out import children
from ..math.wrapping import division, wraps
from ..words.group import Node, Value
from ..words.tvm_types import Expr
from .kind import Facts

if TYPE_CHECKING:
    pass

LONGEST = 2000  # nodes of a group's expressions: a pixel shuffle by three with a sum and a function takes 1,139

_Form = tuple[Any, ...]  # ("axis", n), ("load", tensor, *indices) or (name, *parts)


class Lengths:
    """Counts for groups of the nodes that ``facts`` are about."""

    def __init__(self, facts: Mapping[Node, Facts]) -> None:
        self._facts = facts
        self._forms: dict[object, list[_Form]] = {}
        self._wrap: dict[object, bool] = {}
        self._named: dict[Node, dict[object, Value]] = {}

    def of(self, nodes: Iterable[Node], outputs: Iterable[Value]) -> int:
        """Nodes of all expressions of a group, up to a little over ``LONGEST``."""
        count = _Count(self, {r: n for n in nodes for r in n.results})
        try:
            for value in outputs:
                count.value(value, tuple(count.intern(("axis", value, i)) for i in range(len(value.shape))))
                count.pending()
        except RecursionError:
            return LONGEST + 1
        except OverflowError:
            pass
        return count.total

    def tensor(self, node: Node, value: Value) -> te.Tensor:
        return self._facts[node].graph.tensors[value]

    def read_by(self, node: Node, tensor: te.Tensor) -> Value | None:
        """The operand of ``node`` that ``tensor`` stands for."""
        if node not in self._named:
            graph = self._facts[node].graph
            self._named[node] = {key(graph.tensors[v]): v for v in node.inputs}
        return self._named[node].get(key(tensor))

    def has_name(self, tensor: te.Tensor) -> bool:
        """True if kernels give elements of a stage names; of numbers that index arithmetic could make they don't."""
        found = self._wrap.get(key(tensor))
        if found is None:
            body = tensor.op.body[tensor.value_index]
            whole = str(tensor.dtype) in ("int32", "int64")
            found = self._wrap[key(tensor)] = not whole or wraps(body)
        return found

    def forms(self, tensor: te.Tensor) -> list[_Form]:
        """What an element of a stage is made of; of a reduction, what it reduces."""
        found = self._forms.get(key(tensor))
        if found is None:
            body = tensor.op.body[tensor.value_index]
            axes = {axis.var: i for i, axis in enumerate(tensor.op.axis)}
            parts = body.source if isinstance(body, tirx.Reduce) else [body]
            found = self._forms[key(tensor)] = [_form(part, axes) for part in parts]
        return found


def _form(expr: Expr, axes: dict[Expr, int]) -> _Form:
    if isinstance(expr, tirx.Var):
        place = axes.get(expr)
        return ("var", expr.name) if place is None else ("axis", place)
    if isinstance(expr, (prim.IntImm, prim.FloatImm)):
        return ("literal", expr.value)
    if isinstance(expr, Call):
        name = expr.op.name if isinstance(expr.op, tvm.ir.Op) else "call"
        if name == "te.tensor_load":
            return ("load", expr.args[0], *(_form(i, axes) for i in expr.args[1:]))
        return (name, *(_form(a, axes) for a in expr.args if isinstance(a, tvm.ir.Expr)))
    if (divided := division(expr)) is not None:  # the inliner writes its guards, if it needs any
        return (divided[0].__name__, *(_form(part, axes) for part in divided[1:]))
    return (type(expr).__name__, *(_form(part, axes) for part in children(expr)))


class _Count:
    """One group's count. An expression is a number; two that are written alike have the same."""

    def __init__(self, lengths: Lengths, made_by: dict[Value, Node]) -> None:
        self.lengths = lengths
        self.made_by = made_by
        self.total = 0
        self._numbers: dict[object, int] = {}
        self._sizes: list[int] = []
        self._known: dict[object, int] = {}
        self._stored: list[tuple[Node, te.Tensor]] = []  # reductions, which have loops of their own

    def intern(self, form: _Form, size: int = 1) -> int:
        number = self._numbers.setdefault(form, len(self._sizes))
        if number == len(self._sizes):
            self._sizes.append(size)
        return number

    def pending(self) -> None:
        while self._stored:
            node, tensor = self._stored.pop()
            self._stage(
                node, tensor, tuple(self.intern(("axis", key(tensor), i)) for i in range(len(tensor.shape)))
            )

    def value(self, value: Value, indices: tuple[int, ...]) -> int:
        node = self.made_by.get(value)
        if node is None:
            return self._element(value, value.dtype, indices)
        return self._at(node, self.lengths.tensor(node, value), indices)

    def _at(self, node: Node, tensor: te.Tensor, indices: tuple[int, ...]) -> int:
        if (operand := self.lengths.read_by(node, tensor)) is not None:
            return self.value(operand, indices)
        place = (key(tensor), indices)
        if place in self._known:
            return self._known[place]
        if not isinstance(tensor.op, te.ComputeOp):
            made = self.intern(("stored", *place))
        elif isinstance(tensor.op.body[0], tirx.Reduce):
            made = self.intern(("stored", *place))
            if key(tensor) not in self._known:
                self._known[key(tensor)] = made
                self._stored.append((node, tensor))
        else:
            made = self._stage(node, tensor, indices)
        self._known[place] = made
        return made

    def _stage(self, node: Node, tensor: te.Tensor, indices: tuple[int, ...]) -> int:
        parts = [self._expression(form, node, indices) for form in self.lengths.forms(tensor)]
        self._spend(sum(self._sizes[p] for p in parts))
        return self.intern(("named", key(tensor), indices)) if self.lengths.has_name(tensor) else parts[0]

    def _element(self, value: Value, dtype: str, indices: tuple[int, ...]) -> int:
        """A read of memory. In an index, it is one that TVM's simplifier looks at twice, with all that it holds."""
        size = 1 + 2 * sum(self._sizes[i] for i in indices)
        self._spend(size)
        return self.intern(("read", value, indices), size if dtype.startswith("int") else 1)

    def _expression(self, form: _Form, node: Node, indices: tuple[int, ...]) -> int:
        kind, *parts = form
        if kind == "axis":
            return indices[parts[0]]
        if kind == "load":
            return self._at(node, parts[0], tuple(self._expression(p, node, indices) for p in parts[1:]))
        if kind in ("var", "literal"):
            return self.intern(form)
        inner = tuple(self._expression(p, node, indices) for p in parts)
        return self.intern((kind, *inner), 1 + sum(self._sizes[p] for p in inner))

    def _spend(self, size: int) -> None:
        self.total += size
        if self.total > LONGEST:
            raise OverflowError
