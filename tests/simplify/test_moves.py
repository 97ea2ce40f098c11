"""Transposes around regions, scales that travel to weights, Focus, pools as means, gathers precomputed."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

op = relax.op
F32 = "float32"
RNG = np.random.default_rng(11)
TO_NHWC, TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]


def c(*shape):
    return relax.const(np.asarray(RNG.standard_normal(shape), F32), F32)


@pytest.mark.parametrize("batch", [2, "n"])
def test_transposes_around_elementwise_operators_cancel(check, batch):
    bias = c(3)

    def body(emit, x):
        y = emit(op.permute_dims(x, TO_NHWC))
        y = emit(op.multiply(emit(op.nn.relu(emit(op.add(y, bias)))), relax.const(2.0, F32)))
        return emit(op.permute_dims(y, TO_NCHW))

    result = check([((batch, 3, 4, 5), F32)], body, ["add", "nn.relu", "multiply"], mode="exact", n=2)
    assert result.details["applied"]["cancel-transposes"] == 1


def test_an_island_with_two_entries_and_two_exits(check):
    def body(emit, x, z):
        a, b = emit(op.permute_dims(x, TO_NHWC)), emit(op.permute_dims(z, TO_NHWC))
        y = emit(op.concat([emit(op.nn.relu(a)), emit(op.exp(b))], -1))
        s = emit(op.nn.softmax(y, -1))
        m = emit(op.mean(y, [1, 2], True))
        return emit(op.permute_dims(s, TO_NCHW)), emit(op.permute_dims(m, TO_NCHW))

    check([((2, 3, 4, 5), F32)] * 2, body, None)
    before = [((2, 3, 4, 5), F32)] * 2
    result = check(before, body, None)
    assert result.details["operators"].get("relax.permute_dims", 0) == 0


def test_slices_inside_an_island(check):
    def body(emit, x):
        y = emit(op.permute_dims(x, TO_NHWC))
        y = emit(op.strided_slice(y, [3, 1], [0, 1], [2, 4], [1, 2]))
        return emit(op.permute_dims(y, TO_NCHW))

    check([((2, 3, 4, 5), F32)], body, ["strided_slice"], mode="exact")


def test_a_transpose_that_nothing_undoes_stays(check):
    def body(emit, x):
        return emit(op.nn.relu(emit(op.permute_dims(x, TO_NHWC))))

    check([((2, 3, 4, 5), F32)], body, ["permute_dims", "nn.relu"])


def test_a_foreign_operand_keeps_the_transposes(check):
    def body(emit, x, z):
        y = emit(op.add(emit(op.permute_dims(x, TO_NHWC)), z))
        return emit(op.permute_dims(y, TO_NCHW))

    check([((2, 3, 4, 5), F32), ((2, 4, 5, 3), F32)], body, None)


def attention(emit, x, after, heads=2, read_twice=False):
    """Scores of self-attention: q = xWq + b and k = xWk, split into heads, q @ k' and ``after``."""
    n, s, e = x.ty.shape

    def split(y):
        return emit(op.permute_dims(emit(op.reshape(y, [n, s, heads, 4])), [0, 2, 1, 3]))

    q = split(emit(op.add(emit(op.matmul(x, c(8, 8))), c(8))))
    k = emit(op.permute_dims(split(emit(op.matmul(x, c(8, 8)))), [0, 1, 3, 2]))
    scores = emit(after(emit(op.matmul(q, k))))
    return (scores, q) if read_twice else scores


@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize(
    "after", [lambda y: op.divide(y, relax.const(2.0, F32)), lambda y: op.multiply(y, c())]
)
def test_the_scale_of_attention_goes_into_the_projection(check, batch, after):
    result = check([((batch, 3, 8), F32)], lambda emit, x: attention(emit, x, after), None, n=2)
    assert "relax.multiply" not in result.details["operators"]
    assert result.details["applied"]["scale-to-weights"] == 1


