"""Which nodes a graph's outputs depend on, looking into subgraphs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def count_nodes(nodes: Iterable[onnx.NodeProto]) -> int:
    """How many there are, with those of subgraphs."""
    return sum(1 + sum(count_nodes(g.node) for g in subgraphs(n)) for n in nodes)


def reads(node: onnx.NodeProto) -> set[str]:
    """Every name a node reads: its operands, and what its subgraphs take from the scope around them."""
    names = {n for n in node.input if n}
    for graph in subgraphs(node):
        names |= captured(graph)
    return names


def captured(graph: onnx.GraphProto) -> set[str]:
    """The names a subgraph uses but does not define."""
    defined = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    defined |= {t.values.name for t in graph.sparse_initializer}
    taken: set[str] = set()
    for node in graph.node:
        taken |= reads(node) - defined
        defined |= set(node.output)
    return taken | ({o.name for o in graph.output} - defined)


def live_nodes(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[int]:
    """Indices, in order, of the nodes that some output depends on."""
    wanted = set(outputs)
    live = []
    for index in range(len(nodes) - 1, -1, -1):
        if wanted.intersection(nodes[index].output):
            live.append(index)
            wanted |= reads(nodes[index])
    return live[::-1]


def used_names(nodes: Iterable[onnx.NodeProto], outputs: Iterable[str]) -> set[str]:
    used = set(outputs)
    for node in nodes:
        used |= reads(node)
    return used
