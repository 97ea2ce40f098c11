"""Matrix multiplication by panels of B.

    parallel for batch, panel of B, block of rows
      for tile of rows                          last one moved back, never smaller
        acc[rows][vectors][lanes] = 0
        for k                                   rolled: LLVM keeps the tile in registers
          acc[r][v] += a[row r, k] (broadcast) * b[panel][k][v]
        epilogue(acc)

A constant B lies in panels [N / (vectors * lanes)][K][vectors][lanes], zero-padded, and each panel is read from start
to end. A variable B is read in place, a row of the panel at a time; its last, narrower panel is a nest of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from ..classify import Facts
from ..context import Context
from ..group import Kernel, Packed, Request
from ..inline import key
from ..tegraph import GroupGraph
from .choose import choose_tile
from .facts import MatmulFacts

PARALLEL_FLOPS = 400_000
TASK_ROWS = 64  # rows of one task: enough work for a launch, few enough to balance


@dataclass(frozen=True)
class Region:
    """Output columns ``first + [0, panels * vectors * lanes)``; ``last`` is the width of the very last vector."""

    first: int
    panels: int
    vectors: int
    last: int


def build_packed(request: Request, facts: MatmulFacts) -> Kernel:
    return _Matmul(request, facts).build()


class _Matmul:
    def __init__(self, request: Request, facts: MatmulFacts) -> None:
        self.request, self.facts = request, facts
        anchor = request.group.anchor
        assert anchor is not None
        self.anchor = anchor
        self.graph = GroupGraph(request.group, [anchor])
        self.ctx = Context(request, self.graph, request.group.name)
        self.k = self.ctx.k
        self.lanes = request.target.lanes(facts.output.dtype)
        self.vectors_total = -(-facts.n // self.lanes)
        self.height, self.width = choose_tile(request.target, facts.rows, self.vectors_total)
        self.costly = any(Facts(n).costly for n in request.group.nodes if n is not anchor)

    def build(self) -> Kernel:
        a = self.ctx.buffer(self.facts.a)
        if self.facts.packs:
            b: Any = self.ctx.packed(Packed(f"w_{self.facts.b.name}", self._panels()))
        else:
            b = self.ctx.buffer(self.facts.b)
        regions = self._regions()
        for region in regions:
            self._region(region, a, b)
        form = "packed" if self.facts.packs else "in place"
        return Kernel(
            function=self.k.finish(),
            operands=tuple(self.ctx.operands),
            outputs=self.request.group.outputs,
            schedule=f"matmul {form}, tile {self.height}x{self.width}x{self.lanes}",
            flops=self.facts.flops,
        )

    def _regions(self) -> list[Region]:
        """Whole panels, then one of the vectors that are left."""
        full_vectors, rest = divmod(self.facts.n, self.lanes)
        panels, left = divmod(full_vectors, self.width)
        regions = []
        if panels:
            regions.append(Region(0, panels, self.width, self.lanes))
        if left or rest:
            first = panels * self.width * self.lanes
            regions.append(Region(first, 1, left + (1 if rest else 0), rest or self.lanes))
        return regions

    def _panels(self) -> np.ndarray:
        b = np.asarray(self.facts.b.constant).reshape(self.facts.k, self.facts.n)
        parts = []
        for region in self._regions():
            columns = region.panels * region.vectors * self.lanes
            part = np.zeros((self.facts.k, columns), b.dtype)
            have = b[:, region.first : region.first + columns]
            part[:, : have.shape[1]] = have
            part = part.reshape(self.facts.k, region.panels, region.vectors * self.lanes)
            parts.append(part.transpose(1, 0, 2).reshape(-1))
        return np.ascontiguousarray(np.concatenate(parts))

    # -- one region ------------------------------------------------------------------------------

    def _region(self, region: Region, a: Any, b: Any) -> None:
        facts, k, ctx = self.facts, self.k, self.ctx
        rows, height = facts.rows, self.height
        tiles = -(-rows // height)
        per_task = max(1, TASK_ROWS // height)
        blocks = -(-tiles // per_task)
        batches = 1
        if not facts.flat:
            for s in facts.batch:
                batches *= s
        total = batches * region.panels * blocks
        parallel = total > 1 and facts.flops >= PARALLEL_FLOPS
        with k.loop(total, "parallel" if parallel else "serial", "p") as p:
            ctx.ranged(p, total)
            block = self.bind(tirx.floormod(p, blocks), blocks)
            panel = self.bind(tirx.floormod(tirx.floordiv(p, blocks), region.panels), region.panels)
            batch = self.bind(tirx.floordiv(p, blocks * region.panels), batches)
            count: Any = per_task if tiles % per_task == 0 else tirx.min(tiles - block * per_task, per_task)
            with k.loop(count, name="t") as t:
                tile = block * per_task + t
                start = tirx.min(tile * height, rows - height) if rows % height else tile * height
                row = self.bind(start, rows - height + 1)
                self._tile(region, a, b, batch, panel, row)

    def bind(self, value: Any, extent: int) -> Any:
        value = self.ctx.analyzer.simplify(value)
        if isinstance(value, (int, tirx.IntImm, tirx.Var)):
            return value
        return self.ctx.ranged(self.k.bind(value, "o"), extent)

    def _batch_indices(self, batch: Any) -> list[Any]:
        """Logical batch coordinates of the output from the flat batch number."""
        indices: list[Any] = []
        rest = batch
        for s in reversed(self.facts.batch):
            indices.append(tirx.floormod(rest, s))
            rest = tirx.floordiv(rest, s)
        return [self.ctx.analyzer.simplify(i) for i in reversed(indices)]

    def _base(self, value: Any, batch: list[Any]) -> Any:
        """Flat position of a batch of A or B; axes of size 1 broadcast."""
        shape = value.shape[:-2]
        base: Any = 0
        for s, i in zip(shape, batch[len(batch) - len(shape):]):
            base = base * s + (0 if s == 1 else i)
        return base * (value.shape[-2] * value.shape[-1])

    def _tile(self, region: Region, a: Any, b: Any, batch: Any, panel: Any, row: Any) -> None:
        facts, k, lanes, height = self.facts, self.k, self.lanes, self.height
        vectors = region.vectors
        indices = [] if facts.flat else self._batch_indices(batch)
        a_base = 0 if facts.flat else self._base(facts.a, indices)
        column = region.first + panel * vectors * lanes
        acc = k.local("acc", facts.output.dtype, height * vectors * lanes)
        with k.loop(height * vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            k.store(acc, z * lanes + v, tirx.const(0, facts.output.dtype))
        with k.loop(facts.k, name="k") as step:
            if facts.packs:
                b_at = region.first * facts.k + (panel * facts.k + step) * (vectors * lanes)
            else:
                b_at = (0 if facts.flat else self._base(facts.b, indices)) + step * facts.n + column
            whole = vectors if region.last == lanes or facts.packs else vectors - 1
            with k.loop(height, "unroll", "r") as r:
                left = a[a_base + (row + r) * facts.k + step]
                for first, count, width in ((0, whole, lanes), (whole, vectors - whole, region.last)):
                    if count:
                        with k.loop(count, "unroll", "b") as j, k.loop(width, "vectorized", "v") as v:
                            slot = (r * vectors + first + j) * lanes + v
                            k.store(acc, slot, acc[slot] + left * b[b_at + (first + j) * lanes + v])
        self._epilogue(region, acc, batch, column, row)

    def _epilogue(self, region: Region, acc: Any, batch: Any, column: Any, row: Any) -> None:
        k, lanes = self.k, self.lanes
        source, kind = acc, "unroll"
        if self.costly:
            source, kind = k.local("spill", self.facts.output.dtype, self.height * region.vectors * lanes), "serial"
            with k.loop(self.height * region.vectors, "unroll", "e") as e, k.loop(lanes, "vectorized", "v") as v:
                k.store(source, e * lanes + v, acc[e * lanes + v])
        whole = region.vectors if region.last == lanes else region.vectors - 1
        with k.loop(self.height, kind, "r") as r:
            for first, count, width in ((0, whole, lanes), (whole, region.vectors - whole, region.last)):
                if count:
                    with k.loop(count, kind, "b") as j, k.loop(width, "vectorized", "v") as v:
                        self.ctx.ranged(v, width)
                        at = source[(r * region.vectors + first + j) * lanes + v]
                        self._element(at, batch, row + r, column + (first + j) * lanes + v)

    def _element(self, value: Any, batch: Any, row: Any, column: Any) -> None:
        facts = self.facts
        if facts.flat:
            lead, rest = [], row
            for s in reversed((*facts.batch, facts.m)):
                lead.append(tirx.floormod(rest, s))
                rest = tirx.floordiv(rest, s)
            lead = [self.ctx.analyzer.simplify(i) for i in reversed(lead)]
            if len(lead) == 1 or all(s == 1 for s in facts.batch):
                lead = [*([tirx.IntImm("int32", 0)] * len(facts.batch)), row]
        else:
            lead = [*self._batch_indices(batch), row]
        made = self.graph.tensors[self.anchor.results[0]]
        inliner = self.ctx.inliner({key(made): lambda _indices: value})
        indices = [*lead, column]
        for output in self.request.group.outputs:
            self.ctx.write(output, indices, inliner.at(self.graph.tensors[output], indices))