def test_a_scale_whose_way_has_other_readers_takes_the_other_operand(check):
    result = check(
        [((2, 3, 8), F32)],
        lambda emit, x: attention(emit, x, lambda y: op.multiply(y, c()), read_twice=True),
        None,
    )
    assert "relax.multiply" not in result.details["operators"]


@pytest.mark.parametrize("where", ["scores", "query"])
def test_the_scale_of_a_joint_projection_goes_into_the_columns_of_the_query(check, where):
    half = relax.const(0.37, F32)

    def body(emit, x):
        y = emit(op.add(emit(op.matmul(x, c(8, 24))), c(24)))
        y = emit(op.permute_dims(emit(op.reshape(y, [2, 3, 3, 2, 4])), [2, 0, 3, 1, 4]))
        parts = [emit(op.strided_slice(y, [0], [k], [k + 1])) for k in range(3)]
        q, k, v = (emit(op.reshape(p, [2, 2, 3, 4])) for p in parts)
        if where == "query":
            q = emit(op.multiply(q, half))
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        if where == "scores":
            scores = emit(op.multiply(scores, half))
        return emit(op.matmul(emit(op.nn.softmax(scores, -1)), v))

    result = check([((2, 3, 8), F32)], body, None)
    assert result.details["applied"]["scale-to-weights"] == 1
    assert "relax.multiply" not in result.details["operators"]


def test_slices_that_overlap_share_no_scale(check):
    def body(emit, x):
        y = emit(op.matmul(x, c(8, 6)))
        a, b = (emit(op.strided_slice(y, [1], [k], [k + 4])) for k in (0, 2))
        return emit(op.multiply(emit(op.reshape(a, [8])), relax.const(3.0, F32))), b

    check([((2, 8), F32)], body, None, declined="other readers")


def test_a_scale_over_a_sum_of_products(check):
    def body(emit, x, z):
        total = emit(op.add(emit(op.matmul(x, c(4, 5))), emit(op.matmul(z, c(4, 5)))))
        return emit(op.divide(total, relax.const(3.0, F32)))

    check([((2, 4), F32)] * 2, body, ["matmul", "matmul", "add"])


def test_a_scale_over_a_sum_with_an_input_stays(check):
    def body(emit, x, z):
        return emit(op.multiply(emit(op.add(emit(op.matmul(x, c(4, 5))), z)), relax.const(3.0, F32)))

    check([((2, 4), F32), ((2, 5), F32)], body, ["matmul", "add", "multiply"], declined="other readers")


def test_embeddings_take_their_scale(check):
    table = c(6, 4)

    def body(emit, ids):
        index = emit(op.astype(ids, "int32"))
        rows = emit(op.take(table, index, axis=0, mode="clip"))
        return emit(op.multiply(rows, relax.const(2.0, F32)))

    check([((5,), "bool")], body, ["astype", "take"])


def test_a_bias_shared_by_two_sums(check):
    def body(emit, x):
        t = emit(op.add(emit(op.matmul(x, c(4, 5))), c(5)))
        return emit(op.exp(emit(op.add(t, c(5))))), emit(op.tanh(emit(op.add(t, c(5)))))

    check([(("n", 4), F32)], body, ["matmul", "add", "exp", "add", "tanh"], n=2)


def test_a_bias_that_someone_else_reads_stays(check):
    def body(emit, x):
        t = emit(op.add(x, c(5)))
        return emit(op.add(t, c(5))), emit(op.add(t, c(5))), t

    result = check([(("n", 5), F32)], body, None, n=2)
    assert result.details["operators_after"] == 3


def test_the_product_of_a_gather_is_precomputed(check):
    table, weight = c(6, 8), c(8, 3)

    def body(emit, ids):
        rows = emit(op.take(table, emit(op.astype(ids, "int32")), axis=0, mode="clip"))
        return emit(op.matmul(rows, weight))

    check([(("n",), "bool")], body, ["astype", "take"], n=4)


def test_a_larger_product_is_not_precomputed(check):
    table, weight = c(64, 4), c(4, 32)

    def body(emit, ids):
        rows = emit(op.take(table, emit(op.astype(ids, "int32")), axis=0, mode="clip"))
        return emit(op.matmul(rows, weight))

    check([((5,), "bool")], body, ["astype", "take", "matmul"], declined="larger than its factors")


