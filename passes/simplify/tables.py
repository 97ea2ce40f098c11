"""Constant tables of which a model takes as much as an open length: what is computed on the part is computed ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from tvm import relax
from tvm.ir import Call

from ...schedules.words.dims import is_open
from .constant_fold import SIZE_LIMIT, folded
from .evaluate import steps
from .graph import CONST, Graph, GraphNode
from .open_slices import OpenRun, runs, taken
from .patterns import BINARY, ELEMENTWISE, ints
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule, relax_op

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

#: Steps that numpy may take for one table, about a second.
STEPS_LIMIT = 1 << 30
_GATHERS = ("relax.take", "halotile.gather")
_REDUCTIONS = frozenset(f"relax.{n}" for n in "sum mean max min prod".split())
_SPREADING = BINARY | {"relax.where", "relax.matmul"}
_NORMS = frozenset(("relax.nn.layer_norm", "relax.nn.rms_norm"))
_VIEWS = frozenset(("relax.reshape", "relax.expand_dims", "relax.squeeze"))
_ROOTS = ELEMENTWISE | _NORMS | _VIEWS | _REDUCTIONS | {"relax.matmul", "relax.permute_dims", "relax.concat", *_GATHERS}
_ROOTS |= {"relax.nn.softmax"}


class TableAhead(Rule):
    """matmul(table[0:n], w)    ->    matmul(table, w)[0:n], for constants: the product is made at compile time

    So for whatever has constants only beside slices of constants, and does not mix the positions that these choose
    among: elementwise operators, products, norms, permutations, dims of one that come and go, gathers by a table of
    positions. Each slice takes the same positions, or those of an axis of its own (rows and columns of a grid); the
    whole must not be larger than a constant may become.
    """

    name = "table-ahead"
    family = "precomputation"
    modes = EXACT
    roots = _ROOTS

    def __init__(self, float_mode: str = "strict") -> None:
        self._exact = float_mode == "exact"

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        parts = {i for i in node.inputs if i.op != CONST}
        if node.static or not parts or not node.is_tensor or not all(map(_is_part, parts)):
            return None
        chosen = _places(node)
        if not chosen:
            return None
        whole = _on_tables(node, graph)
        if whole is None or not whole.static:
            return None
        tables = [i.array for i in whole.inputs]
        if whole.nbytes > max(SIZE_LIMIT, sum(i.nbytes for i in whole.inputs)):
            return Declined(f"the whole table would take {whole.nbytes} bytes")
        if steps(whole, tables) > STEPS_LIMIT:
            return Declined("the whole table takes too long to compute")
        value = folded(whole, whole, self._exact)
        if isinstance(value, Declined):
            return value
        places, shape = chosen, node.shape or ()

        def build(b: RewriteBuilder) -> GraphNode:
            return taken(b, b.const(value), places, shape)

        return Rewrite(build)


def _places(node: GraphNode) -> dict[int, OpenRun] | None:
    """What the parts take, by axis of the result; None where they do not agree."""
    found = [_along(node, k, _open_runs(p)) if p.op != CONST else {} for k, p in enumerate(node.inputs)]
    if any(f is None for f in found):
        return None
    chosen = {axis: run for f in found if f for axis, run in f.items()}
    for part, own in zip(node.inputs, found):
        for axis, run in chosen.items() if part.op != CONST else ():
            if own and axis in own:
                if own[axis] != run:
                    return None
            elif node.op not in _SPREADING or not _own(node, part, axis) and _extent(part, axis - node.rank) != 1:
                return None
    return chosen


def _open_runs(part: GraphNode) -> dict[int, OpenRun]:
    """Of the cut axes those whose part depends on a length."""
    return {a: r for a, r in (runs(part) or {}).items() if is_open((r.begin, r.count))}


def _table(part: GraphNode) -> GraphNode:
    """What the slice takes of its constant along the other axes, in no graph."""
    constant = part.inputs[0]
    index = [slice(None)] * constant.rank
    for axis, run in (runs(part) or {}).items():
        if not is_open((run.begin, run.count)):
            index[axis] = slice(run.begin, run.begin + run.stride * run.count, run.stride)
    array = np.ascontiguousarray(constant.array[tuple(index)])
    table = GraphNode(CONST, [], (), None, relax.TensorType(list(array.shape), constant.dtype))
    table.value = array
    return table


def _is_part(node: GraphNode) -> bool:
    """Whether it is a slice of a constant, of open length."""
    return node.op == "relax.strided_slice" and node.inputs[0].op == CONST and bool(_open_runs(node))


def _along(node: GraphNode, index: int, chosen: dict[int, OpenRun]) -> dict[int, OpenRun] | None:
    """The axes of the result that the cut axes of operand ``index`` become; None where the operator mixes positions."""
    part, others = node.inputs[index], [i for k, i in enumerate(node.inputs) if k != index and i.op == CONST]
    axes = _AXES.get(node.op, _elementwise if node.op in ELEMENTWISE else None)
    if axes is None or part.shape is None or node.shape is None:
        return None
    found = {}
    for axis, run in chosen.items():
        place = axes(node, index, part, axis)
        if place is None or not 0 <= place < node.rank:
            return None
        if node.op in _SPREADING:
            if any(_extent(o, place - node.rank) != 1 for o in others if not _own(node, o, place)):
                return None
        found[place] = run
    return found


def _own(node: GraphNode, other: GraphNode, place: int) -> bool:
    """Whether a product's other side has an axis of its own there, which is no axis of the batch."""
    return node.op == "relax.matmul" and place >= node.rank - 2


