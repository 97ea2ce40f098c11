"""Elements offered to a heap of the best so far: most are turned away in vectors, by one comparison with its root.

    for chunk of the row
      hit = any(chunk beats the root's element)      vectors, folded in halves
      if hit: for each element that beats it: offer it, and look at the root again

Equals of the root come later and so behind it. A NaN passes the comparison, and the heap decides.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir.prim import expr as prim

from ..emit.builder import KernelBuilder
from ..emit.inline import negation
from ..words.sizes import usual
from ..words.tvm_types import Expr
from .common import is_float
from .heap import RankHeap
from .loops import cast

LANES = 16  # elements compared at once; two such vectors where rows are so long that most chunks hold nothing
LONG = 8192


def offer_all(
    b: KernelBuilder, heap: RankHeap, value: Callable[[Expr], Expr], begin: Expr, end: Expr, largest: bool, dtype: str
) -> None:
    """Offers the elements ``value(begin)`` to ``value(end - 1)``, side by side in memory, to a heap of ``begin``."""
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    chunk = 2 * LANES if usual(end) >= LONG else LANES
    limit = b.local("limit", wide, 1)

    def element(p: Expr) -> Expr:
        return cast(wide, value(p))

    def look() -> None:
        b.store(limit, 0, element(heap.position(0)))

    def beats(p: Expr) -> Expr:
        if not is_float(dtype):
            return element(p) > limit[0] if largest else element(p) < limit[0]
        return negation((prim.LE if largest else prim.GE)(element(p), limit[0]))

    def offer(p: Expr) -> None:
        with b.when(beats(p)):
            heap.offer(p, begin)
            look()

    look()
    chunks, tail = divmod(end - begin, chunk)
    hit = b.local("hit", "int32", LANES)
    with b.loop(chunks, name="c") as c:
        first = begin + c * chunk
        with b.loop(LANES, "vectorized", "v") as v:
            found = [cast("int32", beats(first + part + v)) for part in range(0, chunk, LANES)]
            b.store(hit, v, found[0] if len(found) == 1 else tirx.bitwise_or(*found))
        width = LANES
        while width > 1:
            width //= 2
            with b.loop(width, "vectorized" if width > 1 else "serial", "v") as v:
                b.store(hit, v, tirx.bitwise_or(hit[v], hit[v + width]))
        with b.when(hit[0] != 0):
            with b.loop(chunk, name="i") as i:
                offer(first + i)
    with b.loop(tail, name="i") as i:
        offer(end - tail + i)
