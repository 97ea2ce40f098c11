"""Random groups: a DAG of maps with any broadcast around every kind of anchor, with second outputs and prologues.

    case = random_case(seed)         a Relax body and the same in NumPy, in float64
    run(cases, blocked=True)         every case as exactly one kernel, in channel blocks where its family has them
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from compiled import Compiled, module_of, native, weight
from halotile.compiler import pipeline
from halotile.compiler.state import Build, Options
from halotile.passes.fuse.graph import ProgramGraph, build_graph
from halotile.passes.memory.places import places_of
from halotile.schedules.conv import input_needs, supports_conv
from halotile.schedules.general.channel_lanes import preserves_channels
from halotile.schedules.matmul.folded_moves import producers
from halotile.schedules.operators.kind import Facts
from halotile.schedules.operators.registry import call
from halotile.schedules.words.group import Group, Node, Value
from halotile.schedules.words.layout import Layout
from tvm import relax

R = relax.op
F = "float32"
Pair = tuple[Any, np.ndarray]  # a Relax expression, and its value in float64

UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "relu": (R.nn.relu, lambda x: np.maximum(x, 0)),
    "sigmoid": (R.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "tanh": (R.tanh, np.tanh),
    "negative": (R.negative, np.negative),
    "abs": (R.abs, np.abs),
    "clip": (lambda x: R.clip(x, -1.5, 0.75), lambda x: np.clip(x, -1.5, 0.75)),
    "exp": (lambda x: R.exp(R.clip(x, -3, 1)), lambda x: np.exp(np.clip(x, -3, 1))),
}
CHEAP = ["relu", "negative", "abs", "clip"]  # fusion puts nothing else before what reads elements many times
BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "add": (R.add, np.add),
    "subtract": (R.subtract, np.subtract),
    "multiply": (R.multiply, np.multiply),
    "maximum": (R.maximum, np.maximum),
    "minimum": (R.minimum, np.minimum),
}
ANCHORS = ("conv", "strided", "grouped", "depthwise", "transposed", "winograd", "matmul", "max_pool", "avg_pool",
           "mean", "softmax", "none")  # fmt: skip
CONVS = ANCHORS[:6]


@dataclass
class Case:
    seed: int
    anchor: str
    arrays: list[np.ndarray]
    body: Callable[..., list[Any]]
    expected: list[np.ndarray] = field(default_factory=list)


class _Maker:
    """Runs the same random program twice: to count its inputs, and on the Relax parameters that stand for them."""

    def __init__(self, seed: int, emit: Callable[[Any], Any] | None, params: Sequence[Any] = ()) -> None:
        self.rng, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.emit, self.params = emit, list(params)
        self.arrays: list[np.ndarray] = []
        self.cheap = False

    def made(self, build: Callable[[], Any], value: np.ndarray) -> Pair:
        return (self.emit(build()) if self.emit else None), value

    def input(self, shape: Sequence[int]) -> Pair:
        array = self.numbers.standard_normal(shape).astype(F)
        self.arrays.append(array)
        return (self.params[len(self.arrays) - 1] if self.emit else None), array.astype("float64")

    def constant(self, shape: Sequence[int], scale: float = 1.0) -> tuple[Any, np.ndarray]:
        array = (self.numbers.standard_normal(shape) * scale).astype(F)
        return (weight(array) if self.emit else None), array.astype("float64")

    def unary(self, x: Pair) -> Pair:
        op, reference = UNARY[self.rng.choice(CHEAP if self.cheap else list(UNARY))]
        return self.made(lambda: op(x[0]), reference(x[1]))

    def binary(self, x: Pair, y: Pair) -> Pair:
        op, reference = BINARY[self.rng.choice(list(BINARY))]
        return self.made(lambda: op(x[0], y[0]), reference(x[1], y[1]))

    def broadcast(self, shape: Sequence[int]) -> Pair:
        """A constant or a run-time input that broadcasts to ``shape``."""
        part = [s if self.rng.random() < 0.5 else 1 for s in shape]
        return self.constant(part) if self.rng.random() < 0.5 else self.input(part)

    def maps(self, values: list[Pair], count: int) -> list[Pair]:
        """``values`` and ``count`` more, each a map of earlier ones; the last reads the one before it."""
        for i in range(count):
            x = values[-1] if i == count - 1 else self.rng.choice(values)
            same = [v for v in values if v[1].shape == x[1].shape]
            kind = self.rng.random()
            if kind < 0.45:
                values.append(self.unary(x))
            elif kind < 0.8:
                values.append(self.binary(x, self.broadcast(x[1].shape)))
            else:
                values.append(self.binary(x, self.rng.choice(same)))
        return values

    def program(self) -> tuple[str, list[Pair]]:
        anchor = ANCHORS[self.rng.randrange(len(ANCHORS))]
        channels = self.rng.choice([4, 16, 24, 36] if anchor == "grouped" else [3, 5, 16, 19, 33])
        shape = [self.rng.choice([1, 2]), channels, self.rng.randint(6, 11), self.rng.randint(6, 13)]
        x = self.input(shape)
        if anchor != "matmul":
            self.cheap = anchor in (*CONVS, "max_pool", "avg_pool")
            x = self.maps([x], self.rng.randint(0, 2))[-1]
            self.cheap = False
            if anchor in CONVS and self.rng.random() < 0.4:
                x = self.move(x)
        values = self.maps([self.anchor(anchor, x)], self.rng.randint(1, 5))
        extra = [v for v in values[:-1] if v[1].shape == values[-1][1].shape and self.rng.random() < 0.25]
        return anchor, [*extra, values[-1]]

    def move(self, x: Pair) -> Pair:
        if self.rng.random() < 0.5:
            value = x[1].repeat(2, 2).repeat(2, 3)
            return self.made(lambda: call("halotile.upsample", x[0], factors=[1, 1, 2, 2]), value)
        a, b = self.rng.randint(0, 2), self.rng.randint(0, 2)
        if self.rng.random() < 0.5:
            pad = lambda: R.nn.pad(x[0], [0, 0, 0, 0, a, b, b, a], pad_mode="reflect")  # noqa: E731
            return self.made(pad, np.pad(x[1], [(0, 0), (0, 0), (a, b), (b, a)], mode="reflect"))
        pad = lambda: R.nn.pad(x[0], [0, 0, 0, 0, a, b, b, a], pad_value=0.5)  # noqa: E731
        return self.made(pad, np.pad(x[1], [(0, 0), (0, 0), (a, b), (b, a)], constant_values=0.5))

    def anchor(self, kind: str, x: Pair) -> Pair:
        n, c, h, w = x[1].shape
        if kind in CONVS:
            return self.convolution(kind, x)
        if kind == "matmul":
            k = self.constant((w, self.rng.choice([1, 7, 16, 33])), w**-0.5)
            return self.made(lambda: R.matmul(x[0], k[0]), x[1] @ k[1])
        if kind in ("max_pool", "avg_pool"):
            s = self.rng.choice([1, 2])
            op = R.nn.max_pool2d if kind == "max_pool" else R.nn.avg_pool2d
            fill = -np.inf if kind == "max_pool" else np.nan
            padded = np.pad(x[1], [(0, 0), (0, 0), (1, 1), (1, 1)], constant_values=fill)
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::s, ::s]
            value = windows.max((-1, -2)) if kind == "max_pool" else np.nanmean(windows, (-1, -2))
            return self.made(lambda: op(x[0], (3, 3), (s, s), (1, 1, 1, 1)), value)
        if kind == "mean":
            axes = self.rng.choice([(2, 3), (1,), (3,), (1, 2, 3)])
            return self.made(lambda: R.mean(x[0], axis=axes, keepdims=True), x[1].mean(axes, keepdims=True))
        if kind == "softmax":
            axis = self.rng.choice([1, 2, 3])
            e = np.exp(x[1] - x[1].max(axis, keepdims=True))
            return self.made(lambda: R.nn.softmax(x[0], axis), e / e.sum(axis, keepdims=True))
        return self.unary(x)

    def convolution(self, kind: str, x: Pair) -> Pair:
        c = x[1].shape[1]
        groups = {"grouped": 4, "depthwise": c}.get(kind, 1)
        size = 3 if kind in ("winograd", "depthwise") else self.rng.choice([1, 3, 5])
        stride = self.rng.choice([1, 2]) if kind in ("strided", "depthwise", "transposed") else 1
        pads = [self.rng.randint(0, size // 2) for _ in range(4)]
        outputs = c if kind == "depthwise" else 4 * self.rng.randint(1, 9)
        if kind == "transposed":
            k = self.constant((c, outputs, size, size), (c * size) ** -0.5)
            full = [(s - 1) * stride + size for s in x[1].shape[2:]]
            shape = [f - a - b for f, a, b in zip(full, pads[:2], pads[2:])]
            options = {"strides": [stride] * 2, "dilations": [1, 1], "begin": pads[:2], "output": shape, "groups": 1}
            value = _transposed(x[1], k[1], stride, full)[:, :, pads[0]:, pads[1]:][:, :, : shape[0], : shape[1]]
            return self.made(lambda: call("halotile.conv_transpose", x[0], k[0], **options), value)
        k = self.constant((outputs, c // groups, size, size), (c // groups * size) ** -0.5)
        value = _convolution(x[1], k[1], stride, pads, groups)
        return self.made(lambda: R.nn.conv2d(x[0], k[0], stride, tuple(pads), groups=groups), value)


def _convolution(x: np.ndarray, k: np.ndarray, stride: int, pads: Sequence[int], groups: int) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])])
    windows = np.lib.stride_tricks.sliding_window_view(padded, k.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    parts = zip(np.split(windows, groups, 1), np.split(k, groups, 0))
    return np.concatenate([np.einsum("nchwyx,ocyx->nohw", a, b, optimize=True) for a, b in parts], 1)


def _transposed(x: np.ndarray, k: np.ndarray, stride: int, full: Sequence[int]) -> np.ndarray:
    result = np.zeros((x.shape[0], k.shape[1], *full))
    h, w = x.shape[2:]
    for i in range(k.shape[2]):
        for j in range(k.shape[3]):
            part = np.einsum("nchw,co->nohw", x, k[:, :, i, j])
            result[:, :, i : i + h * stride : stride, j : j + w * stride : stride] += part
    return result


def random_case(seed: int) -> Case:
    dry = _Maker(seed, None)
    anchor, values = dry.program()

    def body(*params: Any) -> list[Any]:
        builder = relax.BlockBuilder.current()
        made = _Maker(seed, builder.emit, params).program()[1]
        return [expr for expr, _ in made]

    return Case(seed, anchor, dry.arrays, body, [v for _, v in values])


def run(cases: Sequence[Case], blocked: bool) -> tuple[Build, list[list[np.ndarray]]]:
    """The build of all cases, a group and so a kernel each, and every case's outputs (logical)."""
    arrays = [a for case in cases for a in case.arrays]

    def body(*params: Any) -> list[Any]:
        outputs, rest = [], list(params)
        for case in cases:
            own, rest = rest[: len(case.arrays)], rest[len(case.arrays) :]
            outputs += case.body(*own)
        return outputs

    build = Build(None, Options(native()))
    build.graph = build_graph(module_of(arrays, body))
    build.groups = tuple(_groups(build.graph))
    if blocked:
        for group in build.groups:
            build.layouts.update(_layouts(group, native().lanes()))
    build.places = places_of({})
    for stage in (pipeline.schedule, pipeline.plan):
        stage(build)
    physical = Compiled(build).run(arrays)
    results = []
    for value, array in zip(build.graph.outputs, physical):
        layout = build.layouts.get(value, Layout.plain(value.shape))
        logical = layout.unpack(array)
        np.testing.assert_array_equal(layout.pack(logical), array, err_msg=f"{value}: margins or lanes are not zero")
        results.append(logical)
    split = []
    for case in cases:
        split.append(results[: len(case.expected)])
        results = results[len(case.expected) :]
    return build, split


