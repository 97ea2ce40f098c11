"""The pass: products of one value become one product and slices of it, where that is estimated to be faster.

    q = x Wq + bq, k = x Wk + bk, v = x Wv + bv    ->    y = x [Wq Wk Wv] + [bq bk bv];  q, k, v = slices of y

What it saves: a launch for each product but one, register tiles at their ragged ends, and the sums of A for the seven
products of halves, which all columns share. All columns are sums of their own, in the same order, so it is legal in an
``exact`` build. Weights are moved, not copied: those that somebody else reads stay where they are.

Not merged, since measured not to gain: convolutions of whole channel blocks (0.96 to 1.01 times as fast: each runs at
the peak alone), those of parts of blocks (0.87: their slices are copies), and products with a gate between them (0.96
to 1.03: the gate leaves the epilogue).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from tvm import relax
from tvm.ir import IRModule

from ...schedules.instructions.bf16_parts import ONE, THREE, Products
from ...schedules.matmul import product_cycles
from ...schedules.words.policy import Layers
from ...schedules.words.sizes import dim_of, usual
from ...targets.target import Target
from ..result import Result
from ..simplify.convert import Unreadable, read, replace_main, write
from ..simplify.driver import unread_after
from ..simplify.graph import Graph
from ..simplify.provenance import attribute
from ..simplify.rule import RewriteBuilder
from .branches import Branch, bundles

GAIN = 0.995  # estimated time of one product over that of several: nearer than that, they stay


@dataclass(frozen=True)
class Merge:
    """The pass that merges products of one value. ``threads`` that kernels run on; ``strassen``: kernels may use
    Strassen's products; ``parts``: they may use bf16 parts on a matrix unit,
    ``products`` of them for each of float32. ``layers``: precisions of layers, those in bfloat16 taking one product."""

    threads: int = 1
    strassen: bool = True
    parts: bool = False
    products: Products = THREE
    layers: Layers | None = None
    name: str = "merge"

    def apply(self, module: IRModule, target: Target | None = None) -> Result:
        """``module`` with products of one value as one product and slices of it, where that is estimated to be
        faster."""
        function = module["main"]
        if target is None or not isinstance(function, relax.Function):
            return Result(module, False)
        try:
            graph = read(function)
        except Unreadable:
            return Result(module, False)
        notes: list[str] = []
        merged = 0
        for branches, apart in list(bundles(graph)):
            notes += apart
            if len(branches) < 2:
                continue
            names = ", ".join(b.product.place for b in branches)
            precisions = {self._precision(b) for b in branches}
            if len(precisions) > 1:
                notes.append(f"{names} stay side by side: they are in {' and '.join(sorted(precisions))}")
                continue
            share = self._share(branches, target)
            if share > GAIN:
                notes.append(f"{names} stay side by side: one product would take {share:.1%} of their time")
                continue
            columns = sum(b.columns for b in branches)
            notes.append(f"{names} become one product of {columns} columns: it takes {share:.1%} of their time")
            _merge(graph, branches)
            merged += len(branches)
        if not merged:
            return Result(module, False, tuple(notes))
        return Result(replace_main(module, write(graph, function)), True, tuple(notes), {"merged": merged})

    def _precision(self, branch: Branch) -> str:
        return "float32" if self.layers is None else self.layers.of(branch.product.sources)

    def _products(self, branch: Branch) -> Products:
        if self.layers is None:
            return self.products
        return ONE if self._precision(branch) == "bfloat16" else THREE

    def _share(self, branches: Sequence[Branch], target: Target) -> float:
        shape = [usual(dim_of(d)) for d in branches[0].data.shape or ()]
        images = shape[0] if len(shape) > 2 else 1
        rows, depth, dtype = prod(shape[:-1]) // images, shape[-1], branches[0].product.dtype

        def cycles(columns: int) -> float:
            unit = self.parts, self._products(branches[0])
            return product_cycles(target, images, rows, depth, columns, dtype, self.threads, self.strassen, *unit)

        return cycles(sum(b.columns for b in branches)) / sum(cycles(b.columns) for b in branches)


def _merge(graph: Graph, branches: Sequence[Branch]) -> None:
    first = branches[0]
    b = RewriteBuilder(graph, first.product)
    value = b.call(relax.op.matmul, first.data, b.const(np.concatenate([x.weights.array for x in branches], axis=1)))
    if any(x.bias is not None for x in branches):
        none = -0.0  # the one number that changes nothing
        biases = [np.full(x.columns, none, x.product.dtype) if x.bias is None else x.bias for x in branches]
        value = b.call(relax.op.add, value, b.const(np.concatenate(biases)))
    at, axis = 0, value.rank - 1
    parts = {}
    for branch in branches:
        parts[branch.result] = b.call(relax.op.strided_slice, value, [axis], [at], [at + branch.columns])
        at += branch.columns
    attribute(unread_after(parts, b.created), b.created, parts)
    for result, part in parts.items():
        part.name = result.name
        graph.substitute(result, part)
    graph.remove_unused(parts)
