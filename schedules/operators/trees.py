"""The leaf that each row of features comes to in each of many decision trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import te, tirx

from ..emit import KernelBuilder
from ..operator import define
from .common import shape_of
from .loops import PARALLEL_WORK, written

TREES = 8  # that go down side by side: each step is three loads one behind the other
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "LEQ": lambda a, b: a <= b,
    "LT": lambda a, b: a < b,
    "GTE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
    "EQ": lambda a, b: a == b,
    "NEQ": lambda a, b: tirx.Not(a == b),  # holds for a NaN
}


@define("halotile.leaves")
def leaves(
    x: te.Tensor, feature: te.Tensor, split: te.Tensor, children: te.Tensor, roots: te.Tensor, *more: te.Tensor,
    depth: int, modes: Sequence[str], nan: bool,
) -> te.Tensor:  # fmt: skip
    """int32 [rows, trees]: from its root, ``depth`` steps to children[node] where x[row, feature[node]] compares with
    split[node], else to children[nodes + node]; leaves are their own children.

    ``modes``: names in COMPARE; of several, ``more`` holds the place of each node's. ``nan``: its last one says (int8)
    where a comparison holds for a NaN.
    """
    rows, features = shape_of(x)
    nodes, trees = shape_of(feature)[0], shape_of(roots)[0]
    lanes = min(trees, TREES)
    blocks = -(-trees // lanes)

    def write(k: KernelBuilder, ins: list[Any], outs: list[Any]) -> None:
        values, which, limits, next_, starts, *tables = ins
        kind = "parallel" if rows * trees * depth >= PARALLEL_WORK else "serial"
        with k.loop(rows * blocks, kind, "block") as block:
            row, first = block // blocks, tirx.min(block % blocks * lanes, trees - lanes)  # the last overlaps
            at = k.local("at", "int32", lanes)
            with k.loop(lanes, "unroll") as tree:
                k.store(at, tree, starts[first + tree])
            with k.loop(depth, name="level"), k.loop(lanes, "unroll") as tree:
                node = k.bind(at[tree])
                value, limit = k.bind(values[row * features + which[node]]), k.bind(limits[node])
                holds = COMPARE[modes[0]](value, limit)
                for place, mode in enumerate(modes[1:], 1):
                    holds = tirx.Select(tables[0][node] == place, COMPARE[mode](value, limit), holds)
                if nan:
                    holds = tirx.any(holds, tirx.all(tables[-1][node] != 0, tirx.isnan(value)))
                k.store(at, tree, next_[node + tirx.Select(holds, 0, nodes)])
            with k.loop(lanes, "unroll") as tree:
                k.store(outs[0], row * trees + first + tree, at[tree])

    return written("leaves", [x, feature, split, children, roots, *more], [((rows, trees), "int32")], write)[0]
