"""What every node reads and gives in a step, and what of it is kept for the next: all that is known before the step is
written (:mod:`.build`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ShapeError, UnsupportedError
from ...passes.fuse.graph import ProgramGraph
from ...schedules.words.dims import Dim
from ...schedules.words.group import Node, Value, dtype_bytes
from ...schedules.words.sizes import value_of
from ..frontend.importer import ImportedModel
from ..positions import POSITIONS
from ..spec import Symbol
from . import moves, rules, windows
from .formulas import IrregularHeight, height_of, open_axes, unit_of
from .heights import Height
from .rules import Global, Planned, Rows, StreamRows
from .wholes import Whole, whole_of

if TYPE_CHECKING:
    import numpy as np

    from ...schedules.words.tvm_types import Expr

_RULES: dict[str, rules.Rule] = {**rules.RULES, **windows.RULES, **moves.RULES}
_MOVES = frozenset(f"relax.{n}" for n in ("reshape", "permute_dims", "concat", "expand_dims", "squeeze", "flatten"))
ROWS = (48, 36, 24, 12, 6)  # of the image a step: what is kept weighs little, and tiles of 4 and of 6 rows fit
_ENOUGH = 192 << 20  # bytes that a step's node may read and write, for more rows than the fewest


def stream_symbol(imported: ImportedModel) -> Symbol:
    """The one open dimension, which is the height; ShapeError where there is none, or more than one."""
    names = ", ".join(f"'{s.name}'" for s in imported.symbols)
    if not imported.symbols:
        raise ShapeError("a stream needs an open height: say which axis it is, such as shapes={'x': (1, 3, 'h', 1024)}")
    if len(imported.symbols) > 1:
        raise ShapeError(f"a stream has one open dimension, its height, but {names} are open: fix the others")
    return imported.symbols[0]


@dataclass
class Planning:
    """What each node reads and gives, and the states that follow. Rows that do not exist are read as one of ``fills``;
    values in ``filled`` hold it there already, as what they are made of does."""

    symbol: Symbol
    stream: StreamRows
    least: int
    nodes: dict[Node, Planned]
    depths: dict[tuple[Value, float | None], int]
    fills: dict[Value, list[float]]
    filled: set[Value]
    wholes: dict[Node, Whole]
    giving: int = 0

    def key(self, value: Value, fill: float | None) -> tuple[Value, float | None]:
        """Which form of a value is read: with rows that do not exist as ``fill``, or as they come."""
        if fill is None and self.fills.get(value):
            fill = self.fills[value][0]
        return value, fill


class Analysis:
    def __init__(self, graph: ProgramGraph, symbol: Symbol, imported: ImportedModel) -> None:
        self.graph, self.symbol, self.imported = graph, symbol, imported
        self.least = max(symbol.least, symbol.multiple)
        self.stream = StreamRows(symbol=symbol.name)
        self.wholes: dict[Node, Whole] = {}

    def planned(self, wanted: int) -> Planning:
        self._follow()
        stream = self.stream
        stream.unit = unit_of([h for _, h in stream.heights.values()])
        stream.unit = math.lcm(stream.unit, self.symbol.multiple)
        stream.step = stream.unit * max(1, (wanted or self._rows()) // stream.unit)
        stream.least, stream.multiple = self.least, self.symbol.multiple
        for value in self.graph.inputs:
            if value in stream.heights:
                axis, height = stream.heights[value]
                stream.rows[value] = Rows(axis, height.steps * stream.step // height.period, 0, height)
        nodes, levels = {}, dict.fromkeys(stream.rows, 0)  # what depends on the image: by how many statistics
        for node in self.graph.nodes:
            level = max((levels[v] for v in node.inputs if v in levels), default=None)
            if stream.streaming(node):
                nodes[node] = self._node(node, level or 0)
                level = (level or 0) + (node in self.wholes)
            if level is not None:
                levels |= dict.fromkeys(node.results, level)
        giving = 0
        for value, name in zip(self.graph.outputs, (o.name for o in self.imported.outputs)):
            if value not in levels:
                raise UnsupportedError(f"output '{name}' does not stream: no rows of the image are in it")
            if value in stream.rows:
                giving = max(giving, levels[value])
            if value in stream.shapes:
                raise UnsupportedError(f"output '{name}' does not stream: {list(value.shape)} joins rows and channels")
        return Planning(self.symbol, stream, stream.least, nodes, *self._states(nodes), self.wholes, giving)

    def _rows(self) -> int:
        """Rows of a step, where nobody says how many: as many as memory has room for."""
        each = {
            v: math.prod(int(n) for a, n in enumerate(v.shape) if a != axis) * dtype_bytes(v.dtype) * h.steps / h.period
            for v, (axis, h) in self.stream.heights.items()
        }
        sizes = (sum(each.get(v, 0) for v in {*n.inputs, *n.results}) for n in self.graph.nodes)
        most = max(sizes, default=0)
        return next((rows for rows in ROWS if rows * most <= _ENOUGH), ROWS[-1])

    def _follow(self) -> None:
        """Axis and height of every value that an input with the height makes; tables of places that none makes."""
        image = [v for v in self.graph.inputs if open_axes(v.shape, self.symbol)]
        reached = set(image)
        for value in image:
            self._height(value, "an input")
        for node in self.graph.nodes:
            if not reached.isdisjoint(node.inputs):
                reached |= set(node.results)
                for value in node.results:
                    if open_axes(value.shape, self.symbol):
                        self._height(value, _place(node))
            elif all(v in self.stream.tables or v.constant is not None for v in node.inputs):
                self._table(node)

    def _height(self, value: Value, place: str) -> None:
        axes = open_axes(value.shape, self.symbol)
        if len(axes) > 1:
            raise UnsupportedError(
                f"{place} can't be computed in a stream: {list(value.shape)} has the height of the image in several "
                "axes, as all its rows meet each other"
            )
        try:
            height, least = height_of(value.shape[axes[0]], self.symbol)
        except IrregularHeight as reason:
            raise UnsupportedError(f"{place} can't be computed in a stream: {reason}") from None
        self.least = max(self.least, least)
        self.stream.heights[value] = axes[0], height

    def _table(self, node: Node) -> None:
        function = POSITIONS.get(node.operator)
        if function is None or len(node.results) != 1:
            return
        name, tables = self.symbol.name, self.stream.tables

        def at(rows: int) -> np.ndarray:
            given = []
            for operand in node.operands:
                if isinstance(operand, Value):
                    given.append(operand.constant if operand.constant is not None else tables[operand](rows))
                else:
                    given.append(_number(operand, name, rows))
            return function(*given)

        tables[node.results[0]] = at

    def _node(self, node: Node, level: int) -> Planned:
        try:
            whole = whole_of(node, self.stream, level)
            if whole is not None:
                self.wholes[node] = whole
            rule = _RULES.get(node.operator, rules.pointwise)
            planned = rule(node, self.stream) if whole is None else whole.planned
        except Global as reason:
            raise UnsupportedError(f"{_place(node)} can't be computed in a stream: {reason}") from None
        for value, rows in zip(node.results, planned.results):
            self.stream.rows[value] = rows
        return planned

    def _states(
        self, nodes: dict[Node, Planned]
    ) -> tuple[dict[tuple[Value, float | None], int], dict[Value, list[float]], set[Value]]:
        """How many rows of the past each form of a value is read with, and the forms of every value."""
        fills: dict[Value, list[float]] = {}
        for planned in nodes.values():
            for value, read in planned.reads.items():
                if read.fill is not None and read.fill not in fills.setdefault(value, []):
                    fills[value].append(read.fill)
        filled = self._fill_sooner(nodes, fills)
        known = Planning(self.symbol, self.stream, 0, nodes, {}, fills, filled, self.wholes)
        depths: dict[tuple[Value, float | None], int] = {}
        for planned in nodes.values():
            for value, read in planned.reads.items():
                key = known.key(value, read.fill)
                depths[key] = max(depths.get(key, 0), read.back - self.stream.rows[value].delay)
        return depths, fills, filled

    def _fill_sooner(self, nodes: dict[Node, Planned], fills: dict[Value, list[float]]) -> set[Value]:
        """Values that are filled where they are made: what only moves rows as they are is left to the kernels before
        it, which write the number on the way."""
        filled: set[Value] = set()
        for node in reversed(nodes):
            value = node.results[0]
            wanted, read, known = fills.get(value, []), dict.fromkeys(node.inputs), self.stream.rows
            apart = any(v in self.stream.shapes or v not in known for v in (*read, value))
            if node.operator not in _MOVES or len(wanted) != 1 or apart:
                continue
            alike = all(_rows_alike(known[v].height, known[value].height) for v in read)
            given = [v for v in read if not fills.get(v)]
            same = all(fills[v][0] == wanted[0] for v in read if v not in given)
            if alike and same and set(given).isdisjoint(self.graph.inputs):
                fills.update({v: list(wanted) for v in given})
                filled.add(value)
        return filled


def _number(operand: Expr, name: str, rows: int) -> int:
    from ...schedules.words.sizes import dim_of

    dim = dim_of(getattr(operand, "value", operand))
    return value_of(dim, {name: rows}) if isinstance(dim, Dim) else int(dim)


def _rows_alike(one: Height, other: Height) -> bool:
    """Whether every row of the lower one is as many whole rows of the higher one, and no row is left over."""
    low, high = (one, other) if one.steps * other.period <= other.steps * one.period else (other, one)
    factor, left = divmod(high.steps * low.period, low.steps * high.period)
    return not left and all(high.at(n) == factor * low.at(n) for n in range(2 * math.lcm(low.period, high.period)))


def _place(node: Node) -> str:
    return f"node '{node.place}' ({node.operator.rsplit('.', 1)[-1]})"