def _groups(graph: ProgramGraph) -> list[Group]:
    """One group for each connected part of the graph."""
    owner: dict[Value, int] = {}
    parts: dict[int, list[Node]] = {}
    for number, node in enumerate(graph.nodes):
        values = [v for v in (*node.inputs, *node.results) if v.constant is None]
        met = {owner[v] for v in values if v in owner}
        target = min(met, default=number)
        nodes = [n for m in sorted(met) for n in parts.pop(m)]
        parts[target] = [*nodes, node]
        for v in (v for n in parts[target] for v in (*n.inputs, *n.results) if v.constant is None):
            owner[v] = target
    groups = []
    for number, nodes in sorted(parts.items()):
        made = {r for n in nodes for r in n.results}
        inputs = tuple(dict.fromkeys(v for n in nodes for v in n.inputs if v not in made))
        outputs = tuple(v for v in graph.outputs if v in made)
        kinds = {n: Facts(n).kind for n in nodes}
        anchor = next((n for n in nodes if kinds[n] in ("anchor", "stencil", "reduce")), None)
        groups.append(Group(f"group{number}", tuple(sorted(nodes, key=graph.nodes.index)), inputs, outputs, anchor))
    return groups


def _layouts(group: Group, lanes: int) -> dict[Value, Layout]:
    """Channel blocks for what has the channels of the anchor's data or result, margins where a convolution pads."""
    found: dict[Value, Layout] = {}
    anchor = group.anchor
    margins = ((0, 0), (0, 0), (1, 0), (0, 2))
    if anchor is None or not supports_conv(anchor):
        whole = {v: lanes for v in group.inputs if v.shape == group.outputs[0].shape and v.constant is None}
        if anchor is not None and anchor.operator == "relax.matmul" or not preserves_channels(group, whole, lanes):
            return {}
        return {v: Layout.blocked(v.shape, lanes, margins) for v in (*whole, *group.outputs)}
    needs = input_needs(anchor)
    before = producers(group, needs.data)[::-1]
    for value in group.inputs:
        full = len(value.shape) == 4 and value.shape[1] == needs.data.shape[1] and value.shape[2] > 1
        if before and full and value.constant is None and not any(value in n.inputs for n in _after(group, before)):
            found[value] = Layout.blocked(value.shape, lanes, margins)
    if before:
        made = {r for n in before for r in n.results}
        inputs = dict.fromkeys(v for n in before for v in n.inputs if v not in made)
        part = Group("before", tuple(before), tuple(inputs), (needs.data,))
        if preserves_channels(part, {v: lanes for v in inputs if v in found}, lanes):
            found[needs.data] = Layout.blocked(needs.data.shape, lanes)
    else:
        block = lanes if needs.depthwise or needs.data.shape[1] > 4 else 0
        found[needs.data] = Layout.blocked(needs.data.shape, block, needs.margins)
    for value in group.outputs:
        found[value] = Layout.blocked(value.shape, lanes, margins)
    return found


def _after(group: Group, before: Sequence[Node]) -> list[Node]:
    return [n for n in group.nodes if n not in before]
