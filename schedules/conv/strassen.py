"""1 x 1 convolutions by seven products of halves instead of eight: :mod:`..matmul.strassen` on images in NCHW[v]c.

Rows of A are positions, its columns input channels. The two halves of the positions are the even and the odd ones,
counted over an image, so that a core works on the rows that it works on in every other layer:

    parallel for image, core
      for block of pairs of positions                       U, W and the left operands of a block stay in cache
        S1 to S4 of the block                               [matrix][tile][channel block][pair][lane]
        for panel of output channels, and the one half of all channels further on
          seven products, tile of pairs by tile             as in a direct convolution, half the channels each
            epilogue(C11, C12, C22, C21)

Where the weights are far more than the image, cores share the panels instead, after a launch that makes all left
operands. Of an odd number of positions the last is its own partner: both results are right, the second stays.

An eighth of the multiply-adds is saved for ``conv_state`` cycles (targets/fitted.toml) to each vector of a quarter of
the outputs and ``conv_sum`` to each of a quarter of the input. Where tiles read their operands faster than they come
from beyond the second-level cache (two multiply-add ports), left operands that do not stay there cost their way out and
back as well. Errors are as in the matrix product; images stay apart. Off under ``exact``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx

from ..instructions.opaque_numbers import any_number
from ..kernel.half_sums import HALF
from ..kernel.work_sharing import has_bands
from ..matmul.folded_moves import producers
from ..matmul.strassen import PRODUCTS, linear_halves
from ..words.group import Kernel, Packed, Request, Scratch, dtype_bytes
from ..words.tvm_types import Buffer, Expr
from .direct.kernel import OWN_GROUPS, tile_space
from .facts import ConvFacts
from .kernel import PARALLEL_FLOPS, ConvKernel, finish, new_context
from .register_tile import Space, Tile, choose_tile, step_cycles
from .strassen_steps import add_runs, allowed, holds_channels, loaded, multiply_block, run_cycles
from .weight_prefetch import next_panel

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

GAIN = 0.97  # of the direct form's cycles: nearer than that, it is taken
SHARED_GAIN = 0.94  # the same where cores share an image: pairs divide less evenly than rows
PANELS_GAIN = 0.90  # the same where they share panels: there is a launch more
STATE_BYTES = 16 * 1024  # of U, and of W, on the stack
ABOVE = (2, 3, 4, 5)  # left operands that are no part of the input; 0, 1 and 6 are
DISTANCES = 16  # of a block's weights from one address: more have no registers for those that loads don't reach


def halves_share(request: Request, facts: ConvFacts) -> float | None:
    """Estimated cycles of Strassen's seven products over those of the direct form; None where they are not allowed or
    gain nothing. They are for 1 x 1 layers computed whole, with whole vectors in both halves of the channels and
    blocked input straight from memory."""
    target = request.target
    if not request.policy.strassen or request.limits.closing or not allowed(target, facts.output.dtype):
        return None
    if request.box is not None or target.memory_kind == "scratchpad" or len(facts.out_spatial) != 2:
        return None
    lanes = target.lanes(facts.output.dtype)
    blocked = all(request.layout(v).block == lanes for v in (facts.data, *request.group.outputs))
    if facts.groups > 1 or facts.taps > 1 or any((*facts.before, *facts.after)) or not blocked:
        return None
    if facts.channels % (2 * lanes) or facts.outputs % (2 * lanes) or producers(request.group, facts.data):
        return None
    if facts.weight.is_whole:
        return None
    pairs = facts.data.shape[0] * _pairs(facts)
    vectors, depth = facts.outputs // 2 // lanes, facts.channels // 2
    space = tile_space(request, facts)
    half = _tile(request, facts)
    plain = facts.channels * min(cycles for cycles, _ in space.tiles(target))
    wanted, fitted = GAIN, target.fitted.strassen
    if _by_panels(request, facts):
        if pairs * half.blocks * lanes * dtype_bytes(facts.output.dtype) > STATE_BYTES:
            return None
        wanted = PANELS_GAIN
    elif facts.data.shape[0] % request.workers:
        wanted = SHARED_GAIN
    element = dtype_bytes(facts.output.dtype)
    cycles = step_cycles(target, half, holds_channels(target, facts.output.dtype))
    step = max(cycles, half.blocks * target.vector_bits / 8 / target.fitted.memory.beside)
    fewer = PRODUCTS * -(-pairs // half.columns) * (vectors // half.blocks) * depth * step
    state = fitted.conv_state + run_cycles(facts.output.dtype, facts.channels, lanes)
    more = pairs * vectors * state + pairs * depth / lanes * fitted.conv_sum
    read = (half.blocks * lanes + half.columns) * element / step  # bytes a cycle, weights and left operands
    if read > target.far_bytes and target.l2_bytes:
        lefts = pairs * depth * element * len(_copied(request, facts))
        image = facts.data.elements // facts.data.shape[0] * element
        if lefts + image > target.fitted.memory.rest * target.l2_bytes:
            more += 2 * lefts / target.far_bytes
    return (fewer + more) / plain if fewer + more < wanted * plain else None


def _pairs(facts: ConvFacts) -> int:
    return -(-facts.out_spatial[0] * facts.out_spatial[1] // 2)


def _flat(request: Request, facts: ConvFacts) -> bool:
    """True if the input's positions are the outputs', one after the other."""
    return not any(map(any, request.layout(facts.data).margins)) and set(facts.strides) == {1}


def _copied(request: Request, facts: ConvFacts) -> Sequence[int]:
    """The left operands that are made, by number; the others are read where the input lies."""
    if not _flat(request, facts):
        return range(PRODUCTS)
    return (*ABOVE, 6) if facts.out_spatial[0] * facts.out_spatial[1] % 2 else ABOVE


def _by_panels(request: Request, facts: ConvFacts) -> bool:
    """True if cores rather share the weights than the image."""
    if request.workers == 1 or facts.data.shape[0] % request.workers == 0:
        return False
    weights = facts.weight.elements * PRODUCTS // 4
    image = request.layout(facts.data).elements // facts.data.shape[0]
    return weights > OWN_GROUPS * image or not has_bands(facts.out_spatial[0], request.workers)


def _tile(request: Request, facts: ConvFacts) -> Tile:
    """Pairs of positions by vectors of one half of the outputs."""
    vectors = facts.outputs // 2 // request.target.lanes(facts.output.dtype)
    alone = facts.data.shape[0] % request.workers == 0 or _by_panels(request, facts)
    pairs = -(-_pairs(facts) // (1 if alone else request.workers))
    elements = holds_channels(request.target, facts.output.dtype)
    return choose_tile(request.target, Space(1, pairs, vectors, vectors, elements=elements))


def halves_bytes(request: Request, facts: ConvFacts) -> int:
    """Bytes of the left operands that lie in memory at a time, of all cores together."""
    return _Halves(_positions(request, facts)).held


def _positions(request: Request, facts: ConvFacts) -> _Positions:
    lanes = request.target.lanes(facts.output.dtype)
    return _Positions(request, facts, _tile(request, facts), lanes, new_context(request))


def build_halves(request: Request, facts: ConvFacts) -> Kernel:
    """The kernel of a 1 x 1 convolution by Strassen's seven products."""
    conv = _positions(request, facts)
    ctx, tile = conv.ctx, conv.tile
    _Halves(conv).emit()
    return finish(ctx, f"conv by seven products of halves C{conv.lanes}, tile {tile}", facts.flops)


