"""Kernels of open dimensions that are the same but for numbers: which share a function, what they pass, and results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from halotile.compiler.codegen.shared_kernels import caller_of, shared_kernels
from halotile.compiler.flow.kernel import kernels_of
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.runtime.loader import load
from halotile.compiler.state import Options
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.emit.open_sizes import SIZES
from halotile.schedules.tiled import TiledKernel
from halotile.schedules.words.atoms import variable
from halotile.schedules.words.tvm_types import Expr, PrimFunc
from halotile.targets.resolve import resolve
from tvm import tirx

from ..support.open_models import Drawing, feeds
from ..support.open_runs import run_in

CLOSE = 3e-5  # of the largest number of an output


def copy_of(
    rows: int = 8, apart: int = 16, divisor: int = 4, written_out: int = 2, memory: int = 4, size: str = "h",
    last: Callable[[Expr], Expr] = lambda h: h,
) -> PrimFunc:  # fmt: skip
    """y[...] = x[...] in loops of such numbers and of a size."""
    k = KernelBuilder("copy")
    x, y = k.pointer("x", "float32", rows * apart), k.pointer("y", "float32", rows * apart)
    h = variable(size, "int32")
    held = k.local("held", "float32", memory)
    with k.loop(rows, name="r", kept=True) as r, k.loop(last((h + 7) // 8), name="c") as c:
        with k.loop(written_out, "unroll", name="u") as u:
            k.store(held, u, x[r * apart + c])
            k.store(y, r * ((h + 7) // 8) + tirx.floordiv(c, divisor), held[u])
    function = k.finish()
    params = [*function.params[:2], h]
    return tirx.PrimFunc(params, function.body, function.ret_type, function.attrs).with_attr(SIZES, [size])


def shared(*functions: PrimFunc) -> dict:
    return shared_kernels([(f"f{i}", "a copy", function) for i, function in enumerate(functions)])


def test_numbers_and_expressions_of_sizes_are_passed() -> None:
    found = shared(copy_of(), copy_of(rows=3, apart=5), copy_of(rows=3, last=lambda n: n * 2 + 1))
    assert set(found) == {"f0", "f1", "f2"}
    assert all(kernel.function.same_as(found["f0"].function) for kernel in found.values())
    passed = [[str(n) for n in kernel.numbers] for kernel in found.values()]
    assert {"8", "16"} <= set(passed[0]) and {"3", "5"} <= set(passed[1]), passed
    assert any("* 2 + 1" in n for n in passed[2]), passed
    text = caller_of(copy_of(rows=3, apart=5), found["f1"], "general").script()
    assert '"general"' in text and "3" in text and "5" in text


def test_different_symbols_are_numbers_too() -> None:
    found = shared(copy_of(), copy_of(size="w"))
    assert [any("w" in str(n) for n in kernel.numbers) for kernel in found.values()] == [False, True]
    assert not any("w" == v.name or "h" == v.name for v in found["f1"].function.params)


@pytest.mark.parametrize("other", [{"divisor": 8}, {"written_out": 4}, {"memory": 8}], ids=str)
def test_what_code_is_made_of_is_not(other) -> None:
    assert not shared(copy_of(), copy_of(**other))


def test_kernels_of_other_kinds_share_nothing() -> None:
    functions = [("f0", "a copy", copy_of()), ("f1", "another", copy_of(rows=3))]
    assert not shared_kernels(functions)


def test_networks_share_and_numbers_stay(tmp_path) -> None:
    """Layers of several channels and scales: depthwise, 1x1 with and without residuals, 3x3, margins, pools."""
    g = Drawing(3)
    x = g("Relu", g.conv(g.input("x", "n", 3, "h", "w"), 3, 32, 3))
    channels = 32
    for wide in (64, 96, 128):
        y = g("Relu", g.conv(x, channels, wide, 1))
        y = g("Relu", g.conv(y, wide, wide, 3, groups=wide))
        x = g("Add", g.conv(y, wide, channels, 1), x)
        x = g("MaxPool", g("Relu", g.conv(x, channels, wide, 3)), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
        channels = wide
    g.output(x, 4)
    proto = g.model()
    typical = {"n": 1, "h": 48, "w": 48}
    options = Options(resolve("x86-64-v3"), threads=2, open=True, formats=("so",), typical=typical)
    build = run_pipeline(proto.SerializeToString(), options, output=tmp_path / "out")
    parts = {p.function: p for k in build.kernels for p in kernels_of(k) if not isinstance(p, TiledKernel)}.values()
    found = shared_kernels([(str(i), part.schedule, part.function) for i, part in enumerate(parts)])
    assert len(found) >= 12, "no kernels share a function"
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with load(tmp_path / "out") as library:
        for number, (h, w) in enumerate([(48, 48), (1, 1), (7, 31), (2, 65), (53, 3), (37, 41)]):
            sizes = {"n": 1 + number % 3, "h": h, "w": w}
            given = feeds(proto, sizes, number)
            (wanted,) = session.run(None, given)
            ordered = {s.name: sizes[s.name] for s in build.imported.symbols}
            results = [run_in(library, ordered, given["x"], threads, 0xFF) for threads in (1, 2)]
            assert np.abs(results[0] - wanted).max() <= CLOSE * max(1.0, np.abs(wanted).max()), sizes
            assert np.array_equal(*results), sizes
