"""The integer algebra of regions against isl: unclipped boxes, at random parameters, in and outside of the tensor."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from halotile.schedules.operators.regions import BoxRefusal, Span, node_needs, read_boxes
from halotile.schedules.operators.regions.shapes import _digits
from halotile.schedules.operators.regions.slices import _modulo, stepped
from halotile.schedules.operators.regions.transposed import axis_reads
from halotile.schedules.operators.regions.windows import window
from hypothesis import given, settings
from hypothesis import strategies as st
from polyhedra import image
from region_cases import graph_of

QUICK = settings(max_examples=200, deadline=None)
spans = st.tuples(st.integers(-20, 60), st.integers(1, 12)).map(lambda s: (s[0], s[0] + s[1]))
inside = st.tuples(st.integers(0, 60), st.integers(1, 12)).map(lambda s: (s[0], s[0] + s[1]))
small = st.integers(1, 7)


@given(spans, small, small, st.integers(1, 4), st.integers(0, 9))
@QUICK
def test_windows(span: Span, kernel: int, stride: int, dilation: int, begin: int) -> None:
    relation = f"{{ [o] -> [i] : exists k : 0 <= k < {kernel} and i = o*{stride} + k*{dilation} - {begin} }}"
    assert window(span, kernel, stride, dilation, begin) == image(relation, span)


@given(inside, small, small, st.integers(1, 4), st.integers(0, 9))
@QUICK
def test_transposed_windows_cover_every_product_and_stay_within_one_step(
    span: Span, kernel: int, stride: int, dilation: int, begin: int
) -> None:
    """Every phase counts the taps of the longest, so a phase may reach one tap further than the kernel."""

    def products(taps: int) -> Span | None:
        return image(
            f"{{ [o] -> [i] : exists k : 0 <= k < {taps} and o + {begin} = i*{stride} + k*{dilation} }}", span
        )

    found, needed = axis_reads(span, kernel, stride, dilation, begin), products(kernel)
    if needed is not None:
        assert found is not None and found[0] <= needed[0] and needed[1] <= found[1]
    step = stride // np.gcd(stride, dilation)
    assert found == products(int(-(-kernel // step) * step))


@given(inside, st.integers(0, 30), st.integers(-5, 5).filter(bool))
@QUICK
def test_slices(span: Span, begin: int, step: int) -> None:
    assert stepped(span, begin, step) == image(f"{{ [o] -> [i] : i = {begin} + o*{step} }}", span)


@given(inside, small)
@QUICK
def test_repetition(span: Span, size: int) -> None:
    assert _modulo(span, size) == image(f"{{ [o] -> [i] : i = o mod {size} }}", span)


@given(inside, st.integers(1, 4), st.integers(1, 4))
@QUICK
def test_digits_of_a_reshape(span: Span, middle: int, inner: int) -> None:
    sizes = [72 // (middle * inner) + 1, middle, inner]
    relations = [
        f"{{ [o] -> [i] : i = floor(o/{middle * inner}) }}",
        f"{{ [o] -> [i] : i = floor(o/{inner}) mod {middle} }}",
        f"{{ [o] -> [i] : i = o mod {inner} }}",
    ]
    assert _digits(span, sizes) == [image(r, span) for r in relations]


# position = (o * p + q) / r, the rational source position of output o (n -> m elements)
MODES = {
    "half_pixel": lambda n, m: (Fraction(n, m), Fraction(n, 2 * m) - Fraction(1, 2)),
    "pytorch_half_pixel": lambda n, m: (
        (Fraction(n, m), Fraction(n, 2 * m) - Fraction(1, 2)) if m > 1 else (Fraction(0), Fraction(0))
    ),
    "half_pixel_symmetric": lambda n, m: (Fraction(n, m), Fraction(n, 2 * m) - Fraction(1, 2)),
    "align_corners": lambda n, m: (Fraction(n - 1, m - 1) if m > 1 else Fraction(0), Fraction(0)),
    "asymmetric": lambda n, m: (Fraction(n, m), Fraction(0)),
}


def rational(span: Span, n: int, slope: Fraction, start: Fraction, rounding: str, first: int, last: int) -> Span:
    """Clamped positions floor(slope * o + start + rounding) + first .. + last, by isl."""
    at = start + {"round_prefer_ceil": Fraction(1, 2), "round_prefer_floor": Fraction(-1, 2)}.get(rounding, 0)
    bottom = slope.denominator * at.denominator
    top = f"{slope.numerator * at.denominator}*o + {at.numerator * slope.denominator}"
    integer = f"floor(({top})/{bottom})"
    if rounding in ("ceil", "round_prefer_floor"):  # the ceiling
        integer = f"(-floor(-({top})/{bottom}))"
    relation = (
        f"{{ [o] -> [i] : exists p, k : p = {integer} + k and {first} <= k <= {last} and "
        f"((p < 0 and i = 0) or (0 <= p < {n} and i = p) or (p >= {n} and i = {n - 1})) }}"
    )
    found = image(relation, span)
    assert found is not None
    return found


def region(graph: object, span: Span, n: int) -> Span:
    """The rows of the graph's input behind rows ``span`` of its output (axis 2)."""
    from halotile.schedules.operators.regions import Demand, demand

    out, into = graph.outputs[0], graph.inputs[0]  # type: ignore[attr-defined]
    found = demand(graph.nodes, {out: ((0, 1), (0, 1), span, (0, 1))})  # type: ignore[attr-defined]
    assert isinstance(found, Demand)
    return read_boxes(found.needs[into])[into][2] if into in found.needs else span


