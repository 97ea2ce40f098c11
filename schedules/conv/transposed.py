"""Transposed convolution by phases: no stuffed zeros, no scattered sums.

Output positions of one phase, o = phase + stride * q, read the taps k with (phase + pad - k * dilation) divisible by
the stride, at input q + (phase + pad - k * dilation) / stride. That is an ordinary convolution of stride 1 with some
of the taps, in reverse; its outputs lie ``stride`` apart:

    y[phase + stride * q] = conv(x, w[taps of phase])[q]          one nest of the direct kernel a phase

Phases of several taps take Winograd's algorithm where that is faster (:mod:`.winograd.transposed_phases`): 4x4/2 for 64
channels at 64 x 64 takes 0.5 of the time.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..instructions.amx import may_split
from ..operators.registry import attributes
from ..words.dims import is_open
from ..words.group import Kernel, Node, Request, Value
from .amx.strips import Strip
from .amx.transposed import Together, build_together, plan_together
from .direct.kernel import emit_direct
from .facts import ConvFacts
from .kernel import ConvKernel, finish, new_context
from .register_tile import Tile
from .winograd.kernel import emit_winograd
from .winograd.transposed_phases import PhasePlans, plan_phases

if TYPE_CHECKING:
    from ..words.tvm_types import Expr

SCRATCH = ("data", "products")  # of Winograd's transforms


@dataclass(frozen=True)
class AxisPhase:
    """One phase of one axis: ``taps`` in the order of rising input position, ``first`` the position of the first."""

    phase: int
    count: int
    taps: tuple[int, ...]
    first: int
    step: int


@dataclass(frozen=True)
class TransposedPhase:
    """One phase of all axes, as a convolution of stride 1: ``facts``; ``offsets`` is the place of its first output."""

    facts: ConvFacts
    offsets: tuple[int, ...]


def axis_phases(kernel: int, stride: int, dilation: int, begin: int, output: int) -> list[AxisPhase]:
    """The phases of one axis that have outputs."""
    found = []
    for phase in range(stride if is_open([output]) else min(stride, output)):
        taps = [k for k in reversed(range(kernel)) if (phase + begin - k * dilation) % stride == 0]
        first = (phase + begin - taps[0] * dilation) // stride if taps else 0
        count = -(-(output - phase) // stride)
        found.append(AxisPhase(phase, count, tuple(taps), first, dilation // math.gcd(stride, dilation)))
    return found


def phases_of(node: Node) -> tuple[tuple[int, ...], list[TransposedPhase]]:
    """The strides and the phases of a ``halotile.conv_transpose`` node. A phase without taps is given one, of zeros."""
    attrs = attributes(node.call)
    data, weight, output = node.operands[0], node.operands[1], node.results[0]
    strides, groups = tuple(attrs["strides"]), int(attrs["groups"])
    kernel = weight.shape[2:]
    axes = [
        axis_phases(k, s, d, b, o)
        for k, s, d, b, o in zip(kernel, strides, attrs["dilations"], attrs["begin"], output.shape[2:])
    ]
    dense = _conv_weight(np.asarray(weight.constant), groups)
    result = []
    for combination in itertools.product(*axes):
        taps = [list(a.taps) or [0] for a in combination]
        part = dense[np.ix_(range(dense.shape[0]), range(dense.shape[1]), *taps)]
        empty = any(not a.taps for a in combination)
        if empty:
            part = np.zeros_like(part)
        name = f"{weight.name}_{'_'.join(str(a.phase) for a in combination)}"
        shape = (*output.shape[:2], *(a.count for a in combination))
        facts = ConvFacts(
            data=data,
            weight=Value(name, part.shape, weight.dtype, np.ascontiguousarray(part)),
            output=Value(f"{output.name}_{name}", shape, output.dtype),
            kernel=tuple(part.shape[2:]),
            strides=(1,) * len(axes),
            dilation=tuple(a.step for a in combination),
            before=tuple(-a.first for a in combination),
            after=(0,) * len(axes),
            groups=groups,
            empty=empty,
        )
        result.append(TransposedPhase(facts, tuple(a.phase for a in combination)))
    return strides, result


def _conv_weight(weight: np.ndarray, groups: int) -> np.ndarray:
    """[C, M / groups, taps...] -> [M, C / groups, taps...]"""
    channels, per_group, *taps = weight.shape
    split = weight.reshape(groups, channels // groups, per_group, *taps)
    return np.swapaxes(split, 1, 2).reshape(groups * per_group, channels // groups, *taps)


def margins_of(node: Node) -> tuple[tuple[int, int], ...]:
    """(before, after) for each axis: the border that all phases together read."""
    _, phases = phases_of(node)
    every = [p.facts.margins() for p in phases]
    return tuple((max(m[i][0] for m in every), max(m[i][1] for m in every)) for i in range(len(every[0])))


def on_matrix_unit(request: Request) -> tuple[Together, Strip] | None:
    """The phases and their strip, as a matrix unit computes them; None if it does not."""
    assert request.group.anchor is not None
    if not may_split(request) or is_open(request.group.outputs[0].shape):
        return None
    strides, phases = phases_of(request.group.anchor)
    return plan_together(request, [(p.facts, p.offsets) for p in phases], strides)


def phase_plans(request: Request) -> PhasePlans | None:
    """How the phases are computed by Winograd's algorithm; None if none is."""
    assert request.group.anchor is not None
    return plan_phases(request, [p.facts for p in phases_of(request.group.anchor)[1]])


def build_transposed(request: Request) -> Kernel:
    """The kernel of a transposed convolution, phase by phase."""
    assert request.group.anchor is not None
    planned = on_matrix_unit(request)
    if planned is not None:
        return build_together(request, *planned)
    strides, phases = phases_of(request.group.anchor)
    lanes, ctx = request.layout(request.group.outputs[0]).block, new_context(request)
    phase_tiles, names, box = [], [], request.box
    open_ = is_open(request.group.outputs[0].shape)
    planned_phases = None if open_ else plan_phases(request, [p.facts for p in phases])
    plans = planned_phases.plans if planned_phases is not None else (None,) * len(phases)
    scratch = zip(SCRATCH, planned_phases.elements) if planned_phases is not None else ()
    shared = {name: ctx.scratch(elements, "float32") for name, elements in scratch if elements}
    for phase, plan in zip(phases, plans):

        def place(position: list[Expr], offsets: tuple[int, ...] = phase.offsets) -> list[Expr]:
            return [q * s + o for q, s, o in zip(position, strides, offsets)]

        if plan is not None:
            conv = ConvKernel(request, phase.facts, Tile(1, 1, plan.vectors), lanes, ctx, place, strides)
            phase_tiles.append([emit_winograd(conv, plan, shared)])
            names.append(f"winograd {plan.transform}")
            continue
        whole = phase.facts.usually() if open_ else phase.facts
        facts = whole if box is None else phase.facts.cut(box.rows // strides[0], box.columns // strides[1])
        phase_tiles.append(emit_direct(request, facts, ctx, place, strides))
        names.append("tile " + " and ".join(map(str, phase_tiles[-1])))
    tiles = [t for each in phase_tiles for t in each]
    schedule = f"transposed conv C{lanes}, {len(phases)} phases, {max(dict.fromkeys(names), key=names.count)}"
    return finish(ctx, schedule, sum(p.facts.flops for p in phases), tiles, strides)
