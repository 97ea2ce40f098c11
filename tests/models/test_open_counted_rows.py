"""Rows of products, norms and copies whose length is a product of sizes: no element divides to find where it lies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tvm_ffi
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Build, Options
from halotile.schedules.tiled import TiledKernel
from halotile.targets.resolve import resolve
from tvm import tirx
from tvm.ir.prim import expr as prim

from ..support.open_models import Drawing, feeds
from ..support.open_runs import checked

CLOSE = 3e-5  # of the largest number
TYPICAL = {"n": 1, "h": 32, "w": 32}
SIZES = [(1, 4, 4), (2, 1, 1), (3, 5, 9), (1, 31, 17), (2, 64, 33)]


def product(g: Drawing, t: str, width: int) -> str:
    """A product with a residual sum and a number for each token."""
    scale = g("ReduceMax", t, axes=[2], keepdims=1)
    return g("Mul", g("Add", g.linear(t, width, width), t), scale)


def norm(g: Drawing, t: str, width: int) -> str:
    mean = g("ReduceMean", t, axes=[2], keepdims=1)
    apart = g("Sub", t, mean)
    deviation = g("Sqrt", g("Add", g("ReduceMean", g("Mul", apart, apart), axes=[2], keepdims=1), g.constant(1e-5)))
    return g("Add", g("Div", apart, deviation), t)


def drawn(part: Callable[[Drawing, str, int], str], width: int) -> Drawing:
    """``part`` on the tokens of a convolution's image, and an image of them."""
    g = Drawing(width)
    y = g.conv(g.input("x", "n", 3, "h", "w"), 3, width, 3, strides=[2, 2])
    sizes = g("Shape", y)
    t = part(g, g("Transpose", g("Reshape", y, g.constant([0, width, -1], np.int64)), perm=[0, 2, 1]), width)
    g.output(g.conv(g("Reshape", g("Transpose", t, perm=[0, 2, 1]), sizes), width, 5, 3), 4)
    return g


def built(g: Drawing, folder: Path | None, threads: int = 2, typical: dict[str, int] | None = None) -> Build:
    options = Options(resolve("x86-64-v3"), threads=threads, formats=("so",), open=True, typical=typical or TYPICAL)
    return run_pipeline(g.model().SerializeToString(), options, output=folder)


def divisions(build: Build) -> list[str]:
    """Where elements are read or written by a division of a loop's number."""
    found: list[str] = []

    def store(statement: tirx.BufferStore) -> None:
        def divided(e: tirx.PrimExpr) -> None:
            names: list[str] = []
            tvm_ffi.structural_walk(e.a, (tirx.Var, lambda v: names.append(v.name)))
            if not isinstance(e.b, tirx.IntImm) and set(names) - {"n", "h", "w"}:
                found.append(str(e))

        for part in (*statement.indices, statement.value):
            tvm_ffi.structural_walk(part, ((prim.FloorDiv, prim.FloorMod), divided))

    for kernel in build.kernels:
        if not isinstance(kernel, TiledKernel) and "conv" not in kernel.schedule:
            tvm_ffi.structural_walk(kernel.function.body, (tirx.BufferStore, held(store)))
    return found


def held(look: Callable[[tirx.BufferStore], None]) -> Callable[[tirx.BufferStore], None]:
    """``look``, but at no number that is kept for all that follows: those of tasks and of tiles."""
    return lambda s: None if str(s.buffer.dtype).startswith("int") else look(s)


@pytest.mark.parametrize("width", [16, 24, 7])
@pytest.mark.parametrize("part", [product, norm])
def test_rows_are_where_they_are_counted(part, width: int, tmp_path: Path) -> None:
    g = drawn(part, width)
    build = built(g, tmp_path / "out")
    assert any("matmul" in k.schedule or "staged" in k.schedule for k in build.kernels)
    assert not divisions(build)
    session = onnxruntime.InferenceSession(g.model().SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (n, h, w) in enumerate(SIZES):
            checked(library, session, feeds(g.model(), {"n": n, "h": h, "w": w}, number), CLOSE, (n, h, w))


def tasks_of(build: Build) -> list[str]:
    """How many tasks the copies have that cores share."""
    found: list[str] = []

    def look(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            found.append(str(loop.extent))

    for kernel in build.kernels:
        if kernel.schedule.startswith("map"):
            tvm_ffi.structural_walk(kernel.function.body, (tirx.For, look))
    return found


def test_tasks_of_a_copy_are_rows_where_these_are_enough(tmp_path: Path) -> None:
    """A task of one vector takes longer to find where it is than to copy; of few rows it takes columns too."""
    g = drawn(product, 16)
    wide = tasks_of(built(g, None, typical={"n": 1, "h": 128, "w": 128}))
    assert wide and not any("w" in extent for extent in wide)
    low = tasks_of(built(g, None, typical={"n": 1, "h": 2, "w": 8192}))
    assert any("w" in extent for extent in low)
