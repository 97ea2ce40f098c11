"""Products with weights that are whole numbers times a scale (:mod:`..math.scaled_integers`): :mod:`.packed` over
panels of bytes.

    few rows:    acc[r][v] += a[row r, k] * (float(number[panel][k][v]) * scale[column])       a quarter of the memory
    many rows:   panels of floats in scratch first, then the product over them

Each bit is that of the product with the floats. One row waits for memory, and a quarter of it comes sooner than what
widening takes; many rows read the panels so often that making them counts for little. In between the weights stay
floats: there widening would take from a twentieth to a third of the time. Where memory goes before speed, all are read
as few rows are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tvm import tirx

from ..math.scaled_integers import Numbers, numbers_of
from ..words.group import Kernel, Packed, Request, Scratch
from ..words.sizes import usual
from ..words.tvm_types import Buffer, Expr
from .blocking import PARALLEL_FLOPS
from .facts import MatmulFacts
from .packed import _Matmul
from .regions import Region
from .shared_weights import shared_tile

FEW = 1  # row that waits for its weights from beyond the second-level cache
MANY = 256  # rows, of which widening takes about a fiftieth where the panels stay in the caches
CHUNK = 64  # steps of a panel that a task widens


def weights_in_numbers(request: Request, facts: MatmulFacts) -> Numbers | None:
    """The weights as scaled integers; None if no kernel can read them so without loss."""
    if not facts.packs or not facts.flat or facts.output.dtype != "float32" or facts.b.constant is None:
        return None
    pays = usual(facts.rows) >= MANY or usual(facts.rows) <= FEW and facts.k * facts.n * 4 > request.target.l2_bytes
    if request.box is not None or not (pays or _saves(request)) or request.policy.weights == "int8":
        return None
    return numbers_of(np.asarray(facts.b.constant).reshape(facts.k, facts.n).T)


def _saves(request: Request) -> bool:
    """True if memory goes before speed."""
    return not request.policy.speed


def build_numbers(
    request: Request, facts: MatmulFacts, tile: tuple[int, int] | None = None, found: Numbers | None = None
) -> Kernel:
    """The kernel of a product with the scaled integers ``found`` as weights. ``tile``: rows by vectors in registers, by
    default those of :func:`.shared_weights.shared_tile`."""
    found = found or weights_in_numbers(request, facts)
    assert found is not None
    return _Numbers(request, facts, tile or shared_tile(request, facts), found).build()


class _Numbers(_Matmul):
    family = "matmul of numbers"

    def __init__(self, request: Request, facts: MatmulFacts, tile: tuple[int, int], found: Numbers) -> None:
        super().__init__(request, facts, tile)
        self.found, self.stored = found, str(found.numbers.dtype)
        self.packs_first = usual(facts.rows) >= MANY and not _saves(request)
        self.streams = self.streams and not self.packs_first
        self.scales: Expr = None
        self.column: Expr = 0

    def build(self) -> Kernel:
        kernel = super().build()
        return replace(kernel, schedule=kernel.schedule + ", widened first" * self.packs_first)

    def _steps_of_b(self) -> np.ndarray:
        return np.ascontiguousarray(self.found.numbers.T)

    def _scale(self, column: Expr) -> Expr:
        """Of one column, or of all."""
        if self.found.scales.size == 1:
            return tirx.FloatImm("float32", float(self.found.scales[0]))
        if self.scales is None:
            whole = np.zeros(self._panel_elements // self.facts.steps, np.float32)
            whole[: self.facts.n] = self.found.spread(self.facts.n)
            self.scales = self.ctx.packed(Packed(f"s_{self.facts.b.name}", whole), narrow=False)
        return self.scales[column]

    def _pack(self, b: Buffer) -> Buffer:
        """Widens all panels in the arena, a run of a panel's steps a task; returns their buffer."""
        k, facts, lanes = self.k, self.facts, self.lanes
        packed = k.pointer("panels", "float32", self._panel_elements)
        self.ctx.operands.append(Scratch(self._panel_elements * self.element))
        self._scale(0)
        chunks = -(-facts.steps // CHUNK)
        for r in self._regions():
            kind = "parallel" if usual(facts.work) >= PARALLEL_FLOPS and r.panels * chunks > 1 else "serial"
            with k.loop(r.panels * chunks, kind, "p") as p:
                self.ctx.ranged(p, r.panels * chunks)
                panel = self.bind(tirx.floordiv(p, chunks), r.panels)
                begin = self.bind(tirx.floormod(p, chunks) * CHUNK, facts.steps)
                count: Expr = CHUNK if facts.steps % CHUNK == 0 else tirx.min(facts.steps - begin, CHUNK)
                column = self.bind(r.first + panel * (r.vectors * lanes), self._panel_elements)
                with k.loop(count, name="s") as s:
                    at = r.first * facts.steps + (panel * facts.steps + begin + s) * (r.vectors * lanes)
                    with k.loop(r.vectors, "unroll", "j") as j, k.loop(lanes, "vectorized", "v") as v:
                        number = tirx.Cast("float32", b[at + j * lanes + v])
                        k.store(packed, at + j * lanes + v, number * self._scale(column + j * lanes + v))
        return packed

    def _tile(self, region: Region, a: Buffer, b: Buffer, batch: Expr, panel: Expr, *rest: Expr) -> Buffer:
        self.column = region.first + panel * (region.vectors * self.lanes)
        return super()._tile(region, a, b, batch, panel, *rest)

    def _multiply(self, region: Region, acc: Buffer, r: Expr, left: Expr, right: tuple[Expr, Expr]) -> None:
        if self.packs_first:
            super()._multiply(region, acc, r, left, right)
            return
        k, lanes, (b, at) = self.k, self.lanes, right
        with k.loop(region.vectors, "unroll", "b") as j, k.loop(lanes, "vectorized", "v") as v:
            slot = (r * region.vectors + j) * lanes + v
            number = tirx.Cast("float32", b[at + j * self.apart + v]) * self._scale(
                self.column + j * lanes + v
            )
            k.store(acc, slot, acc[slot] + left * number)
