"""Rows of a result that a condition replaces by a number, written behind the kernel that computes all of them.

    y = where(exists, relu(conv(x)), 0)      exists: (rows, 1)      ->      y = relu(conv(x))
                                                                            for each row: if not exists[row]: y[row] = 0

A condition that whole rows share costs each of their vectors several operations where it is part of the epilogue, and a
test a row here. In the steps of a stream (compiler/stream), of which all but a few have all rows, nothing is written
twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import tirx

from ..emit.builder import KernelBuilder, sequence
from ..words.group import Group, Kernel, Node, Request, Value
from ..words.tvm_types import Buffer, Expr, Stmt
from .context import literal

WHERE = "relax.where"
LANES = 16  # elements of a store where blocks of channels do not say how many
NOTE = "rows that do not exist are written behind all others"


@dataclass(frozen=True)
class MissingRows:
    """Rows of ``result`` along ``axis`` that are ``fill`` where ``exists`` is false. ``request`` asks for the result as
    it is before."""

    request: Request
    result: Value
    exists: Value
    axis: int
    fill: float

    @staticmethod
    def of(request: Request) -> MissingRows | None:
        """What the last operator of the request's group replaces, if it is rows of the one result and the group
        computes the whole of it; else None."""
        group = request.group
        last = group.nodes[-1]
        if request.box is not None or last.operator != WHERE or len(group.nodes) < 2 or last is group.anchor:
            return None
        exists, before, number = last.operands
        if group.outputs != last.results or not all(isinstance(v, Value) for v in last.operands):
            return None
        if exists not in group.inputs:  # the group makes it itself, and nobody else would
            return None
        alone = all(exists not in n.inputs and before not in n.inputs for n in group.nodes[:-1])
        made = [n for n in group.nodes[:-1] if n.results == (before,)]
        (result,) = last.results
        alike = before.shape == result.shape and before.dtype == result.dtype
        axis, fill = _axis(request, exists, result), _number(request, number, result)
        if not (alone and made and alike) or axis is None or fill is None:
            return None
        return MissingRows(replace(request, group=_without(group, before)), result, exists, axis, fill)

    def with_rows(self, kernel: Kernel) -> Kernel:
        """``kernel``, of :attr:`request`, and behind it the rows."""
        function, count = kernel.function, len(kernel.operands)
        assert kernel.operands.count(self.result) == 1 and self.exists not in kernel.operands
        place = function.params[kernel.operands.index(self.result)]
        *statements, last = function.body.seq
        (buffer,) = (s.buffer for s in statements if isinstance(s, tirx.DeclBuffer) and s.data.same_as(place))
        assert isinstance(last, tirx.Return)
        exists = tirx.Var("p_exists", tvm.ir.PointerType(tvm.ir.PrimType("bool")))
        body = sequence([*statements, *self._written(buffer, exists), last])
        params = [*function.params[:count], exists, *function.params[count:]]
        made = tirx.PrimFunc(params, body, ret_type=function.ret_type).with_attrs(dict(function.attrs.items()))
        return replace(kernel, function=made, operands=(*kernel.operands, self.exists), notes=(*kernel.notes, NOTE))

    def _written(self, buffer: Buffer, exists: Expr) -> list[Stmt]:
        """Statements that write the number to rows that do not exist, and to nothing between them."""
        layout, k = self.request.layout(self.result), KernelBuilder("missing_rows")
        shape, strides, block = layout.shape, layout.strides, layout.block
        rows = shape[self.axis]
        mask = tirx.decl_buffer((rows,), "bool", name="exists", data=exists, data_alignment=1, layout=None)
        length, lanes, number = _run(shape, self.axis, block), block or LANES, literal(self.fill, str(buffer.dtype))
        outer = [a for a in range(len(shape)) if a != self.axis and (a < len(shape) - 1 or (a == 1 and block))]

        def written(axes: Sequence[int], at: Expr) -> None:
            if axes:
                axis = axes[0]
                count = -(-shape[axis] // block) if axis == 1 and block else shape[axis]
                with k.loop(count, name="o") as o:
                    written(axes[1:], at + o * strides[axis])
                return
            with k.loop(length // lanes, name="e") as e, k.loop(lanes, "vectorized", name="v") as v:
                k.store(buffer, at + e * lanes + v, number)
            if length % lanes:
                with k.loop(length % lanes, name="e") as e:
                    k.store(buffer, at + length // lanes * lanes + e, number)

        first = sum(layout.margin(a)[0] * strides[a] for a in range(len(shape)) if not (a == 1 and block))
        with k.capture() as statements, k.loop(rows, name="y") as y, k.when(tirx.Not(mask[y])):
            written(outer, first + y * strides[self.axis])
        return [tirx.DeclBuffer(mask, data=exists), *statements]


def _run(shape: Sequence[int], axis: int, block: int) -> int:
    """Elements of a row that lie one behind the other."""
    return (1 if axis == len(shape) - 1 or len(shape) == 2 and block else shape[-1]) * (block or 1)


def _axis(request: Request, exists: Value, result: Value) -> int | None:
    """The axis of ``result`` along which ``exists`` says something, if rows along it are whole vectors or lines."""
    shape, block, first = result.shape, request.layout(result).block, len(result.shape) - len(exists.shape)
    long = [first + a for a, n in enumerate(exists.shape) if n != 1]
    if exists.dtype != "bool" or exists.constant is not None or len(long) != 1 or first < 0:
        return None
    (axis,) = long
    if not all(isinstance(n, int) for n in (*shape, *exists.shape)) or exists.shape[axis - first] != shape[axis]:
        return None
    return axis if axis != 1 and _run(shape, axis, block) >= LANES // 4 else None


def _number(request: Request, number: Value, result: Value) -> float | None:
    """The number, if it may be stored as it is, in lanes behind the last channel as well."""
    constant, layout = number.constant, request.layout(result)
    if constant is None or constant.size != 1 or result.dtype == "bool":
        return None
    fill = float(constant.reshape(-1)[0])
    if fill == 0:
        return None if math.copysign(1, fill) < 0 else fill
    tail = layout.block and result.shape[1] % layout.block
    return None if tail or layout.stored or result.dtype != "float32" or math.isnan(fill) else fill


def _without(group: Group, before: Value) -> Group:
    """The group without its last operator; what that read, ``before``, is its result."""
    (result,) = group.outputs
    nodes, anchor = [], group.anchor
    for node in group.nodes[:-1]:
        if before in node.results:
            fresh: Node = replace(node, results=(result,))
            anchor = fresh if node is anchor else anchor
            node = fresh
        nodes.append(node)
    read = {v for n in nodes for v in n.inputs}
    return replace(group, nodes=tuple(nodes), anchor=anchor, inputs=tuple(v for v in group.inputs if v in read))
