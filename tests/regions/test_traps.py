"""Known mistakes of tilers, one test each: windows, pads, pooling, resizing."""

from __future__ import annotations

import math
from typing import Any

import halotile
import numpy as np
import pytest
from halotile.passes.fuse.graph import ProgramGraph
from halotile.schedules.operators.regions import Box, BoxRefusal, Demand, Need, Span, demand, node_needs
from halotile.schedules.operators.regions.shapes import _runs
from halotile.schedules.words.group import Node, Value
from open_models import Drawing
from region_cases import chain_of, graph_of, ones


def rows(value: Value, span: Span) -> Box:
    """Rows ``span`` of ``value``, everything of the other axes."""
    return tuple(span if a == 2 else (0, n) for a, n in enumerate(value.shape))


def node_of(graph: ProgramGraph, operator: str) -> Node:
    return next(n for n in graph.nodes if n.operator == operator)


def first(node: Node, span: Span) -> Need:
    """The need of the first input for rows ``span`` of the first output."""
    needs = node_needs(node, node.results[0], rows(node.results[0], span))
    assert not isinstance(needs, BoxRefusal)
    return needs[0]


def conv(size: tuple[int, int], kernel: int, **attributes: Any) -> Node:
    graph = graph_of("Conv", [ones(1, 1, *size), ones(1, 1, kernel, kernel)], **attributes)
    return node_of(graph, "relax.nn.conv2d")


def pool(operator: str, n: int, kernel: int, **attributes: Any) -> Node:
    graph = graph_of(operator, [ones(1, 1, n, n)], kernel_shape=[kernel, kernel], **attributes)
    return next(x for x in graph.nodes if "pool" in x.operator or "window" in x.operator)


def test_1_the_end_is_that_of_the_last_window_not_the_start_of_the_next() -> None:
    assert first(conv((31, 31), 3, strides=[4, 4]), (1, 3)).box[2] == (4, 11)


def test_2_dilation_widens_the_window() -> None:
    assert first(conv((31, 31), 3, dilations=[5, 5]), (2, 3)).box[2] == (2, 13)


def test_3_padding_belongs_to_more_than_the_first_tile() -> None:
    node = conv((31, 31), 7, pads=[3, 3, 3, 3])
    found = [first(node, (r, r + 1)) for r in range(5)]
    assert [n.outside[2] for n in found] == [(3, 0), (2, 0), (1, 0), (0, 0), (0, 0)]
    # columns are whole and so outside, too; a tile in the middle of both axes has none
    assert all(n.fill == "zero" for n in found)
    (inner, _) = node_needs(node, node.results[0], ((0, 1), (0, 1), (3, 4), (3, 4)))  # type: ignore[misc]
    assert inner.fill == "none"


def test_4_every_layer_has_its_own_border() -> None:
    """The input of the first layer ends where the tensor between ends: no values are made from a padded input that the
    second layer has as zeros."""
    graph = chain_of(
        (1, 1, 9, 9),
        ("Conv", [ones(1, 1, 3, 3)], dict(pads=[1] * 4)),
        ("Conv", [ones(1, 1, 3, 3)], dict(pads=[1] * 4)),
    )
    one, two = graph.nodes
    found = demand(graph.nodes, {two.results[0]: rows(two.results[0], (0, 2))})
    assert isinstance(found, Demand)
    assert found.needs[one.results[0]][0].box[2] == (-1, 3)
    assert found.boxes[one.results[0]][2] == (0, 3)
    assert found.needs[graph.inputs[0]][0].box[2] == (-1, 4)


@pytest.mark.parametrize("auto, begin", [("SAME_UPPER", 0), ("SAME_LOWER", 1)])
def test_5_the_odd_pixel_of_same_is_on_its_side_of_the_whole_tensor(auto: str, begin: int) -> None:
    node = conv((10, 10), 3, auto_pad=auto, strides=[2, 2])  # one row of padding in all
    assert first(node, (0, 1)).box[2] == (-begin, 3 - begin)
    last = first(node, (4, 5))
    assert last.box[2] == (8 - begin, 11 - begin) and last.outside[2] == (0, 1 - begin)
    assert first(node, (2, 3)).outside[2] == (0, 0)


