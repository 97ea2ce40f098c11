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
from dataclasses import replace

from tvm import relax

from ...errors import several
from ...passes.fuse.graph import ProgramGraph, build_graph
from ...schedules.words.group import Node, Value
from ...schedules.words.tvm_types import Expr, IRModule
from ..frontend.importer import ImportedModel
from ..spec import TensorSpec
from . import rules
from .analysis import Analysis, Planning, stream_symbol
from .rules import Planned, Read
from .statistics import Statistic
from .wholes import Whole
from .words import Feed, Port, State, StreamPlan


def build_stream(imported: ImportedModel, module: IRModule, rows: int = 0) -> tuple[ImportedModel, StreamPlan]:
    """The network in steps of about ``rows`` rows of the image. Raises UnsupportedError that names the operator which
    needs more than rows that follow each other."""
    symbol = stream_symbol(imported)
    graph = build_graph(module)
    plan = Analysis(graph, symbol, imported).planned(rows)
    return _Writer(graph, imported, plan).written()


class _Writer:
    """Writes the function of a step."""

    def __init__(self, graph: ProgramGraph, imported: ImportedModel, plan: Planning) -> None:
        self.graph, self.imported, self.plan, self.stream = graph, imported, plan, plan.stream
        self.builder = relax.BlockBuilder()
        self.known: dict[Value, Expr] = {}
        self.whole: dict[Expr, Expr] = {}
        self.left: dict[Expr, Expr] = {}  # by key: what the next step needs of it
        self.params: list[Expr] = []
        self.specs: list[TensorSpec] = []
        self.feeds: dict[Expr, tuple[Feed, Expr]] = {}
        self.states: list[tuple[State, Expr]] = []
        self.inputs: list[Port] = []
        self.statistics: dict[Node, Statistic] = {}
        self.numbers: dict[Node, list[Expr]] = {}
        self.gathered: list[tuple[TensorSpec, Expr]] = []

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
            if node in self.plan.wholes:
                self._mask(self.plan.wholes[node].value)
                self._statistic(node, self.plan.wholes[node])
        results = self._body()
        left = [self._left(state, about) for state, about in self.states]
        outputs = [*self._outputs(), *left, *(spec for spec, _ in self.gathered)]
        plan = self._described()
        made = replace(
            self.imported, module=self.builder.get(), inputs=tuple(self.specs), outputs=tuple(outputs), symbols=(),
            conditions=(), lengths={}, notes=(*self.imported.notes, *plan.notes),
        )  # fmt: skip
        assert len(results) == len(outputs)
        return made, plan

    # ------------------------------------------------------------------ parameters

    def _param(self, name: str, shape: list[int] | tuple[int, ...], dtype: str) -> Expr:
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
        shape = list(self.stream.shape(value))
        shape[self.stream.rows[value].axis] = length
        return shape

    def _state(self, key: tuple[Value, float | None], depth: int) -> None:
        value, fill = key
        name = f"state:{len(self.states)}"
        var = self._param(name, self._shape(value, depth), value.dtype)
        kept = State(name, f"{name}:next", math.nan if fill is None else fill)
        self.states.append((kept, (key, depth, var)))

    def _feed(self, feed: Feed, shape: list[int], dtype: str) -> Expr:
        key = (replace(feed, name=""), tuple(shape), dtype)
        if key not in self.feeds:
            feed = replace(feed, name=f"rows:{len(self.feeds)}")
            self.feeds[key] = feed, self._param(feed.name, shape, dtype)
        return self.feeds[key][1]

    def _mask(self, value: Value) -> Expr:
        rows = self.stream.rows[value]
        behind = [1] * (len(self.stream.shape(value)) - rows.axis - 1)
        feed = Feed("", "mask", rows.count, rows.delay, rows.count, rows.height)
        return self._feed(feed, [rows.count, *behind], "bool")

    def _gather(self, value: Value, read: Read) -> Expr:
        assert read.chosen is not None
        count, back, length, height = read.chosen
        rows = self.stream.rows[value]
        window = (rows.count, read.length, read.back)
        feed = Feed("", "gather", count, back, length, height, read.gather, window, rows.height)
        return self._feed(feed, [length], "int64")

    def _feeds(self, value: Value, read: Read) -> None:
        if self.plan.key(value, read.fill)[1] is not None and value not in self.plan.filled:
            self._mask(value)
        if read.gather is not None:
            self._gather(value, read)

    def _share(self, node: Node, planned: Planned) -> Expr:
        (source,) = planned.reads
        rows, result = self.stream.rows[source], planned.results[0]
        behind = [1] * (len(node.results[0].shape) - result.axis - 1)
        assert planned.share is not None
        feed = Feed("", "share", result.count, result.delay, result.count, rows.height, pool=planned.share)
        return self._feed(feed, [result.count, *behind], node.results[0].dtype)

    def _part(self, whole: Whole) -> Expr:
        feed = Feed("", "part", whole.rows.count, whole.rows.delay, whole.rows.count, whole.rows.height)
        return self._feed(feed, [1] * len(whole.shape), "float32")

    def _statistic(self, node: Node, whole: Whole) -> None:
        name, rows = f"all:{len(self.statistics)}", whole.rows
        given = {"standardise": 3, "centre": 2}.get(whole.kind, 1)
        shape = tuple(1 if a == rows.axis else int(n) for a, n in enumerate(whole.shape))
        found = Statistic(
            whole.kind, whole.level, tuple(f"{name}:step{i}" for i in range(1 + whole.applied)),
            tuple(f"{name}:{i}" for i in range(given)), shape, rows.axis, whole.axes, whole.result, rows.count,
            rows.delay, rows.height, whole.epsilon,
        )  # fmt: skip
        self.statistics[node] = found
        self.numbers[node] = [self._param(n, whole.result, "float32") for n in found.inputs]
        if whole.applied:
            self._part(whole)

    def _whole(self, node: Node, whole: Whole, read: Expr) -> Expr:
        """Gives what a step knows of a statistic, and uses what is known of it."""
        about = self.statistics[node]
        share = self._part(whole) if whole.applied else None
        parts = whole.part_of_step(read, self._mask(whole.value), share, self._emit)
        self.gathered += [
            (TensorSpec(n, "float32", about.shape), part) for n, part in zip(about.outputs, parts)
        ]
        return whole.apply(read, self.numbers[node], self._emit) if whole.applied else self.numbers[node][0]

    # ------------------------------------------------------------------ the function

    def _body(self) -> list[Expr]:
        with self.builder.function("main", self.params):
            with self.builder.dataflow():
                for node in self.graph.nodes:
                    self._node(node)
                results = [self.known[v] for v in self.graph.outputs]
                for _, (key, _, _) in self.states:
                    self._all(key)
                    results.append(self.left[key])
                results += [part for _, part in self.gathered]
                found = self.builder.emit_output(relax.Tuple(results))
            self.builder.emit_func_output(found)
        return results

    def _emit(self, expr: Expr) -> Expr:
        return self.builder.emit(expr)

    def _node(self, node: Node) -> None:
        if node.results[0] in self.stream.tables and node.results[0] not in self.stream.rows:
            return
        planned = self.plan.nodes.get(node)
        read = {} if planned is None else {v: self._read(v, r) for v, r in planned.reads.items()}
        for value in node.inputs:
            if value not in read and value not in self.stream.tables:
                read[value] = self._still(value)
        if node in self.plan.wholes:
            whole = self.plan.wholes[node]
            self.known[node.results[0]] = self._whole(node, whole, read[whole.value])
            return
        made = self._emit(rules.written(node, read) if planned is None else planned.emit(read))
        if planned is not None and planned.share is not None:
            made = self._emit(relax.op.multiply(made, self._share(node, planned)))
        if len(node.results) == 1:
            self.known[node.results[0]] = made
            return
        for i, value in enumerate(node.results):
            self.known[value] = self._emit(relax.TupleGetItem(made, i))

    def _still(self, value: Value) -> Expr:
        if value not in self.known:
            assert value.constant is not None
            self.known[value] = relax.const(value.constant, value.dtype)
        return self.known[value]

    def _read(self, value: Value, read: Read) -> Expr:
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

    def _all(self, key: tuple[Value, float | None]) -> Expr:
        """The rows of the past that are kept, and the new ones."""
        if key in self.whole:
            return self.whole[key]
        (value, fill), found = key, self.known[key[0]]
        rows = self.stream.rows[value]
        if fill is not None and value not in self.plan.filled:
            found = self._emit(relax.op.where(self._mask(value), found, rules.const(fill, value.dtype)))
        for _, (other, depth, var) in self.states:
            if other == key:
                found = self._emit(relax.op.concat([var, found], axis=rows.axis))
                self.left[key] = self._emit(_rows(found, rows.axis, rows.count, rows.count + depth))
        self.whole[key] = found
        return found

    # ------------------------------------------------------------------ what is known of it

    def _outputs(self) -> list[TensorSpec]:
        rows = self.stream.rows
        return [
            TensorSpec(s.name, s.dtype, tuple(self._shape(v, rows[v].count)) if v in rows else v.shape)
            for v, s in zip(self.graph.outputs, self.imported.outputs)
        ]

    def _left(self, state: State, about: tuple[tuple[Value, float | None], int, Expr]) -> TensorSpec:
        (value, _), depth, _ = about
        return TensorSpec(state.output, value.dtype, tuple(self._shape(value, depth)))

    def _described(self) -> StreamPlan:
        ports, still = [], []
        for value, spec in zip(self.graph.outputs, self.imported.outputs):
            r = self.stream.rows.get(value)
            if r is None:
                still.append(spec.name)
                continue
            ports.append(Port(spec.name, r.axis, r.count, r.delay, r.height, str(value.shape[r.axis])))
        step, symbol = self.stream.step, self.plan.symbol
        found = StreamPlan(
            symbol.name, step, self.plan.least, symbol.multiple, tuple(self.inputs), tuple(ports),
            tuple(s for s, _ in self.states), tuple(f for f, _ in self.feeds.values()), (),
            tuple(self.statistics.values()), tuple(still), self.plan.giving,
        )  # fmt: skip
        extra = found.steps(step * 1000) - 1000
        note = f"in steps of {several(step, 'row')} of '{symbol.name}', {several(extra, 'step')} behind the last rows"
        more = f"{found.passes} passes over the image, as operators need all of its rows" if found.passes > 1 else ""
        return replace(found, notes=(note, more) if more else (note,))


def _rows(value: Expr, axis: int, first: int, end: int) -> Expr:
    return relax.op.strided_slice(value, [axis], [first], [end])

