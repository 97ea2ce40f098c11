"""Hints, beside a Winograd convolution's products, for what its transforms will read from memory.

A transform gathers tiles as fast as a core reads memory, and multiplies nothing meanwhile; the products multiply, and
read what is near. So each step of their reductions asks for a part of

    the next strip    rows of its tiles, without the columns that the tile before it reads too
    residuals         rows of what the epilogue adds to the outputs of this chunk, also of cuts of larger images, and
                      of windows that the outputs go to

one row of a tile for each xi, register tile and block of channels, of which each channel asks for 1 / lanes: at an
even rate, since a core has few buffers for lines on their way, and a burst of hints holds up the products' own loads.
Only for tensors that come from memory, or from a last level where that pays (``asked`` of targets/fitted.toml: on Zen
4), and windows of tile groups that the second level can't hold, whose lines come from as far; and for strips that
stay in the second-level cache, beside all the weights, until they are read. Measured on Granite Rapids: 64 channels
at 640x360 take 0.94 of the time on one thread and 0.92 on two (0.96 and 1.0 in windows of 9 and 6 MB); 128 channels,
whose weights push out what was asked for, would take 1.2, tensors from the last level up to 1.05.

Where sizes are open those of the run tell: for a tensor that is too small then the hints are for lines that are near,
and no place of a tile is computed. EDSR, planned for 96 x 96, takes 0.81 of the time at 240 x 240 and 1.00 to 1.01 at
48 x 48 and 96 x 96; with the places computed and the hints at them 1.09 and 1.08 (Zen 4, one thread).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx

from ...emit.builder import KernelBuilder
from ...instructions.prefetch import LINE, hint
from ...words.dims import is_open, to_index
from ...words.group import Value, dtype_bytes
from ...words.sizes import surely, usual
from ...words.tvm_types import Expr
from ..cut_residuals import CutPlace
from ..kernel import ConvKernel
from ..weight_bandwidth import far_from
from .hints import MOST, asks_next, next_rows
from .plan import WinogradPlan

if TYPE_CHECKING:
    from ...words.size_like import SizeLike

FAR = 1 << 30  # more than any position
LARGER = 16  # times the usual bytes that tensors of open sizes may have and be asked for

FEW = 16  # registers, all of which a tile's sums and operands take


@dataclass(frozen=True)
class RowPrefetch:
    """Prefetches of a row of ``length`` elements from ``begin``, shared by the steps of a block of channels, ``step``
    elements each. Several blocks ask for the same row; ``first`` is true in one of them."""

    buffer: str
    begin: Expr
    step: int
    length: int
    first: Expr

    def ask(self, k: KernelBuilder, channel: Expr) -> None:
        """Emits the prefetch of the step of ``channel``."""
        hint(k, self.buffer, self.begin + channel * self.step)

    def ask_for_lines(self, k: KernelBuilder) -> None:
        """Emits all prefetches at once, each line once. With 16 registers that is better than beside the channels,
        where LLVM schedules the long way to the addresses together with the products, starts loads too soon, and sums
        fall out of the registers; and half as many multiply-adds a step leave less room for prefetches of lines that
        were asked for."""
        with k.when(self.first):
            for place in (*range(0, self.length - 1, LINE // 4), self.length - 1):
                hint(k, self.buffer, self.begin + place)


@dataclass(frozen=True)
class Ahead:
    """The prefetches of one kernel, whose ``total`` tiles lie at ``origin(number)``."""

    conv: ConvKernel
    plan: WinogradPlan
    origin: Callable[[Expr], Expr]
    total: Expr

    def of(self, where: tuple[Expr, Expr, Expr], xi: Expr, panel: Expr) -> Callable[[Expr], list[RowPrefetch]]:
        """A function from a block of channels to the runs that products ``xi`` of register tile ``panel`` prefetch.
        ``where``: the first tile of the strip, the chunk of outputs, and its number in its group."""
        if self.plan.plain:
            return lambda _: []
        first, chunk, within = where
        inputs = self._inputs(first, within, xi, panel) if self._asks_next else []
        values = self._residuals() if 0 < self._residual_rows <= MOST else []

        def runs(block: Expr) -> list[RowPrefetch]:
            found = [replace(run, begin=run.begin + block * apart) for run, apart in inputs]
            for number in range(self._residual_rows if values else 0):
                found += self._adds(values, first, chunk, xi, panel, block * self._residual_rows + number)
            return found

        return runs

    @property
    def at_once(self) -> bool:
        """True if a block of channels emits its prefetches before its products rather than beside them."""
        return self.conv.request.target.vector_registers <= FEW

    def _is_far(self, value: Value) -> bool:
        """True if ``value`` comes from memory, or lies in a window that the second-level cache has lost again, where it
        can't hold all windows that this kernel reads and writes."""
        target = self.conv.request.target
        if not self.conv.is_windowed(value):
            times = LARGER if is_open([self.conv.request.layout(value).elements]) else 1
            return not target.in_order and times * self._bytes(value) > self._least
        group = self.conv.request.group
        windows = [v for v in dict.fromkeys((*group.inputs, *group.outputs)) if self.conv.is_windowed(v)]
        return not target.in_order and sum(map(self._bytes, windows)) > target.l2_bytes

    @property
    def _least(self) -> float:
        return far_from(self.conv.request.target, self.conv.request.workers)

    def _varies(self, value: Value) -> bool:
        """True if ``value`` is large enough in some runs, and in others not."""
        elements, least = self.conv.request.layout(value).elements, self._least // dtype_bytes(value.dtype)
        return not self.conv.is_windowed(value) and is_open([elements]) and not surely(lambda: elements > least)

    def _place(self, value: Value, found: Callable[[], Expr]) -> Expr:
        """The position in ``value`` that ``found`` emits; where that is small at the sizes of the run, one that is
        near, without what it takes to find the other."""
        if not self._varies(value):
            return self.conv.bind(found(), FAR)
        k, elements = self.conv.k, self.conv.request.layout(value).elements
        place = k.hold(tirx.IntImm("int32", 0), "near")
        with k.when(to_index(elements) > int(self._least) // dtype_bytes(value.dtype)):
            k.store(place.source, 0, found())
        return place

    def _bytes(self, value: Value) -> int:
        return usual(self.conv.request.layout(value).elements) * dtype_bytes(value.dtype)

    def _tile(self, number: Expr) -> Expr:
        """The place of a tile that may lie behind the last."""
        number = tirx.min(number, self.total - 1)
        return self.origin(self.conv.bind(number, self.total if isinstance(self.total, int) else FAR))

    # -- the next strip --------------------------------------------------------------------------

    @property
    def _asks_next(self) -> bool:
        conv = self.conv
        able = bool(asks_next(conv.request.target, conv.facts.channels, self.plan, conv.lanes))
        return able and not conv.has_prologue and self._is_far(conv.facts.data)

    def _inputs(self, first: Expr, within: Expr, xi: Expr, panel: Expr) -> list[tuple[RowPrefetch, int]]:
        """Rows of the next strip's tiles in the first block of channels, and elements between blocks."""
        conv, facts = self.conv, self.conv.facts
        down, across = self.plan.transform.axes
        new = self._new
        slots, count = self.plan.chunks_per_group * across.extent, int(next_rows(self.plan))
        slot, row = within * across.extent + tirx.floordiv(xi, down.extent), tirx.floormod(xi, down.extent)
        apart = conv.request.layout(facts.data).strides[1]
        found = []
        for number in range(count):
            share = (slot * count + number) * self.plan.rows
            own = tirx.floordiv(share, slots * count)
            tile = first + self.plan.strip + panel * self.plan.rows + own
            begin = self._place(facts.data, partial(self._input, tile, row))
            fresh = tirx.floormod(share, slots * count) < self.plan.rows
            found.append((RowPrefetch(conv.read(facts.data), begin, new, new * conv.lanes, fresh), apart))
        return found

    @property
    def _new(self) -> int:
        """Columns of a tile that the one before it does not read."""
        across = self.plan.transform.across
        return int(across.stride * across.m)

    def _input(self, number: Expr, row: Expr) -> Expr:
        """Where the columns of a row begin that are new to a tile, in the first block of channels."""
        conv, facts, zero = self.conv, self.conv.facts, tirx.IntImm("int32", 0)
        at = self._tile(number)
        corner = [o * s - b for o, s, b in zip(at.position((0, 0)), facts.strides, facts.before)]
        if len(corner) > 1:
            corner[-2] += row * facts.dilation[-2]
        corner[-1] += (self.plan.transform.across.extent - self._new) * facts.dilation[-1]
        return conv.offset(at.n, (zero, zero), corner)

    # -- residuals -------------------------------------------------------------------------------

    def _residuals(self) -> list[CutPlace]:
        """What the epilogue reads, at its own place or so far from it, and windows that it writes."""
        over = bool(self.conv.request.limits.once)  # results go where residuals were asked for
        wanted = [v for v, written in self.conv.places() if not written or (self.conv.is_windowed(v) and not over)]
        found = [CutPlace(v, (0, 0)) for v in wanted] + self.conv.cuts()
        return [place for place in found if self._is_far(place.value)]

    @property
    def _residual_rows(self) -> int:
        """Tiles of which one xi of a register tile asks for a row of a residual, in each block of channels."""
        blocks = -(-self.conv.facts.channels // self.conv.lanes) * self.plan.planes
        return -(-self.plan.rows * self.plan.vectors // (self.plan.transform.across.extent * blocks))

    def _adds(
        self, values: list[CutPlace], first: Expr, chunk: SizeLike, xi: Expr, panel: Expr, slot: int
    ) -> list[RowPrefetch]:
        """Rows of ``values`` that share of a row of xi asks for."""
        conv, plan, t = self.conv, self.plan, self.plan.transform
        blocks = -(-conv.facts.channels // conv.lanes) * plan.planes
        down, across = t.axes
        tiles, slots = plan.rows * plan.vectors, across.extent * blocks * self._residual_rows
        share = tirx.floordiv(xi, down.extent) * (blocks * self._residual_rows) + slot
        row = tirx.min(tirx.floormod(xi, down.extent), down.m - 1)
        fresh = tirx.all(tirx.floormod(share * tiles, slots) < tiles, tirx.floormod(xi, down.extent) < down.m)

        def tile() -> tuple[Expr, Expr]:
            number = conv.bind(tirx.floordiv(share * tiles, slots), tiles)
            at = self._tile(first + panel * plan.rows + tirx.floordiv(number, plan.vectors))
            return at, chunk * plan.vectors + tirx.floormod(number, plan.vectors)

        once = None if any(self._varies(v) for v, _ in values) else tile()

        def result(value: Value, shift: tuple[int, int]) -> Expr:
            at, block = once or tile()
            return conv.result(value, at.n, block, [p + s for p, s in zip(at.position((row, 0)), shift)])

        return [
            RowPrefetch(
                conv.ctx.buffer(v), self._place(v, partial(result, v, shift)), across.m, across.m * conv.lanes, fresh
            )
            for v, shift in values
        ]