@dataclass
class _Positions(ConvKernel):
    """A convolution whose tiles are pairs of positions: ``column`` counts pairs, the one origin is 0 or 1."""

    def at(self, pair: Expr, odd: SizeLike) -> Expr:
        """The number of a position; the last has no partner where there is an odd number of them."""
        height, width = self.facts.out_spatial
        position = pair * 2 + odd
        return tirx.min(position, height * width - 1) if height * width % 2 and odd else position

    def positions(self, origins: list[Expr], column: Expr, dy: Expr, dx: Expr) -> list[Expr]:
        position, width = self.at(column + dx, origins[0]), self.facts.out_spatial[1]
        return [tirx.floordiv(position, width), tirx.floormod(position, width)]


class _Halves:
    def __init__(self, conv: _Positions) -> None:
        self.conv, self.k, self.ctx, self.facts = conv, conv.k, conv.ctx, conv.facts
        self.lanes, self.tile, request = conv.lanes, conv.tile, conv.request
        self.dtype = self.facts.output.dtype
        self.half = self.dtype == HALF
        self.depth = self.facts.channels // 2 // self.lanes  # blocks of input channels of a half
        self.vectors = self.facts.outputs // 2 // self.lanes
        self.panels = self.vectors // self.tile.blocks
        self.images, self.pairs = self.facts.data.shape[0], _pairs(self.facts)
        self.flat = _flat(request, self.facts)
        self.slots = {number: slot for slot, number in enumerate(_copied(request, self.facts))}
        self.parallel = self.facts.flops >= PARALLEL_FLOPS and request.workers > 1
        self.by_panels = self.parallel and _by_panels(request, self.facts)
        alone = not self.parallel or self.images % request.workers == 0 or self.by_panels
        self.parts = 1 if alone else request.workers
        self.own = -(-self.pairs // self.parts)  # pairs of a core; the last band is moved back
        self.tiles = -(-self.own // self.tile.columns)

    @property
    def block_tiles(self) -> int:
        """Tiles of pairs whose U, W and left operands stay in cache."""
        if self.by_panels:
            return self.tiles
        target, element = self.conv.request.target, dtype_bytes(self.dtype)
        state = self.tile.columns * self.tile.blocks * self.lanes * element
        lefts = len(self.slots) * self.tile.columns * self.depth * self.lanes * element
        most = max(1, min(STATE_BYTES // state, (target.l2_bytes or 1 << 18) // 2 // lefts, self.tiles))
        return -(-self.tiles // -(-self.tiles // most))

    @property
    def lefts(self) -> int:
        """Elements of left operands that a task makes at a time."""
        return len(self.slots) * self.block_tiles * self.depth * self.tile.columns * self.lanes

    @property
    def held(self) -> int:
        return self.images * self.parts * self.lefts * dtype_bytes(self.dtype)

    def emit(self) -> None:
        k, ctx = self.k, self.ctx
        packed = self._packed()
        self.conv.far = packed.nbytes > self.conv.request.target.l2_bytes // 2
        weights = ctx.packed(Packed(f"w_{self.facts.weight.name}", packed, linear=self._linear), narrow=False)
        size, tasks = self.lefts, self.images * self.parts
        lefts = k.pointer(k.fresh("lefts"), self.dtype, tasks * size)
        ctx.operands.append(Scratch(self.held))
        if self.by_panels:
            self._shared_panels(weights, lefts, size)
            return
        kind = "parallel" if self.parallel else "serial"
        with k.loop(tasks, kind, "p") as p:
            ctx.ranged(p, tasks)
            image, part = self._bind(tirx.floordiv(p, self.parts), self.images), tirx.floormod(p, self.parts)
            ctx.fill_parts(None, image, part, self.parts)
            first = self._bind(tirx.min(part * self.own, self.pairs - self.own), self.pairs)
            base = self._bind(p * size, tasks * size)
            blocks = -(-self.tiles // self.block_tiles)
            with k.loop(blocks, name="block") as block:
                ctx.ranged(block, blocks)
                start = self._bind(block * self.block_tiles, self.tiles)
                count = self.block_tiles
                if self.tiles % self.block_tiles:
                    count = self._bind(tirx.min(self.tiles - start, self.block_tiles), self.block_tiles + 1)
                self._sums(image, first, start, count, self.depth, lefts, base)
                with k.loop(self.panels, name="n") as panel:
                    ctx.ranged(panel, self.panels)
                    self._panel(image, panel, first, start, count, lefts, base, weights)

    def _shared_panels(self, weights: Buffer, lefts: Buffer, size: int) -> None:
        """One launch for the left operands of all images, and one for the products."""
        k, ctx, zero = self.k, self.ctx, tirx.IntImm("int32", 0)
        with k.loop(self.images * self.depth, "parallel", "p") as p:
            ctx.ranged(p, self.images * self.depth)
            image = self._bind(tirx.floordiv(p, self.depth), self.images)
            block = self._bind(tirx.floormod(p, self.depth), self.depth)
            self._sums(image, zero, zero, self.tiles, 1, lefts, image * size, block)
        workers = min(self.conv.request.workers, self.panels)
        with k.loop(self.images * workers, "parallel", "p") as p:
            ctx.ranged(p, self.images * workers)
            image = self._bind(tirx.floordiv(p, workers), self.images)
            part = self._bind(tirx.floormod(p, workers), workers)
            ctx.fill_parts(None, image, part, workers, by_rows=False)
            begin, end = (self._bind(tirx.floordiv((part + i) * self.panels, workers), self.panels + 1) for i in (0, 1))
            with k.loop(end - begin, name="n", begin=begin) as panel:
                ctx.ranged(panel, self.panels)
                self._panel(image, panel, zero, zero, self.tiles, lefts, image * size, weights)

    def _bind(self, value: Expr, extent: int) -> Expr:
        return self.conv.bind(value, extent)

    def _pair(self, first: Expr, tile: Expr) -> Expr:
        """The first pair of a tile; the last tile of a band is moved back."""
        inside: Expr = tile * self.tile.columns
        if self.own % self.tile.columns:
            inside = tirx.min(inside, self.own - self.tile.columns)
        return self._bind(first + inside, self.pairs - self.tile.columns + 1)

    # -- operands --------------------------------------------------------------------------------

    def _packed(self) -> np.ndarray:
        """[panel][product][input channel][vector][lane]"""
        weight = np.asarray(self.facts.weight.constant, np.float64).reshape(self.facts.outputs, self.facts.channels).T
        (b11, b12), (b21, b22) = (np.split(half, 2, axis=1) for half in np.split(weight, 2))
        t1 = b12 - b11
        t2 = b22 - t1
        seven = np.stack([b11, b21, t2, t1, b22, b22 - b12, b21 - t2]).astype(self.dtype)
        seven = seven.reshape(PRODUCTS, self.depth * self.lanes, self.panels, self.tile.blocks * self.lanes)
        return np.ascontiguousarray(seven.transpose(2, 0, 1, 3)).reshape(-1)

    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        weight = np.asarray(self.facts.weight.constant).reshape(self.facts.outputs, self.facts.channels).T
        return linear_halves(weight)

    def _place(self, slot: int, tile: Expr, block: Expr) -> Expr:
        """Where a tile of a left operand begins, within those of a block of tiles."""
        return ((slot * self.block_tiles + tile) * self.depth + block) * (self.tile.columns * self.lanes)

    def _data(self, image: Expr, block: Expr, position: Expr, lane: Expr) -> tuple[Buffer, Expr]:
        """Where an input lies that position ``position`` of the outputs reads: a buffer, and an index."""
        layout, width = self.conv.request.layout(self.facts.data), self.facts.out_spatial[1]
        rows, columns = self.facts.strides
        if self.flat:
            return self.conv.read(self.facts.data), layout.offset([image, 0, 0, position], block, lane)
        at = [image, 0, tirx.floordiv(position, width) * rows, tirx.floormod(position, width) * columns]
        return self.conv.read(self.facts.data), self.ctx.analyzer.simplify(layout.offset(at, block, lane))

    def _sums(
        self, image: Expr, first: Expr, start: Expr, count: Expr, depth: int, lefts: Buffer, base: Expr, begin: Expr = 0
    ) -> None:
        """Left operands of ``count`` tiles, ``depth`` blocks of channels of each half from ``begin`` on."""
        k, ctx = self.k, self.ctx
        with k.loop(count, name="t") as t:
            ctx.ranged(t, self.block_tiles)
            pair = self._pair(first, start + t)
            with k.loop(depth, name="cb", begin=begin) as block, k.loop(self.tile.columns, name="x") as x:
                ctx.ranged(block, self.depth)
                ctx.ranged(x, self.tile.columns)
                even, odd = (self._bind(self.conv.at(pair + x, i), 2 * self.pairs) for i in (0, 1))
                with k.loop(self.lanes, "vectorized", "v") as v:
                    ctx.ranged(v, self.lanes)
                    a11, a12, a21, a22 = (
                        k.bind(loaded(*self._data(image, block + half * self.depth, position, v)))
                        for position in (even, odd)
                        for half in (0, 1)
                    )
                    s1 = k.bind(a21 + a22)
                    s2 = k.bind(s1 - a11)
                    values = (a11, a12, s2, s1, a12 - s2, a11 - a21, a22)
                    for number, slot in self.slots.items():
                        place = base + self._place(slot, t, block) + x * self.lanes + v
                        k.store(lefts, place, values[number])

    def _left(
        self, number: int, image: Expr, pair: Expr, t: Expr, block: Expr, c: Expr, lefts: Buffer, base: Expr
    ) -> Callable[[Expr], tuple[Buffer, Expr]]:
        """Where the elements of the left operand of a product lie, by pair of the tile."""
        slot = self.slots.get(number)
        if slot is not None:
            place = base + self._place(slot, t, block) + c
            return lambda x: (lefts, place + x * self.lanes)
        half, odd = (1 if number in (1, 6) else 0), (1 if number == 6 else 0)
        return lambda x: self._data(image, block + half * self.depth, self.conv.at(pair + x, odd), c)

    # -- products --------------------------------------------------------------------------------

    def _panel(
        self,
        image: Expr,
        panel: Expr,
        first: Expr,
        start: Expr,
        count: Expr,
        lefts: Buffer,
        base: Expr,
        weights: Buffer,
    ) -> None:
        """All products of a panel of the left half of the outputs and its counterpart in the right one."""
        k, ctx, lanes, blocks, columns = self.k, self.ctx, self.lanes, self.tile.blocks, self.tile.columns
        size = columns * blocks * lanes
        u, w = (k.local(name, self.dtype, self.block_tiles * size, "global") for name in ("u", "w"))
        near = self._bind(panel * blocks, self.vectors)
        steps = self.depth * lanes * blocks * lanes
        target = self.conv.request.target
        following = next_panel(target, self.tile, steps, self.block_tiles, self.depth, dtype_bytes(self.dtype))

        @contextmanager
        def product(
            number: int, begin: tuple[Buffer, ...], keep: Buffer | None = None
        ) -> Iterator[tuple[Buffer, Expr, Expr]]:
            with k.loop(count, name="t") as t:
                ctx.ranged(t, self.block_tiles)
                pair, at = self._pair(first, start + t), t * size
                acc = None if self.half else self._begin([(s, at) for s in begin])
                begins = (panel * PRODUCTS + number) * steps
                if lanes * blocks > DISTANCES and target.is_aarch64:
                    begins = panel * (PRODUCTS * steps) + any_number(target, number * steps)
                offset = self._bind(begins, self.panels * PRODUCTS * steps)
                share = offset + following.share(self._bind, t) if following is not None else None

                def multiply(acc: Buffer, block: Expr) -> None:
                    ctx.ranged(block, self.depth)
                    left = lambda c: self._left(number, image, pair, t, block, c, lefts, base)  # noqa: E731
                    multiply_block(self.conv, acc, block, left, (weights, offset), (following, share))

                if acc is None:
                    sums = [(s, at) for s in begin]
                    kept = None if keep is None else (keep, at)
                    acc = add_runs(k, (columns * blocks, lanes), self.depth, sums, kept, multiply)
                else:
                    with k.loop(self.depth, name="cb") as block:
                        multiply(acc, block)
                    if keep is not None:
                        with k.loop(columns * blocks, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
                            k.store(keep, at + z * lanes + v, acc[z * lanes + v])
                yield acc, at, pair

        def write(acc: Buffer, pair: Expr, place: tuple[int, Expr]) -> None:
            self.conv.epilogue(acc, image, place[1], [place[0]], pair, blocks)

        c11, c12, c21, c22 = ((odd, place) for odd in (0, 1) for place in (near, near + self.vectors))
        with product(0, (), u):
            pass
        with product(1, (u,)) as (acc, _, pair):
            write(acc, pair, c11)
        with product(2, (u,), u):
            pass
        with product(3, (), w):
            pass
        with product(4, (u, w)) as (acc, _, pair):
            write(acc, pair, c12)
        with product(5, (u,), u) as (_, at, pair):  # P1 + P6 + P7: with P5 it is C22
            write(self._begin([(u, at), (w, at)]), pair, c22)
        with product(6, (u,)) as (acc, _, pair):
            write(acc, pair, c21)

    def _begin(self, sources: list[tuple[Buffer, Expr]]) -> Buffer:
        """Accumulators that hold a sum of tiles of U and W."""
        k, lanes = self.k, self.lanes
        acc = k.local("acc", self.dtype, self.tile.columns * self.tile.blocks * lanes)
        with k.loop(self.tile.columns * self.tile.blocks, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            value: Expr = tirx.const(0, self.dtype)
            for number, (memory, place) in enumerate(sources):
                part = memory[place + z * lanes + v]
                value = value + part if number else part
            k.store(acc, z * lanes + v, value)
        return acc
