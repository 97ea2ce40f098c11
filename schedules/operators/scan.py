"""Running sums and products, and the k largest elements: loops along the axis, linear and n log k."""

from __future__ import annotations

from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..math.wrapping import plus, times
from ..words.dims import is_dim, minimum, to_index
from ..words.sizes import surely, usual
from ..words.tvm_types import Buffer, Expr
from .common import dtype_of, is_float, shape_of
from .filtered import offer_all
from .heap import Before, Heap, RankHeap, order, rank_of
from .loops import VectorRun, accumulator, cast, kind_of, runs, split_at, written
from .open_shapes import same
from .radix import key_of, radix_lengths, radix_pays, sort_descending
from .registry import define

LANES = 16  # running sums side by side, where the axis is not the innermost one


def _running(x: te.Tensor, axis: int, exclusive: bool, reverse: bool, product: bool) -> te.Tensor:
    """One pass along the axis for each row; rows next to each other in memory run in vectors."""
    outer, length, inner = split_at(x, axis)
    dtype, wide = dtype_of(x), accumulator(dtype_of(x))

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        for run in runs(inner, LANES):
            columns(k, ins[0], outs[0], run)

    def columns(k: KernelBuilder, source: Buffer, target: Buffer, run: VectorRun) -> None:
        with k.loop(outer * run.blocks, kind_of(outer * length * inner), "row") as row:
            before, first = row // run.blocks, run.first(row % run.blocks)
            total = k.local("total", wide, run.lanes)
            with k.loop(run.lanes, "vectorized") as v:
                k.store(total, v, tirx.Cast(wide, tirx.IntImm("int32", int(product))))
            with k.loop(length, name="t") as t:
                at = (before * length + (length - 1 - t if reverse else t)) * inner + first
                with k.loop(run.lanes, "vectorized") as v:
                    element = cast(wide, k.load(source, at + v))
                    after = k.bind((times if product else plus)(total[v], element))
                    k.store(target, at + v, cast(dtype, total[v] if exclusive else after))
                    k.store(total, v, after)

    return written("running", [x], [(shape_of(x), dtype)], write)[0]


