"""What a listing counts as one operator, and that its members are what is left."""

from __future__ import annotations

import halotile
import numpy as np
import pytest
from exports import EXPORTS
from halotile.passes.simplify import Simplify
from halotile.passes.simplify.composites import composites
from halotile.passes.simplify.convert import read
from tvm import relax

op = relax.op
F32 = "float32"


def found(tools, inputs, body) -> list[tuple[str, int, dict]]:
    result = Simplify().apply(tools.module(inputs, body))
    return [(c.operator, len(c.members), c.attributes) for c in composites(read(result.module["main"]))]


def c(*shape: int):
    return relax.const(np.random.default_rng(0).standard_normal(shape).astype(F32))


def attended(emit, q, k, v, mask):
    scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = emit(op.add(emit(op.divide(scores, relax.const(1.7, F32))), mask))
    return emit(op.matmul(emit(op.nn.softmax(scores, -1)), v))


@pytest.mark.parametrize("batch", [2, "n"])
def test_attention_with_its_scale_and_mask(tools, batch) -> None:
    heads = ([batch, 2, 5, 4], F32)
    inputs = [heads] * 3 + [([batch, 1, 1, 5], F32)]
    assert found(tools, inputs, attended) == [("halotile.attention", 6, {"masked": True})]


def test_attention_whose_weights_are_an_output_is_none(tools) -> None:
    def body(emit, q, k, v):
        weights = emit(op.nn.softmax(emit(op.matmul(q, k)), -1))
        return [weights, emit(op.matmul(weights, v))]

    assert found(tools, [([2, 5, 4], F32), ([2, 4, 5], F32), ([2, 5, 4], F32)], body) == []


def test_bias_belongs_to_its_convolution_and_its_product(tools) -> None:
    def body(emit, x, y):
        conv = emit(op.add(emit(op.nn.conv2d(x, c(4, 3, 3, 3))), c(1, 4, 1, 1)))
        return [conv, emit(op.add(emit(op.matmul(y, c(4, 5))), c(5)))]

    image, row = ([2, 3, 8, 8], F32), ([2, 4], F32)
    expected = [("relax.nn.conv2d", 2, {"bias": True}), ("halotile.linear", 2, {"bias": True})]
    assert found(tools, [image, row], body) == expected


def test_a_product_reads_its_operands_transposed(tools) -> None:
    def body(emit, x, y):
        return emit(op.multiply(emit(op.matmul(x, emit(op.permute_dims(y, [0, 2, 1])))), relax.const(0.5, F32)))

    row = ([2, 3, 4], F32)
    assert found(tools, [row, row], body) == [("relax.matmul", 3, {"alpha": 0.5, "transpose_b": True})]


@pytest.mark.parametrize(
    ("parts", "axes", "result", "expected"),
    [
        ([2, 3, 2, 2, 4, 5], [0, 1, 4, 2, 5, 3], [2, 3, 8, 10], ("halotile.depth_to_space", "CRD")),
        ([2, 2, 2, 3, 4, 5], [0, 3, 4, 1, 5, 2], [2, 3, 8, 10], ("halotile.depth_to_space", "DCR")),
        ([2, 3, 4, 4, 5], [0, 2, 1, 3, 4], [2, 12, 4, 5], ("halotile.channel_shuffle", None)),
        ([2, 12, 2, 2, 5, 1], [0, 3, 5, 1, 2, 4], [2, 24, 2, 5], None),
    ],
)
def test_shuffles(tools, parts, axes, result, expected) -> None:
    def body(emit, x):
        return emit(op.reshape(emit(op.permute_dims(emit(op.reshape(x, parts)), axes)), result))

    got = found(tools, [([2, 12, 4, 5], F32)], body)
    assert [(o, a.get("mode")) for o, _, a in got] == ([expected] if expected else [])


def test_group_norm_and_the_length_of_vectors(tools) -> None:
    def body(emit, x, y):
        norm = emit(op.nn.layer_norm(emit(op.reshape(x, [2, 2, 48])), c(48), c(48), axes=[-1]))
        norm = emit(op.add(emit(op.multiply(emit(op.reshape(norm, [2, 6, 4, 4])), c(6, 1, 1))), c(6, 1, 1)))
        return [norm, emit(op.sqrt(emit(op.sum(emit(op.multiply(y, y)), [1], True))))]

    got = found(tools, [([2, 6, 4, 4], F32), ([2, 5], F32)], body)
    assert [(o, n) for o, n, _ in got] == [("halotile.group_norm", 5), ("halotile.reduce_l2", 3)]


def test_a_slice_of_one_whose_axis_goes(tools) -> None:
    def body(emit, x):
        first = emit(op.reshape(emit(op.strided_slice(x, [1], [0], [1])), [2, 4]))
        return [first, emit(op.reshape(emit(op.strided_slice(x, [1], [0], [2])), [2, 8]))]

    assert found(tools, [([2, 3, 4], F32)], body) == [("halotile.select", 2, {"axis": 1})]


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_the_listing_of_an_export_has_every_operator_once(name: str) -> None:
    """Members and single operators together are what the pass left, and each composite reads what is listed before."""
    listed = halotile.inspect(EXPORTS[name](2, 5), stage="simplify")
    raw = listed["details"]["simplify"]["operators_after"]
    assert sum(len(o.get("members", [o])) for o in listed["operators"]) == raw
    assert len({o["name"] for o in listed["operators"]}) == listed["nodes_after"] <= raw