@pytest.mark.parametrize("size, kernel, stride, dilation, pad", [(23, 5, 2, 1, 2), (23, 3, 1, 3, 3), (24, 4, 3, 2, 3)])
def test_6_the_border_is_as_wide_as_the_padding_makes_it(
    size: int, kernel: int, stride: int, dilation: int, pad: int
) -> None:
    node = conv((size, size), kernel, strides=[stride] * 2, dilations=[dilation] * 2, pads=[pad] * 4)
    count = node.results[0].shape[2]
    left = math.ceil(pad / stride)
    right = (size + pad - dilation * (kernel - 1) - 1) // stride + 1
    assert 0 < left < right < count
    for r in range(count):
        before, after = first(node, (r, r + 1)).outside[2]
        assert (before > 0, after > 0) == (r < left, r >= right), r


def test_7_negative_positions_round_down() -> None:
    graph = graph_of(
        "ConvTranspose", [ones(1, 1, 5, 5), ones(1, 1, 3, 3)], strides=[4, 4], pads=[0] * 4, output_padding=[1, 1]
    )
    need = first(node_of(graph, "halotile.conv_transpose"), (3, 4))  # phase 3 of 4 meets no tap: (3 - 3) / 4 = 0
    assert need.box[2] == (0, 1)
    graph = graph_of("ConvTranspose", [ones(1, 1, 5, 5), ones(1, 1, 3, 3)], strides=[2, 2], dilations=[3, 3])
    need = first(node_of(graph, "halotile.conv_transpose"), (0, 1))  # taps 0 and 2: (0 - 6) / 2 = -3
    assert need.box[2] == (-3, 1)


def test_8_a_stride_beyond_the_kernel_leaves_gaps() -> None:
    node = conv((11, 11), 1, strides=[2, 2])
    assert [first(node, (r, r + 2)).box[2] for r in (0, 2, 4)] == [(0, 3), (4, 7), (8, 11)]
    wide = conv((12, 12), 3, strides=[4, 4])
    assert first(wide, (0, 3)).box[2] == (0, 11)  # row 11 is never read


def test_9_the_last_stripe_is_shorter() -> None:
    node = conv((17, 17), 3, pads=[1] * 4)
    assert first(node, (15, 17)).box[2] == (14, 18)


def test_10_a_box_wholly_in_the_padding_reads_nothing() -> None:
    graph = graph_of(
        "AveragePool",
        [ones(1, 1, 4, 4)],
        kernel_shape=[3, 3], strides=[1, 1], pads=[2] * 4, count_include_pad=1,
    )  # fmt: skip
    assert first(graph.nodes[-1], (0, 1)).inside is not None
    pad = chain_of((1, 1, 4, 4), ("Pad", [np.array([0, 0, 5, 5, 0, 0, 5, 5])], {}))
    need = first(pad.nodes[0], (1, 4))
    assert need.box[2] == (-4, -1) and need.inside is None and need.fill == "zero"


