"""Transposed convolution on a matrix unit: the phases (:mod:`..transposed`) read one strip of data, which is split
once.

    for strip of places
      words of parts                                 of all that the taps of all phases read
      for phase                                      an ordinary convolution of stride 1 with its own taps and weights
        for panel of 32 output channels, 32 places   its outputs lie ``stride`` apart
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from ....targets.target import Target
from ...instructions.amx import COLUMNS, ROWS, may_split
from ...instructions.bf16_parts import WORDS, Products, parts_of, products_of, told
from ...words.group import Kernel, Request
from ..facts import ConvFacts
from ..kernel import ConvKernel, finish, new_context
from ..register_tile import Tile
from .choose import (
    MARGIN,
    SHARE,
    MatrixPlan,
    float_cycles,
    held_bytes,
    register_cycles,
    split_cycles,
    suits,
    workers_of,
)
from .kernel import MatrixConv, pack_weights
from .prefetch import NextData
from .strips import Strip, Tap, strips_of
from .tasks import AmxTask

if TYPE_CHECKING:
    from ...words.tvm_types import Expr

Placed = tuple[ConvFacts, tuple[int, ...]]  # a phase as a convolution, and its first output


@dataclass(frozen=True)
class Together:
    """All phases of a transposed convolution, computed from one strip of data. ``facts`` is a convolution that reads
    what all of them read; outputs of a phase are ``strides`` apart."""

    facts: ConvFacts
    phases: tuple[Placed, ...]
    strides: tuple[int, ...]

    def taps(self, phase: ConvFacts) -> list[Tap]:
        """The taps of ``phase`` as places from the first place of all on."""
        down, across = (own - one for own, one in zip(self.facts.before, phase.before))
        return [
            Tap(0, down + row * phase.dilation[0], across + column * phase.dilation[1])
            for row, column in np.ndindex(*phase.kernel)
        ]

    def strip(self, rows: int, columns: int) -> Strip:
        taps = [tap for phase, _ in self.phases for tap in self.taps(phase)]
        return Strip(rows, columns, (1, 1), ((0, 0),), tuple(taps))


def together(phases: Sequence[Placed], strides: tuple[int, ...]) -> Together | None:
    """``phases`` to be computed from one strip; None if they differ in their numbers of outputs, or the unit can't
    compute them."""
    facts = [phase for phase, _ in phases]
    first = facts[0]
    if not suits(first) or len(strides) != 2 or any(f.out_spatial != first.out_spatial for f in facts):
        return None
    before = tuple(max(f.before[i] for f in facts) for i in range(2))
    return Together(replace(first, before=before, kernel=(1, 1)), tuple(phases), strides)


def plan_together(
    request: Request, phases: Sequence[Placed], strides: tuple[int, ...]
) -> tuple[Together, Strip] | None:
    """The phases and the largest strip that stays in cache and leaves each core one; None if that is not estimated to
    be faster than multiply-adds."""
    group = request.group
    found = together(phases, strides)
    blocked = found is not None and all(request.layout(v).block == COLUMNS for v in (found.facts.data, *group.outputs))
    if found is None or not blocked or not may_split(request) or request.box is not None:
        return None
    strip = _strip(request, found)
    if strip is None:
        return None
    floats = sum(float_cycles(request.target, f) for f, _ in found.phases) * request.target.cores
    cycles = _cycles(request.target, found, strip, products_of(request.policy))
    return (found, strip) if cycles < MARGIN * floats else None


def _strip(request: Request, found: Together) -> Strip | None:
    rows, columns = found.facts.out_spatial
    room = request.limits.room
    most = SHARE * request.target.l2_bytes if room is None else room
    fitting = []
    for strip in strips_of(found.facts, (rows, columns)):
        own = found.strip(strip.rows, strip.columns)
        tasks = found.facts.batch * -(-rows // own.rows) * -(-columns // own.columns)
        if 4 * own.elements(found.facts.channels, parts_of(products_of(request.policy))) <= most:
            fitting.append((tasks < request.workers, -own.rows * own.columns, tasks, own))
    return min(fitting, key=lambda f: f[:3])[3] if fitting else None


def _cycles(target: Target, found: Together, strip: Strip, products: Products) -> float:
    """Of all cores together."""
    facts = found.facts
    rows, columns = facts.out_spatial
    strips = facts.batch * -(-rows // strip.rows) * -(-columns // strip.columns)
    registers = -(-strip.spread(strip.rows, strip.columns) // ROWS)
    split = split_cycles(target, products) * strip.height * strip.pitch * -(-facts.channels // COLUMNS)
    return strips * (split + registers * sum(register_cycles(target, f, products) for f, _ in found.phases))


def build_together(request: Request, found: Together, strip: Strip) -> Kernel:
    conv = ConvKernel(request, found.facts, Tile(1, 1, 1), COLUMNS, new_context(request))
    plan = MatrixPlan(strip, 1, 0.0, products_of(request.policy))
    _Phases(conv, plan, found).emit()
    form = f"transposed matrix conv, {len(found.phases)} phases, strip {strip.rows}x{strip.columns}"
    flops = sum(f.flops for f, _ in found.phases)
    return finish(conv.ctx, f"{form} C{COLUMNS}, {told(plan.products)}", flops)


def together_bytes(request: Request, found: Together, strip: Strip) -> int:
    """Scratch of all cores together, in bytes."""
    plan = MatrixPlan(strip, 1, 0.0, products_of(request.policy))
    return held_bytes(found.facts.channels, plan) * workers_of(found.facts, plan, request.workers)


class _Phases(MatrixConv):
    def __init__(self, conv: ConvKernel, plan: MatrixPlan, found: Together) -> None:
        super().__init__(conv, plan)
        self.found = found

    def _packed(self) -> Callable[[], np.ndarray]:
        return partial(_pack, [f for f, _ in self.found.phases], self.parts)

    @property
    def _elements(self) -> int:
        return sum(self._size(f) for f, _ in self.found.phases)

    def _size(self, phase: ConvFacts) -> int:
        return self.blocks * self.pairs * phase.taps * self.parts * WORDS

    def _below(self) -> NextData | None:
        return None

    def _panels(self, task: AmxTask) -> None:
        first = tap = 0
        for facts, offsets in self.found.phases:
            self.taps, self.first_tap, self.first_word = facts.taps, tap, first
            self.steps = self.pairs * self.taps
            self.conv.place = partial(_apart, self.found.strides, offsets)
            super()._panels(task)
            first, tap = first + self._size(facts), tap + facts.taps


def _apart(strides: tuple[int, ...], offsets: tuple[int, ...], position: list[Expr]) -> list[Expr]:
    return [at * stride + offset for at, stride, offset in zip(position, strides, offsets)]


def _pack(phases: Sequence[ConvFacts], parts: int) -> np.ndarray:
    return np.concatenate([pack_weights(facts, parts).reshape(-1) for facts in phases])
