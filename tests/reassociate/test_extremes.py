"""Extremes of transposed tensors are read across instead, slices with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halotile.passes.reassociate import Reassociate
from halotile.schedules.operators.registry import call
from relax_modules import module, operators, values
from tvm import relax

op = relax.op


def rewritten(mod: Any) -> tuple[list[str], dict[str, int]]:
    result = Reassociate().apply(mod)
    for a, b in zip(values(mod), values(result.module), strict=True):
        np.testing.assert_array_equal(a, b)
    return operators(result.module), result.details.get("applied", {})


@pytest.mark.parametrize("keep", [False, True])
def test_the_head_of_a_detector(keep: bool) -> None:
    def body(emit: Any, x: Any) -> Any:
        turned = emit(op.permute_dims(x, [0, 2, 1]))
        scores = emit(op.strided_slice(turned, [2], [4], [19]))
        place = emit(call("halotile.argmax", scores, axis=2, keepdims=keep, last=False))
        return emit(op.max(scores, [2], keep)), place, emit(op.strided_slice(turned, [2], [0], [4]))

    ops, applied = rewritten(module(body, (2, 19, 37)))
    assert applied == {"extreme-as-it-lies": 2}
    assert ops.count("permute_dims") == 1 and ops.count("strided_slice") == 3  # boxes, and classes for each extreme
    assert ops.count("reshape") == 2 * keep


@pytest.mark.parametrize("axes", [[1], [2], [1, 3]])
@pytest.mark.parametrize("order", [[0, 2, 3, 1], [0, 3, 1, 2], [3, 0, 2, 1]])
def test_axes_that_are_left_keep_their_order(order: list[int], axes: list[int]) -> None:
    def body(emit: Any, x: Any) -> Any:
        return emit(op.min(emit(op.permute_dims(x, order)), axes, True))

    ops, _ = rewritten(module(body, (2, 3, 4, 5)))
    left = [a for k, a in enumerate(order) if k not in axes]
    assert ("permute_dims" in ops) == (left != sorted(left))


def test_a_slice_that_others_read_stays() -> None:
    def body(emit: Any, x: Any) -> Any:
        scores = emit(op.strided_slice(emit(op.permute_dims(x, [0, 2, 1])), [2], [4], [19]))
        return emit(op.max(scores, [2])), emit(op.exp(scores))

    assert rewritten(module(body, (2, 19, 37)))[1] == {}
