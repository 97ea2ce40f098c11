"""Maps of images whose reads repeat along rows and columns: pixel shuffles (depth to space) into plain memory.

    y[c, h, w] = x[9 c + 3 (h mod 3) + w mod 3, h // 3, w // 3]

Lanes along w would each compute their place and read a line of their own. With the remainders apart, places are known
but for a base, and what lies side by side is read together, while its lines are near:

    for n, h // 3 (shared by cores)
      for chunk of w // 3
        for c, h mod 3
          for w // 3 in the chunk
            w mod 3 written out                one read and one write each

Channels in blocks are all read by the lines of one chunk: 64 columns of 27 channels are 8 KiB. 43 ms became 25 for 27
channels of 720 x 1280 to 3 of 2160 x 3840, of which 15 are what memory takes (Granite Rapids). Boxes of tile groups are
computed alike where they begin and end with whole periods; the first place of each element of a period is computed
before the loop over a chunk, since LLVM does not see that places behind numbers of run time are a constant distance
apart, and would gather them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..emit.written_out import children
from ..kernel.context import Context
from ..words.tvm_types import Expr

MOST = 8  # elements of a period, which are written out
CHUNK = 64  # periods of a row whose lines are near


def period(positions: Sequence[Expr], axis: Expr) -> int:
    """After how many elements along the variable ``axis`` the accesses repeat, elsewhere: what all divisions and
    remainders of it divide by, if there are remainders; else 0."""
    divisors: set[int] = set()
    remainders = False
    for position in positions:
        for node in _innermost(position, axis):
            divisors.add(int(node.b.value))
            remainders = remainders or isinstance(node, prim.FloorMod)
    found = divisors.pop() if len(divisors) == 1 else 0
    return found if remainders and 1 < found <= MOST else 0


def _innermost(expression: Expr, axis: Expr) -> list[Expr]:
    """Divisions and remainders of ``axis`` by constants in which there is no other one."""
    below = [node for part in children(expression) for node in _innermost(part, axis)]
    if below or not isinstance(expression, (prim.FloorDiv, prim.FloorMod)):
        return below
    if not isinstance(expression.b, prim.IntImm):
        return []
    return [expression] * any(v.same_as(axis) for v in tirx.analysis.undefined_vars(expression.a))


def chunks(
    ctx: Context, extents: Sequence[int], steps: tuple[int, int], element: Callable[[list[Expr]], None]
) -> tuple[list[int], Callable[[list[Expr]], None]]:
    """Extents of the loops over images, periods of rows and chunks of a row, and their body, for accesses that repeat
    after ``steps`` (rows, columns). ``element`` emits the one at four coordinates."""
    k, (rows, columns), (images, channels, height, width) = ctx.k, steps, extents
    periods = width // columns
    size = chunk_of(periods)
    whole, rest = divmod(periods, size)

    def body(loops: list[Expr]) -> None:
        image, row, part = loops
        if not rest:
            chunk(image, row, part * size, size)
            return
        with k.when(part < whole):  # the simplifier must see that places stay within a row
            chunk(image, row, ctx.ranged(k.bind(part, "p"), whole) * size, size)
        with k.when(part >= whole):
            chunk(image, row, tirx.IntImm("int32", whole * size), rest)

    def chunk(image: Expr, row: Expr, first: Expr, count: int) -> None:
        with k.loop(channels, name="c") as c, k.loop(rows, name="i") as i:
            ctx.ranged(c, channels)
            ctx.ranged(i, rows)

            def one(x: Expr, j: int) -> None:
                element([image, c, row * rows + i, (first + x) * columns + j])

            starts = [ctx.begins(partial(one, 0, j)) if ctx.origin is not None else {} for j in range(columns)]
            with k.loop(count, name="x") as x:
                ctx.ranged(x, count)
                for j in range(columns):
                    ctx.starts = starts[j]
                    one(x, j)
            ctx.starts = {}

    return [images, height // rows, -(-periods // size)], body


def in_periods(ctx: Context, extents: Sequence[int], steps: tuple[int, int]) -> bool:
    """True if rows and columns of images are whole periods, and begin with one where they are a box."""
    box = ctx.request.box
    begins = box.steps if box is not None else (0, 0)
    return all(size % step == 0 and begin % step == 0 for size, begin, step in zip(extents[2:], begins, steps))


@contextmanager
def from_whole_periods(ctx: Context, steps: tuple[int, int]) -> Iterator[None]:
    """Within, a box begins at a number of whole periods, whose remainders vanish."""
    given = ctx.origin
    if given is not None:
        sizes = ctx.request.group.outputs[-1].shape[2:]
        counts = [ctx.k.bind(tirx.floordiv(at, step), "o") for at, step in zip(given, steps)]
        lasts = [(size - own) // step for size, own, step in zip(sizes, ctx.size, steps)]  # boxes end within the tensor
        ctx.origin = [ctx.ranged(c, last + 1) * step for c, last, step in zip(counts, lasts, steps)]
    yield
    ctx.origin = given


def chunk_of(periods: int) -> int:
    """How many of a row's periods are one chunk: no more than CHUNK, in as few chunks of about one size as can be."""
    return -(-periods // -(-periods // CHUNK))
