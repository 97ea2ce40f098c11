"""Convolution of few channels on a matrix unit: :mod:`.kernel` over pixels (:mod:`.pixel_strips`).

    for plane, row, sixteen pixels
      words of parts of two channels each              vectors along the row, as it lies in memory
      pixels                                           their words turned into each other's neighbours

The last sixteen pixels of a row are moved back: no read leaves the tensor. Pixels past the input's margins are zero,
rows below its last repeat it: zero weights meet them, and what lay there by chance might be no number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import tirx

from ...instructions.amx import COLUMNS, PAIRS
from ...instructions.bf16_parts import pack, split, told
from ...words.group import Kernel, Request
from ...words.tvm_types import Expr
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..register_tile import Tile
from .choose import MatrixPlan
from .kernel import MatrixConv
from .prefetch import NextData
from .tasks import AmxTask


def build_pixels(request: Request, facts: ConvFacts, plan: MatrixPlan) -> Kernel:
    """The kernel of a convolution of few channels by ``plan``, whose strip is one of pixels."""
    conv = ConvKernel(request, facts, Tile(1, 1, 1), COLUMNS, new_context(request))
    _PixelConv(conv, plan).emit()
    return finish(conv.ctx, f"{plan} C{COLUMNS}, {told(plan.products)}", facts.flops)


class _PixelConv(MatrixConv):
    """``strip`` is a PixelStrip."""

    def __init__(self, conv: ConvKernel, plan: MatrixPlan) -> None:
        super().__init__(conv, plan)
        self.pairs, self.apart = 1, self.strip.apart
        self.plane = self.strip.places * self.apart
        self.phase = self.parts * self.plane
        self.taps = self.steps = len(self.strip.steps)

    @property
    def in_order(self) -> bool:
        return False

    def _below(self) -> NextData | None:
        return None

    def _packed(self) -> Callable[[], np.ndarray]:
        return partial(_pack, self.facts, self.strip, self.parts)

    def _offsets(self) -> np.ndarray:
        return np.array(self.strip.offsets(self.phase), np.int32)

    def _split(self, task: AmxTask) -> None:
        k, strip = self.k, self.strip
        words, whole = strip.pixels.words, strip.filled // PAIRS
        for i, phase in enumerate(strip.phases):
            with k.loop(task.size[0] + strip.reach(phase), name="y") as y:
                self.ctx.ranged(y, strip.height)
                rows = self._rows(task, phase, y)
                place = self.base + i * self.phase + y * (strip.pitch * self.apart)
                with k.loop(whole, name="x") as x:
                    self.ctx.ranged(x, whole)
                    self._make(task.n, rows, x * PAIRS, place)
                if strip.filled % PAIRS:
                    self._make(task.n, rows, tirx.IntImm("int32", strip.filled - PAIRS), place)
                rest = (strip.row_pixels - strip.filled) * words
                for part in range(self.parts if rest else 0):
                    with k.loop(rest, name="z") as z:
                        at = place + part * self.plane + strip.filled * words + z
                        k.store(self.data, at, tirx.IntImm("int32", 0))

    def _rows(self, task: AmxTask, phase: int, y: Expr) -> list[Expr]:
        """The rows of the input whose channels pixels of row ``y`` of a plane hold."""
        facts, last = self.facts, self.facts.data.shape[2] + self.facts.margins()[2][1] - 1
        first = (task.origin[0] + y) * facts.strides[0] + phase - facts.before[0]
        found = []
        for number in range(self.strip.pixels.deep):
            row = tirx.min(first + number * facts.dilation[0], last)
            found.append(self.conv.bind(row, 1 << 24) if self.facts.before[0] == 0 else self.k.bind(row, "o"))
        return found

    def _make(self, n: Expr, rows: list[Expr], first: Expr, place: Expr) -> None:
        """Sixteen pixels from ``first`` on, of the row at ``place``."""
        k, words = self.k, self.strip.pixels.words
        held = [k.local("words", "int32", words * PAIRS) for _ in range(self.parts)]
        slots = self.strip.slots()
        with k.loop(PAIRS, "vectorized", "v") as v:
            for word in range(words):
                given = [self._read(n, rows, slots[2 * word + half], first + v) for half in range(2)]
                if given[0] is None:
                    made = [tirx.IntImm("int32", 0)] * self.parts
                else:
                    made = split(k, given[0], given[1], self.parts)
                for part in range(self.parts):
                    k.store(held[part], word * PAIRS + v, made[part])
        order = [tirx.IntImm("int32", word * PAIRS + pixel) for pixel in range(PAIRS) for word in range(words)]
        for part in range(self.parts):
            vectors = [held[part][_run(word * PAIRS, PAIRS)] for word in range(words)]
            value = vectors[0] if words == 1 else tirx.Shuffle(vectors, order)
            at = place + part * self.plane + first * words
            k.store(self.data, _run(at, PAIRS * words), value)

    def _read(self, n: Expr, rows: list[Expr], slot: tuple[int, int] | None, pixel: Expr) -> Expr | None:
        if slot is None:
            return None
        row, channel = slot
        at = [rows[row], pixel - self.facts.before[1]]
        return self.k.bind(self.conv.element_at(n, tirx.IntImm("int32", channel), at))


def _pack(facts: ConvFacts, strip: Expr, parts: int) -> np.ndarray:
    weight = np.asarray(facts.weight.constant, np.float32).reshape(facts.outputs, facts.channels * facts.taps)
    return pack(weight.T, strip.terms(), parts)


def _run(first: Expr, count: int) -> Expr:
    first = tirx.IntImm("int32", first) if isinstance(first, int) else first
    return tirx.Ramp(first, tirx.IntImm("int32", 1), count)