def _extent(node: GraphNode, axis: int) -> SizeLike:
    """The extent of an axis that is counted from the end; 1 where there is none."""
    shape = node.shape or ()
    return shape[axis] if -axis <= len(shape) else 1


def _elementwise(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    return axis + node.rank - part.rank


def _product(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    contracted = part.rank - 1 if index == 0 else part.rank - 2
    ranks = min(i.rank for i in node.inputs)
    return None if ranks < 2 or axis == contracted else axis + node.rank - part.rank


def _permuted(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    axes = ints(node.attr("axes")) or list(range(part.rank))[::-1]
    return [a % part.rank for a in axes].index(axis)


def _outside(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    """Of operators that work along axes of their own."""
    given = node.attr("axes") if node.attr("axes") is not None else node.attr("axis")
    axes = ints(given)
    if axes is None or index or axis in [a % part.rank for a in axes]:
        return None
    return axis


def _joined(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    return None if axis == int(node.attr("axis") or 0) % part.rank else axis


def _reduced(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    axes = [a % part.rank for a in ints(node.attr("axis")) or range(part.rank)]
    if axis in axes:
        return None
    return axis if node.attr("keepdims") else axis - sum(a < axis for a in axes)


def _viewed(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    """Where only dims of one come and go, the others stay in order."""
    before = [a for a, d in enumerate(part.shape or ()) if not _is_one(d)]
    after = [a for a, d in enumerate(node.shape or ()) if not _is_one(d)]
    if len(before) != len(after) or axis not in before:
        return None
    pairs = list(zip(before, after))
    same = all(_same(part.shape[a], node.shape[b]) for a, b in pairs)  # type: ignore[index]
    return dict(pairs)[axis] if same else None


def _gathered(node: GraphNode, index: int, part: GraphNode, axis: int) -> int | None:
    """Positions that a slice chooses of a table of them."""
    data = node.attr("axis")
    return None if data is None or index != 1 else int(data) % node.inputs[0].rank + axis


def _is_one(dim: SizeLike) -> bool:
    return isinstance(dim, int) and dim == 1


def _same(a: SizeLike, b: SizeLike) -> bool:
    import tvm_ffi

    return a == b if isinstance(a, int) and isinstance(b, int) else bool(tvm_ffi.structural_equal(a, b))


_AXES = {
    "relax.matmul": _product,
    "relax.permute_dims": _permuted,
    "relax.concat": _joined,
    "relax.nn.softmax": _outside,
    **dict.fromkeys(_NORMS, _outside),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(_VIEWS, _viewed),
    **dict.fromkeys(_GATHERS, _gathered),
}


def _on_tables(node: GraphNode, graph: Graph) -> GraphNode | None:
    """The operator on whole tables instead of their parts, in no graph; None where its type can't be told."""
    tables = [i if i.op == CONST else _table(i) for i in node.inputs]
    args: list[object] = []
    for operand in node.operands:
        if isinstance(operand, int):
            args.append(tables[operand].var)
        elif isinstance(operand, tuple):
            args.append(relax.Tuple([tables[k].var for k in operand]))
        else:
            args.append(operand)
    if node.op == "relax.reshape":
        args[1] = relax.ShapeExpr(_whole_shape(node, tables[0]))
    call = graph.normalizer.normalize(Call(relax_op(node.op), args, node.attrs))
    return GraphNode(node.op, tables, node.operands, node.attrs, call.ty)


def _whole_shape(node: GraphNode, table: GraphNode) -> list[int]:
    """The table's dims in the places that a view of a part of it gives these."""
    kept = iter(d for d, p in zip(table.shape or (), _part_shape(node)) if not _is_one(p))
    return [1 if _is_one(d) else int(next(kept)) for d in node.shape or ()]


def _part_shape(node: GraphNode) -> tuple[SizeLike, ...]:
    return node.inputs[0].shape or ()
