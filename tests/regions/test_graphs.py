"""Regions of groups and of graphs with branches; operators that end a tile group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halotile.passes.fuse.fuse import Fuse
from halotile.passes.fuse.graph import ProgramGraph
from halotile.schedules.operators.regions import (
    Box,
    BoxRefusal,
    Demand,
    Span,
    demand,
    group_needs,
    node_needs,
    read_boxes,
)
from halotile.schedules.words.group import Group, Value
from region_cases import build, chain_of, graph_of, ones


def rows(value: Value, span: Span) -> Box:
    return tuple(span if a == 2 else (0, n) for a, n in enumerate(value.shape))


def wanted(graph: ProgramGraph, span: Span) -> Demand:
    out = graph.outputs[0]
    found = demand(graph.nodes, {out: rows(out, span)})
    assert isinstance(found, Demand), found
    return found


PAD = dict(pads=[1] * 4)
W3 = ones(2, 2, 3, 3)


def test_20_both_paths_of_a_residual_give_the_same_rows() -> None:
    """x -> conv -> conv -> + x: the skip is read at the output's rows, the long path two rows around, and x is
    needed on the union."""
    graph = build(
        (1, 2, 20, 20),
        ("Conv", "x w", "a", PAD),
        ("Conv", "a w", "b", PAD),
        ("Add", "b x", "y", {}),
        weights={"w": W3},
    )
    add = graph.nodes[-1]
    needs = node_needs(add, add.results[0], rows(add.results[0], (5, 9)))
    assert not isinstance(needs, BoxRefusal) and all(n.box[2] == (5, 9) for n in needs)
    found = wanted(graph, (5, 9))
    assert found.needs[graph.inputs[0]][0].box[2] == (3, 11)
    assert found.boxes[graph.nodes[0].results[0]][2] == (4, 10)


def test_21_concat_joins_branches_of_different_reach() -> None:
    """Inception: 1x1, 3x3 and 5x5 side by side read x around by 0, 1 and 2; x is needed on the union."""
    graph = build(
        (1, 2, 20, 20),
        ("Conv", "x w1", "a", {}),
        ("Conv", "x w3", "b", PAD),
        ("Conv", "x w5", "c", dict(pads=[2] * 4)),
        ("Concat", "a b c", "y", dict(axis=1)),
        weights={"w1": ones(2, 2, 1, 1), "w3": W3, "w5": ones(2, 2, 5, 5)},
    )
    found = wanted(graph, (0, 6))
    assert [found.boxes[n.results[0]][2] for n in graph.nodes[:3]] == [(0, 6)] * 3
    (need,) = found.needs[graph.inputs[0]]
    assert need.box[2] == (-2, 8) and need.fill == "zero"
    # one branch alone, by its channels
    out = graph.outputs[0]
    only = demand(graph.nodes, {out: ((0, 1), (2, 3), (0, 6), (0, 20))})
    assert isinstance(only, Demand)
    assert [n.results[0] in only.boxes for n in graph.nodes[:3]] == [False, True, False]


def test_22_a_value_that_leaves_is_wanted_on_the_hull() -> None:
    graph = chain_of((1, 2, 20, 20), ("Conv", [W3], PAD), ("Conv", [W3], PAD))
    inner, out = (n.results[0] for n in graph.nodes)
    found = demand(graph.nodes, {out: rows(out, (4, 8)), inner: rows(inner, (0, 4))})
    assert isinstance(found, Demand)
    assert found.boxes[inner][2] == (0, 9)


def test_23_a_long_skip_keeps_its_own_rows() -> None:
    """U-Net: down and up again in the middle; the skip is read at the output's rows, which come from half of them."""
    graph = build(
        (1, 2, 16, 16),
        ("Conv", "x w", "a", PAD),
        ("MaxPool", "a", "p", dict(kernel_shape=[2, 2], strides=[2, 2])),
        ("Conv", "p w", "q", PAD),
        ("ConvTranspose", "q t", "u", dict(strides=[2, 2])),
        ("Concat", "u a", "y", dict(axis=1)),
        weights={"w": W3, "t": ones(2, 2, 2, 2)},
    )
    found = wanted(graph, (6, 8))
    _conv, pool, _inner, up, _concat = (found.boxes[n.results[0]][2] for n in graph.nodes)
    assert (pool, up) == ((2, 5), (6, 8))
    assert found.boxes[graph.nodes[0].results[0]][2] == (4, 10)  # the pool's 4..10 and the skip's 6..8


