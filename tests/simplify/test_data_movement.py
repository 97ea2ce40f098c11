"""Expand and Tile: dropped, sunk, shrunk; and where they must stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

op = relax.op
F32 = "float32"


@pytest.mark.parametrize("batch", [2, "n"])
def test_expand_before_a_broadcasting_operator_goes(check, batch):
    def body(emit, x, z):
        return emit(op.add(emit(op.broadcast_to(x, z.ty.shape)), z))

    check([((1, 4), F32), ((batch, 4), F32)], body, ["add"], mode="exact", n=3)


def test_tile_of_a_dim_of_one_goes(check):
    def body(emit, x, z):
        return emit(op.multiply(emit(op.tile(x, [1, 3, 1])), z))

    check([((2, 1, 4), F32), ((2, 3, 4), F32)], body, ["multiply"], mode="exact")


def test_expand_that_gives_the_shape_stays_but_sinks(check, tools):
    def body(emit, x):
        y = emit(op.broadcast_to(x, [5, 4]))
        y = emit(op.multiply(y, tools.const(np.float32(2))))
        return emit(op.exp(y))

    result = check([((1, 4), F32)], body, ["multiply", "exp", "broadcast_to"], mode="exact")
    assert result.details["applied"]["sink-broadcast"] == 2


def test_expand_to_an_open_dim_that_no_other_operand_has_sinks(check):
    def body(emit, x, z):
        return emit(op.add(emit(op.broadcast_to(x, [z.ty.shape[0], 4])), emit(op.exp(x))))

    check([((1, 4), F32), (("n", 4), F32)], body, ["exp", "add", "broadcast_to"], n=3)


def test_expand_that_other_readers_need_stays(check):
    def body(emit, x, z):
        full = emit(op.broadcast_to(x, [z.ty.shape[0], 4]))
        return emit(op.matmul(full, emit(op.exp(emit(op.permute_dims(full, [1, 0]))))))

    check([((1, 4), F32), (("n", 4), F32)], body, ["broadcast_to", "permute_dims", "exp", "matmul"], n=3)


def test_true_repeats_sink_past_constants_that_do_not_vary(check, tools):
    rows = tools.const(np.arange(3, dtype=F32).reshape(3, 1))

    def body(emit, x):
        y = emit(op.tile(x, [1, 2]))
        y = emit(op.multiply(y, rows))
        return emit(op.add(y, tools.const(np.float32(1))))

    check([((3, 4), F32)], body, ["multiply", "add", "tile"], mode="exact")


def test_a_constant_that_varies_along_the_tiled_axis_keeps_the_tile(check, tools):
    columns = tools.const(np.arange(8, dtype=F32))
    check(
        [((3, 4), F32)],
        lambda emit, x: emit(op.multiply(emit(op.tile(x, [1, 2])), columns)),
        ["tile", "multiply"],
    )


def test_two_tiles_alike_become_one(check):
    def body(emit, x, y):
        return emit(op.add(emit(op.tile(x, [2, 1])), emit(op.tile(y, [2, 1]))))

    check([((3, 4), F32), ((3, 4), F32)], body, ["add", "tile"], mode="exact")


def test_expand_of_a_batch_before_matmul_goes(check):
    def body(emit, x, y):
        return emit(op.matmul(emit(op.broadcast_to(x, [3, 2, 4])), y))

    check([((1, 2, 4), F32), ((3, 4, 5), F32)], body, ["matmul"], mode="exact")


def test_a_constant_that_repeats_shrinks(check, tools):
    bias = np.broadcast_to(np.arange(3, dtype=F32).reshape(1, 3, 1), (2, 3, 4)).copy()
    result = check(
        [((2, 3, 4), F32)], lambda emit, x: emit(op.add(x, tools.const(bias))), ["add"], mode="exact"
    )
    assert result.details["applied"] == {"shrink-constant": 1}


def test_large_broadcasts_of_constants_are_not_baked(check, tools):
    def body(emit, x):
        full = emit(op.broadcast_to(tools.const(np.float32(3)), [1200, 1100]))
        return emit(op.matmul(x, full))

    check(
        [((1, 1200), F32)], body, ["broadcast_to", "matmul"], declined="the constant would take 5280000 bytes"
    )


def test_a_causal_mask_becomes_a_constant(check, tools):
    """arange, comparison, where: all of it is known."""

    def body(emit, s):
        n = 6
        row = emit(op.reshape(emit(op.arange(0, n, 1, "int64")), [n, 1]))
        column = emit(op.reshape(emit(op.arange(0, n, 1, "int64")), [1, n]))
        seen = emit(op.less_equal(column, row))
        mask = emit(op.where(seen, tools.const(0.0), tools.const(-np.inf)))
        return emit(op.add(s, mask))

    check([(("b", 6, 6), F32)], body, ["add"], mode="exact", b=2)


def test_one_tile_that_feeds_two_chains_sinks_where_they_join(check):
    def body(emit, x):
        t = emit(op.tile(x, [1, 2]))
        u = emit(op.multiply(emit(op.exp(t)), relax.const(2.0, F32)))
        return emit(op.add(u, emit(op.tanh(t))))

    result = check([((3, 4), F32)], body, ["exp", "multiply", "tanh", "add", "tile"], mode="exact")
    assert result.details["applied"] == {"sink-shared-broadcast": 1}


def test_one_tile_whose_chains_never_join_stays(check):
    def body(emit, x):
        t = emit(op.tile(x, [1, 2]))
        return emit(op.exp(t)), emit(op.tanh(t))

    check([((3, 4), F32)], body, ["tile", "exp", "tanh"])
