"""Reshapes, permutations, casts, slices, concatenations, padding: what moves data and what only seems to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from halotile.passes.simplify.slices import OPEN, SliceAxis
from tvm import relax

op = relax.op
F32 = "float32"


@pytest.mark.parametrize("batch", [2, "n"])
def test_reshape_chain(check, batch):
    def body(emit, x):
        y = emit(op.reshape(x, [x.ty.shape[0], 12]))
        y = emit(op.expand_dims(y, [1]))
        return emit(op.reshape(y, [x.ty.shape[0], 2, 6]))

    check([((batch, 3, 4), F32)], body, ["reshape"], mode="exact", n=2)


def test_reshape_there_and_back(check):
    def body(emit, x):
        return emit(op.reshape(emit(op.reshape(x, [6, 4])), [2, 3, 4]))

    check([((2, 3, 4), F32)], body, [], mode="exact")


def test_permutations_compose_and_cancel(check):
    def body(emit, x):
        y = emit(op.permute_dims(x, [0, 2, 3, 1]))
        z = emit(op.permute_dims(y, [0, 2, 1, 3]))
        return emit(op.permute_dims(y, [0, 3, 1, 2])), z

    check([(("n", 3, 4, 5), F32)], body, ["permute_dims"], mode="exact", n=2)


def test_permutation_of_dims_of_one_is_a_reshape(check):
    check([((2, 1, 5), F32)], lambda emit, x: emit(op.permute_dims(x, [1, 0, 2])), ["reshape"], mode="exact")


@pytest.mark.parametrize(
    ("source", "middle", "target", "expected"),
    [
        ("float32", "float64", "float32", []),
        ("int32", "int64", "int32", []),
        ("bool", "float32", "int32", ["astype"]),
        ("float32", "float16", "float32", ["astype", "astype"]),
        ("int64", "int32", "int64", ["astype", "astype"]),
        ("int32", "float32", "int32", ["astype", "astype"]),
    ],
)
def test_cast_chains(check, source, middle, target, expected):
    def body(emit, x):
        return emit(op.astype(emit(op.astype(x, middle)), target))

    check([((20,), source)], body, expected, mode="exact")


def test_operators_that_do_nothing(check, tools):
    def body(emit, x):
        y = emit(op.broadcast_to(x, [2, 3, 4]))
        y = emit(op.nn.pad(y, [0] * 6))
        y = emit(op.tile(y, [1, 1, 1]))
        y = emit(op.strided_slice(y, [1], [0], [2**31 - 1]))
        y = emit(op.concat([y], 1))
        y = emit(op.astype(y, F32))
        return emit(op.permute_dims(y, [0, 1, 2]))

    check([((2, 3, 4), F32)], body, [], mode="exact")


def slices(emit, x, *bounds):
    for begin, end, stride in bounds:
        x = emit(op.strided_slice(x, [1], [begin], [end], [stride]))
    return x


INF = 2**31 - 1


@pytest.mark.parametrize("length", [16, 17])
@pytest.mark.parametrize(
    "bounds",
    [
        [(2, 10, 1), (1, 5, 1)],
        [(0, INF, 2), (0, INF, 2)],
        [(0, -2, 2), (0, -2, 2)],
        [(1, -1, 3), (1, 9, 2), (0, INF, 1)],
    ],
)
def test_slices_of_one_axis_compose(check, length, bounds):
    check([((2, length), F32)], lambda emit, x: slices(emit, x, *bounds), ["strided_slice"], mode="exact")


def test_slices_of_an_open_axis_compose(check):
    check(
        [((2, "n"), F32)], lambda emit, x: slices(emit, x, (0, INF, 2), (0, INF, 2)), None, mode="exact", n=17
    )


def test_slices_of_different_axes_merge(check):
    def body(emit, x):
        y = emit(op.strided_slice(x, [1], [1], [4]))
        return emit(op.strided_slice(y, [0, 2], [1, 0], [3, 5], [1, 2]))

    check([((4, 6, 7), F32)], body, ["strided_slice"], mode="exact")


def test_the_closed_rule_for_slices_holds_for_every_length():
    """Exhaustively: whenever two cuts compose, the composition gives the same elements for every length."""
    bounds = [SliceAxis(b, e, s) for b in (0, 1, 3) for e in (OPEN, 2, 5, -1, -2, -4) for s in (1, 2, 3)]
    composed = 0
    for first, second in itertools.product(bounds, bounds):
        both = first.then(second)
        if both is None:
            continue
        composed += 1
        for n in range(14):

            def elements(cut: SliceAxis, values: list[int]) -> list[int]:
                return values[cut.begin : None if cut.end == OPEN else cut.end : cut.stride]

            everything = list(range(n))
            assert elements(both, everything) == elements(second, elements(first, everything)), (
                first,
                second,
                n,
            )
    assert composed > 1000


def test_slice_of_concat_takes_the_piece(check):
    def body(emit, x, y):
        joined = emit(op.concat([x, y], 1))
        return (
            emit(op.strided_slice(joined, [1], [3], [7])),
            emit(op.strided_slice(joined, [1], [4], [6])),
            emit(op.strided_slice(joined, [0, 1], [1, 0], [2, 3])),
        )

    check([((2, 3), F32), ((2, 4), F32)], body, ["strided_slice", "strided_slice"], mode="exact")


def test_slice_across_pieces_stays(check):
    def body(emit, x, y):
        return emit(op.strided_slice(emit(op.concat([x, y], 1)), [1], [2], [5]))

    check([((2, 3), F32), ((2, 4), F32)], body, ["concat", "strided_slice"], mode="exact")


def test_split_then_concat_in_order_is_nothing(check):
    def body(emit, x):
        parts = emit(op.split(x, 3, 1))
        return emit(op.concat([emit(parts[k]) for k in range(3)], 1))

    check([(("n", 6), F32)], body, [], mode="exact", n=2)


def test_split_then_concat_out_of_order_stays(check):
    def body(emit, x):
        parts = emit(op.split(x, 2, 1))
        return emit(op.concat([emit(parts[1]), emit(parts[0])], 1))

    check([((2, 6), F32)], body, None, mode="exact")


def test_neighbouring_slices_join_and_concats_flatten(check):
    def body(emit, x, y):
        a, b = slices(emit, x, (0, 2, 1)), slices(emit, x, (2, 5, 1))
        return emit(op.concat([emit(op.concat([a, b], 1)), y], 1))

    check([((2, 6), F32), ((2, 1), F32)], body, ["strided_slice", "concat"], mode="exact")


def test_zero_pad_moves_into_the_convolution(check, tools):
    weight = tools.const(np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(F32))

    def body(emit, x):
        y = emit(op.nn.pad(x, [0, 0, 0, 0, 0, 1, 2, 1]))
        return emit(op.nn.conv2d(y, weight, strides=(2, 2), padding=(1, 0, 0, 0)))

    check([((1, 3, 8, 9), F32)], body, ["nn.conv2d"], mode="exact")


@pytest.mark.parametrize(
    ("width", "value", "reason"),
    [
        ([0, 0, 0, 0, 1, 1, 1, 1], 1.0, "a convolution with zero"),
        ([0, 0, 0, 1, 1, 1, 1, 1], 0.0, "the channels"),
    ],
)
def test_other_pads_stay_before_the_convolution(check, tools, width, value, reason):
    channels = 4 if width[3] else 3
    weight = tools.const(np.ones((4, channels, 3, 3), F32))

    def body(emit, x):
        return emit(op.nn.conv2d(emit(op.nn.pad(x, width, "constant", value)), weight))

    check([((1, 3, 6, 6), F32)], body, ["nn.pad", "nn.conv2d"], declined=reason)


def pooled(emit, x, value, before=None):
    y = emit(before(x)) if before else x
    y = emit(op.nn.pad(y, [0, 0, 0, 0, 1, 1, 1, 1], "constant", value))
    return emit(op.nn.max_pool2d(y, (3, 3), (2, 2)))


def test_minus_infinity_pad_moves_into_max_pool(check):
    check([((1, 2, 7, 7), F32)], lambda emit, x: pooled(emit, x, -np.inf), ["nn.max_pool2d"], mode="exact")


def test_zero_pad_stays_before_max_pool(check):
    check(
        [((1, 2, 7, 7), F32)],
        lambda emit, x: pooled(emit, x, 0.0),
        ["nn.pad", "nn.max_pool2d"],
        declined="can exceed",
    )


def test_zero_pad_of_what_is_never_negative_moves_into_max_pool(check):
    check(
        [((1, 2, 7, 7), F32)], lambda emit, x: pooled(emit, x, 0.0, op.nn.relu), ["nn.relu", "nn.max_pool2d"]
    )


def test_zero_pad_moves_into_average_pool_and_counts(check):
    def body(emit, x):
        return emit(op.nn.avg_pool2d(emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1])), (3, 3), (2, 2)))

    result = check([((1, 2, 7, 7), F32)], body, ["nn.avg_pool2d"])
    assert result.details["applied"] == {"pad-into-average-pool": 1}


def test_pad_before_a_pool_that_does_not_count_its_own_stays(check):
    def body(emit, x):
        y = emit(op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1]))
        return emit(op.nn.avg_pool2d(y, (3, 3), (2, 2), padding=(1, 1, 1, 1)))

    check([((1, 2, 7, 7), F32)], body, ["nn.pad", "nn.avg_pool2d"], declined="not counted")


@pytest.mark.parametrize(("fill", "left"), [(0.0, ["nn.pad"]), (1.0, ["nn.pad", "nn.pad"])])
def test_pads_add_up(check, fill, left):
    def body(emit, x):
        return emit(op.nn.pad(emit(op.nn.pad(x, [0, 0, 1, 2], "constant", fill)), [0, 1, 1, 0]))

    check([(("n", 4), F32)], body, left, mode="exact", declined="one pads with 1.0" if fill else None, n=2)
