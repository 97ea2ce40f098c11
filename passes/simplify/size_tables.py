"""Tables that depend on open sizes alone, as one operator each: what is a constant where the sizes are known."""

from __future__ import annotations

from collections.abc import Iterable

from tvm import relax
from tvm.ir import Call, IRModule

from ...schedules.operators.of_sizes import TABLE, at_sizes
from ...schedules.operators.registry import call
from ...schedules.words.provenance import span_of
from .common import share_common
from .convert import Unreadable, expression, read, replace_main, write
from .graph import CONST, INPUT, Graph, GraphNode
from .patterns import ELEMENTWISE
from .rule import EXACT, Declined, Rewrite, RewriteBuilder, Rule

_SOURCES = frozenset(("relax.arange", "relax.shape_to_tensor"))
_MOVES = frozenset(
    f"relax.{n}"
    for n in "reshape expand_dims squeeze broadcast_to permute_dims strided_slice tile concat take flatten".split()
)
#: What a table may be made of: maps without an input, of one result.
_PIECES = ELEMENTWISE | _MOVES | _SOURCES | {"halotile.gather", TABLE}


def of_sizes(node: GraphNode) -> bool:
    """Whether a node is computed from constants and open sizes alone, by maps."""
    known: dict[GraphNode, bool] = {}
    stack = [node]
    while stack:
        top = stack[-1]
        if top in known:
            stack.pop()
        elif top.op not in _PIECES or not top.is_tensor or top.shape is None:
            known[top] = False
        else:
            missing = [i for i in top.inputs if i.op != CONST and i not in known]
            stack.extend(missing)
            if not missing:
                known[top] = all(known.get(i, True) for i in top.inputs)
    return known[node]


class TableOfSizes(Rule):
    """cos(range(n) * frequencies)    ->    of_sizes([n], frequencies): one operator

    Positions, grids, masks and numbers that depend on open sizes alone, by maps without a reduction: constants, where
    the sizes are known. Tried where no other rule has anything left to do.
    """

    name = "table-of-sizes"
    family = "precomputation"
    modes = EXACT
    roots = _PIECES - {TABLE}
    last = True

    def match(self, node: GraphNode, graph: Graph) -> Rewrite | Declined | None:
        if not _is_end(node) or not of_sizes(node):
            return None
        pieces = _together(node)
        if len(pieces) < 2 or not _symbols(pieces, graph):
            return None
        return Rewrite(lambda b: _tables(b, pieces, graph))


def _is_end(node: GraphNode) -> bool:
    """Whether anything but a piece of a table reads the node."""
    return bool(node.outputs) or not all(of_sizes(u) for u in node.users)


def _together(node: GraphNode) -> list[GraphNode]:
    """All pieces of the tables that have a piece in common with that of ``node``, operands first."""
    found: dict[GraphNode, None] = {}
    stack = [node]
    while stack:
        top = stack.pop()
        if top in found:
            continue
        found[top] = None
        stack.extend(i for i in top.inputs if i.op not in (CONST, TABLE))
        stack.extend(u for u in top.users if u.op != TABLE and of_sizes(u))
    order: dict[GraphNode, None] = {}
    for top in found:
        _enter(top, found, order)
    return list(order)


def _enter(node: GraphNode, among: Iterable[GraphNode], order: dict[GraphNode, None]) -> None:
    stack = [node]
    while stack:
        missing = [i for i in stack[-1].inputs if i in among and i not in order]
        stack.extend(missing)
        if not missing:
            order[stack.pop()] = None


def _symbols(pieces: Iterable[GraphNode], graph: Graph) -> list[relax.Expr]:
    """The open sizes that the pieces depend on, by name."""
    names = {s.name for piece in pieces for s in symbols_of(piece)}
    return [graph.symbols[n] for n in sorted(names) if n in graph.symbols]


