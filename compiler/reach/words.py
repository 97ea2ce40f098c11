"""Reach: how rows of an output follow from rows of the inputs. Plain data, which a loaded library has as well.

    model.reach("y")["x"][2]        rows: stride 1/2, 3 before, 3 after, multiple 2

A *period* is the smallest number of output rows after which everything repeats: ``period`` rows of the output move
``multiple`` rows of the input, and rows of every tensor between them by a whole number. Output rows [a, b), both
multiples of the period, need the input's rows [a * stride - before, b * stride + after), no more and no less.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView

POINTWISE, ROWS, WHOLE = "pointwise", "rows", "whole"


@dataclass(frozen=True)
class AxisReach:
    """What ``input`` gives to one axis of an output. ``kind``:

    pointwise    row i needs row i of ``input_axis`` and no other
    rows         ``stride`` input rows an output row, ``before`` and ``after`` beside; a crop of the image has to start
                 on a ``multiple`` of input rows
    whole        every row needs all of the input, because of ``why``

    ``lows`` and ``highs`` are the ends of what each output row of one period needs, seen from the period's first input
    row; equal where a row needs nothing."""

    input: str
    kind: str
    input_axis: int | None = None
    stride: Fraction = Fraction(0)
    before: int = 0
    after: int = 0
    multiple: int = 1
    period: int = 1
    lows: tuple[int, ...] = ()
    highs: tuple[int, ...] = ()
    why: str = ""

    def rows(self, first: int, end: int) -> tuple[int, int]:
        """The input rows that output rows ``first`` to ``end`` need, far from the border; what lies outside of the
        image is padding. Exact, also between multiples of the period, where that is not longer than 64 rows."""
        if self.kind == WHOLE:
            raise ValueError(f"every row needs all of {self.input}: {self.why}")
        if first >= end:
            return 0, 0
        p, q = self.multiple, self.period
        if not self.lows:
            return first // q * p - self.before, -(-end // q) * p + self.after
        ends = {*range(first, min(end, first + q)), *range(max(first, end - q), end)}
        rows = [r for r in ends if self.lows[r % q] < self.highs[r % q]]
        low = min((r // q * p + self.lows[r % q] for r in rows), default=0)
        return low, max((r // q * p + self.highs[r % q] for r in rows), default=low)

    def __str__(self) -> str:
        if self.kind == POINTWISE:
            return "pointwise"
        if self.kind == WHOLE:
            return f"whole ({self.why})" if self.why else "whole"
        return f"stride {self.stride}, {self.before} before, {self.after} after, multiple {self.multiple}"

    def plain(self) -> Json:
        """These facts as JSON has them; the stride as (input rows, output rows)."""
        data: Json = {"input": self.input, "kind": self.kind}
        if self.kind == WHOLE:
            return {**data, "why": self.why}
        data["input_axis"] = self.input_axis
        if self.kind == ROWS:
            data |= {
                "stride": [self.stride.numerator, self.stride.denominator], "before": self.before, "after": self.after,
                "multiple": self.multiple, "period": self.period, "lows": list(self.lows), "highs": list(self.highs),
            }  # fmt: skip
        return data

    @staticmethod
    def of(data: JsonView) -> AxisReach:
        """What :meth:`plain` wrote."""
        if data["kind"] == WHOLE:
            return AxisReach(data["input"], WHOLE, why=data["why"])
        if data["kind"] == POINTWISE:
            return AxisReach(data["input"], POINTWISE, data["input_axis"], Fraction(1), lows=(0,), highs=(1,))
        tables = {key: tuple(data[key]) for key in ("lows", "highs")}
        return AxisReach(**{**data, **tables, "stride": Fraction(*data["stride"])})


@dataclass(frozen=True)
class Cut:
    """How crops compute an axis of an output. Of a crop that leaves periods out, ``front`` of them behind the cut at
    the top, and ``back`` before the one at the bottom, are wrong: they saw padding where the image goes on, in any
    tensor on the way. ``problem`` says why the axis can't be cut at all."""

    front: int = 0
    back: int = 0
    period: int = 1
    problem: str = ""


@dataclass(frozen=True)
class Reach:
    """The reach of one output: for every input, one :class:`AxisReach` for each axis of the output."""

    output: str
    inputs: Mapping[str, tuple[AxisReach, ...]]
    cuts: tuple[Cut, ...] = ()

    def __getitem__(self, name: str) -> tuple[AxisReach, ...]:
        return self.inputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.inputs)

    @property
    def depth(self) -> dict[int, tuple[int, int]]:
        """Rows before and after by the first input's axes: ``depth`` of dask's ``map_overlap``."""
        axes = next(iter(self.inputs.values()), ())
        cut = [a for a in axes if a.kind != WHOLE and a.input_axis is not None]
        return {int(a.input_axis or 0): (max(0, a.before), max(0, a.after)) for a in cut}

    def __str__(self) -> str:
        lines = [
            f"{self.output}, axis {number}, from {name}: {axis}"
            for name, axes in self.inputs.items()
            for number, axis in enumerate(axes)
        ]
        return "\n".join(lines) if lines else f"{self.output}: depends on no input"

    def plain(self) -> Json:
        """These facts as JSON has them."""
        return {
            "output": self.output,
            "inputs": {name: [axis.plain() for axis in axes] for name, axes in self.inputs.items()},
            "cuts": [
                {"problem": c.problem} if c.problem else {"front": c.front, "back": c.back, "period": c.period}
                for c in self.cuts
            ],
        }

    @staticmethod
    def of(data: JsonView) -> Reach:
        """What :meth:`plain` wrote."""
        inputs = {name: tuple(map(AxisReach.of, axes)) for name, axes in data["inputs"].items()}
        return Reach(data["output"], inputs, tuple(Cut(**cut) for cut in data["cuts"]))
