"""The functions that a tile group's driver calls: members on boxes, fills, shifts, margins of whole outputs.

Each has pointers first and int32 scalars after them. A part's pointers are Values, Packed constants or Scratch, as in
:class:`Kernel`; the driver knows where each lies.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from ..emit.builder import KernelBuilder
from ..kernel.context import Context
from ..math.bfloat16 import memory_type, reading
from ..operators.te_graph import GroupGraph
from ..words.dims import floor_div, is_dim
from ..words.group import Group, Kernel, Request, Value
from ..words.layout import Layout
from ..words.sizes import product
from ..words.tvm_types import Buffer, Expr

VECTOR = 16  # elements a copy moves at a time


def build_fill(value: Value, layout: Layout, number: float) -> Kernel:
    """Sets ``rows x columns`` of a window from a row and a column on, counted from the window's first element."""
    k = KernelBuilder("fill", serial=True)
    window = _window(k, "window", value, layout)
    row, column, rows, columns = (k.scalar(name) for name in ("row", "column", "rows", "columns"))
    lanes, (row_step, column_step) = layout.block or 1, layout.strides[2:4]
    fill = tirx.Cast(value.dtype, tirx.FloatImm("float32", number))
    with k.loop(_planes(layout), name="p") as p, k.loop(rows, name="r") as r, k.loop(columns, name="c") as c:
        base = p * layout.strides[1] + (row + r) * row_step + (column + c) * column_step
        with k.loop(lanes, "vectorized", "v") as v:
            k.store(window, base + v, fill)
    return Kernel(k.finish(), (value,), (value,), "fill")


def build_shift(value: Value, layout: Layout) -> Kernel:
    """Moves ``rows`` rows of a window, from row ``source`` of the window on, to its first rows."""
    k = KernelBuilder("shift", serial=True)
    window = _window(k, "window", value, layout)
    source, rows = k.scalar("source"), k.scalar("rows")
    step = layout.strides[2]
    with k.loop(_planes(layout), name="p") as p, k.loop(rows, name="r") as r:
        base = p * layout.strides[1] + r * step

        def move(i: Expr) -> None:
            k.store(window, base + i, window[base + source * step + i])

        _run(k, step, move)
    return Kernel(k.finish(), (value,), (value,), "shift")


def build_part_shift(value: Value, layout: Layout) -> Kernel:
    """Moves ``rows`` rows of a window to its first rows as :func:`build_shift` does, but ``columns`` of its columns
    alone, from ``column`` on."""
    k = KernelBuilder("shift", serial=True)
    window = _window(k, "window", value, layout)
    source, rows, column, columns = (k.scalar(name) for name in ("source", "rows", "column", "columns"))
    lanes, (step, column_step) = layout.block or 1, layout.strides[2:4]
    with k.loop(_planes(layout), name="p") as p, k.loop(rows, name="r") as r, k.loop(columns, name="c") as c:
        base = p * layout.strides[1] + r * step + (column + c) * column_step
        with k.loop(lanes, "vectorized", "v") as v:
            k.store(window, base + v, window[base + source * step + v])
    return Kernel(k.finish(), (value,), (value,), "shift")


def build_copy(source: Value, target: Value, layout: Layout, to: Layout) -> Kernel:
    """Copies ``rows`` rows of a window, from row ``first`` of it on, to those of another's from ``at`` on."""
    k = KernelBuilder("copy", serial=True)
    window, other = _window(k, "window", source, layout), _window(k, "other", target, to)
    first, rows, at = (k.scalar(name) for name in ("first", "rows", "at"))
    step = layout.strides[2]
    with k.loop(_planes(layout), name="p") as p, k.loop(rows, name="r") as r:
        base, place = p * layout.strides[1] + (first + r) * step, p * to.strides[1] + (at + r) * step
        _run(k, step, lambda i: k.store(other, place + i, window[base + i]))
    return Kernel(k.finish(), (source, target), (target,), "copy")


def build_part_copy(source: Value, target: Value, layout: Layout, to: Layout) -> Kernel:
    """Copies ``rows`` rows of a window to those of another as :func:`build_copy` does, but ``columns`` of its columns
    alone, from ``column`` on."""
    k = KernelBuilder("copy", serial=True)
    window, other = _window(k, "window", source, layout), _window(k, "other", target, to)
    first, rows, to_row, column, columns = (k.scalar(name) for name in ("first", "rows", "at", "column", "columns"))
    lanes, (step, column_step) = layout.block or 1, layout.strides[2:4]
    with k.loop(_planes(layout), name="p") as p, k.loop(rows, name="r") as r, k.loop(columns, name="c") as c:
        at = (column + c) * column_step
        base = p * layout.strides[1] + (first + r) * step + at
        place = p * to.strides[1] + (to_row + r) * step + at
        with k.loop(lanes, "vectorized", "v") as v:
            k.store(other, place + v, window[base + v])
    return Kernel(k.finish(), (source, target), (target,), "copy")


def build_margins(group: Group, request: Request, values: tuple[Value, ...]) -> Kernel:
    """Zeros in the margins of outputs that lie whole."""
    ctx = Context(request, GroupGraph(group, group.nodes), "margins")
    for value in values:
        ctx.fill_margins(value)
    return Kernel(ctx.k.finish(), tuple(ctx.operands), values, "margins")


def _window(k: KernelBuilder, name: str, value: Value, layout: Layout) -> Buffer:
    """The pointer to a window of ``value``."""
    if not layout.stored:
        return k.pointer(name, value.dtype, layout.elements)
    return reading(k.pointer(name, memory_type(layout.stored), layout.elements), layout.stored)


def _planes(layout: Layout) -> int:
    return product(layout.physical_shape[:2])


def _run(k: KernelBuilder, length: Expr, body: Callable[[Expr], None]) -> None:
    """``body`` at every position of a contiguous run, in vectors."""
    if is_dim(length):
        whole = floor_div(length, VECTOR)
        with k.loop(whole, name="j") as j, k.loop(VECTOR, "vectorized", "v") as v:
            body(j * VECTOR + v)
        with k.loop(length - whole * VECTOR, name="v") as v:
            body(whole * VECTOR + v)
        return
    vectors, tail = divmod(length, VECTOR)
    if vectors:
        with k.loop(vectors, name="j") as j, k.loop(VECTOR, "vectorized", "v") as v:
            body(j * VECTOR + v)
    if tail:
        with k.loop(tail, "vectorized" if tail > 1 else "serial", "v") as v:
            body(vectors * VECTOR + v)
