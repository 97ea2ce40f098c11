"""Kernels of open dimensions compute what sizes decide once, before their loops, whatever lines are unrolled."""

from __future__ import annotations

import ctypes
import subprocess
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from halotile.compiler.codegen.held_sizes import LONG, has, held
from halotile.compiler.codegen.objects import build_object
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.words.dims import Dim, floor_div, to_index
from halotile.targets.resolve import resolve
from tvm import tirx


def turned(rows: Any, columns: Any, unrolled: int = 4) -> Any:
    """A kernel that copies ``rows * columns`` numbers to where they lie in the transposed matrix, a few in each task;
    ``tasks`` of them, the last moved back."""
    k = KernelBuilder("turned")
    count = rows * columns
    x, y = k.pointer("x", "float32", count), k.pointer("y", "float32", count)
    tasks, last = floor_div(count + (unrolled - 1), unrolled), to_index(count - unrolled)
    with k.loop(tasks, "parallel", "t") as t:
        first = k.bind(tirx.min(t * unrolled, last))
        quarter = k.bind(tirx.floordiv(t, 4))
        with k.loop(unrolled, "unroll", "u") as u:
            at = k.bind(first + u)
            place = tirx.floormod(at, to_index(columns)) * to_index(rows) + tirx.floordiv(at, to_index(columns))
            k.store(y, place, x[at] + tirx.Cast("float32", quarter) * 0)
    return k.finish()


def halves() -> tuple[Any, Any]:
    """Rows and columns of a map at half the size of an image."""
    return (floor_div(Dim.symbol("held_h", low=2) + 1, 2), floor_div(Dim.symbol("held_w", low=2) + 1, 2))


def loops(statement: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(statement, (tirx.For, found.append))
    return found


def test_a_kernel_without_sizes_stays() -> None:
    function = turned(6, 5)
    assert held(function) is function


def test_sizes_are_computed_once_and_before_all_loops() -> None:
    function = turned(*halves())
    made = held(function)
    symbols = list(made.params[-2:])
    assert [s.name for s in symbols] == ["held_h", "held_w"]

    def of_sizes(value: Any) -> bool:
        return any(u.same_as(s) for u in tirx.analysis.undefined_vars(value) for s in symbols)

    def quotients(root: Any) -> int:
        found: list[Any] = []
        tvm_ffi.structural_walk(
            root,
            (
                (tirx.Buffer, lambda _: tvm_ffi.WalkResult.SKIP),  # of shapes nothing is computed
                (LONG, lambda value: found.append(value) if of_sizes(value) else None),
            ),
            order="pre",
        )
        return len(found)

    assert quotients(loops(function.body)[0].body) > 3
    for loop in loops(made.body):
        assert not quotients(loop.body) and isinstance(loop.extent, (tvm.ir.expr.TensorLoad, tvm.tirx.IntImm))
    stored: list[Any] = []
    tvm_ffi.structural_walk(made.body, (tirx.BufferStore, lambda s: stored.append(s) if of_sizes(s.value) else None))
    keys = [tvm_ffi.StructuralKey(s.value) for s in stored]
    assert len(keys) >= 3 and len(set(keys)) == len(keys)


def test_names_that_sizes_do_not_enter_stay_names() -> None:
    bound: list[Any] = []
    tvm_ffi.structural_walk(held(turned(*halves())).body, (tirx.Bind, bound.append))
    assert [b for b in bound if has(b.value, LONG)]  # the quotient of a number by four
    assert all(not has(b.value, (tvm.ir.expr.TensorLoad,)) or not has(b.value, LONG) for b in bound)


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 8), (7, 13), (31, 5)])
def test_the_numbers_are_right(rows: int, columns: int, tmp_path: Any) -> None:
    function = turned(*halves()).with_attrs({"global_symbol": "turned", "calling_conv": 1})
    code = build_object(tvm.IRModule({"turned": serial(function)}), resolve("native"))
    (tmp_path / "k.o").write_bytes(code)
    subprocess.run(["cc", "-shared", "-o", tmp_path / "k.so", tmp_path / "k.o"], check=True)
    x = np.arange(((rows + 1) // 2) * ((columns + 1) // 2), dtype=np.float32)
    y = np.full_like(x, -1)
    pointer = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    assert ctypes.CDLL(str(tmp_path / "k.so")).turned(*pointer, rows, columns) == 0
    assert (y.reshape((columns + 1) // 2, (rows + 1) // 2) == x.reshape((rows + 1) // 2, -1).T).all()


def serial(function: Any) -> Any:
    """The function with plain loops, which needs no threads of a runtime."""

    def plain(loop: Any, mutator: Any) -> Any:
        loop = mutator.default_mutate(loop)
        parallel = loop.kind == tirx.ForKind.PARALLEL
        kind = tirx.ForKind.SERIAL if parallel else loop.kind
        return tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body)

    body = tvm_ffi.structural_mutate(function.body, ((tirx.For, plain),))
    return tirx.PrimFunc(function.params, body, function.ret_type, function.attrs)
