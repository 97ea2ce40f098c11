"""What a kernel under construction knows: its builder, its pointers, and how values are read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import tvm_ffi
from tvm import sym, tirx
from tvm.ir import Range
from tvm.ir.prim import expr as prim

from ...errors import UnsupportedError
from ..emit.builder import KernelBuilder, made_by
from ..emit.decided import Parted, is_far
from ..emit.inline import Inliner, Source, key, narrow
from ..emit.vector_reads import undefined
from ..math.bfloat16 import load_of, memory_type, reading
from ..math.float16 import Widened
from ..math.stored_weights import stored
from ..math.wrapping import is_whole
from ..math.wrapping import number as whole
from ..operators.te_graph import GroupGraph
from ..words.dims import Dim, is_open, to_index
from ..words.group import Packed, Request, Scratch, Value, dtype_bytes
from ..words.layout import Layout
from ..words.sizes import product
from ..words.tvm_types import Buffer, Expr, Operation
from .channel_parts import ChannelParts
from .counted_rows import CountedRows
from .half_stores import stored_halves
from .launches import Launches
from .open_ranges import LARGEST, OpenRanges, knowing_symbols

if TYPE_CHECKING:
    from ..words.size_like import SizeLike

SLACK = 64  # bytes behind each constant, so that a last vector may read past its end


@dataclass(frozen=True)
class Channel:
    """The channel coordinate of a kernel that runs over blocks and lanes: ``index == block * lanes + lane``."""

    index: Expr
    block: Expr
    lane: Expr
    lanes: int
    extent: int

    @property
    def has_tail(self) -> bool:
        return self.extent % self.lanes != 0


class Context:
    """Pointers are declared when first used; their order is the order of ``operands``."""

    def __init__(self, request: Request, graph: GroupGraph, name: str) -> None:
        self.request = request
        self.graph = graph
        self.k = KernelBuilder(name, serial=request.box is not None)
        self.operands: list[Value | Packed | Scratch] = []
        self.channel: Channel | None = None
        self.log: list[Expr] | None = None
        self._buffers: dict[Buffer, Buffer] = {}
        self._blocks: dict[tuple[Value, int, int], Buffer] = {}  # constants in blocks of channels: the axis, how many
        self.analyzer = knowing_symbols()
        self.open_ranges: OpenRanges | None = None  # where bounds are open and somebody asked
        self.parted: Parted | None = None  # an axis that passes several times over what is read
        self.scalars: list[str | tuple[Value, int]] = []
        self.parts = ChannelParts(self.k, request.box, self.scalar)
        self.launches, self.rows = Launches(request.workers), CountedRows()
        self._bases: dict[Value, list[Expr]] = {}
        self.origin: list[Expr] | None = None  # row and column of the box, in the tensor
        self.pending: list[Value] = []  # outputs whose margins the kernel has still to write
        self.starts: dict[Value, tuple[Expr, Expr, bool]] = {}  # what positions share, its place, the rest in 64 bits
        self.seen: dict[Value, list[Expr]] | None = None  # the positions of elements, where they are wanted
        self.apart: list[tuple[Expr, Expr, Expr]] | None = None  # memory, position and value of what is not written yet
        self.size: list[Expr] = []  # rows and columns of the box: numbers, or variables if it is open
        box = request.box
        if box is not None:
            rows, columns = request.group.outputs[-1].shape[2:4]
            self.size = [box.rows, box.columns]
            if box.flat:
                columns = product([rows, columns])
                self.origin, self.size = [0, self.scalar("column", columns)], [1, self.scalar("columns", columns + 1)]
                return
            least = [1, 1] if box.open else self.size
            self.origin = [self.scalar("row", rows - least[0] + 1), self.scalar("column", columns - least[1] + 1)]
            if box.open:
                self.size = [self.scalar("rows", rows + 1), self.scalar("columns", columns + 1)]

    def scalar(self, what: str | tuple[Value, int], extent: int | None = None) -> Expr:
        """An int32 parameter behind the pointers, below ``extent`` where that is known."""
        self.scalars.append(what)
        var = self.k.scalar(what if isinstance(what, str) else f"base{len(self.scalars)}")
        return var if extent is None else self.ranged(var, extent)

    def base(self, value: Value) -> list[Expr] | None:
        """Row and column of the first element of a windowed value's memory; None for a value that lies whole."""
        box = self.request.box
        if box is None or value not in box.windowed:
            return None
        if value not in self._bases:
            self._bases[value] = [self.scalar((value, 0)), self.scalar((value, 1))]
        return self._bases[value]

    def place(self, value: Value, indices: Sequence[Expr]) -> list[Expr]:
        """Indices of an element in the memory of ``value``: relative to the window's base, if it lies in one."""
        base = self.base(value)
        if base is None:
            return list(indices)
        return [*indices[:2], indices[2] - base[0], indices[3] - base[1], *indices[4:]]

    # -- pointers --------------------------------------------------------------------------------

    def buffer(self, value: Value) -> Buffer:
        """The pointer to ``value``, declared when it is first asked for. Raises UnsupportedError if it has more
        elements than 32 bits count."""
        found = self._buffers.get(value)
        if found is None:
            elements = self.request.layout(value).elements  # of open ones, it is checked when sizes are known
            if not isinstance(elements, Dim) and elements >= LARGEST:
                raise UnsupportedError(
                    f"{self.request.group.name}: {value} has {self.request.layout(value).elements} elements in memory; "
                    f"kernels index with 32 bits, up to {LARGEST - 1}"
                )
            stored = self.request.layout(value).stored
            held = memory_type(stored) if stored else value.dtype
            found = self.k.pointer(f"b{len(self._buffers)}", held, self.request.layout(value).elements)
            found = reading(found, stored) if stored else found
            self._buffers[value] = found
            self.operands.append(value)
            if value.constant is not None and self.request.layout(value).is_plain:
                self.k.tables[found] = value.constant.reshape(-1)
        return found

    def packed(self, packed: Packed, narrow: bool = True) -> Buffer:
        """The pointer to a packed constant. With ``narrow`` its weights take the fewer bytes that the policy
        wants."""
        kind = self.request.policy.weights
        less = stored(packed.data, kind) if narrow and kind != "float32" else None
        packed = packed if less is None else Packed(packed.name, less, reads_as=packed.dtype)
        buffer = self.k.pointer(packed.name, packed.dtype, packed.elements)
        self.operands.append(packed)
        return buffer if less is None else Widened(buffer)

    def scratch(self, elements: int, dtype: str) -> Buffer:
        """A buffer of ``elements`` in the kernel's own arena memory."""
        buffer = self.k.pointer(self.k.fresh("scratch"), dtype, elements)
        self.operands.append(Scratch(elements * dtype_bytes(dtype)))
        return buffer

    # -- reading and writing ---------------------------------------------------------------------

    def offset(self, value: Value, indices: Sequence[Expr]) -> Expr:
        """The simplified flat position; uses block and lane directly where the channel is the kernel's own."""
        layout = self.request.layout(value)
        indices = self.place(value, indices)
        channel = self.channel
        block = lane = None
        if layout.block and channel is not None and layout.block == channel.lanes:
            index = indices[1]
            if not isinstance(index, int) and tvm_ffi.structural_equal(index, channel.index):
                block, lane = channel.block, channel.lane
        position = self.rows.position(layout, [narrow(i) for i in indices], block, lane)
        position = self.analyzer.simplify(narrow(position))
        if self.seen is not None:
            self.seen.setdefault(value, []).append(position)
        return self.begun(value, position)

    def begins(self, emit: Callable[[], None]) -> dict[Value, tuple[Expr, Expr, bool]]:
        """Start positions that the elements emitted by ``emit`` have in common, in the form of :attr:`starts`: for
        every value that it reads or writes exactly once, at a position that does not depend on what it reads. Emitting
        the same element elsewhere then adds a constant to a 64-bit sum; LLVM sees such distances, since sums of 64 bits
        cannot wrap."""
        self.seen = {}
        with self.k.capture() as statements:
            emit()
        seen, self.seen = self.seen, None
        own = list(made_by(statements))  # not there where the places are held
        once = {v: found[0] for v, found in seen.items() if len(found) == 1}
        known = {v: at for v, at in once.items() if not any(o.same_as(u) for o in own for u in undefined(at))}
        return {v: (at, self.k.hold(at, "o"), True) for v, at in known.items()}

    def begin(self, value: Value, position: Expr) -> None:
        """Makes ``position`` the common start of the positions of ``value``: it is computed once, here, and each later
        position adds its difference to it."""
        self.starts[value] = position, self.k.hold(position, "o"), False

    def begun(self, value: Value, position: Expr) -> Expr:
        """``position`` of ``value`` as its common start and a difference, if it has a start (:meth:`begin`); else as it
        is. Without, positions behind numbers known at run time only would each be computed anew."""
        if value not in self.starts:
            return position
        start, held, wide = self.starts[value]
        rest = self.analyzer.simplify(position - start)
        return tirx.Cast("int64", held) + tirx.Cast("int64", rest) if wide else held + rest

    def source(self, value: Value) -> Source:
        """A function that reads one element of an input, given its coordinates; a constant of one element is a
        literal."""
        constant = value.constant
        if constant is not None and value.elements == 1:
            number = literal(constant.reshape(-1)[0], value.dtype)
            return lambda _indices: number
        layout = self.request.layout(value)

        def read(indices: tuple[Expr, ...]) -> Expr:
            if constant is not None and layout.is_plain and (load := self._in_blocks(value, indices)) is not None:
                return load
            position = self.offset(value, indices)
            if self.log is not None:
                self.log.append(position)
            load = self.buffer(value)[position]
            if self.k.written is not None and layout.is_plain and indices and self.base(value) is None:
                self.k.written.row = (load_of(load), indices[-1], value.shape[-1])
            return self._guarded(value, layout, indices, load)

        return read

    def _guarded(self, value: Value, layout: Layout, indices: Sequence[Expr], load: Expr) -> Expr:
        """Lanes past the last channel must not read past a plain tensor. (Blocked tensors hold zeros there, and
        constants have :data:`SLACK` behind them, which is enough if channels lie next to each other.)"""
        channel = self.channel
        if channel is None or not channel.has_tail or layout.block:
            return load
        if not any(_uses(i, channel.lane) for i in indices):
            return load
        if value.constant is not None and self._past(value, indices, channel) <= SLACK:
            return load
        self.k.guard(channel.index < channel.extent)
        return tirx.if_then_else(channel.index < channel.extent, load, tirx.Cast(load.ty, tirx.IntImm("int32", 0)))

    def _in_blocks(self, value: Value, indices: Sequence[Expr]) -> Expr:
        """A plain constant of several elements a channel (a map of positions) is laid out in the kernel's blocks, for
        one load a vector instead of one a lane, unless the lanes past the last channel would more than double it."""
        channel = self.channel
        if channel is None:
            return None
        own = [not isinstance(i, int) and tvm_ffi.structural_equal(i, channel.index) for i in indices]
        axis = own.index(True) if any(own) else 0
        if sum(_uses(i, channel.lane) for i in indices) != 1 or not own[axis]:
            return None
        shape = (product(value.shape[:axis]), value.shape[axis], product(value.shape[axis + 1 :]))
        blocked = Layout.blocked(shape, channel.lanes)
        if shape[2] == 1 or blocked.elements > 2 * value.elements:
            return None
        kept = value, axis, channel.lanes
        if kept not in self._blocks:
            data, wide = np.asarray(value.constant), blocked.physical_shape

            def laid_out() -> np.ndarray:
                whole = np.zeros((shape[0], wide[1] * channel.lanes, shape[2]), data.dtype)
                whole[:, : shape[1]] = data.reshape(shape)
                lanes = whole.reshape(shape[0], wide[1], channel.lanes, shape[2])
                return np.ascontiguousarray(lanes.transpose(0, 1, 3, 2))

            packed = Packed(self.k.fresh("c"), laid_out, blocked.elements, value.dtype)
            self._blocks[kept] = self.packed(packed, narrow=False)
        ends = Layout.plain(value.shape[:axis]), Layout.plain(value.shape[axis + 1 :])
        before, behind = (end.offset(part) for end, part in zip(ends, (indices[:axis], indices[axis + 1 :])))
        offset = blocked.offset([before, channel.index, behind], channel.block, channel.lane)
        position = self.analyzer.simplify(narrow(offset))
        if self.log is not None:
            self.log.append(position)
        return self._blocks[kept][position]

    def _past(self, value: Value, indices: Sequence[Expr], channel: Channel) -> int:
        """Bytes from what the first lane reads of a plain tensor to the end of what the last one reads."""
        distance, stride = 1, 1
        for index, extent in zip(reversed(indices), reversed(value.shape)):
            if _uses(index, channel.lane):
                linear = sym.detect_linear_equation(index, [channel.lane])
                if not len(linear) or not isinstance(linear[0], tirx.IntImm):
                    return LARGEST
                distance += abs(int(linear[0])) * stride * (channel.lanes - 1)
            stride *= extent
        return distance * dtype_bytes(value.dtype)

    def inliner(self, sources: dict[tuple[Operation, int], Source] | None = None, bind: bool = True) -> Inliner:
        """An inliner that reads the group's inputs from memory, and ``sources`` from where they say."""
        table: dict[tuple[Operation, int], Source] = {}
        for value in self.graph.group.inputs:
            table[key(self.graph.tensors[value])] = self.source(value)
        table.update(sources or {})
        names = (self.k.bind, self.k.amend) if bind else (None, None)
        rounds, halves = self.request.target.rounds, stored_halves(self.request, self.graph)
        made = Inliner(table, names[0], self.k.guard, self._decided, rounds, names[1], halves)
        made.parted = self.parted
        return made

    def _decided(self, condition: Expr) -> Expr:
        """A condition without what is known to hold."""
        found = condition if is_far(condition) else self.analyzer.simplify(condition)
        return found if self.open_ranges is None else self.open_ranges.left(found)

    def write(self, value: Value, indices: Sequence[Expr], element: Expr) -> None:
        """Stores one element of an output; lanes past the last channel get zero, or nothing in a plain tensor."""
        layout = self.request.layout(value)
        position = self.offset(value, indices)
        if self.log is not None:
            self.log.append(position)
        channel = self.channel
        buffer = self.buffer(value)
        if str(element.ty.dtype) != value.dtype:
            element = tirx.Cast(value.dtype, element)
        if self.apart is not None:
            self.apart.append((buffer, position, self.k.placed(self.k.bind(element))))
            return
        if channel is not None and channel.has_tail and any(_uses(i, channel.lane) for i in indices):
            inside = channel.index < channel.extent
            if layout.block:
                zero = tirx.Cast(element.ty, tirx.IntImm("int32", 0))
                element = tirx.Select(inside, element, zero)
            else:
                with self.k.when(inside):
                    self.k.store(buffer, position, element)
                return
        self.k.store(buffer, position, element)

    def ranged(self, var: Expr, extent: Expr) -> Expr:
        """Tells the simplifier that ``0 <= var < extent`` (a number, or a variable, which says nothing)."""
        if isinstance(var, tirx.Var) and isinstance(extent, (int, Dim)):
            self.analyzer.bind(var, Range(0, to_index(extent)))
            if self.open_ranges is not None:
                self.open_ranges.note(var, 0, extent - 1)
        return var

    def between(self, var: Expr, first: SizeLike, end: SizeLike) -> None:
        """Tells the simplifier that ``first <= var < end``, numbers or dims."""
        self.analyzer.bind(var, Range(to_index(first), to_index(end)), allow_override=True)
        if is_open((first, end)):
            self.open_ranges = self.open_ranges or OpenRanges()
        if self.open_ranges is not None:
            self.open_ranges.note(var, first, end - 1)

    def expect_margins(self) -> None:
        """Notes that the kernel writes the margins of its outputs: in its tasks, before or behind them, always."""
        self.pending = [v for v in self.request.group.outputs if self.request.layout(v).margins]

    def fill_pending(self, values: Sequence[object] | None = None) -> None:
        """Writes the margins of all ``values`` that wait for it, at once."""
        for value in self._taken(values):
            self.fill_margins(value)

    def fill_parts(
        self, values: Sequence[object] | None, image: Expr, part: Expr, parts: int, by_rows: bool = True
    ) -> None:
        """Writes the margins of one of ``parts`` bands of rows, or of planes, of one image of two spatial axes."""
        for value in self._taken(values):
            self._fill_part(value, image, part, parts, by_rows)

    def shares_margins(self, workers: int) -> bool:
        """True if ``workers`` cores can each write their part of the margins that wait; else these are written here."""
        if workers > 1 and all(len(v.shape) == 4 and not is_open(v.shape) for v in self.pending):
            return True
        self.fill_pending()
        return False

    def fill_share(self, worker: Expr, workers: int, by_rows: bool) -> None:
        """Writes one core's part of all margins that wait: what it writes lies in its own cache, as the rows (or the
        channels) of its outputs do, and those of the next kernel that it reads them for."""
        for value in self._taken(None):
            with self.k.loop(value.shape[0], name="n") as image:
                self._fill_part(value, self.ranged(image, value.shape[0]), worker, workers, by_rows)

    def _taken(self, values: Sequence[object] | None) -> list[Value]:
        taken = [p for p in self.pending if values is None or any(v is p for v in values)]
        self.pending = [p for p in self.pending if not any(t is p for t in taken)]
        assert not taken or not self.k.conditions, "margins would be missing where a condition does not hold"
        return taken

    def _fill_part(self, value: Value, image: Expr, part: Expr, parts: int, by_rows: bool) -> None:
        layout, k = self.request.layout(value), self.k
        dims, strides, buffer = layout.physical_shape, layout.strides, self.buffer(value)
        lanes = layout.block or 1
        (top, _), (left, right) = layout.margin(2), layout.margin(3)
        below, beside = top + layout.shape[2], left + layout.shape[3]
        rows = dims[2] - layout.room
        edges: list[Expr] = [0, rows]
        planes: list[int] = [0, dims[1]]
        if parts > 1:
            cut = [tirx.floordiv((part + i) * (rows if by_rows else dims[1]), parts) for i in (0, 1)]
            edges, planes = (cut, planes) if by_rows else (edges, cut)
        with k.loop(planes[1] - planes[0], name="m", begin=planes[0]) as plane:
            for first, last, runs in (
                (0, top, [(0, dims[3])]),
                (top, below, [(0, left), (beside, right)]),
                (below, rows, [(0, dims[3])]),
            ):
                begin, end = _larger(edges[0], first), _smaller(edges[1], last)
                runs = [(start, count) for start, count in runs if count]
                if first == last or not runs:
                    continue
                with k.loop(_larger(end - begin, 0), name="y", begin=begin) as y:
                    base = image * strides[0] + plane * strides[1] + y * strides[2]
                    for start, count in runs:
                        with k.loop(count, name="e") as e, k.loop(lanes, "vectorized", name="v") as v:
                            k.store(buffer, base + (start + e) * lanes + v, literal(layout.fill, value.dtype))

    def fill_margins(self, value: Value) -> None:
        """Writes the margins of an output, slab by slab."""
        layout = self.request.layout(value)
        if not layout.margins:
            return
        dims, strides = layout.physical_shape, layout.strides
        buffer, k = self.buffer(value), self.k
        for axis, (before, after) in enumerate(layout.margins):
            size = layout.shape[axis]
            for start, count in ((0, before), (before + size, after)):
                if count == 0:
                    continue
                outer, length = product(dims[:axis]), count * strides[axis]
                step = dims[axis] * strides[axis]
                lanes = layout.block or 1
                apart, inner = layout.room and axis > 2, product(dims[3:axis])
                own = (dims[2] - layout.room) * inner if apart else 1  # what lies in the room is not the value's
                with k.loop(outer // (dims[2] * inner) * own if apart else outer, name="m") as o:
                    o = o + tirx.floordiv(o, own) * (layout.room * inner) if apart else o
                    with k.loop(length // lanes, name="e") as e, k.loop(lanes, "vectorized", name="v") as v:
                        position = o * step + (start * strides[axis]) + e * lanes + v
                        k.store(buffer, position, literal(layout.fill, value.dtype))


def _larger(a: Expr, b: SizeLike) -> Expr:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.max(a, b)


def _smaller(a: Expr, b: SizeLike) -> Expr:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else tirx.min(a, b)


def literal(number: Expr, dtype: str) -> Expr:
    """An immediate of ``dtype``."""
    if is_whole(dtype):
        return whole(int(number), dtype)
    return tirx.IntImm("bool", int(number)) if dtype == "bool" else tirx.FloatImm(dtype, float(number))


def _uses(expr: Expr, var: Expr) -> bool:
    return not isinstance(expr, int) and any(v.same_as(var) for v in tirx.analysis.undefined_vars(expr))


def positions(log: Sequence[Expr]) -> list[Expr]:
    """The positions in ``log`` that are no constants."""
    return [p for p in log if not isinstance(p, (int, prim.IntImm))]
