"""Asks for weights before they are needed.

Weights beyond the second-level cache are read in order, but faster than the hardware's prefetchers follow: those stop
at every page. Two ways, by how fast one pass over a panel of weights reads them:

    slower than they can come    a hint a step of the reduction, AHEAD bytes in front, keeps the stream running: 8 KiB
                                 are some fifty steps of a register tile, longer than a read from memory takes
    as fast, or faster           all the tiles that multiply by the panel share the hints for the one behind it
                                 (:class:`NextPanel`): 14 tiles of 2 x 7 x 2 vectors ask for 3 lines in 16 steps

Those are spread over the steps, one hint a step though it asks for most lines several times: a hint whose line comes
from afar holds one of the first level's few buffers for lines on their way, and a burst of them holds up the loads of
the present panel. With 1 x 7 x 2 vectors a step and all of it close, a loop loses 5% to bursts of five, and 2% so.

A tile of P positions by B vectors reads 64 B bytes of weights in P B / ports cycles: with two ports 9 bytes a cycle for
14 positions, 18 for 7, while the third level gives one core ``far_bytes``, 10 or 12. Read when needed, they cost all
that time, in a whole network the smallest layers' too; shared, hints are some for 16 steps. Where weights are near,
neither costs anything measurable.

The same hints bring the next rows of an input that doesn't stay in the second level to 1x1 layers: its lines come 14 at
a time, from as far, in the first of the channel groups that read them. Taps in several rows read a line again and
again, so that few come in a step, and in order: hints would take 2 to 4% (64 channels at 224).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx

from ...targets.target import Target
from ..emit.builder import KernelBuilder
from ..instructions.prefetch import FIRST_LEVEL, LINE, SECOND_LEVEL, hint
from ..math.float16 import Widened
from ..words.tvm_types import Buffer, Expr
from .register_tile import Tile, step_cycles

AHEAD = 8192  # bytes
CLOSE = 0.75  # of the rate from beyond the second level: slower than that, a stream keeps up
MOST = 16  # hints before the channels of one block and tap: more could not come in that time
MANY = 96  # tiles that share a panel, to which waiting for it once counts for nothing


def prefetch(
    k: KernelBuilder,
    buffer: Buffer,
    offset: Expr,
    vectors: int,
    lanes: int,
    element_bytes: int = 4,
    ahead: int = AHEAD,
    level: int = SECOND_LEVEL,
) -> None:
    """Emits prefetches of ``vectors`` of ``lanes`` elements, ``ahead`` bytes past ``offset``, into the cache of
    ``level``. Past the buffer they are without effect: a prefetch cannot fault."""
    if isinstance(buffer, Widened):
        buffer, element_bytes = buffer.stored, buffer.itemsize
    for vector in range(0, vectors, max(1, LINE // (lanes * element_bytes))):
        hint(k, buffer, offset + (ahead // element_bytes + vector * lanes), level)


@dataclass(frozen=True)
class NextPanel:
    """Hints for the panel of weights behind the present one: ``tiles`` multiply by a panel of ``size`` elements, one
    after the other, and ask for ``lines`` of ``line`` elements before each of their ``steps``.

        tile t, step s:  size + ((t mod tiles) * steps + s) * lines ... + lines - 1

    of C channels in a step, channel c asks for line c * lines / C of these

    The last tiles ask again for what is asked for already, where steps or lines don't divide. Behind the last panel lie
    the next layer's weights, or nothing: a hint cannot fault."""

    size: int
    tiles: int
    steps: int
    lines: int
    line: int

    def share(self, bind: Callable[[Expr, int], Expr], number: Expr) -> Expr:
        """Position where the share of tile ``number`` begins, from the start of the panel that it multiplies by."""
        last = max(0, -(-self.size // self.line) - self.steps * self.lines)
        first = tirx.min(tirx.floormod(number, self.tiles) * (self.steps * self.lines), last)
        return bind(self.size + first * self.line, self.size + last * self.line + 1)

    def spreads(self, channels: int) -> bool:
        """True if the prefetches of a step can be emitted one by one, beside its channels."""
        return isinstance(channels, int) and channels >= self.lines and self.lines * self.line % channels == 0

    def ask_beside(
        self, k: KernelBuilder, buffer: Buffer, share: Expr, step: Expr, channel: Expr, channels: int
    ) -> None:
        """Emits the prefetch of one channel of a step."""
        stored = buffer.stored if isinstance(buffer, Widened) else buffer
        hint(k, stored, share + (step * channels + channel) * (self.lines * self.line // channels))

    def ask(self, k: KernelBuilder, buffer: Buffer, share: Expr, step: Expr) -> None:
        """Emits all prefetches of one step. Weights stored as float16 or bytes have several of its lines in
        one."""
        narrow = isinstance(buffer, Widened)
        for line in range(0, self.lines, 4 // buffer.itemsize if narrow else 1):
            place = share + (step * self.lines + line) * self.line
            hint(k, buffer.stored if narrow else buffer, place)


@dataclass(frozen=True)
class Runs:
    """Hints for the lines that a tile's epilogue reads and writes, spread over its reduction: step s of ``steps`` asks
    for runs s, s + steps ... of ``count``, each channel for ``stride`` elements further on; a row of a tile's positions
    falls into ``parts`` of ``reach`` elements. In a burst before the reduction they take the loads' time, and the
    buffers for lines on their way: 1x1 convolutions of 64 channels gain 3 to 4%. Blocks of channels behind the last run
    have a loop without: a hint a channel for what is there already takes 3 to 7% (Granite Rapids)."""

    count: int
    steps: int
    parts: int
    stride: int
    reach: int


def spread_runs(tile: Tile, lanes: int, steps: int, channels: int, element_bytes: int) -> Runs | None:
    """The prefetches of a tile's epilogue, spread over ``steps`` of its reduction; None where a step would have to ask
    for more than two lines a channel."""
    if not isinstance(channels, int):
        return None
    row = tile.columns * lanes
    stride = min(LINE // element_bytes, -(-row // channels))
    parts = -(-row // (stride * channels))
    count = tile.rows * tile.blocks * parts
    return Runs(count, steps, parts, stride, stride * channels) if count <= 2 * steps else None


def reads_fast(target: Target, tile: Tile) -> bool:
    """True if a tile reads weights about as fast as they can come from beyond the second-level cache, or faster."""
    return tile.blocks * target.vector_bits // 8 / step_cycles(target, tile) >= CLOSE * target.far_bytes


def next_panel(target: Target, tile: Tile, size: int, tiles: int, steps: int, element_bytes: int) -> NextPanel | None:
    """Prefetches of the next panel, of ``size`` elements, shared by the ``tiles`` that multiply by the present one in
    ``steps`` each. None where the stream of one pass keeps up, or too few tiles share a panel, or so many that waiting
    once doesn't count."""
    if not reads_fast(target, tile) or not 0 < tiles <= MANY:
        return None
    line = LINE // element_bytes
    lines = -(-size // (line * tiles * steps))
    return NextPanel(size, tiles, steps, lines, line) if lines <= MOST else None


def ask(k: KernelBuilder, buffer: Buffer, offset: Expr, written: bool) -> None:
    """Emits a prefetch of the line at ``offset``, which will soon be read, or ``written``."""
    hint(k, buffer, offset, FIRST_LEVEL if written else SECOND_LEVEL, written)
