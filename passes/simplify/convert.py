"""Relax function <-> :class:`~.graph.Graph`, each way once per run of the pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from tvm import relax
from tvm.ir import Call, GenericConst, IRModule, Op, Tuple, TupleGetItem, Var, make_node

from ...schedules.operators.registry import attributes
from ...schedules.words.group import CONTROL
from ...schedules.words.provenance import names_of, span_of
from ...schedules.words.sizes import dim_of, value_of
from ...schedules.words.tvm_types import Binding, Expr
from .graph import CONST, INPUT, ITEM, OPAQUE, TUPLE, Graph, GraphNode


class Unreadable(Exception):
    """The function has a form that the pass does not take (control flow, several results of unknown kind)."""


def read(function: relax.Function) -> Graph:
    """The graph of ``function``, whose body must be straight-line code. Raises :class:`Unreadable` otherwise."""
    table: dict[Expr, GraphNode] = {}
    inputs = []
    for k, parameter in enumerate(function.params):
        node = GraphNode(INPUT, [], (), None, parameter.ty)
        node._var, node.name, node.order = parameter, parameter.name, (-1.0, k)
        table[parameter] = node
        inputs.append(node)
    graph = Graph(inputs)
    if not isinstance(function.body, relax.SeqExpr):
        raise Unreadable("its body is not a sequence of bindings")
    count = 0
    for block in function.body.blocks:
        for binding in block.bindings:
            count += 1
            node = _read_binding(graph, table, binding)
            if not node.name:
                node.name = binding.var.name
                node.order = (float(count),)
                node.sources = names_of(binding.span)
            table[binding.var] = node
    result = _lookup(graph, table, function.body.body)
    graph.returns_tuple = result.op == TUPLE
    graph.set_outputs(result.inputs if result.op == TUPLE else [result])
    if any(o.op == TUPLE for o in graph.outputs):
        raise Unreadable("it returns nested tuples")
    unread = [n for n in dict.fromkeys(table.values()) if not n.users and n.op not in (INPUT, TUPLE)]
    graph.dead = sum(n.attrs != CONST for n in graph.remove_unused(unread))
    return graph


def _read_binding(graph: Graph, table: dict[Expr, GraphNode], binding: Binding) -> GraphNode:
    if isinstance(binding, relax.MatchCast):
        inner = _lookup(graph, table, binding.value)
        node = graph.link(GraphNode(OPAQUE, [inner], (0,), binding, binding.var.ty))
        graph.pinned.append(node)
        return node
    return _lookup(graph, table, binding.value)


def _lookup(graph: Graph, table: dict[Expr, GraphNode], expr: Expr) -> GraphNode:
    """The node of an expression; variables and constants are found in ``table``, calls become new nodes."""
    if isinstance(expr, Var):
        if expr not in table:
            raise Unreadable(f"variable {expr.name} is used before it is bound")
        return table[expr]
    if isinstance(expr, GenericConst):
        if expr not in table:
            node = GraphNode(CONST, [], (), None, expr.ty)
            node.value = expr.value
            node.order = (0.0, len(table))
            table[expr] = node
        return table[expr]
    if isinstance(expr, Tuple):
        inputs = [_lookup(graph, table, f) for f in expr.fields]
        return GraphNode(TUPLE, inputs, tuple(range(len(inputs))), None, expr.ty)
    if isinstance(expr, TupleGetItem):
        source = _lookup(graph, table, expr.tuple_value)
        if source.op == TUPLE:
            return source.inputs[expr.index]
        return graph.link(GraphNode(ITEM, [source], (0,), int(expr.index), expr.ty))
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        return graph.link(from_call(expr, lambda e: _lookup(graph, table, e)))
    raise Unreadable(f"it holds a {type(expr).__name__}")


def from_call(call: Call, lookup: Callable[[Expr], GraphNode]) -> GraphNode:
    """An unlinked node for ``call``; ``lookup`` finds the node of a tensor expression."""
    inputs: list[GraphNode] = []

    def enter(expr: Expr) -> int:
        inputs.append(lookup(expr))
        return len(inputs) - 1

    operands: list[Expr | tuple[int, ...]] = []
    for arg in call.args:
        if isinstance(arg, Tuple) and arg.fields and all(_is_tensor(f) for f in arg.fields):
            operands.append(tuple(enter(f) for f in arg.fields))
        elif isinstance(arg, Var) and _is_runtime(arg) or isinstance(arg, (GenericConst, Call, TupleGetItem)):
            node = lookup(arg)
            if node.op == TUPLE:
                inputs.extend(node.inputs)
                operands.append(tuple(range(len(inputs) - len(node.inputs), len(inputs))))
            else:
                inputs.append(node)
                operands.append(len(inputs) - 1)
        else:
            operands.append(arg)
    return GraphNode(call.op.name, inputs, tuple(operands), call.attrs, call.ty)


def _is_runtime(var: Var) -> bool:
    return not type(var.ty).__name__ == "PrimType"


def _is_tensor(expr: Expr) -> bool:
    return isinstance(expr, (Var, GenericConst)) and isinstance(expr.ty, relax.TensorType)


def write(graph: Graph, function: relax.Function) -> relax.Function:
    """The Relax function of ``graph``: one dataflow block that returns one tuple of the outputs."""
    exprs: dict[GraphNode, Expr] = {}
    bindings: list[Binding] = []
    names: set[str] = {p.name for p in function.params}
    for node in graph.order():
        if node.op == INPUT:
            exprs[node] = node.var
            continue
        if node.op == CONST:
            exprs[node] = constant(node)
            continue
        var = relax.DataflowVar(_unique(node.name or "lv", names), node.ty)
        if node.op == OPAQUE:
            bindings.append(relax.MatchCast(var, exprs[node.inputs[0]], node.attrs.ty))
        else:
            bindings.append(
                relax.VarBinding(var, expression(node, [exprs[i] for i in node.inputs]), span_of(node.sources))
            )
        exprs[node] = var
    for node in graph.inputs:
        exprs.setdefault(node, node.var)
    result = exprs[graph.outputs[0]]
    if graph.returns_tuple:
        result = Tuple([exprs[o] for o in graph.outputs])
    output = relax.Var(_unique("outputs", names), result.ty)
    bindings.append(relax.VarBinding(output, result))
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], output)
    relax.expr._update_type(body, result.ty)
    return relax.Function(list(function.params), body, result.ty, True, function.attrs, function.span)


def expression(node: GraphNode, inputs: list[Expr]) -> Expr:
    """The Relax expression of an operator node on given input expressions."""
    if node.op == ITEM:
        return TupleGetItem(inputs[0], node.attrs)
    args = []
    for operand in node.operands:
        if isinstance(operand, int):
            args.append(inputs[operand])
        elif isinstance(operand, tuple):
            args.append(Tuple([inputs[k] for k in operand]))
        else:
            args.append(operand)
    return Call(Op.get(node.op), args, node.attrs, ret_ty=node.ty)


def constant(node: GraphNode) -> Expr:
    if isinstance(node.value, np.ndarray):
        return relax.const(np.ascontiguousarray(node.value).reshape(node.value.shape), node.dtype)
    return GenericConst(node.value, node.ty)


def _unique(name: str, taken: set[str]) -> str:
    candidate, k = name, 0
    while candidate in taken:
        k += 1
        candidate = f"{name}_{k}"
    taken.add(candidate)
    return candidate


def replace_main(module: IRModule, function: relax.Function) -> IRModule:
    functions = {var: f for var, f in module.functions.items() if var.name_hint != "main"}
    functions[module.get_global_var("main")] = function
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def with_sizes(function: relax.Function, sizes: Mapping[str, int]) -> relax.Function:
    """The function with numbers for its symbols, in the bodies of its loops and branches as well."""
    blocks = [type(b)([_with_sizes(binding, sizes) for binding in b.bindings]) for b in function.body.blocks]
    body = relax.SeqExpr(blocks, function.body.body)
    relax.expr._update_type(body, function.body.ty)
    whole = relax.Function(list(function.params), body, function.ret_ty, True, function.attrs)
    own = {v.name for v in relax.analysis.defined_symbolic_vars(whole)}
    return whole.bind_symbolic_vars({n: size for n, size in sizes.items() if n in own})


def _with_sizes(binding: Binding, sizes: Mapping[str, int]) -> Binding:
    call = binding.value
    if not isinstance(call, Call) or getattr(call.op, "name", "") not in CONTROL:
        return binding
    given = attributes(call)
    for name, value in given.items():
        if isinstance(value, relax.Function):
            given[name] = with_sizes(value, sizes)
    types = given["results"].fields
    shapes = [[value_of(dim_of(d), sizes) for d in t.shape.values] for t in types]
    given["results"] = relax.TupleType([relax.TensorType(s, str(t.dtype.dtype)) for s, t in zip(shapes, types)])
    attrs = make_node("ir.DictAttrs", **given)
    return relax.VarBinding(binding.var, Call(call.op, call.args, attrs, ret_ty=call.ty), binding.span)
