"""Whether a model's weights are still in the last-level cache when it runs again.

Every run reads all weights once, in the same order. If they are more than a cache holds, all come from memory each
time: what was read last drives out what will be read first. Of a cache of hundreds of megabytes, which a server's many
cores share, a model finds about ``KEPT`` again: weights of 47 MB are read at its speed, 102 MB at the memory's.
"""

from __future__ import annotations

from dataclasses import replace

from ..passes.fuse.graph import ProgramGraph
from ..schedules.words.group import Value
from ..targets.target import Target

KEPT = 64 << 20


def with_residence(target: Target, graph: ProgramGraph) -> Target:
    """``target`` as kernels for ``graph`` see it. Smaller last-level caches are left to the shares that single layers
    may take of them."""
    if target.l3_bytes <= KEPT or weight_bytes(graph) <= KEPT:
        return target
    return replace(target, weights_stay=False)


def weight_bytes(graph: ProgramGraph) -> int:
    """Bytes of the constants that the nodes read, each counted once."""
    found: dict[int, int] = {}
    for node in graph.nodes:
        for operand in node.operands:
            for value in operand if isinstance(operand, tuple) else (operand,):
                if isinstance(value, Value) and value.constant is not None:
                    found[id(value.constant)] = value.constant.nbytes
    return sum(found.values())