@pytest.mark.parametrize(
    "operator, inputs, attributes",
    [
        ("GlobalAveragePool", [ones(1, 2, 5, 5)], {}),
        ("GlobalMaxPool", [ones(1, 2, 5, 5)], {}),
        ("InstanceNormalization", [ones(1, 2, 5, 5), ones(2), ones(2)], {}),
        ("Softmax", [ones(1, 2, 5, 5)], dict(axis=3)),
        ("ReduceSum", [ones(1, 2, 5, 5), np.array([2])], {}),
        ("LayerNormalization", [ones(1, 2, 5, 5), ones(5), ones(5)], dict(axis=3)),
        ("MatMul", [ones(1, 2, 5, 5), ones(5, 5)], {}),
        ("GridSample", [ones(1, 2, 5, 5), ones(1, 4, 4, 2)], dict(run_time=(0, 1))),
        ("CumSum", [ones(1, 2, 5, 5), np.array(2)], {}),
        ("Reshape", [ones(1, 2, 6, 4), np.array([1, 2, 8, 3])], {}),
        ("Gather", [ones(1, 2, 5, 5), np.array([0, 1])], dict(axis=2, run_time=(0, 1))),
    ],
)
def test_24_what_needs_everything_is_refused_with_a_reason(
    operator: str, inputs: list[np.ndarray], attributes: dict[str, Any]
) -> None:
    graph = graph_of(operator, inputs, **attributes)
    out = graph.outputs[0]
    found = demand(graph.nodes, {out: tuple((0, 1) for _ in out.shape)})
    assert isinstance(found, BoxRefusal) and found.reason
    assert any(found.reason.startswith(n.name) for n in graph.nodes)


def test_24_squeeze_and_excite_is_refused_where_the_pool_is() -> None:
    graph = build(
        (1, 2, 8, 8),
        ("GlobalAveragePool", "x", "s", {}),
        ("Conv", "s w", "e", {}),
        ("Sigmoid", "e", "g", {}),
        ("Mul", "x g", "y", {}),
        weights={"w": ones(2, 2, 1, 1)},
    )
    out = graph.outputs[0]
    found = demand(graph.nodes, {out: rows(out, (0, 2))})
    assert isinstance(found, BoxRefusal) and "axis 2, 3" in found.reason
    mul = graph.nodes[-1]  # the multiplication alone is elementwise: it reads the gate at its one position
    needs = node_needs(mul, mul.results[0], rows(mul.results[0], (0, 2)))
    assert not isinstance(needs, BoxRefusal)
    assert [n.box[2] for n in needs] == [(0, 2), (0, 1)]


def test_25_groups_read_the_channels_of_their_outputs() -> None:
    graph = graph_of("Conv", [ones(1, 6, 5, 5), ones(9, 2, 3, 3)], group=3)
    (node,) = graph.nodes
    needs = node_needs(node, node.results[0], ((0, 1), (4, 7), (0, 1), (0, 1)))
    assert not isinstance(needs, BoxRefusal)
    assert needs[0].box == ((0, 1), (2, 6), (0, 3), (0, 3))  # groups 1 and 2
    assert needs[1].box == ((4, 7), (0, 2), (0, 3), (0, 3))
    depthwise = graph_of("Conv", [ones(1, 6, 5, 5), ones(6, 1, 3, 3)], group=6)
    needs = node_needs(depthwise.nodes[0], depthwise.outputs[0], ((0, 1), (4, 5), (1, 2), (1, 2)))
    assert not isinstance(needs, BoxRefusal) and needs[0].box[1] == (4, 5)


def test_two_fills_of_one_value_stay_apart() -> None:
    graph = build(
        (1, 2, 12, 12),
        ("Conv", "x w", "a", PAD),
        ("MaxPool", "x", "b", dict(kernel_shape=[5, 5], pads=[2] * 4)),
        ("Add", "x a", "c", {}),
        ("Add", "b c", "y", {}),
        weights={"w": W3},
    )
    needs = wanted(graph, (0, 3)).needs[graph.inputs[0]]
    assert {(n.fill, n.box[2]) for n in needs} == {("zero", (-1, 4)), ("-inf", (-2, 5))}
    assert read_boxes(needs)[graph.inputs[0]][2] == (0, 5)


def test_a_fused_group_answers_for_its_epilogue() -> None:
    """conv, residual add and relu in one group: the conv's need of x is unclipped, the residual's is not wider."""
    graph = build(
        (1, 2, 12, 12),
        ("Conv", "x w", "a", PAD),
        ("Add", "a x", "b", {}),
        ("Relu", "b", "y", {}),
        weights={"w": W3},
    )
    (group,) = Fuse().apply(graph).groups
    assert len(group.nodes) == 3
    out = group.outputs[0]
    needs = group_needs(group, out, rows(out, (0, 4)))
    assert not isinstance(needs, BoxRefusal)
    at_x, at_w = needs
    assert at_x.value is graph.inputs[0] and (at_x.box[2], at_x.fill) == ((-1, 5), "zero")
    assert at_w.value.shape == W3.shape


def test_a_fused_group_answers_for_its_prologue() -> None:
    """The border of a pool stands around its prologue's values, so nothing outside of x is asked for."""
    graph = build(
        (1, 2, 12, 12),
        ("Abs", "x", "p", {}),
        ("MaxPool", "p", "y", dict(kernel_shape=[3, 3], pads=[1] * 4)),
        weights={},
    )
    group = Group("g", graph.nodes, graph.inputs, graph.outputs)
    needs = group_needs(group, group.outputs[0], rows(group.outputs[0], (0, 4)))
    assert not isinstance(needs, BoxRefusal)
    assert [(n.box[2], n.fill) for n in needs] == [((0, 5), "none")]


def test_a_box_outside_of_the_output_is_an_error() -> None:
    graph = graph_of("Relu", [ones(1, 2, 3, 4)])
    with pytest.raises(ValueError, match="does not lie in"):
        node_needs(graph.nodes[0], graph.outputs[0], rows(graph.outputs[0], (0, 4)))