def symbols_of(node: GraphNode) -> list[relax.Expr]:
    """The open sizes that a node's type and operands name."""
    found = list(relax.analysis.tir_vars_in_type(node.ty))
    for operand in node.operands:
        if not isinstance(operand, (int, tuple)):
            found += relax.analysis.free_symbolic_vars(_wrapped(operand))
    return found


def _wrapped(operand: relax.Expr) -> relax.Function:
    """A function that holds the operand, since it is functions that are asked for their symbols."""
    return relax.Function([], relax.SeqExpr([], operand), operand.ty, True)


def _tables(b: RewriteBuilder, pieces: list[GraphNode], graph: Graph) -> dict[GraphNode, GraphNode]:
    ends = [p for p in pieces if _is_end(p)]
    made: dict[GraphNode, GraphNode] = {}
    for end in ends:
        body = _pieces_of(end, set(ends))
        if len(body) > 1 or any(i in made for i in end.inputs):
            made[end] = _table(b, end, body, made, graph)
    return made


def _pieces_of(end: GraphNode, ends: set[GraphNode]) -> list[GraphNode]:
    """What the table is made of, operands first; other tables are read."""
    inner: dict[GraphNode, None] = {}
    stack = [end]
    while stack:
        top = stack.pop()
        if top not in inner:
            inner[top] = None
            stack.extend(i for i in top.inputs if i.op not in (CONST, TABLE) and i not in ends)
    order: dict[GraphNode, None] = {}
    _enter(end, inner, order)
    return list(order)


def _table(
    b: RewriteBuilder, end: GraphNode, body: list[GraphNode], made: dict[GraphNode, GraphNode], graph: Graph
) -> GraphNode:
    symbols = _symbols(body, graph)
    read = list(dict.fromkeys(i for p in body for i in p.inputs if i not in body))
    sizes = relax.Var("sizes", relax.ShapeType(symbols))
    parameters = {r: relax.Var(f"table{k}", r.ty) for k, r in enumerate(read)}
    known: dict[GraphNode, relax.Expr] = dict(parameters)
    bindings = []
    for k, piece in enumerate(body):
        known[piece] = relax.DataflowVar(piece.name or f"piece{k}", piece.ty)
        call_ = expression(piece, [known[i] for i in piece.inputs])
        bindings.append(relax.VarBinding(known[piece], call_, span_of(piece.sources)))
    result = relax.Var("result", end.ty)
    bindings.append(relax.VarBinding(result, known[end]))
    inside = relax.SeqExpr([relax.DataflowBlock(bindings)], result)
    relax.expr._update_type(inside, end.ty)
    function = relax.Function([sizes, *parameters.values()], inside, end.ty, True)

    def make(*tables: relax.Expr) -> Call:
        shape = relax.ShapeExpr(list(end.shape or ()))
        return call(TABLE, relax.ShapeExpr(symbols), shape, *tables, body=function, dtype=end.dtype)

    return b.call(make, *(made.get(r, r) for r in read))


def spread(module: IRModule) -> IRModule:
    """The module with the pieces of its tables in their place: what kernels are chosen and fused from."""
    function = module["main"]
    try:
        graph = read(function)
    except Unreadable:
        return module
    tables = [n for n in graph.order() if n.op == TABLE]
    for node in tables:
        graph.substitute(node, _spread(node, graph))
    if not tables:
        return module
    graph.remove_unused(tables)
    share_common(graph)
    return replace_main(module, write(graph, function))


def _spread(node: GraphNode, graph: Graph) -> GraphNode:
    inner = read(at_sizes(node.attrs["body"], node.operands[0]))
    known = dict(zip(inner.inputs[1:], node.inputs))
    for k, piece in enumerate(n for n in inner.order() if n.op != INPUT):
        copy = GraphNode(piece.op, [known[i] for i in piece.inputs], piece.operands, piece.attrs, piece.ty)
        copy.value, copy.name, copy.sources = piece.value, piece.name, piece.sources or node.sources
        copy.order = (*node.order, -1.0, k)
        known[piece] = graph.link(copy)
    return known[inner.outputs[0]]