def test_11_any_start_keeps_the_sampling_grid_of_the_whole() -> None:
    node = conv((21, 21), 3, strides=[3, 3])
    assert [first(node, (r, r + 1)).box[2] for r in range(4)] == [(0, 3), (3, 6), (6, 9), (9, 12)]
    graph = graph_of("Resize", [ones(1, 1, 5, 5), None, np.array([1, 1, 2, 2], "f")], mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    (up,) = graph.nodes
    assert [first(up, (r, r + 3)).box[2] for r in range(3)] == [(0, 2), (0, 2), (1, 3)]


def test_12_ceil_mode_windows_come_from_the_whole_tensor() -> None:
    node = pool("MaxPool", 6, 3, strides=[2, 2], ceil_mode=1)
    assert node.results[0].shape[2] == 3
    last = first(node, (2, 3))
    assert last.box[2] == (4, 7) and last.outside[2] == (0, 1) and last.fill == "-inf"
    # a window that would start in the padding is not there at all
    graph = graph_of("MaxPool", [ones(1, 1, 5, 5)], kernel_shape=[2, 2], strides=[3, 3], pads=[0, 0, 1, 1], ceil_mode=1)
    assert graph.outputs[0].shape[2] == 2


@pytest.mark.parametrize("include", [0, 1])
def test_13_14_an_average_reads_real_rows_at_seams_and_fills_at_borders_only(include: int) -> None:
    node = pool("AveragePool", 11, 3, strides=[2, 2], pads=[1] * 4, ceil_mode=1, count_include_pad=include)
    seam = first(node, (2, 4))
    assert seam.box[2] == (3, 8) and seam.outside[2] == (0, 0)
    edge = first(node, (0, 2))
    assert edge.box[2] == (-1, 4) and edge.fill == "zero"


def test_15_a_maximum_takes_minus_infinity_outside_and_a_pad_before_it_zero() -> None:
    assert first(pool("MaxPool", 9, 3, pads=[1] * 4), (0, 1)).fill == "-inf"
    graph = chain_of(
        (1, 1, 9, 9),
        ("Pad", [np.array([0, 0, 1, 1, 0, 0, 1, 1])], {}),
        ("MaxPool", [], dict(kernel_shape=[3, 3])),
    )
    out = graph.outputs[0]
    found = demand(graph.nodes, {out: rows(out, (0, 1))})
    assert isinstance(found, Demand) and [n.fill for n in found.needs[graph.inputs[0]]] == ["zero"]


def test_16_positions_of_maxima_read_the_same_windows_as_the_maxima() -> None:
    graph = graph_of("MaxPool", [ones(2, 3, 9, 9)], outputs=2, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    node = node_of(graph, "halotile.max_pool_with_indices")
    box = ((1, 2), (0, 3), (1, 3), (0, 2))
    both = [node_needs(node, r, box) for r in node.results]
    assert both[0] == both[1] and not isinstance(both[0], BoxRefusal)
    assert both[0][0].box == ((1, 2), (0, 3), (1, 6), (-1, 4))


def resize(n: int, m: int, mode: str, coordinate: str, **attributes: Any) -> Node:
    graph = graph_of(
        "Resize",
        [ones(1, 1, n, 2), None, None, np.array([1, 1, m, 2])],
        mode=mode, coordinate_transformation_mode=coordinate, **attributes,
    )  # fmt: skip
    return graph.nodes[0]


def test_17_coordinates_are_those_of_the_whole_image() -> None:
    """Of 7 -> 20 rows, output 3 lies at 0.725 (half_pixel), 0.947 (align_corners) or 1.05 (asymmetric): decided by the
    lengths of the whole, not by those of a tile."""
    found = {c: first(resize(7, 20, "linear", c), (3, 4)).box[2] for c in ("half_pixel", "align_corners", "asymmetric")}
    assert found == {"half_pixel": (0, 2), "align_corners": (0, 2), "asymmetric": (1, 3)}
    assert first(resize(7, 20, "linear", "half_pixel"), (10, 14)).box[2] == (3, 6)
    assert first(resize(7, 20, "linear", "align_corners"), (19, 20)).box[2] == (6, 7)


def test_18_linear_needs_one_more_pixel_and_cubic_two_in_source_space() -> None:
    node = resize(10, 20, "linear", "half_pixel")
    assert [first(node, (r, r + 1)).box[2] for r in (0, 9, 10, 19)] == [(0, 1), (4, 6), (4, 6), (9, 10)]
    node = resize(10, 20, "cubic", "half_pixel")
    assert [first(node, (r, r + 1)).box[2] for r in (9, 10)] == [(3, 7), (3, 7)]
    # a tie of nearest goes down or up
    down, up = (resize(8, 4, "nearest", "half_pixel", nearest_mode=f"round_prefer_{r}") for r in ("floor", "ceil"))
    assert first(down, (1, 2)).box[2] == (2, 3) and first(up, (1, 2)).box[2] == (3, 4)


def test_19_a_fractional_scale_advances_unevenly() -> None:
    node = resize(5, 8, "nearest", "asymmetric", nearest_mode="floor")
    assert [first(node, (r, r + 1)).box[2][0] for r in range(8)] == [0, 0, 1, 1, 2, 3, 3, 4]
    node = resize(5, 8, "linear", "asymmetric")
    assert [first(node, (r, r + 2)).box[2] for r in (0, 2, 4, 6)] == [(0, 2), (1, 3), (2, 5), (3, 5)]


@pytest.mark.parametrize(("old", "new"), [((3, 5), (3, 4)), ((3, 4), (3, 5)), ((2, 6), (5, 7))])
def test_shapes_of_other_counts_are_refused(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    """Of the largest sizes, which a model's conditions may not allow together."""
    assert _runs(old, new) is None


def test_a_budget_of_a_model_whose_largest_sizes_no_run_has() -> None:
    """57 divides n * h * w in every run, and not 3 * 64 * 64: it is refused, not an error of ours."""
    g = Drawing(5)
    x = g.conv(g.input("x", "n", 24, "h", "w"), 24, 24, 1)
    x = g("Transpose", g("Reshape", x, g.whole(3, 3, 8, 19, -1)), perm=[0, 2, 1, 3, 4])
    g.output(g("Reshape", x, g.whole(3, -1, 19, 23)), 4)
    bounds = {"n": "1..3", "h": "1..64", "w": "1..64"}
    with pytest.raises(halotile.HalotileError, match="the memory budget of 102400 bytes can't be met"):
        halotile.compile(g.model(), threads=1, shapes=bounds, memory_budget=100 << 10)
