"""The network of one step: rows of the image and what the last step left in, rows of the outputs and the same out.

    y = conv(x), 3 x 3, padded        x: (1, 3, h, w)

    step(x, state, exists):           x: (1, 3, R, w), the next R rows;  state: (1, 3, 2, w);  exists: (R, 1)
        rows = concat(state, where(exists, x, 0))
        y = conv(rows), padded in w only
        return y, the last 2 of rows

Everything that reads rows of the past shares one state of a value, which holds as many as the deepest needs. All that
follows in the pipeline sees an ordinary network of fixed shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from ...errors import ShapeError, UnsupportedError
from ...passes.fuse.graph import Graph, build_graph
from ...schedules.words.dims import Dim
from ...schedules.words.group import Node, Value
from ...schedules.words.sizes import value_of
from ..frontend.importer import ImportedModel
from ..spec import Symbol, TensorSpec
from . import moves, rules, windows
from .heights import Irregular, height_of, open_axes, unit_of
from .rules import Global, Planned, Read, Rows, Stream
from .words import Feed, Port, State, StreamPlan

_RULES: dict[str, rules.Rule] = {**rules.RULES, **windows.RULES, **moves.RULES}
_ROWS = 32  # of the image a step, about: enough that what is kept from step to step weighs little
_TABLES: dict[str, Callable[..., Any]] = {
    "relax.arange": np.arange,
    "relax.abs": np.abs,
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
}


def stream_symbol(imported: ImportedModel) -> Symbol:
    """The one open dimension, which is the height; ShapeError where there is none, or more than one."""
    names = ", ".join(f"'{s.name}'" for s in imported.symbols)
    if not imported.symbols:
        raise ShapeError("a stream needs an open height: say which axis it is, such as shapes={'x': (1, 3, 'h', 1024)}")
    if len(imported.symbols) > 1:
        raise ShapeError(f"a stream has one open dimension, its height, but {names} are open: fix the others")
    return imported.symbols[0]


def build_stream(imported: ImportedModel, module: Any, rows: int = 0) -> tuple[ImportedModel, StreamPlan]:
    """The network in steps of about ``rows`` rows of the image. Raises UnsupportedError that names the operator which
    needs more than rows that follow each other."""
    symbol = stream_symbol(imported)
    graph = build_graph(module)
    plan = _Analysis(graph, symbol, imported).planned(rows)
    return _Writer(graph, imported, plan).written()


@dataclass
class _Plan:
    """What each node reads and gives, and the states that follow."""

    symbol: Symbol
    stream: Stream
    least: int
    nodes: dict[Node, Planned]
    depths: dict[tuple[Value, float | None], int]
    fills: dict[Value, list[float]]

    def key(self, value: Value, fill: float | None) -> tuple[Value, float | None]:
        """Which form of a value is read: with rows that do not exist as ``fill``, or as they come."""
        if fill is None and self.fills.get(value):
            fill = self.fills[value][0]
        return value, fill


class _Analysis:
    def __init__(self, graph: Graph, symbol: Symbol, imported: ImportedModel) -> None:
        self.graph, self.symbol, self.imported = graph, symbol, imported
        self.least = max(symbol.least, symbol.multiple)
        self.stream = Stream(symbol=symbol.name)

    def planned(self, wanted: int) -> _Plan:
        self._follow()
        stream = self.stream
        stream.unit = unit_of([h for _, h in stream.heights.values()])
        stream.unit = math.lcm(stream.unit, self.symbol.multiple)
        stream.step = stream.unit * max(1, (wanted or _ROWS) // stream.unit)
        stream.least, stream.multiple = self.least, self.symbol.multiple
        for value in self.graph.inputs:
            if value in stream.heights:
                axis, height = stream.heights[value]
                stream.rows[value] = Rows(axis, height.steps * stream.step // height.period, 0, height)
        nodes = {}
        for node in self.graph.nodes:
            if stream.streaming(node):
                nodes[node] = self._node(node)
        for value, name in zip(self.graph.outputs, (o.name for o in self.imported.outputs)):
            if value not in stream.rows:
                raise UnsupportedError(f"output '{name}' does not stream: its shape {list(value.shape)} has no rows")
        return _Plan(self.symbol, stream, stream.least, nodes, *self._states(nodes))

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
        except Irregular as reason:
            raise UnsupportedError(f"{place} can't be computed in a stream: {reason}") from None
        self.least = max(self.least, least)
        self.stream.heights[value] = axes[0], height

    def _table(self, node: Node) -> None:
        function = _TABLES.get(node.operator)
        if function is None or len(node.results) != 1:
            return
        name, tables = self.symbol.name, self.stream.tables

        def at(rows: int) -> Any:
            given = []
            for operand in node.operands:
                if isinstance(operand, Value):
                    given.append(operand.constant if operand.constant is not None else tables[operand](rows))
                else:
                    given.append(_number(operand, name, rows))
            return function(*given)

        tables[node.results[0]] = at

    def _node(self, node: Node) -> Planned:
        try:
            planned = _RULES.get(node.operator, rules.pointwise)(node, self.stream)
        except Global as reason:
            raise UnsupportedError(f"{_place(node)} can't be computed in a stream: {reason}") from None
        for value, rows in zip(node.results, planned.results):
            self.stream.rows[value] = rows
        return planned

    def _states(self, nodes: dict[Node, Planned]) -> tuple[dict[Any, int], dict[Value, list[float]]]:
        """How many rows of the past each form of a value is read with, and the forms of every value."""
        fills: dict[Value, list[float]] = {}
        for planned in nodes.values():
            for value, read in planned.reads.items():
                if read.fill is not None and read.fill not in fills.setdefault(value, []):
                    fills[value].append(read.fill)
        known = _Plan(self.symbol, self.stream, 0, nodes, {}, fills)
        depths: dict[Any, int] = {}
        for planned in nodes.values():
            for value, read in planned.reads.items():
                key = known.key(value, read.fill)
                depths[key] = max(depths.get(key, 0), read.back - self.stream.rows[value].delay)
        return depths, fills


def _number(operand: Any, name: str, rows: int) -> int:
    from ...schedules.words.sizes import dim_of

    dim = dim_of(getattr(operand, "value", operand))
    return value_of(dim, {name: rows}) if isinstance(dim, Dim) else int(dim)


def _place(node: Node) -> str:
    return f"node '{node.place}' ({node.operator.rsplit('.', 1)[-1]})"


class _Writer:
    """Writes the function of a step."""

    def __init__(self, graph: Graph, imported: ImportedModel, plan: _Plan) -> None:
        self.graph, self.imported, self.plan, self.stream = graph, imported, plan, plan.stream
        self.builder = relax.BlockBuilder()
        self.known: dict[Value, Any] = {}
        self.whole: dict[Any, Any] = {}
        self.params: list[Any] = []
        self.specs: list[TensorSpec] = []
        self.feeds: dict[Any, tuple[Feed, Any]] = {}
        self.states: list[tuple[State, Any]] = []
        self.inputs: list[Port] = []

    def written(self) -> tuple[ImportedModel, StreamPlan]:
        for value, spec in zip(self.graph.inputs, self.imported.inputs):
            self._input(value, spec)
        for key, depth in self.plan.depths.items():
            if depth > 0:
                self._state(key, depth)
        for node, planned in self.plan.nodes.items():
            for value, read in planned.reads.items():
                self._feeds(value, read)
            if planned.share is not None:
                self._share(node, planned)
        results = self._body()
        outputs = [*self._outputs(), *(s for s in (self._left(state, var) for state, var in self.states))]
        plan = self._described()
        made = replace(
            self.imported, module=self.builder.get(), inputs=tuple(self.specs), outputs=tuple(outputs), symbols=(),
            conditions=(), lengths={}, notes=(*self.imported.notes, *plan.notes),
        )  # fmt: skip
        assert len(results) == len(outputs)
        return made, plan

    # ------------------------------------------------------------------ parameters

    def _param(self, name: str, shape: Any, dtype: str) -> Any:
        var = relax.Var(f"p{len(self.params)}", relax.TensorType(list(shape), dtype))
        self.params.append(var)
        self.specs.append(TensorSpec(name, dtype, tuple(shape)))
        return var

    def _input(self, value: Value, spec: TensorSpec) -> None:
        shape = list(value.shape)
        if value in self.stream.rows:
            rows = self.stream.rows[value]
            shape[rows.axis] = rows.count
            self.inputs.append(Port(spec.name, rows.axis, rows.count, 0, rows.height, str(value.shape[rows.axis])))
        self.known[value] = self._param(spec.name, shape, spec.dtype)

    def _shape(self, value: Value, length: int) -> list[int]:
        shape = list(value.shape)
        shape[self.stream.rows[value].axis] = length
        return shape

    def _state(self, key: tuple[Value, float | None], depth: int) -> None:
        value, fill = key
        name = f"state:{len(self.states)}"
        var = self._param(name, self._shape(value, depth), value.dtype)
        kept = State(name, f"{name}:next", math.nan if fill is None else fill)
        self.states.append((kept, (key, depth, var)))

    def _feed(self, feed: Feed, shape: list[int], dtype: str) -> Any:
        key = (replace(feed, name=""), tuple(shape), dtype)
        if key not in self.feeds:
            feed = replace(feed, name=f"rows:{len(self.feeds)}")
            self.feeds[key] = feed, self._param(feed.name, shape, dtype)
        return self.feeds[key][1]

    def _mask(self, value: Value) -> Any:
        rows = self.stream.rows[value]
        behind = [1] * (len(value.shape) - rows.axis - 1)
        feed = Feed("", "mask", rows.count, rows.delay, rows.count, rows.height)
        return self._feed(feed, [rows.count, *behind], "bool")

    def _gather(self, value: Value, read: Read) -> Any:
        assert read.chosen is not None
        count, back, length, height = read.chosen
        rows = self.stream.rows[value]
        window = (rows.count, read.length, read.back)
        feed = Feed("", "gather", count, back, length, height, read.gather, window, rows.height)
        return self._feed(feed, [length], "int64")

    def _feeds(self, value: Value, read: Read) -> None:
        if self.plan.key(value, read.fill)[1] is not None:
            self._mask(value)
        if read.gather is not None:
            self._gather(value, read)

    def _share(self, node: Node, planned: Planned) -> Any:
        (source,) = planned.reads
        rows, result = self.stream.rows[source], planned.results[0]
        behind = [1] * (len(node.results[0].shape) - result.axis - 1)
        assert planned.share is not None
        feed = Feed("", "share", result.count, result.delay, result.count, rows.height, pool=planned.share)
        return self._feed(feed, [result.count, *behind], node.results[0].dtype)

    # ------------------------------------------------------------------ the function

    def _body(self) -> list[Any]:
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                for node in self.graph.nodes:
                    self._node(node)
                results = [self.known[v] for v in self.graph.outputs]
                for _, (key, depth, _) in self.states:
                    value, axis = key[0], self.stream.rows[key[0]].axis
                    count = self.stream.rows[value].count
                    results.append(self._emit(_rows(self._all(key), axis, count, count + depth)))
                found = self.builder.emit_output(relax.Tuple(results))
            self.builder.emit_func_output(found)
        return results

    def _emit(self, expr: Any) -> Any:
        return self.builder.emit(expr)

    def _node(self, node: Node) -> None:
        if node.results[0] in self.stream.tables and node.results[0] not in self.stream.rows:
            return
        planned = self.plan.nodes.get(node)
        read = {} if planned is None else {v: self._read(v, r) for v, r in planned.reads.items()}
        for value in node.inputs:
            if value not in read and value not in self.stream.tables:
                read[value] = self._still(value)
        made = self._emit(rules.written(node, read) if planned is None else planned.emit(read))
        if planned is not None and planned.share is not None:
            made = self._emit(relax.op.multiply(made, self._share(node, planned)))
        if len(node.results) == 1:
            self.known[node.results[0]] = made
            return
        for i, value in enumerate(node.results):
            self.known[value] = self._emit(relax.TupleGetItem(made, i))

    def _still(self, value: Value) -> Any:
        if value not in self.known:
            assert value.constant is not None
            self.known[value] = relax.const(value.constant, value.dtype)
        return self.known[value]

    def _read(self, value: Value, read: Read) -> Any:
        """The rows that a read asks for."""
        key = self.plan.key(value, read.fill)
        rows = self.stream.rows[value]
        first = rows.delay + max(self.plan.depths[key], 0) - read.back
        found = self._all(key)
        if first or read.length != rows.count + max(self.plan.depths[key], 0):
            found = self._emit(_rows(found, rows.axis, first, first + read.length))
        if read.gather is not None:
            found = self._emit(relax.op.take(found, self._gather(value, read), axis=rows.axis, mode="fast"))
        return found

    def _all(self, key: tuple[Value, float | None]) -> Any:
        """The rows of the past that are kept, and the new ones."""
        if key in self.whole:
            return self.whole[key]
        (value, fill), found = key, self.known[key[0]]
        if fill is not None:
            found = self._emit(relax.op.where(self._mask(value), found, rules.const(fill, value.dtype)))
        for _, (other, _, var) in self.states:
            if other == key:
                found = self._emit(relax.op.concat([var, found], axis=self.stream.rows[value].axis))
        self.whole[key] = found
        return found

    # ------------------------------------------------------------------ what is known of it

    def _outputs(self) -> list[TensorSpec]:
        named = zip(self.graph.outputs, self.imported.outputs)
        return [TensorSpec(s.name, s.dtype, tuple(self._shape(v, self.stream.rows[v].count))) for v, s in named]

    def _left(self, state: State, about: Any) -> TensorSpec:
        (value, _), depth, _ = about
        return TensorSpec(state.output, value.dtype, tuple(self._shape(value, depth)))

    def _described(self) -> StreamPlan:
        ports = []
        for value, spec in zip(self.graph.outputs, self.imported.outputs):
            r = self.stream.rows[value]
            ports.append(Port(spec.name, r.axis, r.count, r.delay, r.height, str(value.shape[r.axis])))
        step, symbol = self.stream.step, self.plan.symbol
        found = StreamPlan(
            symbol.name, step, self.plan.least, symbol.multiple, tuple(self.inputs), tuple(ports),
            tuple(s for s, _ in self.states), tuple(f for f, _ in self.feeds.values()),
        )  # fmt: skip
        extra = found.steps(step * 1000) - 1000
        note = f"in steps of {step} rows of '{symbol.name}', {extra} steps behind the last rows"
        return replace(found, notes=(note,))


def _rows(value: Any, axis: int, first: int, end: int) -> Any:
    return relax.op.strided_slice(value, [axis], [first], [end])

