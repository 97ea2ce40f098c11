"""What the leaves that a row of features comes to in many decision trees weigh together.

    at = root;  while node[at] is inner:  at = first child + (the comparison does not hold);  result += weight[at]

Each step is three loads one behind the other, so ``LANES`` ways down go side by side: the same tree for as many rows,
whose tree then stays in the first-level cache, or as many trees for a row where there are fewer rows. No step branches.
Sums are over the trees in their order, whatever the number of rows, cores and lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from ..emit.builder import KernelBuilder
from ..words.dims import is_dim
from ..words.tvm_types import Buffer, Expr
from .common import shape_of
from .loops import kind_of, until, written
from .registry import define

LANES = 16
ROWS = 128  # of a task, which takes all of them through a tree before the next
WORDS = 3  # of a node: its split (of a leaf: its number), its feature, and its link
NAN, MODE, CHILD = 1, 2, 4  # bits of a link above INNER's: true for a NaN, which comparison, the first child
MODES = ("LEQ", "LT", "EQ")
LARGEST = 1 << (31 - CHILD)  # nodes of a table
REST = {"SUM": 0.0, "MIN": float("inf"), "MAX": float("-inf")}


def packed(
    split: np.ndarray, feature: np.ndarray, child: np.ndarray, mode: np.ndarray, nan: np.ndarray, leaf: np.ndarray
) -> np.ndarray:
    """int32 [nodes * WORDS], the nodes' table: ``child`` is the first of an inner node's two, which lie side by side;
    ``leaf`` the number of a leaf, -1 for an inner node. Splits of float64 lie apart."""
    inner = leaf < 0
    own = np.arange(leaf.size)
    link = np.where(inner, child, own) << CHILD | mode << MODE | nan << NAN | inner
    bits = split.view("int32") if split.dtype.itemsize == 4 else np.zeros(leaf.size, "int32")
    words = (np.where(inner, bits, leaf), np.where(inner, feature, 0), link)
    return np.stack(words, 1).reshape(-1).astype("int32")


@define("halotile.forest")
def forest(
    x: te.Tensor, nodes: te.Tensor, roots: te.Tensor, weights: te.Tensor, *more: te.Tensor,
    mode: int, nan: int, function: str, results: int,
) -> te.Tensor:  # fmt: skip
    """[rows, results] in the weights' type: for each result the ``function`` (SUM, MIN, MAX) of the weights of the
    leaves that a row [features] of ``x`` (float32 or float64) comes to.

    ``nodes``: :func:`packed`. ``roots``: int32, a node for each tree. ``weights``: [leaves, results], or [leaves] where
    each tree weighs one result alone. ``more``: the splits where x is float64, then that result of each tree (int32).
    ``mode``: the comparison of all nodes, by its place in MODES; -1 where each node's link says it. ``nan``: whether a
    comparison holds for a NaN; -1 likewise.
    """
    rows, features = shape_of(x)
    trees, dtype = shape_of(roots)[0], str(weights.dtype)
    wide, alone = str(x.dtype) == "float64", len(shape_of(weights)) == 1

    def write(k: KernelBuilder, ins: list[Buffer], outs: list[Buffer]) -> None:
        values, table, starts, leaves, *tables = ins
        splits = tables[0] if wide else None
        way = _Way(k, values, table, splits, mode, nan)
        weighed = _Weighed(k, leaves, tables[-1] if alone else None, function, results, dtype)

        def in_tree(first: Expr, count: int) -> None:
            """``count`` rows, LANES at a time through each tree."""
            sums = weighed.begin(count)
            with k.loop(trees, name="tree") as tree, k.loop(count // LANES, name="part") as part:
                row = k.bind((first + part * LANES) * features)
                found = way.down([starts[tree]] * LANES, [row + lane * features for lane in range(LANES)])
                for lane in range(LANES):
                    weighed.add(sums, part * LANES + lane, tree, table[found[lane] * WORDS])
            weighed.end(sums, count, outs[0], first)

        def in_row(row: Expr) -> None:
            """One row, through LANES trees at a time."""
            sums = weighed.begin(1)

            def some(tree: Any, count: int) -> None:
                found = way.down([starts[tree + lane] for lane in range(count)], [row * features] * count)
                for lane in range(count):
                    weighed.add(sums, 0, tree + lane, table[found[lane] * WORDS])

            lanes = min(LANES, trees)
            with k.loop(trees // lanes, name="trees") as block:
                some(block * lanes, lanes)
            if trees % lanes:
                some(trees // lanes * lanes, trees % lanes)
            weighed.end(sums, 1, outs[0], row)

        kind = kind_of(rows * trees * LANES)
        if is_dim(rows):
            whole = rows // LANES * LANES
            with k.loop(rows // LANES, kind, "block") as block:
                in_tree(block * LANES, LANES)
            with k.loop(rows - whole, name="row") as row:
                in_row(row + whole)
            return
        if rows < LANES:
            with k.loop(rows, kind, "row") as row:
                in_row(row)
            return
        count = min(ROWS, rows // LANES * LANES)
        with k.loop(-(-rows // count), kind, "block") as block:
            in_tree(tirx.min(block * count, rows - count), count)  # the last one overlaps

    return written("forest", [x, nodes, roots, weights, *more], [((rows, results), dtype)], write)[0]


@dataclass(frozen=True)
class _Way:
    """The way down from roots to leaves; ``splits`` are those of float64."""

    k: KernelBuilder
    values: Buffer
    table: Buffer
    splits: Buffer
    mode: int
    nan: int

    def down(self, roots: Sequence[Expr], rows: Sequence[Expr]) -> Buffer:
        """int32 [lanes]: the leaf's node that each lane comes to, from its root, by the features that begin at its row
        of ``values``. Lanes that are there wait for the others."""
        k, table = self.k, self.table
        at = k.local("at", "int32", len(roots))
        for lane, root in enumerate(roots):
            k.store(at, lane, root)
        with until(k) as done:
            inner: Expr = 0
            for lane, row in enumerate(rows):
                node = k.bind(at[lane])
                link = k.bind(table[node * WORDS + 2])
                value = k.bind(self.values[row + table[node * WORDS + 1]])
                k.store(at, lane, tirx.shift_right(link, CHILD) + (link & self._misses(node, value, link) & 1))
                inner = inner | link
            k.store(done, 0, (inner & 1) ^ 1)
        return at

    def _misses(self, node: Expr, value: Expr, link: Expr) -> Expr:
        """1 in the lowest bit where a node's comparison does not hold, else 0: arithmetic, since LLVM makes a branch of
        a choice, and half of them would be foretold wrongly."""
        split = tirx.reinterpret("float32", self.table[node * WORDS]) if self.splits is None else self.splits[node]
        split = self.k.bind(split)
        tests = [tirx.Cast("int32", test) for test in (value <= split, value < split, value == split)]
        if self.mode >= 0:
            holds = tests[self.mode]
        else:
            which = tirx.shift_right(link, MODE) & 3
            one, two, three = (test & tirx.Cast("int32", which == place) for place, test in enumerate(tests))
            holds = one | two | three
        if self.nan:
            lost = tirx.Cast("int32", tirx.isnan(value))
            holds = holds | (lost if self.nan == 1 else lost & tirx.shift_right(link, NAN))
        return holds ^ 1


@dataclass(frozen=True)
class _Weighed:
    """Results of rows, to which trees add theirs one by one; ``alone`` has the only result of each tree, if so."""

    k: KernelBuilder
    leaves: Buffer
    alone: Buffer
    function: str
    results: int
    dtype: str

    def begin(self, rows: int) -> Buffer:
        sums = self.k.local("sums", self.dtype, rows * self.results, "global")
        with self.k.loop(rows * self.results, name="z") as z:
            self.k.store(sums, z, tirx.const(REST[self.function], self.dtype))
        return sums

    def add(self, sums: Buffer, row: Expr, tree: Expr, leaf: Expr) -> None:
        leaf = self.k.bind(leaf)
        if self.alone is not None:
            place = self.k.bind(row * self.results + self.alone[tree])
            self.k.store(sums, place, self._join(sums[place], self.leaves[leaf]))
            return
        with self.k.loop(self.results, name="result") as r:
            place = row * self.results + r
            self.k.store(sums, place, self._join(sums[place], self.leaves[leaf * self.results + r]))

    def end(self, sums: Buffer, rows: int, out: Buffer, first: Expr) -> None:
        with self.k.loop(rows * self.results, name="z") as z:
            self.k.store(out, first * self.results + z, sums[z])

    def _join(self, a: Expr, b: Expr) -> Expr:
        if self.function == "SUM":
            return a + b
        return tirx.min(a, b) if self.function == "MIN" else tirx.max(a, b)
