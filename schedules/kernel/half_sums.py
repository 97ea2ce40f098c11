"""Sums of float16 products: runs of terms in float16, and the sums of runs apart.

    for run of the reduction                            SPAN terms, or SHORT, or a little more
      acc[z] = 0
      for term of the run:  acc[z] += a * b             float16: twice the lanes of float32
      sums[z] += acc[z]                                 in float32 of all runs but the last: five cycles a vector
    acc[z] = sums[z]                                    acc[z] + sums[z] of float32

A sum of n random terms is off by roundings of its own size so far, whose squares add up: by u sqrt(n / 12) of the root
of the sum of the terms' squares, u = 2^-11: 0.0095 for 3x3 of 512 channels in float16 alone. Runs of SPAN that are
added up in float32 make 0.0016 of it. Runs of s that are added up in float16 make u sqrt((s + n / s) / 12): so do
those of SHORT in convolutions, which are as exact up to MOST terms, and take a third of the cycles. In matrix products,
whose tiles have other rows of registers, LLVM has none left for them.

Sums of float16 stay in its range where those of any of their terms do, which passes/halves makes sure of. The order of
terms depends on shapes alone, so that results have the same bits on any number of cores, and in boxes of tile groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..instructions.opaque_numbers import any_number
from ..words.sizes import surely
from ..words.tvm_types import Buffer, Expr
from .context import Context

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

HALF = "float16"
SPAN, SHORT = 128, 64  # terms of a run, added up in float32 and in float16
MOST = 4096  # terms, where sums of runs are float16: as many runs as a run has terms


def run_span(terms: SizeLike) -> int:
    """Terms of a run in sums of so many."""
    return SHORT if isinstance(terms, int) and terms <= MOST else SPAN


def in_runs(dtype: str, terms: SizeLike) -> bool:
    """True if sums of so many terms of ``dtype`` are added up run by run, or of an open number of them."""
    return dtype == HALF and not surely(lambda: terms <= SPAN)


class HalfSums:
    """The sums of ``vectors`` accumulators of ``lanes`` float16 numbers in ``acc``, all zero at first, of so many
    ``terms``: in float32 where these are many, and where they are not told. Then they can be read, with what is in the
    accumulators."""

    def __init__(self, k: KernelBuilder, acc: Buffer, vectors: int, lanes: int, terms: SizeLike = MOST + 1) -> None:
        self.k, self.acc, self.vectors, self.lanes, self.span = k, acc, vectors, lanes, run_span(terms)
        self.dtype = HALF if self.span == SHORT else "float32"
        self.sums = k.local("wide", self.dtype, vectors * lanes, "global")
        self.first: Expr = 0  # of the sums
        self.begun = False

    @classmethod
    def of(cls, ctx: Context, acc: Buffer, vectors: tuple[int, int], terms: SizeLike) -> HalfSums | None:
        """The same for ``vectors`` (how many, and lanes) of ``acc``; None where their sums are not in runs. Sums of
        float16 lie where LLVM does not know: it would keep as many as there are accumulators in registers, and lack
        those in the loop over terms."""
        if not in_runs(str(acc.dtype), terms):
            return None
        made = cls(ctx.k, acc, *vectors, terms)
        if made.dtype == HALF:
            place = any_number(ctx.request.target, 0)
            made.first = place if isinstance(place, int) else ctx.k.bind(place, "s")
            made.begun = True  # by zeros, and no run is the last: loops of their own would have registers of their own
            made._each(lambda at: ctx.k.store(made.sums, made.first + at, tirx.const(0, HALF)))
        return made

    def add(self) -> None:
        """Adds a run to the sums, or begins them with it; the next one begins."""
        k, acc, sums = self.k, self.acc, self.sums

        def one(at: Expr) -> None:
            run = acc[at] if self.dtype == HALF else tirx.Cast(self.dtype, acc[at])
            k.store(sums, self.first + at, sums[self.first + at] + run if self.begun else run)
            k.store(acc, at, tirx.const(0, HALF))

        self._each(one)
        self.begun = True

    def __getitem__(self, at: Expr) -> Expr:
        run = tirx.Cast("float32", self.acc[at])
        return self.sums[at] + run if self.begun else run

    def add_each(self, run: Expr, runs: SizeLike, ends: bool) -> None:
        """Adds the run of this number, of so many; not the last one, if it ``ends`` sums in float32."""
        if self.dtype == HALF:
            self.add()
        elif not self.begun and (not isinstance(runs, int) or runs > 1 + ends):
            with self.k.when(tirx.EQ(run, 0)):
                self.add()
            with self.k.when(tirx.And(run > 0, run < runs - 1) if ends else run > 0):
                self.add()
        elif not ends:
            self.add()
        elif not isinstance(runs, int) or runs > 1:
            with self.k.when(run < runs - 1):
                self.add()

    def finish(self) -> None:
        """Adds the sums, rounded, to the accumulators."""
        if self.dtype == HALF:
            self._each(lambda at: self.k.store(self.acc, at, self.sums[self.first + at]))
        elif self.begun:
            self._each(lambda at: self.k.store(self.acc, at, self.acc[at] + tirx.Cast(HALF, self.sums[at])))

    def each_run(
        self, ctx: Context, begin: int, count: int, body: Callable[..., None], group: int = 1, rounded: bool = True
    ) -> None:
        """``body`` for the steps ``begin + [0, count)``, of a term each, in runs, of which the first has those before,
        too, where these are no run of their own; then the sums of all, ``rounded`` in the accumulators or read here
        alone. Of a ``group`` of more than one, a part of a run, it is for a first step, and how many it is to take,
        and for each that is left over."""
        k, span = self.k, self.span
        head = begin if begin < span else 0
        if begin > head:
            self.add()
        total, base = head + count, begin - head
        runs = -(-total // span)
        with k.loop(runs, name="run") as run:
            end: Expr = span if total % span == 0 else tirx.min(total - run * span, span)
            first: Expr = k.bind(tirx.Select(tirx.EQ(run, 0), head, 0), "f") if head else 0
            if group > 1:
                groups = end // group if isinstance(end - first, int) else tirx.floordiv(end - first, group)
                with k.loop(groups, name="g") as number:
                    body(base + run * span + first + ctx.ranged(number, span // group) * group, group)
                first = first + groups * group
            if group == 1 or total % group or head % group:
                with k.loop(end - first, name="k") as step:
                    body(base + run * span + first + ctx.ranged(step, span))
            self.add_each(run, runs, True)
        if rounded:
            self.finish()

    def _each(self, body: Callable[[Expr], None]) -> None:
        k, lanes = self.k, self.lanes
        with k.loop(self.vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            body(z * lanes + v)


def run_steps(terms: int, total: SizeLike) -> int:
    """How many steps of so many terms make a run, in sums of ``total``."""
    return max(1, run_span(total) // terms)


@contextmanager
def blocks_in_runs(
    k: KernelBuilder, wide: HalfSums | None, blocks: tuple[int, SizeLike], run: int, ends: bool, kept: bool = False
) -> Iterator[Expr]:
    """The loop over ``blocks``, a first one and how many (``kept`` where that is one); with ``wide`` sums in runs of
    ``run`` of them, of which the last stays in the accumulators if it ``ends`` them."""
    begin, count = blocks
    if wide is None:
        with k.loop(count, name="cb", begin=begin, kept=kept) as cb:
            yield cb
        return
    whole = isinstance(count, int) and count % run == 0
    runs = -(-count // run) if isinstance(count, int) else tirx.floordiv(count + (run - 1), run)
    with k.loop(runs, name="r") as r:
        first = begin + r * run
        inner: Expr = run if whole else tirx.min(count - r * run, run)
        with k.loop(inner, name="cb") as cb:
            yield first + cb
        wide.add_each(r, runs, ends)
