"""Steps of a reduction written out, in direct convolutions, Winograd's products and products of matrices.

    for step in range(n)            for run in range(n / 4)
      body(step)                      body(4 run), body(4 run + 1), body(4 run + 2), body(4 run + 3)

The counters of a loop take slots of multiply-adds where two of them start in a cycle, and what later steps read is
asked for sooner where it comes from the second level: products of 512 x 1024 x 1024 take 0.95 of the time, 49 x 3072 x
768 0.96, 1x1 convolutions of 512 to 128 channels at 28 x 28 0.93, EDSR 0.96 (Granite Rapids). On 64-bit ARM LLVM does
so itself (:mod:`.register_budget`). Attention's products and 1x1 convolutions by seven products take as long either
way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...targets.target import Target
from .context import Context

if TYPE_CHECKING:
    from ..words.size_like import SizeLike
    from ..words.tvm_types import Expr

UNROLLED = 4  # two gain half as much, eight less, of products too; a whole block of 16 channels less at 28 x 28


@contextmanager
def unrolled(
    ctx: Context, target: Target, count: SizeLike, name: str, begin: SizeLike = 0, most: int | None = None
) -> Iterator[Expr]:
    """The loop ``for step in begin + [0, count)``, UNROLLED of them at a time where they divide; ``most``: steps of the
    longest such loop, for the simplifier."""
    most = count if most is None else most
    if not isinstance(begin, int) or not writes_out(target, count) or count % UNROLLED:
        with ctx.k.loop(count, name=name, begin=begin) as step:
            yield ctx.ranged(step, most)
        return
    with ctx.k.loop(count // UNROLLED, name="run") as run, ctx.k.loop(UNROLLED, "unroll", name) as step:
        ctx.ranged(run, count // UNROLLED)
        yield begin + run * UNROLLED + ctx.ranged(step, UNROLLED)


def each_step(ctx: Context, target: Target, count: SizeLike, body: Callable[[Expr], None], begin: SizeLike = 0) -> None:
    """``body`` for every step of ``begin + [0, count)``, in their order; those that are left over in a loop of their
    own."""
    rest = count % UNROLLED if isinstance(begin, int) and writes_out(target, count) else 0
    end = begin + count
    if rest == 0 or count > rest:
        with unrolled(ctx, target, count - rest, "k", begin, end) as step:
            body(step)
    if rest:
        with ctx.k.loop(rest, name="k", begin=end - rest) as step:
            body(ctx.ranged(step, end))


def writes_out(target: Target, count: SizeLike) -> bool:
    """True if steps are written out there, of a loop of ``count``."""
    return isinstance(count, int) and target.fma_ports > 1 and not target.is_aarch64
