"""Lines written out: where the lanes of a vector read here and there, but at places known at compile time.

    y[o] = x[table[o]]        y[0:16] = permute(x[0:16], 0 0 1 1 2 3 ...)      one statement for each vector of the line

Tables of indices are constants of the group (resizing by any factor, reflected and repeated borders, gathers), and once
the position of a vector is a number, so are the places of its elements beside the line's first: it is a shuffle of the
whole vectors that hold them, and weights from a table are a constant vector. TVM would read one element a lane.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.ir.prim import expr as prim

from ..words.tvm_types import Buffer, Expr

MOST_VECTORS = 128  # of a line: beyond, its code would be too large for what it saves
MOST_LOADS = 4  # whole vectors that hold the elements of one; with more, reading one by one is as fast

_INTEGERS: dict[type, Expr] = {
    prim.Add: np.add,
    prim.Sub: np.subtract,
    prim.Mul: np.multiply,
    prim.FloorDiv: np.floor_divide,
    prim.FloorMod: np.mod,
    prim.Max: np.maximum,
    prim.Min: np.minimum,
    prim.EQ: np.equal,
    prim.NE: np.not_equal,
    prim.LT: np.less,
    prim.LE: np.less_equal,
    prim.GT: np.greater,
    prim.GE: np.greater_equal,
    prim.And: np.logical_and,
    prim.Or: np.logical_or,
}


class WrittenLine:
    """What is known while the vectors of a line are written out: the tables, and the row that was last read from.

    ``row`` is (load, index along the row, length of the row): elements of the row may be read beside those wanted.
    """

    def __init__(self, tables: dict[Buffer, np.ndarray]) -> None:
        self.tables = tables
        self.row: tuple[Expr, Expr, int] | None = None
        self.shuffles = 0

    def known(self, value: Expr, lane: Expr, width: int) -> bool:
        """True for an integer of each lane that is a number: it needs no name."""
        return str(value.ty.dtype) in ("int32", "int64") and self._numbers(value, lane, width) is not None

    def vector(self, value: Expr, lane: Expr, width: int) -> Expr | None:
        """A read of every lane as a constant vector, a whole vector or a shuffle; None for anything else."""
        if width < 2 or not isinstance(value, TensorLoad) or len(value.indices) != 1:
            return None
        index = value.indices[0]
        table = self.tables.get(value.source)
        if table is not None and table.dtype.kind in "fiu" and (at := self._numbers(index, lane, width)) is not None:
            self.shuffles += 1
            return _constants(table[at], value.ty.dtype)
        if not _has_lane(index, lane) or _plain(index, lane):
            return None
        base, offsets = self._parts(index, lane, width)
        if offsets is None:
            return None
        made = _picked(value.source, base, offsets, self._reach(value, offsets, lane, width))
        self.shuffles += made is not None
        return made

    def _reach(self, value: Expr, offsets: np.ndarray, lane: Expr, width: int) -> tuple[int, int]:
        """The first and the last offset that lie in memory for certain: those of the row, or of what is wanted."""
        if self.row is not None and value.same_as(self.row[0]):
            inside = self._numbers(self.row[1], lane, width)
            first = np.unique(offsets - inside) if inside is not None else np.array([])
            if first.size == 1:
                return int(first[0]), int(first[0]) + self.row[2] - 1
        return int(offsets.min()), int(offsets.max())

    def _parts(self, index: Expr, lane: Expr, width: int) -> tuple[Expr, np.ndarray | None]:
        """``index`` as a sum of what is the same for all lanes and of a number for each."""
        if not _has_lane(index, lane) and not isinstance(index, prim.IntImm):
            return index, np.zeros(width, np.int64)
        if isinstance(index, (prim.Add, prim.Sub)):
            (a, p), (b, q) = (self._parts(e, lane, width) for e in (index.a, index.b))
            if p is None or q is None:
                return index, None
            return (a + b, p + q) if isinstance(index, prim.Add) else (a - b, p - q)
        if isinstance(index, prim.Mul) and isinstance(index.b, prim.IntImm):
            base, offsets = self._parts(index.a, lane, width)
            return base * index.b, None if offsets is None else offsets * int(index.b.value)
        if isinstance(index, prim.Cast):
            base, offsets = self._parts(index.value, lane, width)
            return tirx.Cast(index.ty, base), offsets
        return tirx.IntImm(index.ty, 0), self._numbers(index, lane, width)

    def _numbers(self, expr: Expr, lane: Expr, width: int) -> np.ndarray | None:
        """The value of an integer expression for each lane; None if it depends on anything else."""
        kind = type(expr)
        if isinstance(expr, prim.IntImm):
            return np.full(width, int(expr.value), np.int64)
        if kind is tirx.Var:
            return np.arange(width) if expr.same_as(lane) else None
        if kind in _INTEGERS or kind is prim.Select:
            parts = (expr.a, expr.b) if kind in _INTEGERS else (expr.condition, expr.true_value, expr.false_value)
            values = [v for p in parts if (v := self._numbers(p, lane, width)) is not None]
            if len(values) < len(parts) or (kind in (prim.FloorDiv, prim.FloorMod) and not values[1].all()):
                return None
            return np.where(values[0], values[1], values[2]) if kind is prim.Select else _INTEGERS[kind](*values)
        if kind is prim.Cast and str(expr.ty.dtype) in ("int32", "int64"):
            return self._numbers(expr.value, lane, width)
        if kind is TensorLoad and len(expr.indices) == 1:
            table, at = self.tables.get(expr.source), self._numbers(expr.indices[0], lane, width)
            if table is None or table.dtype.kind != "i" or at is None or at.min() < 0 or at.max() >= table.size:
                return None
            return table[at].astype(np.int64)
        return None


def _has_lane(expr: Expr, lane: Expr) -> bool:
    return isinstance(expr, tvm.ir.Expr) and any(lane.same_as(v) for v in tirx.analysis.undefined_vars(expr))


def _plain(index: Expr, lane: Expr) -> bool:
    """True if the lane is an addend: TVM makes such reads whole vectors itself, or KernelBuilder does."""
    if not _has_lane(index, lane) or index.same_as(lane):
        return True
    if isinstance(index, (prim.Add, prim.Sub)):
        return _plain(index.a, lane) and _plain(index.b, lane)
    return isinstance(index, prim.Mul) and isinstance(index.b, prim.IntImm) and _plain(index.a, lane)


def _picked(buffer: Buffer, base: Expr, offsets: np.ndarray, reach: tuple[int, int]) -> Expr | None:
    """The elements at ``base + offsets``, from whole vectors within ``reach``."""
    width, first, last = len(offsets), int(offsets.min()), int(offsets.max())
    if first == last:
        return tirx.Broadcast(buffer[base + first], width)
    if (np.diff(offsets) == 1).all():
        return buffer[tirx.Ramp(base + first, tirx.IntImm("int32", 1), width)]
    size = 1 << (width - 1).bit_length()
    while size > reach[1] - reach[0] + 1:
        size //= 2
    count = -(-(last - first + 1) // size)
    if size < 2 or count > MOST_LOADS:
        return None
    starts = [min(first + i * size, reach[1] - size + 1) for i in range(count)]
    where = [min((int(t) - first) // size, count - 1) for t in offsets]
    order = [p * size + int(t) - starts[p] for p, t in zip(where, offsets)]
    vectors = [buffer[tirx.Ramp(base + s, tirx.IntImm("int32", 1), size)] for s in starts]
    vectors += [vectors[-1]] * (max(1, -(-width // size)) - len(vectors))  # TVM wants as many lanes as come out
    return tirx.Shuffle(vectors, [tirx.IntImm("int32", o) for o in order])


def _constants(values: np.ndarray, dtype: str) -> Expr:
    make = tirx.FloatImm if values.dtype.kind == "f" else tirx.IntImm
    convert = float if values.dtype.kind == "f" else int
    if (values == values[0]).all():
        return tirx.Broadcast(make(str(dtype), convert(values[0])), len(values))
    scalars = [make(str(dtype), convert(v)) for v in values]
    return tirx.Shuffle(scalars, [tirx.IntImm("int32", i) for i in range(len(values))])
