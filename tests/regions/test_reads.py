"""Regions against what the operators' expressions really read, for every family, at random parameters and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dependence import Dependence
from halotile.passes.fuse.graph import ProgramGraph
from halotile.schedules.operators.regions import Box, BoxRefusal, node_needs, read_boxes
from halotile.schedules.words.group import Node, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from region_cases import graph_of

ones = np.ones
CALM = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def boxes(draw: st.DrawFn, value: Value, limit: int = 4) -> Box:
    """A random box, at most ``limit`` long on every axis: the oracle is slow."""
    spans = []
    for n in value.shape:
        lo = draw(st.integers(0, n - 1))
        spans.append((lo, draw(st.integers(lo + 1, min(n, lo + limit)))))
    return tuple(spans)


def check(node: Node, output: Value, box: Box, exact: bool = True) -> None:
    """Everything that is read is in the region; and no less is, unless part of a window lies outside."""
    needs = node_needs(node, output, box)
    assert not isinstance(needs, BoxRefusal), needs
    claimed = {v: b for v, b in read_boxes(needs).items() if v.shape}  # numbers may be literals
    truth = {v: b for v, b in Dependence(node).box(output, box).items() if v.shape}
    assert set(truth) <= set(claimed)
    for value, found in truth.items():
        assert all(a <= c and d <= b for (a, b), (c, d) in zip(claimed[value], found)), (value, claimed[value], found)
    if exact or all(n.fill == "none" for n in needs):
        assert claimed == truth


def check_all(draw: st.DrawFn, graph: ProgramGraph, exact: bool = True) -> None:
    assert graph.nodes
    for node in graph.nodes:
        for result in node.results:
            check(node, result, boxes(draw, result), exact)


@st.composite
def windowed(draw: st.DrawFn, pooled: bool = False) -> dict[str, Any]:
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    each = lambda low, high: [draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel, strides, dilations, size = each(1, 4), each(1, 4), each(1, 3), each(1, 9)
    reach = [(k - 1) * d for k, d in zip(kernel, dilations)]
    limit = [k - 1 for k in kernel] if pooled else reach
    begin = [draw(st.integers(0, m)) for m in limit]
    end = [draw(st.integers(0, m)) for m in limit]
    size = [max(n, r + 1 - b - e) for n, r, b, e in zip(size, reach, begin, end)]
    return dict(kernel=kernel, strides=strides, dilations=dilations, pads=begin + end, size=size)


@given(st.data())
@CALM
def test_conv(data: st.DataObject) -> None:
    c = data.draw(windowed())
    groups, per, out = (data.draw(st.integers(1, 2)) for _ in range(3))
    graph = graph_of(
        "Conv",
        [ones((1, groups * per, *c["size"]), "f"), ones((groups * out, per, *c["kernel"]), "f")],
        strides=c["strides"], dilations=c["dilations"], pads=c["pads"], group=groups,
    )  # fmt: skip
    check_all(data.draw, graph, exact=False)


@given(st.data(), st.sampled_from(["MaxPool", "AveragePool"]), st.booleans(), st.booleans())
@CALM
def test_pools(data: st.DataObject, operator: str, ceil: bool, include: bool) -> None:
    c = data.draw(windowed(pooled=True))
    more: dict[str, Any] = dict(count_include_pad=int(include)) if operator == "AveragePool" else {}
    graph = graph_of(
        operator,
        [ones((1, 2, *c["size"]), "f")],
        outputs=2 if operator == "MaxPool" and include else 1,
        kernel_shape=c["kernel"], strides=c["strides"], dilations=c["dilations"], pads=c["pads"],
        ceil_mode=int(ceil), **more,
    )  # fmt: skip
    check_all(data.draw, graph, exact=False)


@given(st.data())
@CALM
def test_conv_transpose(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 2))
    each = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    kernel, strides, dilations, size = each(1, 4), each(1, 4), each(1, 3), each(1, 6)
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(size, strides, kernel, dilations)]
    pads = [data.draw(st.integers(0, (f - 1) // 2)) for _ in range(2) for f in full]
    groups, per, out = (data.draw(st.integers(1, 2)) for _ in range(3))
    graph = graph_of(
        "ConvTranspose",
        [ones((1, groups * per, *size), "f"), ones((groups * per, out, *kernel), "f")],
        strides=strides, dilations=dilations, pads=pads, group=groups,
        output_padding=[data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations)],
    )  # fmt: skip
    node = next(n for n in graph.nodes if n.operator == "halotile.conv_transpose")
    result = node.results[0]
    box = boxes(data.draw, result)
    needs = node_needs(node, result, box)
    assert not isinstance(needs, BoxRefusal)
    truth = Dependence(node).box(result, box)
    claimed = read_boxes(needs)
    x, w = node.inputs
    for value in truth:
        assert all(a <= c and d <= b for (a, b), (c, d) in zip(claimed[value], truth[value]))
    if needs and needs[0].fill == "none":
        assert claimed[x] == truth[x] and claimed[w][:2] == truth.get(w, claimed[w])[:2]


@given(st.data(), st.sampled_from(["constant", "edge", "reflect", "wrap"]))
@CALM
def test_pad(data: st.DataObject, mode: str) -> None:
    shape = [data.draw(st.integers(2, 6)) for _ in range(4)]
    top = [n - 1 if mode == "reflect" else 4 for n in shape]
    pads = [data.draw(st.integers(-1, m)) for m in top + top]
    left = [n + min(a, 0) + min(b, 0) for n, a, b in zip(shape, pads, pads[4:])]
    if any(n <= (max(a, b, 0) if mode == "reflect" else 0) for n, a, b in zip(left, pads, pads[4:])):
        pads = [max(p, 0) for p in pads]
    number = np.array(data.draw(st.sampled_from([0.0, 1.5, -np.inf])), "float32")
    graph = graph_of("Pad", [ones(shape, "f"), np.array(pads), number], mode=mode)
    check_all(data.draw, graph) if graph.nodes else None


@pytest.mark.parametrize("mode, fill", [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
@pytest.mark.parametrize("size, before, after", [(5, 2, 3), (4, 3, 0), (7, 1, 6)])
def test_relax_pad_in_every_mode(mode: str, fill: str, size: int, before: int, after: int) -> None:
    node = relax_pad((1, 2, size, 6), [0, 0, 0, 0, before, after, 1, 2], mode)
    result = node.results[0]
    fills = set()
    for lo in range(result.shape[2]):
        for hi in range(lo + 1, result.shape[2] + 1):
            box = ((0, 1), (0, 2), (lo, hi), (0, 3))
            check(node, result, box)
            needs = node_needs(node, result, box)
            assert not isinstance(needs, BoxRefusal)
            fills.add(needs[0].fill)
    assert fills == {fill}


def relax_pad(shape: tuple[int, ...], width: list[int], mode: str) -> Node:
    import tvm
    from halotile.passes.fuse.graph import build_graph
    from tvm import relax

    x = relax.Var("x", relax.TensorType(shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.nn.pad(x, width, pad_mode=mode)))
        builder.emit_func_output(y)
    (node,) = build_graph(tvm.IRModule(dict(builder.get().functions))).nodes
    return node


@given(st.data())
@CALM
def test_slice_with_steps(data: st.DataObject) -> None:
    shape = [data.draw(st.integers(1, 8)) for _ in range(3)]
    starts, ends, steps = [], [], []
    for n in shape:
        step = data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
        a, b = sorted((data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))))
        starts.append(a if step > 0 else b)
        ends.append(b + 1 if step > 0 else (a - 1 if a else -n - 1))
        steps.append(step)
    graph = graph_of(
        "Slice", [ones(shape, "f"), np.array(starts), np.array(ends), np.arange(3), np.array(steps)]
    )
    check_all(data.draw, graph) if graph.nodes else None


@given(st.data(), st.integers(0, 3))
@CALM
def test_concat_and_split(data: st.DataObject, axis: int) -> None:
    shape = [data.draw(st.integers(1, 5)) for _ in range(4)]
    parts = [data.draw(st.integers(1, 4)) for _ in range(3)]
    arrays = [ones([p if a == axis else n for a, n in enumerate(shape)], "f") for p in parts]
    check_all(data.draw, graph_of("Concat", arrays, run_time=(0, 1, 2), axis=axis))
    whole = np.concatenate(arrays, axis)
    check_all(data.draw, graph_of("Split", [whole, np.array(parts)], outputs=3, axis=axis))


@given(st.data(), st.sampled_from(["DCR", "CRD"]), st.integers(1, 3))
@CALM
def test_depth_to_space_and_back(data: st.DataObject, mode: str, block: int) -> None:
    c, h, w = (data.draw(st.integers(1, 3)) for _ in range(3))
    deep = graph_of("DepthToSpace", [ones((1, c * block * block, h, w), "f")], blocksize=block, mode=mode)
    flat = graph_of("SpaceToDepth", [ones((1, c, h * block, w * block), "f")], blocksize=block)
    for graph in (deep, flat):
        check_all(data.draw, graph) if graph.nodes else None


@given(st.data())
@CALM
def test_elementwise_broadcast_where_and_tile(data: st.DataObject) -> None:
    shape = [data.draw(st.integers(1, 4)) for _ in range(4)]
    some = lambda: ones([n if data.draw(st.booleans()) else 1 for n in shape][data.draw(st.integers(0, 3)) :], "f")  # noqa: E731
    full = ones(shape, "f")
    check_all(data.draw, graph_of("Add", [full, some()], run_time=(0, 1)))
    check_all(data.draw, graph_of("Where", [some() > 0, some(), full], run_time=(0, 1, 2)))
    check_all(data.draw, graph_of("HardSwish", [full]))
    repeats = np.array([data.draw(st.integers(1, 3)) for _ in shape])
    graph = graph_of("Tile", [full, repeats])
    check_all(data.draw, graph) if graph.nodes else None


@given(st.data(), st.permutations(range(4)))
@CALM
def test_transpose(data: st.DataObject, order: list[int]) -> None:
    shape = [data.draw(st.integers(1, 4)) for _ in range(4)]
    graph = graph_of("Transpose", [ones(shape, "f")], perm=list(order))
    check_all(data.draw, graph) if graph.nodes else None


@pytest.mark.parametrize(
    "operator, attributes",
    [
        ("Softmax", dict(axis=1)), ("LogSoftmax", dict(axis=1)), ("ArgMax", dict(axis=1)),
        ("ArgMin", dict(axis=1, keepdims=0)), ("LRN", dict(size=3)),
    ],
)  # fmt: skip
def test_channels_as_a_whole(operator: str, attributes: dict[str, Any]) -> None:
    graph = graph_of(operator, [ones((2, 5, 3, 4), "f")], opset=13, **attributes)
    for node in graph.nodes:
        result = node.results[0]
        low = tuple((n - 1, n) if n < 3 else (1, n - 1) for n in result.shape)
        check(node, result, low, exact=operator != "LRN")


@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_over_channels(keepdims: int) -> None:
    graph = graph_of("ReduceMean", [ones((2, 5, 3, 4), "f"), np.array([1])], opset=18, keepdims=keepdims)
    for node in graph.nodes:
        result = node.results[0]
        check(node, result, tuple((0, 1) if n < 3 else (1, n) for n in result.shape))
