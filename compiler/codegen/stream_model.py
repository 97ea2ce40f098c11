"""The C file behind the header of a library that streams: the plan as tables, and its functions by stream.c.

    stream_table(spec) -> the tables;  stream_functions(spec) -> functions under the model's name
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import ml_dtypes  # noqa: F401  (numpy's bfloat16)
import numpy as np

from ...errors import several
from ..stream.heights import Height
from ..stream.statistics import Statistic
from ..stream.words import Feed, Port, State, StreamPlan
from .names import literal

if TYPE_CHECKING:
    from ..spec import TensorSpec
    from .spec import LibrarySpec


def kept_inputs(spec: LibrarySpec) -> list[int]:
    """The inputs that are given once: neither rows nor anything of the step's own."""
    plan = spec.stream
    assert plan is not None
    own = {p.name for p in plan.inputs} | {s.input for s in plan.states} | {f.name for f in plan.feeds}
    own |= {name for s in plan.statistics for name in s.inputs}
    return [i for i, t in enumerate(spec.inputs) if t.name not in own]


def heights_text(plan: StreamPlan) -> str:
    """What heights an image may have, in words."""
    more = f" that is a multiple of {plan.multiple}" if plan.multiple > 1 else ""
    return f"the image's height is not one that the network takes: at least {several(plan.least, 'row')}{more}"


def stream_table(spec: LibrarySpec) -> str:
    """What the runtime knows of the steps."""
    assert spec.stream is not None
    return _Tables(spec, spec.stream).text()


