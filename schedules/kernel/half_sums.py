"""Sums of float16 products: short runs of terms in float16, runs added up in float32.

    for run of the reduction                            SPAN terms or a little more
      acc[z] = 0
      for term of the run:  acc[z] += a * b             float16: twice the lanes of float32
      sums[z] += float32(acc[z])                        of all runs but the last: five cycles a vector
    acc[z] += float16(sums[z])

The sum of all runs but the last, where it is rounded, is no larger than the result and the last run, which float16
holds both.

A sum of n random terms is off by about sqrt(n) roundings of its own size: 0.004 for 3x3 of 512 channels in float16
alone, 0.0008 in runs. The order of terms depends on shapes alone, so that results have the same bits on any number of
cores, and in boxes of tile groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..words.sizes import surely
from ..words.tvm_types import Buffer, Expr
from .context import Context

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

HALF = "float16"
SPAN = 128  # terms of a run


def in_runs(dtype: str, terms: int) -> bool:
    """True if sums of so many terms of ``dtype`` are added up run by run, or of an open number of them."""
    return dtype == HALF and not surely(lambda: terms <= SPAN)


class HalfSums:
    """The sums in float32 of ``vectors`` accumulators of ``lanes`` float16 numbers in ``acc``, all zero at first. Reads
    as the sums, with what is in the accumulators."""

    def __init__(self, k: KernelBuilder, acc: Buffer, vectors: int, lanes: int) -> None:
        self.k, self.acc, self.vectors, self.lanes = k, acc, vectors, lanes
        self.sums = k.local("wide", "float32", vectors * lanes, "global")
        self.begun = False

    def add(self) -> None:
        """Adds a run to the sums, or begins them with it; the next one begins."""
        k, acc, sums = self.k, self.acc, self.sums

        def one(at: Expr) -> None:
            run = tirx.Cast("float32", acc[at])
            k.store(sums, at, sums[at] + run if self.begun else run)
            k.store(acc, at, tirx.const(0, HALF))

        self._each(one)
        self.begun = True

    def __getitem__(self, at: Expr) -> Expr:
        run = tirx.Cast("float32", self.acc[at])
        return self.sums[at] + run if self.begun else run

    def add_each(self, run: Expr, runs: SizeLike, ends: bool) -> None:
        """Adds the run of this number, of so many; not the last one, if it ``ends`` the sums."""
        if not self.begun and (not isinstance(runs, int) or runs > 1 + ends):
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
        if self.begun:
            self._each(lambda at: self.k.store(self.acc, at, self.acc[at] + tirx.Cast(HALF, self.sums[at])))

    def each_run(
        self, ctx: Context, begin: int, count: int, body: Callable[..., None], group: int = 1, rounded: bool = True
    ) -> None:
        """``body`` for the steps ``begin + [0, count)``, of a term each, in runs, of which the first has those before,
        too, where these are no run of their own; then the sums of all, ``rounded`` in the accumulators or read here
        alone. Of a ``group`` of more than one, a part of a run, it is for a first step, and how many it is to take,
        and for each that is left over."""
        k, head = self.k, begin if begin < SPAN else 0
        if begin > head:
            self.add()
        total, base = head + count, begin - head
        runs = -(-total // SPAN)
        with k.loop(runs, name="run") as run:
            end: Expr = SPAN if total % SPAN == 0 else tirx.min(total - run * SPAN, SPAN)
            first: Expr = k.bind(tirx.Select(tirx.EQ(run, 0), head, 0), "f") if head else 0
            if group > 1:
                groups = end // group if isinstance(end - first, int) else tirx.floordiv(end - first, group)
                with k.loop(groups, name="g") as number:
                    body(base + run * SPAN + first + ctx.ranged(number, SPAN // group) * group, group)
                first = first + groups * group
            if group == 1 or total % group or head % group:
                with k.loop(end - first, name="k") as step:
                    body(base + run * SPAN + first + ctx.ranged(step, SPAN))
            self.add_each(run, runs, True)
        if rounded:
            self.finish()

    def _each(self, body: Callable[[Expr], None]) -> None:
        k, lanes = self.k, self.lanes
        with k.loop(self.vectors, "unroll", "z") as z, k.loop(lanes, "vectorized", "v") as v:
            body(z * lanes + v)


def run_steps(terms: int) -> int:
    """How many steps of so many terms make a run."""
    return max(1, SPAN // terms)


@contextmanager
def blocks_in_runs(
    k: KernelBuilder, wide: HalfSums | None, blocks: tuple[int, SizeLike], run: int, ends: bool
) -> Iterator[Expr]:
    """The loop over ``blocks``, a first one and how many; with ``wide`` sums in runs of ``run`` of them, of which the
    last stays in the accumulators if it ``ends`` them."""
    begin, count = blocks
    if wide is None:
        with k.loop(count, name="cb", begin=begin) as cb:
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
