"""The TE DAG of a group: one TE tensor for each of its values, built from the operators' own expressions."""

from __future__ import annotations

from collections.abc import Iterable

from tvm import te, tirx

from ..emit.inline import key
from ..words.group import Group, Node, Value
from ..words.tvm_types import Expr, Operation, Tensor
from .registry import expression


class GroupGraph:
    """TE tensors of a group's values. The results of ``opaque`` nodes (anchors that a generator computes by its own
    loops) are placeholders, like the group's inputs."""

    def __init__(self, group: Group, opaque: Iterable[Node] = ()) -> None:
        self.group = group
        self.tensors: dict[Value, te.Tensor] = {}
        hidden = set(opaque)
        for value in group.inputs:
            self._placeholder(value)
        for node in group.nodes:
            if node in hidden:
                for value in node.results:
                    self._placeholder(value)
                continue
            inputs = [self._operand(o) for o in node.operands]
            for value, tensor in zip(node.results, expression(node.call, inputs)):
                self.tensors[value] = _of_shape(value, tensor)

    def _placeholder(self, value: Value) -> None:
        self.tensors[value] = te.placeholder(value.shape, value.dtype, value.name)

    def _operand(self, operand: Expr | Value | tuple[Expr | Value, ...]) -> Expr | Tensor | list[Expr | Tensor]:
        if isinstance(operand, Value):
            return self.tensors[operand]
        if isinstance(operand, tuple):
            return [self._operand(o) for o in operand]
        return operand

    def stages(self, outputs: Iterable[Value]) -> list[te.Tensor]:
        """Every TE tensor that ``outputs`` are computed from, in program order, placeholders first met left out."""
        order: list[te.Tensor] = []
        seen: set[tuple[Operation, int]] = set()
        stack: list[tuple[te.Tensor, bool]] = [(self.tensors[v], False) for v in reversed(list(outputs))]
        while stack:
            tensor, done = stack.pop()
            if done:
                order.append(tensor)
                continue
            if key(tensor) in seen or isinstance(tensor.op, te.PlaceholderOp):
                continue
            seen.add(key(tensor))
            stack.append((tensor, True))
            stack.extend((t, False) for t in reversed(list(tensor.op.input_tensors)))
        return order


def _of_shape(value: Value, tensor: te.Tensor) -> te.Tensor:
    """The tensor with the numbers that the value has among its dims: TE may write them as formulas of open dims, as of
    the last element that a slice takes, and would not broadcast a formula that is 1."""
    known = [isinstance(d, tirx.IntImm) or not isinstance(n, int) for n, d in zip(value.shape, tensor.shape)]
    return tensor if all(known) else te.compute(value.shape, lambda *i: tensor(*i), name=tensor.op.name)