lengths = st.tuples(st.integers(1, 13), st.integers(1, 29)).filter(lambda p: p[0] != p[1])


@pytest.mark.parametrize("coordinate", sorted(MODES))
@pytest.mark.parametrize("mode, first, last", [("linear", 0, 1), ("cubic", -1, 2)])
@given(data=st.data(), lengths=lengths)
@settings(max_examples=20, deadline=None)
def test_resize_between_pixels(
    data: st.DataObject, lengths: tuple[int, int], coordinate: str, mode: str, first: int, last: int
) -> None:
    """Linear needs floor and floor + 1, cubic one more on each side, clamped: exactly, from rational positions. Where
    one is an integer, the last ones may weigh nothing everywhere, and then they are not read; or it was rounded to
    below, and then one more before is."""
    n, m = lengths
    graph = graph_of(
        "Resize",
        [np.ones((1, 1, n, 3), "f"), None, None, np.array([1, 1, m, 3])],
        mode=mode, coordinate_transformation_mode=coordinate,
    )  # fmt: skip
    lo = data.draw(st.integers(0, m - 1))
    span = (lo, data.draw(st.integers(lo + 1, m)))
    slope, start = MODES[coordinate](n, m)
    found = region(graph, span, n)
    if any((slope * o + start).denominator == 1 for o in range(*span)):
        widest = rational(span, n, slope, start, "floor", first - 1, last)
        least = rational(span, n, slope, start, "floor", 0, 0)
        assert widest[0] <= found[0] <= least[0] and least[1] <= found[1] <= widest[1]
    else:
        assert found == rational(span, n, slope, start, "floor", first, last)


@pytest.mark.parametrize("coordinate", sorted(MODES))
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@given(data=st.data(), lengths=lengths)
@settings(max_examples=20, deadline=None)
def test_resize_to_the_nearest(
    data: st.DataObject, lengths: tuple[int, int], coordinate: str, rounding: str
) -> None:
    n, m = lengths
    slope, start = MODES[coordinate](n, m)
    half = Fraction(1, 2) if rounding.startswith("round") else Fraction(0)
    graph = graph_of(
        "Resize",
        [np.ones((1, 1, n, 3), "f"), None, None, np.array([1, 1, m, 3])],
        mode="nearest", coordinate_transformation_mode=coordinate, nearest_mode=rounding,
    )  # fmt: skip
    lo = data.draw(st.integers(0, m - 1))
    span = (lo, data.draw(st.integers(lo + 1, m)))
    # ties are decided by float32 positions (as ONNX Runtime does): those of scales 2, 1/2 and the like are exact
    exact = all(v.denominator & (v.denominator - 1) == 0 for v in (slope, start, Fraction(m, n)))
    ties = [o for o in range(*span) if slope * o + start and (slope * o + start + half).denominator == 1]
    found, expected = region(graph, span, n), rational(span, n, slope, start, rounding, 0, 0)
    slack = 1 if ties and not exact else 0
    assert abs(found[0] - expected[0]) <= slack and abs(found[1] - expected[1]) <= slack


def test_crop_and_resize_reads_only_the_crop() -> None:
    graph = graph_of(
        "Resize",
        [np.ones((1, 1, 21, 4), "f"), np.array([0, 0, 0.25, 0, 1, 1, 0.75, 1], "f"), None, np.array([1, 1, 11, 4])],
        mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    assert region(graph, (0, 11), 21) == (5, 16)
    assert region(graph, (2, 4), 21)[0] == 7


def test_a_rule_never_answers_with_an_empty_box() -> None:
    graph = graph_of("Concat", [np.ones((1, 2, 3, 4), "f")] * 2, run_time=(0, 1), axis=2)
    node = graph.nodes[0]
    needs = node_needs(node, node.results[0], ((0, 1), (0, 2), (0, 2), (0, 4)))
    assert not isinstance(needs, BoxRefusal) and [n.value for n in needs] == [graph.inputs[0]]
    assert node_needs(node, node.results[0], ((0, 1), (0, 2), (3, 3), (0, 4))) == ()
