"""Pixel shuffles out of channel blocks, in registers: squares are transposed, and their columns interleaved.

    y[c, 3 h + i, 3 w + j] = x[9 c + 3 i + j, h, w]

    for n, h (shared by cores)
      for w, 16 at a time
        x[0:16, h, w : w + 16], transposed         a vector of each channel (:mod:`..emit.register_transpose`)
        for c, i                                   written out
          y[c, 3 h + i, 3 w : 3 w + 48]            the vectors of j = 0, 1, 2 in turns: 3 whole ones

Where one element after the other is read and written, a vector of 16 takes 16 reads of 16 lines, and as many
insertions. Lines of a large result are asked for a period of rows before: the ends of boxes are no rows that a
processor foresees. 27 channels in boxes of 12 x 320 to 3 of 2160 x 3840: 17 ms became 12.5 (Emerald Rapids).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import sym, tirx
from tvm.ir.prim import expr as prim

from ..emit.register_transpose import Aligned, side_of
from ..instructions.prefetch import hint
from ..kernel.context import Context
from ..math.float16 import Widened
from ..words.dims import to_index
from ..words.group import Value, dtype_bytes
from ..words.sizes import surely, usual
from ..words.tvm_types import Buffer, Expr

MOST = 64  # elements of a period, of all channels, which are written out
NOTE = "channels transposed in registers"

Element = Callable[[list[Expr]], None]


def squares(
    ctx: Context, extents: Sequence[Expr], steps: tuple[int, int], element: Element
) -> tuple[list[Expr], Callable[[list[Expr]], None]] | None:
    """Extents of the loops over images and periods of rows, and their body, for accesses that repeat after ``steps``
    (rows, columns); None where squares would not do. ``element`` emits the one at four coordinates.

    The last square of a row overlaps the one before, and its results are written twice: not where an output may lie in
    the memory of an input, which has then changed. Where the width is open, rows have to be as long as one square."""
    images, channels, height, width = extents
    side, inputs = _side(ctx), sum(v.constant is None for v in ctx.request.group.inputs)
    periods = width // steps[1]
    if channels * steps[0] * steps[1] > MOST or surely(lambda: periods < side) or (periods % side != 0 and inputs > 1):
        return None
    emit = _Squares(ctx, channels, steps, side, periods, element)
    if not emit.able(images, height // steps[0]):
        return None
    return [images, height // steps[0]], emit.row


def least_width(ctx: Context, steps: tuple[int, int]) -> int:
    """Elements of a row that squares take."""
    return _side(ctx) * steps[1]


def _side(ctx: Context) -> int:
    group = ctx.request.group
    return side_of(ctx.request.target.vector_bits, max(dtype_bytes(v.dtype) for v in (*group.inputs, *group.outputs)))


class _Squares:
    def __init__(
        self, ctx: Context, channels: int, steps: tuple[int, int], side: int, periods: Expr, element: Element
    ) -> None:
        self.ctx, self.k = ctx, ctx.k
        self.channels, self.steps, self.side, self.periods, self.element = channels, steps, side, periods, element
        results = [v for v in ctx.request.group.outputs if _is_far(ctx, v)]
        below = [steps[0] * ctx.request.layout(v).strides[2] for v in results]  # the next period
        self.below = {ctx.buffer(v): to_index(b) for v, b in zip(results, below)}

    def able(self, images: Expr, rows: Expr) -> bool:
        """True if there are squares, and what is written of them lies in turns."""
        extents = images, rows, self.periods - self.side + 1
        marks = [self.ctx.ranged(tirx.Var("m", "int32"), extent) for extent in extents]
        with self.k.capture():
            self.k.square = square = Aligned(self.side, self.ctx.analyzer.simplify)
            found = self._line(marks[0], marks[1], marks[2], 0, 0)
            self.k.square = None
        return bool(square.found) and found is not None

    def row(self, loops: list[Expr]) -> None:
        """All of the rows of one period."""
        count = -(-self.periods // self.side)
        with self.k.loop(count, name="x") as part:
            first = self.ctx.ranged(part, count) * self.side
            if self.periods % self.side != 0:
                last = self.periods - self.side
                first = self.ctx.ranged(self.k.bind(tirx.min(first, to_index(last)), "x"), last + 1)
            self.k.square = Aligned(self.side, self.ctx.analyzer.simplify)
            for c in range(self.channels):
                for i in range(self.steps[0]):
                    for buffer, base, vectors in self._line(loops[0], loops[1], first, c, i) or ():
                        self._store(buffer, base, vectors)
            self.k.square = None

    def _line(
        self, image: Expr, row: Expr, first: Expr, c: int, i: int
    ) -> list[tuple[Buffer, Expr, list[Expr]]] | None:
        """Row ``i`` of a period in channel ``c``: for each output its memory, the place of the first element, and the
        vectors that lie in turns from there on. None where they don't."""
        k, (rows, columns) = self.k, self.steps
        found: list[tuple[Buffer, Expr, list[Expr]]] = []
        for j in range(columns):
            apart: list[tuple[Buffer, Expr, Expr]] = []
            self.ctx.apart = apart
            with k.loop(self.side, "vectorized", "v") as v:
                self.ctx.ranged(v, self.side)
                at = [image, tirx.IntImm("int32", c), row * rows + i, (first + v) * columns + j]
                self.element(at)
            self.ctx.apart = None
            for n, (buffer, position, held) in enumerate(apart):
                linear = sym.detect_linear_equation(position, [v])
                if not len(linear) or not _is(linear[0], columns):
                    return None
                if not j:
                    found.append((buffer, linear[1], []))
                elif not _is(self.ctx.analyzer.simplify(linear[1] - found[n][1]), j):
                    return None
                found[n][2].append(held.source[tirx.Ramp(0, 1, self.side)])
        return found

    def _store(self, buffer: Buffer, base: Expr, vectors: list[Expr]) -> None:
        for i in range(len(vectors)) if buffer in self.below else ():
            below = base + self.below[buffer] + i * self.side
            hint(self.k, buffer, self.ctx.analyzer.simplify(below), written=True)
        for i, vector in enumerate(self._interleaved(vectors)):
            at = tirx.Ramp(self.ctx.analyzer.simplify(base + i * self.side), 1, self.side)
            self.k.store(buffer, at, self.k.bind(vector) if isinstance(buffer, Widened) else vector)

    def _interleaved(self, vectors: list[Expr]) -> list[Expr]:
        """The elements of ``vectors`` in turns, as many vectors."""
        n, side = len(vectors), self.side
        if n == 1:
            return vectors
        if n % 2 == 0:
            halves = [self._interleaved(vectors[half::2]) for half in (0, 1)]
            return [self._picked(pair, [p for e in range(side // 2) for p in (at + e, side + at + e)])
                    for pair in zip(*halves) for at in (0, side // 2)]  # fmt: skip
        found = []
        for out in range(n):
            picked = vectors[0]  # at elements that are not of vector 0: anything
            places = [divmod(out * side + e, n) for e in range(side)]  # of each element: lane, vector
            for v in range(1, n):
                kept = [e if v > 1 else lane for e, (lane, _) in enumerate(places)]
                picks = [side + lane if of == v else kept[e] for e, (lane, of) in enumerate(places)]
                picked = self._picked((picked, vectors[v]), picks)
            found.append(picked)
        return found

    def _picked(self, pair: Sequence[Expr], places: list[int]) -> Expr:
        order = [tirx.IntImm("int32", p) for p in places]
        return self.k.whole(tirx.Shuffle(list(pair), order), str(pair[0].source.dtype), self.side)


def _is_far(ctx: Context, value: Value) -> bool:
    """True if the lines of ``value`` come from memory when they are written, and a core can go on meanwhile."""
    box, target = ctx.request.box, ctx.request.target
    windowed = box is not None and value in box.windowed
    return not windowed and not target.in_order and usual(value.bytes) > target.l2_bytes


def _is(expression: Expr, number: int) -> bool:
    return isinstance(expression, prim.IntImm) and int(expression.value) == number