class _Tables:
    """Writes arrays and the entries that point to them."""

    def __init__(self, spec: LibrarySpec, plan: StreamPlan) -> None:
        self.spec, self.plan = spec, plan
        self.inputs = {t.name: i for i, t in enumerate(spec.inputs)}
        self.outputs = {t.name: i for i, t in enumerate(spec.outputs)}
        self.arrays: dict[tuple[str, str], str] = {}

    def text(self) -> str:
        plan, spec = self.plan, self.spec
        tables = {
            "port input_ports": [self._port(p, self.inputs, spec.inputs) for p in plan.inputs],
            "port output_ports": [self._port(p, self.outputs, spec.outputs) for p in plan.outputs],
            "state states": [self._state(s) for s in plan.states],
            "feed feeds": [self._feed(f) for f in plan.feeds],
            "statistic statistics": [self._statistic(s) for s in plan.statistics],
        }
        places = {"kept": kept_inputs(spec), "still": [self.outputs[n] for n in plan.still]}
        named = [f"places_{name}" if found else "0" for name, found in places.items()]
        sizes = [self._numbers([t.nbytes for t in group], "size_t") for group in (spec.inputs, spec.outputs)]
        texts = ['#include "stream.h"\n']
        texts += [f"static const {kind} {name}[] = {{{values}}};" for (kind, values), name in self.arrays.items()]
        for name, found in places.items():
            if found:
                texts.append(f"static const size_t places_{name}[] = {{{', '.join(map(str, found))}}};")
        for title, rows in tables.items():
            if rows:
                listed = "".join(f"    {{{row}}},\n" for row in rows)
                texts.append(f"static const struct halotile_{title}[] = {{\n{listed}}};")
        pointers = ", ".join(t.split()[1] if rows else "0" for t, rows in tables.items())
        counts = ", ".join(str(len(rows)) for rows in tables.values())
        texts.append(
            "const struct halotile_stream_plan halotile_stream_plan = {\n"
            f"    {plan.least}, {plan.multiple}, {plan.passes}, {plan.giving}, {counts}, "
            f"{len(kept_inputs(spec))}, {len(plan.still)},\n    {pointers},\n    {', '.join([*named, *sizes])},\n"
            f"    {literal(heights_text(plan))},\n}};\n"
        )
        return "\n".join(texts)

    def _numbers(self, numbers: Iterable[int], kind: str = "int64_t") -> str:
        """The name of an array of numbers; 0 for none."""
        values = ", ".join(map(str, numbers))
        return self.arrays.setdefault((kind, values), f"numbers_{len(self.arrays)}") if values else "0"

    def _bytes(self, array: np.ndarray) -> str:
        return self._numbers(array.tobytes(), "unsigned char")

    def _height(self, height: Height | None) -> str:
        if height is None:
            return "{1, 1, 0}"
        return f"{{{height.period}, {height.steps}, {self._numbers(height.rest)}}}"

    def _port(self, port: Port, places: dict[str, int], tensors: tuple[TensorSpec, ...]) -> str:
        tensor = tensors[places[port.name]]
        outer, inner = math.prod(tensor.shape[: port.axis]), math.prod(tensor.shape[port.axis + 1 :])
        return (
            f"{places[port.name]}, {outer}, {inner * tensor.itemsize}, {port.count}, {port.delay}, "
            f"{self._height(port.height)}"
        )

    def _state(self, state: State) -> str:
        tensor = self.spec.inputs[self.inputs[state.input]]
        fill = np.full(1, 0 if math.isnan(state.fill) else state.fill, np.dtype(tensor.dtype))
        return (
            f"{self.inputs[state.input]}, {self.outputs[state.output]}, {tensor.nbytes}, {fill.nbytes}, "
            f"{int(state.single)}, {self._bytes(fill)}"
        )

    def _feed(self, feed: Feed) -> str:
        tensor = self.spec.inputs[self.inputs[feed.name]]
        gather = feed.gather
        top, bottom = (gather.top, gather.bottom) if gather else ((), ())
        kernel, stride, dilation, before = feed.pool
        shares = np.array([kernel / n for n in range(1, kernel + 1)]).astype(np.dtype(tensor.dtype))
        return (
            f"{self.inputs[feed.name]}, HALOTILE_{feed.kind.upper()}, {feed.count}, {feed.back}, {feed.length}, "
            f"{self._height(feed.height)},\n     {gather.shift if gather else 0}, {len(top)}, {len(bottom)}, "
            f"{self._numbers(top)}, {self._numbers(bottom)}, {', '.join(map(str, feed.window))}, "
            f"{self._height(feed.source)},\n     {kernel}, {stride}, {dilation}, {before}, {shares.itemsize}, "
            f"{self._bytes(shares) if feed.kind == 'share' else '0'}"
        )

    def _statistic(self, about: Statistic) -> str:
        outputs = [*(str(self.outputs[n]) for n in about.outputs), *["(size_t)-1"] * 2][:2]
        inputs = [*(str(self.inputs[n]) for n in about.inputs), *["(size_t)-1"] * 3][:3]
        shape = [1 if a == about.axis else n for a, n in enumerate(about.shape)]
        reduced = [int(a in about.axes) for a in range(len(shape))]
        kept = math.prod(1 if r else n for r, n in zip(reduced, shape))
        return (
            f"HALOTILE_{about.kind.upper()}, {about.level}, {{{', '.join(outputs)}}}, {{{', '.join(inputs)}}}, "
            f"{len(shape)}, {math.prod(shape)}, {kept},\n     {self._numbers(shape, 'size_t')}, "
            f"{self._numbers(reduced, 'unsigned char')}, {about.count}, {about.delay}, {self._height(about.height)}, "
            f"{about.epsilon!r}"
        )


def stream_functions(spec: LibrarySpec) -> str:
    """The functions of a stream under the model's name, and the table of what it takes and gives."""
    plan, name = spec.stream, spec.identifier
    assert plan is not None
    ports = []
    for kind, group, tensors in (("inputs", plan.inputs, spec.inputs), ("outputs", plan.outputs, spec.outputs)):
        known = {t.name: t for t in tensors}
        rows = "".join(_described(p, known[p.name], i, kind) for i, p in enumerate(group))
        shapes = "".join(
            f"static const size_t stream_{kind}_{i}[] = {{{', '.join(map(str, known[p.name].shape))}}};\n"
            for i, p in enumerate(group)
        )
        empty = "    {0, 0, 0, 0, 0, 0, 0},\n"
        ports.append(f"{shapes}static const {name}_rows stream_{kind}[] = {{\n{rows or empty}}};\n")
    return "\n" + "".join(ports) + _FUNCTIONS.format(
        name=name, step=plan.rows, least=plan.least, multiple=plan.multiple, passes=plan.passes,
        inputs=len(plan.inputs), outputs=len(plan.outputs), kept=_places(kept_inputs(spec), "kept"),
        strips=1 if plan.columns is None else len(plan.columns.strips),
        still=_places([i for n in plan.still for i, t in enumerate(spec.outputs) if t.name == n], "still"),
    )  # fmt: skip