@define("halotile.cumsum", shapes=same)
def cumsum(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """The sum of the elements up to each one (without it when exclusive; from the end when reverse)."""
    return _running(x, axis, exclusive, reverse, product=False)


@define("halotile.cumprod", shapes=same)
def cumprod(x: te.Tensor, *, axis: int, exclusive: bool, reverse: bool) -> te.Tensor:
    """The product of the elements up to each one (without it when exclusive; from the end when reverse)."""
    return _running(x, axis, exclusive, reverse, product=True)


@define("halotile.topk")
def topk(x: te.Tensor, *, k: int | None = None, axis: int, largest: bool) -> list[te.Tensor]:
    """The k largest (smallest) elements along ``axis`` in order, of which without ``k`` there are as many as there are
    at all, and their positions (int64); equals keep theirs.

    A heap of k positions with the last in order at the root, kept in the output itself: an element that comes before
    the root replaces it, and at the end the heap is taken apart from its root, back to front. Of types up to 32 bits it
    holds ranks, which compare at once, and rows are compared with its root in vectors (:mod:`.filtered`). Where most
    are wanted, they are sorted instead (:mod:`.radix`). A NaN counts as larger than any number.
    """
    if k == 1:
        return first_of(x, axis, order(is_float(dtype_of(x)), largest))
    shape = shape_of(x)
    outer, length, inner = split_at(x, axis)
    k = length if k is None else k
    out = [k if a == axis else d for a, d in enumerate(shape)]
    rank = rank_of(dtype_of(x), largest)
    wide: Expr = key_of(dtype_of(x), largest) if rank is None else None
    before = order(is_float(dtype_of(x)), largest)

    def write(b: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        values, positions = outs
        sortable = (rank or wide) is not None
        if not is_dim(length):
            rows(b, ins, values, positions, sortable and radix_pays(length, k, rank is None))
            return
        lengths = radix_lengths(None if is_dim(k) else k, rank is None) if sortable else None
        if lengths is None:
            rows(b, ins, values, positions, False)
            return
        among = tirx.all(to_index(length) >= lengths[0], to_index(length) <= lengths[1])
        for condition, sorts in ((among, True), (tirx.Not(among), False)):
            with b.when(condition):
                rows(b, ins, values, positions, sorts, lengths[1])

    def rows(
        b: KernelBuilder, ins: list[Buffer], values: Buffer, positions: Buffer, sorts: bool, most: int | None = None
    ) -> None:
        with b.loop(outer * inner, kind_of(outer * length * inner), "row") as row:
            source = row // inner * (length * inner) + row % inner
            target = row // inner * (k * inner) + row % inner

            def value(p: Expr) -> Expr:
                return b.load(ins[0], source + p * inner)

            def put(o: Expr, at: Expr) -> None:
                b.store(values, target + o * inner, value(at))
                b.store(positions, target + o * inner, cast("int64", at))

            if sorts:
                number = (lambda p: rank(b, value(p), p)) if rank else (lambda p: wide(b, value(p)))
                stood = sort_descending(b, number, length, rank is None, minimum(length, most or length))
                with b.loop(k, name="o") as o:
                    put(o, b.bind(stood(o)))
                return
            ranked = None
            if rank is not None:
                ranked = RankHeap(b, positions, target, inner, lambda p: rank(b, value(p), p))
            heap = ranked or Heap(b, positions, target, inner, value, before)
            heap.fill(k)
            long = is_dim(length - k) or usual(length - k) >= LANES
            if ranked is not None and inner == 1 and long:
                offer_all(b, ranked, value, k, length, largest, dtype_of(x))
            elif not surely(lambda: length <= k):
                with b.loop(length - k, name="p") as rest:
                    heap.offer(rest + k, k)
            with b.loop(k - 1, name="s") as step:
                heap.take(k - 1 - step)
            with b.loop(k, name="o") as o:
                put(o, b.bind(heap.position(o)))

    return written("topk", [x], [(out, dtype_of(x)), (out, "int64")], write)


def first_of(x: te.Tensor, axis: int, before: Before) -> list[te.Tensor]:
    """The first element in the order along ``axis``, and its position: in vectors of rows next to each other in memory,
    or of parts of one row, whose best ones are compared at the end."""
    outer, length, inner = split_at(x, axis)
    dtype = dtype_of(x)
    along = inner == 1

    def write(b: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        if not along:
            for run in runs(inner, LANES):
                find(b, ins, outs, run)
        elif not is_dim(length):
            find(b, ins, outs, VectorRun(1, min(length, LANES), lambda _: tirx.IntImm("int32", 0)))
        else:
            long = to_index(length) >= LANES
            for lanes, condition in ((LANES, long), (1, tirx.Not(long))):
                with b.when(condition):
                    find(b, ins, outs, VectorRun(1, lanes, lambda _: tirx.IntImm("int32", 0)))

    def find(b: KernelBuilder, ins: list[Buffer], outs: list[Buffer], run: VectorRun) -> None:
        blocks, lanes = run.blocks, run.lanes
        with b.loop(outer * blocks, kind_of(outer * length * inner), "row") as row:
            start, column = row // blocks * (length * inner), run.first(row % blocks)
            best, at = b.local("best", dtype, lanes), b.local("at", "int32", lanes)
            steps = -(-length // lanes) if along else length
            with b.loop(lanes, "vectorized") as v:
                b.store(best, v, b.load(ins[0], start + column + v))
                b.store(at, v, v if along else tirx.IntImm("int32", 0))
            with b.loop(steps - 1, name="t") as t:
                first = b.bind(tirx.min((t + 1) * lanes, length - lanes)) if along else t + 1
                with b.loop(lanes, "vectorized") as v:
                    place = first + v if along else tirx.Cast("int32", first)
                    value = b.bind(b.load(ins[0], start + (place if along else place * inner + column + v)))
                    wins = b.bind(before(value, place, best[v], at[v]))
                    b.store(at, v, tirx.Select(wins, place, at[v]))
                    b.store(best, v, tirx.Select(wins, value, best[v]))
            if along:
                with b.loop(lanes - 1, name="v") as v:
                    with b.when(before(best[v + 1], at[v + 1], best[0], at[0])):
                        b.store(best, 0, best[v + 1])
                        b.store(at, 0, at[v + 1])
            with b.loop(1 if along else lanes, "serial") as v:
                target = row // blocks * inner + column + v
                b.store(outs[0], target, best[v])
                b.store(outs[1], target, cast("int64", at[v]))

    out = [1 if a == axis else d for a, d in enumerate(shape_of(x))]
    return written("first", [x], [(out, dtype), (out, "int64")], write)
