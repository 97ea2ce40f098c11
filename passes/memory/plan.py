"""Gives every buffer a place: model input or output, weights, or an offset in the arena.

Live ranges come from the kernel order; placement.py finds the offsets. A kernel that may work in place lets its output
take over an input that dies there; a tile group may do so with several. The size is exact: it is what a run uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...schedules.words.alignment import ALIGNMENT, aligned
from ...schedules.words.dims import Dim, is_dim, is_open, maximum
from ...schedules.words.group import Kernel, Scratch, Scratchpad, Value, dtype_bytes
from ...schedules.words.layout import Layout
from ...schedules.words.sizes import usual, value_of
from .open_offsets import Slot, below, best_below, in_order, offsets_of
from .placement import Life, place
from .places import Places, places_of

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike


@dataclass(frozen=True)
class Buffer:
    """One stretch of arena memory and the steps (inclusive) during which it is in use."""

    name: str
    bytes: int
    first: int
    last: int
    offset: int


@dataclass(frozen=True)
class MemoryPlan:
    """``offsets`` in the arena by root Value or Scratch; ``inplace`` pairs (output, input) that share memory. Where
    sizes are open, offsets are slots: ``sizes`` has the bytes of each, ``below`` those that lie directly below it, and
    ``buffers`` and ``planned_bytes`` are those of the sizes that are planned for. ``counts`` are the open numbers of
    elements of tensors in memory, each once.
    """

    offsets: Mapping[Value | Scratch, int | Slot]
    planned_bytes: int
    buffers: tuple[Buffer, ...]
    inplace: tuple[tuple[Value, Value], ...]
    sizes: tuple[SizeLike, ...] = ()
    counts: tuple[Dim, ...] = ()
    below: tuple[tuple[int, ...], ...] = ()

    def bytes_at(self, symbols: Mapping[str, int]) -> int:
        """Bytes of the arena where the symbols have these values."""
        ends: dict[int, int] = {}
        for i in in_order(self.below):
            size = value_of(self.sizes[i], symbols) if is_dim(self.sizes[i]) else self.sizes[i]
            ends[i] = max((ends[j] for j in self.below[i]), default=0) + aligned(size)
        return max(ends.values()) if ends else self.planned_bytes


def plan_memory(
    kernels: Sequence[Kernel],
    layouts: Mapping[Value, Layout],
    places: Places | Mapping[Value, Value],
    placed: set[Value],
    enough: float = 0,
    also: Sequence[Mapping[str, int]] = (),
) -> MemoryPlan:
    """The offsets of everything that ``kernels`` touch, in their order, but for constants and the values in ``placed``
    (inputs and outputs), which lie elsewhere.

    ``places`` says which values are views or slices of others; ``enough``: bytes from which on no better places are
    searched for (:func:`.placement.place`); ``also``: sizes of the symbols that decide where those that are planned
    for leave a choice.
    """
    places = places_of(places)
    root = places.root
    sizes: dict[Value | Scratch, SizeLike] = {}
    first: dict[Value | Scratch, int] = {}
    last: dict[Value | Scratch, int] = {}
    pads: list[Scratchpad] = []
    for step, kernel in enumerate(kernels):
        for operand in kernel.operands:
            if isinstance(operand, Scratchpad):  # all kernels' lies at one place
                pads.append(operand)
                operand = pads[0]
                sizes[operand] = max(p.bytes for p in pads)
                first.setdefault(operand, step)
                last[operand] = step
                continue
            if isinstance(operand, Scratch):
                sizes[operand], first[operand], last[operand] = operand.bytes, step, step
                continue
            if not isinstance(operand, Value):
                continue
            base = root(operand)
            if base in placed or base.constant is not None:
                continue
            sizes[base] = maximum(sizes.get(base, 0), maximum(_bytes(base, layouts), _bytes(operand, layouts)))
            first.setdefault(base, step)
            last[base] = step

    merged, pairs = _merge_inplace(kernels, places, sizes, first, last)
    leaders: list[Value | Scratch] = [v for v in sizes if merged.get(v, v) is v]
    leaders.sort(key=lambda v: (-usual(sizes[v]), first[v]))
    lives = [Life(max(ALIGNMENT, aligned(usual(sizes[v]))), first[v], last[v]) for v in leaders]
    starts, total = place(lives, enough)
    open_ = is_open(sizes.values())
    under: tuple[tuple[int, ...], ...] = ()
    if open_:
        others = [[life._replace(bytes=_at(sizes[v], at)) for v, life in zip(leaders, lives)] for at in also]
        under = best_below(lives, starts, others) if others else below(lives, starts)
        starts = offsets_of(under, lives)[0] if others else starts
    offsets: dict[Value | Scratch, SizeLike] = dict(zip(leaders, map(Slot, range(len(leaders))) if open_ else starts))
    names = [v.name if isinstance(v, Value) else "scratch" for v in leaders]
    buffers = [Buffer(name, *life, start) for name, life, start in zip(names, lives, starts)]
    for value in sizes:
        leader: Value | Scratch = value
        while merged.get(leader, leader) is not leader:
            leader = merged[leader]
        offsets[value] = offsets[leader]
    offsets.update(dict.fromkeys(pads, offsets[pads[0]]) if pads else {})
    counts = tuple(dict.fromkeys(c for c in (_elements(v, layouts) for v in _values(kernels)) if is_open([c])))
    counts = tuple(dict.fromkeys((*counts, *(c for k in kernels for c in k.counts))))
    if not open_:
        return MemoryPlan(offsets, total, tuple(buffers), tuple(pairs), counts=counts)
    own = tuple(sizes[v] for v in leaders)
    return MemoryPlan(offsets, total, tuple(buffers), tuple(pairs), own, counts, under)


def _at(size: SizeLike, symbols: Mapping[str, int]) -> int:
    """Bytes of a buffer where the symbols have these values, in whole lines."""
    return max(1, -(-(value_of(size, symbols) if is_dim(size) else size) // ALIGNMENT)) * ALIGNMENT


def _values(kernels: Sequence[Kernel]) -> dict[Value, None]:
    return dict.fromkeys(o for k in kernels for o in k.operands if isinstance(o, Value))


def _bytes(value: Value, layouts: Mapping[Value, Layout]) -> SizeLike:
    layout = layouts.get(value)
    held = layout.held(value.dtype) if layout is not None else value.dtype
    return maximum(1, _elements(value, layouts) * dtype_bytes(held))


def _elements(value: Value, layouts: Mapping[Value, Layout]) -> SizeLike:
    layout = layouts.get(value)
    return layout.elements if layout is not None else value.elements


def _merge_inplace(
    kernels: Sequence[Kernel],
    places: Places,
    sizes: dict[Value | Scratch, SizeLike],
    first: dict[Value | Scratch, int],
    last: dict[Value | Scratch, int],
) -> tuple[dict[Value | Scratch, Value], list[tuple[Value, Value]]]:
    root = places.root
    whole = places.parts()
    merged: dict[Value | Scratch, Value] = {}
    pairs: list[tuple[Value, Value]] = []
    for step, kernel in enumerate(kernels):
        wishes = [(root(kernel.outputs[0]), kernel.inplace), *((root(o), (v,)) for o, v in kernel.takes.items())]
        for output, candidate in ((o, v) for o, values in wishes for v in values):
            if output not in sizes or first[output] != step or output in whole or output in merged:
                continue
            source = root(candidate)
            leader = source
            while leader in merged:
                leader = merged[leader]
            reads = sum(1 for o in kernel.operands if isinstance(o, Value) and root(o) is source)
            if source not in sizes or source in whole or reads != 1:
                continue
            if last[leader] != step or sizes[leader] != sizes[output]:
                continue
            merged[output] = leader
            last[leader] = max(last[leader], last[output])
            pairs.append((output, source))
    return merged, pairs
