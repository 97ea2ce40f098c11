"""What a model file holds: the nodes and weights of all its graphs, those of branches, bodies and functions too.

Each is counted once, however often it would run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from .functions import dtype_name
from .prune import subgraphs

_BYTES = {onnx.AttributeProto.FLOATS: 4, onnx.AttributeProto.INTS: 8}


@dataclass(frozen=True)
class ModelWeights:
    """Tensors, their elements and bytes; the tables of trees and linear models, which are attributes, are some too."""

    tensors: int
    elements: int
    bytes: int


def all_graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The main graph, then every graph inside of a node, then the functions and what is inside of those."""
    pending: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while pending:
        graph = pending.pop(0)
        yield graph
        pending[:0] = [inner for node in graph.node for inner in subgraphs(node)]


def all_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of :func:`all_graphs`."""
    for graph in all_graphs(model):
        yield from graph.node


def count_weights(model: onnx.ModelProto) -> ModelWeights:
    """Initialisers, constants, and long lists of numbers of ``ai.onnx.ml``."""
    sizes: list[tuple[int, int]] = []
    for graph in all_graphs(model):
        if isinstance(graph, onnx.GraphProto):
            sizes += map(_tensor, graph.initializer)
            sizes += [_sparse(t) for t in graph.sparse_initializer]
        for node in graph.node:
            sizes += _attributes(node)
    return ModelWeights(len(sizes), sum(n for n, _ in sizes), sum(b for _, b in sizes))


def _attributes(node: onnx.NodeProto) -> Iterator[tuple[int, int]]:
    """(elements, bytes) of what a node holds itself: the constant that it is, or the tables of a model of features."""
    tables = node.domain == "ai.onnx.ml"
    if not tables and (node.op_type != "Constant" or node.domain not in ("", "ai.onnx")):
        return
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            yield _tensor(attribute.t)
        elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            yield _sparse(attribute.sparse_tensor)
        elif attribute.type in _BYTES:
            count = len(attribute.floats) or len(attribute.ints)
            yield count, count * _BYTES[attribute.type]
        elif attribute.type == onnx.AttributeProto.STRINGS and tables:
            yield len(attribute.strings), sum(map(len, attribute.strings))
        elif not tables and attribute.name in ("value_float", "value_int"):
            yield 1, 4 if attribute.name == "value_float" else 8


def _tensor(tensor: onnx.TensorProto) -> tuple[int, int]:
    name = dtype_name(tensor.data_type) or ""
    bits = int("".join(c for c in name.split("_")[0] if c.isdigit()) or 8)
    elements = math.prod(tensor.dims)
    return elements, -(-elements * bits // 8)


def _sparse(tensor: onnx.SparseTensorProto) -> tuple[int, int]:
    """The elements that are stored, and the bytes of them and of where they are."""
    values, places = _tensor(tensor.values), _tensor(tensor.indices)
    return values[0], values[1] + places[1]
