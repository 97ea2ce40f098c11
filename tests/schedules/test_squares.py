"""Transposes by squares in registers: every size around the side, every width of vectors and of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import Compiled, module_of, narrow, native, staged
from halotile.schedules.emit.register_transpose import side_of
from halotile.schedules.general.loop_interchange import NOTE
from tvm import relax

R = relax.op


def notes(build: Any) -> list[str]:
    return [note for kernel in build.kernels for note in kernel.notes]


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int64", "int32"])
@pytest.mark.parametrize("bits", [128, 256])
def test_sides_of_odd_sizes(dtype: str, bits: int) -> None:
    if bits > native().vector_bits:
        pytest.skip("longer vectors than this machine's")
    side = side_of(bits, np.dtype(dtype).itemsize)
    for rows, columns in ((side, side), (side + 1, 3 * side - 1), (5 * side + 3, 2 * side), (41, 131)):
        x = np.random.default_rng(rows).integers(-90, 90, (rows, columns)).astype(dtype)
        build = staged(module_of([x], lambda x: R.permute_dims(x, (1, 0))), narrow(bits))
        assert notes(build) == ([NOTE] if min(rows, columns) >= side else []), (rows, columns)
        np.testing.assert_array_equal(Compiled(build).run([x])[0], x.T)


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (0, 3, 2, 1), (3, 2, 1, 0), (2, 3, 0, 1), (0, 3, 1, 2), (1, 3, 0, 2)])
def test_any_order_of_axes_with_a_function_behind(axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal((19, 17, 21, 33)).astype("float32")
    build = staged(module_of([x], lambda x: R.nn.relu(R.permute_dims(R.add(x, x), axes))))
    assert (NOTE in notes(build)) == (axes[-1] != 3)
    np.testing.assert_array_equal(Compiled(build).run([x])[0], np.maximum((x + x).transpose(axes), 0))


@pytest.mark.parametrize("shape", [(40, 48), (41, 50)])
def test_nothing_is_written_twice_over_an_operand(shape: tuple[int, int]) -> None:
    """The sum may lie in the memory of its second operand: sizes that no squares divide are computed without them (of
    eight lanes, four or one)."""
    x = np.random.default_rng(2).standard_normal(shape).astype("float32")
    y = np.random.default_rng(3).standard_normal(shape[::-1]).astype("float32")

    def body(x: Any, y: Any) -> Any:
        return R.add(R.permute_dims(x, (1, 0)), R.nn.relu(y))

    build = staged(module_of([x, y], body), narrow(min(256, native().vector_bits)))
    assert (NOTE in notes(build)) == (shape == (40, 48) or native().lanes() == 1)
    np.testing.assert_array_equal(Compiled(build).run([x, y])[0], x.T + np.maximum(y, 0))


def test_reads_that_jump_along_the_axis_are_left_as_they_are() -> None:
    """Every second column: squares would be of elements that nobody wants."""
    x = np.random.default_rng(4).standard_normal((40, 96)).astype("float32")
    build = staged(module_of([x], lambda x: R.permute_dims(R.strided_slice(x, [1], [0], [96], [2]), (1, 0))))
    assert NOTE not in notes(build)
    np.testing.assert_array_equal(Compiled(build).run([x])[0], x[:, ::2].T)