def _places(places: list[int], member: str) -> str:
    """How many there are, and which."""
    return f"{len(places)}, places_{member}" if places else "0, 0"


def _described(port: Port, tensor: TensorSpec, index: int, kind: str) -> str:
    size = math.prod(n for a, n in enumerate(tensor.shape) if a != port.axis) * tensor.itemsize
    return (
        f"    {{{literal(tensor.name)}, {literal(tensor.dtype)}, {len(tensor.shape)}, stream_{kind}_{index}, "
        f"{port.axis}, {size}, {tensor.itemsize}}},\n"
    )


_FUNCTIONS = """
static const {name}_steps steps = {{{step}, {least}, {multiple}, {passes}, {inputs}, stream_inputs, {outputs},
                                    stream_outputs, {kept}, {still}, {strips}}};

const {name}_steps *{name}_stream_steps(void) {{ return &steps; }}

static int64_t rows_of(const {name}_shape *shape) {{ return shape ? shape->rows : 0; }}

static int open_stream(int threads, const {name}_shape *shape, const struct halotile_memory *memory,
                       {name}_stream **stream) {{
    struct halotile_stream *made;
    if (!stream) {{
        return HALOTILE_ERROR_ARGUMENT;
    }}
    int code = halotile_stream_open(threads, rows_of(shape), shape ? shape->kept : 0, memory, &made);
    *stream = ({name}_stream *)made;
    return code;
}}

static struct halotile_stream *plain({name}_stream *stream) {{ return (struct halotile_stream *)stream; }}

size_t {name}_stream_bytes(int threads, const {name}_shape *shape) {{
    return halotile_stream_bytes(threads, rows_of(shape));
}}

int {name}_open(int threads, const {name}_shape *shape, {name}_stream **stream) {{
    return open_stream(threads, shape, 0, stream);
}}

int {name}_open_in(int threads, const {name}_shape *shape, void *memory, size_t bytes, {name}_stream **stream) {{
    struct halotile_memory given = {{memory, bytes}};
    return open_stream(threads, shape, &given, stream);
}}

int64_t {name}_room(const {name}_stream *stream) {{
    return halotile_stream_room((const struct halotile_stream *)stream);
}}

int {name}_push({name}_stream *stream, const void *rows, int64_t count) {{
    return steps.input_count == 1 ? {name}_push_all(stream, &rows, count) : HALOTILE_ERROR_ARGUMENT;
}}

int {name}_push_all({name}_stream *stream, const void *const *rows, int64_t count) {{
    return halotile_stream_push(plain(stream), rows, count);
}}

int64_t {name}_ready(const {name}_stream *stream) {{ return {name}_ready_of(stream, 0); }}

int64_t {name}_ready_of(const {name}_stream *stream, size_t output) {{
    return halotile_stream_ready((const struct halotile_stream *)stream, output);
}}

int {name}_pull({name}_stream *stream, void *rows, int64_t count) {{ return {name}_pull_of(stream, 0, rows, count); }}

int {name}_pull_of({name}_stream *stream, size_t output, void *rows, int64_t count) {{
    return halotile_stream_pull(plain(stream), output, rows, count);
}}

int {name}_finish({name}_stream *stream) {{ return halotile_stream_finish(plain(stream)); }}

int {name}_again({name}_stream *stream) {{ return halotile_stream_again(plain(stream)); }}

int {name}_still({name}_stream *stream, void *const *outputs) {{
    return halotile_stream_still(plain(stream), outputs);
}}

void {name}_close({name}_stream *stream) {{ halotile_stream_close(plain(stream)); }}
"""