def focus(emit, x, phases):
    def phase(a, b):
        rows = emit(op.strided_slice(x, [2], [a], [2**31 - 1], [2]))
        return emit(op.strided_slice(rows, [3], [b], [2**31 - 1], [2]))

    return emit(op.concat([phase(a, b) for a, b in phases], 1))


ROWS = [(0, 0), (0, 1), (1, 0), (1, 1)]
YOLO = [(0, 0), (1, 0), (0, 1), (1, 1)]


@pytest.mark.parametrize("phases", [ROWS, YOLO])
def test_focus_is_space_to_depth(check, phases):
    check(
        [((2, 3, 6, 4), F32)],
        lambda emit, x: focus(emit, x, phases),
        ["reshape", "permute_dims", "reshape"],
        mode="exact",
    )


@pytest.mark.parametrize("phases", [ROWS, YOLO])
@pytest.mark.parametrize("stride", [1, 2])
def test_focus_before_a_convolution_is_one_strided_convolution(check, phases, stride):
    weight = c(5, 12, 3, 3)

    def body(emit, x):
        return emit(op.nn.conv2d(focus(emit, x, phases), weight, strides=stride, padding=(1, 1, 1, 1)))

    check([((2, 3, 8, 12), F32)], body, ["nn.conv2d"])


def test_focus_of_an_odd_image_stays(check):
    def body(emit, x):
        def phase(a, b):
            return emit(op.strided_slice(x, [2, 3], [a, b], [6, 4], [2, 2]))

        return emit(op.concat([phase(a, b) for a, b in ROWS], 1))

    check([((2, 3, 7, 4), F32)], body, None, declined="not divided")


def test_phases_in_another_order_stay(check):
    result = check(
        [((2, 3, 6, 4), F32)], lambda emit, x: focus(emit, x, YOLO[::-1]), None, declined="not in the order"
    )
    assert result.details["operators"]["relax.concat"] == 1


def test_pools_over_the_whole_image_are_means(check):
    def body(emit, x):
        y = emit(op.nn.adaptive_avg_pool2d(x, (1, 1)))
        z = emit(op.nn.avg_pool2d(x, (4, 5)))
        return emit(op.reshape(y, [2, 3])), emit(op.exp(z))

    result = check([((2, 3, 4, 5), F32)], body, None)
    assert set(result.details["operators"]) <= {"relax.mean", "relax.exp", "relax.reshape"}


def test_a_padded_pool_is_no_mean(check):
    check(
        [((2, 3, 4, 4), F32)],
        lambda emit, x: emit(op.nn.avg_pool2d(x, (4, 4), padding=(1, 1, 1, 1))),
        ["nn.avg_pool2d"],
    )


def test_flattening_a_mean_drops_its_dims(check):
    def body(emit, x):
        return emit(op.reshape(emit(op.mean(x, [2, 3], True)), [2, 3]))

    check([((2, 3, 4, 5), F32)], body, ["mean"], mode="exact")


@pytest.mark.parametrize("phases", [ROWS, YOLO])
def test_patch_merging_is_space_to_depth(check, phases):
    def body(emit, x):
        parts = [emit(op.strided_slice(x, [1, 2], [a, b], [2**31 - 1] * 2, [2, 2])) for a, b in phases]
        return emit(op.concat(parts, -1))

    check([((2, 6, 4, 3), F32)], body, ["reshape", "permute_dims", "reshape"], mode="exact")


def test_the_product_of_an_open_slice_is_precomputed(check):
    table, weight = c(16, 4), c(4, 3)

    def body(emit, x):
        rows = emit(op.strided_slice(table, [0], [0], [x.ty.shape[0]]))
        return emit(op.add(x, emit(op.matmul(rows, weight))))

    result = check([(("n", 3), F32)], body, None, n=5)
    assert "relax.matmul" not in result.details["operators"]
