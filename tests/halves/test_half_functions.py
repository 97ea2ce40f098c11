"""Functions of numbers that have been rounded to float16: no more digits than these leave."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from board_tools import needs, needs_zig
from half_models import Net
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.boards import emulator
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.quantise.halves import largest_of
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.targets.resolve import resolve

PI5 = "raspberry-pi-5"


def gelus(rows: int, width: int) -> onnx.ModelProto:
    """GELU of a product by ones on the diagonal, which float16 has all digits of."""
    net = Net((rows, width))
    return net.model(net.add("Gelu", net.add("MatMul", "x0", net.const(np.eye(width, dtype=np.float32)))), opset=20)


def options(model: onnx.ModelProto, precision: str, **more: object) -> Options:
    found = largest_of(model, precision)
    return Options(resolve(PI5), precision=precision, halves=found, threads=1, **more)  # type: ignore[arg-type]


@pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)
def test_gelu_of_float16_has_no_division() -> None:
    """And pairs of constants, of which one of each alone is copied for what is added to it."""
    model = gelus(31, 67)
    for precision, divides in (("float16", False), ("float32", True)):
        kernels = run_pipeline(model, options(model, precision, stop_after="plan")).kernels
        objects = [m.object_of(k, resolve(PI5)) for k in kernels]
        text = m.disassembly(objects, resolve(PI5), m.tools().objdump)
        assert ("fdiv" in text) == divides
        if not divides:
            loops = [loop for code in m.functions(text).values() for loop in m.loops(code)]
            lines = max(([i.text for i in loop.instructions] for loop in loops), key=_added)
            assert 0 < sum(line.startswith(("mov v", "mov\tv")) for line in lines) <= 5 / 8 * _added(lines)


def _added(lines: list[str]) -> int:
    """Multiply-adds of float32."""
    return sum(line.startswith("fmla") and ".4s" in line for line in lines)


def test_gelu_of_float16_is_as_near_as_its_argument(tmp_path: Path) -> None:
    """Within what a rounding of the argument to float16 makes of it, at all magnitudes; exactly x and 0 far away."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    model = gelus(89, 67)
    x = np.linspace(-9, 9, 89 * 67).astype(np.float16).astype(np.float32).reshape(89, 67)
    x[3], x[5], x[7, :4], x[11] = 3000.0, -3000.0, (np.nan, np.inf, -np.inf, 0.0), x[11] / 4096
    run_pipeline(model, options(model, "float16", formats=("exe",)), output=tmp_path)
    with RemoteModel(tmp_path, " ".join(run)) as remote:
        (value,) = remote({"x0": x}).values()
    wide = x.astype(np.float64)
    expected = np.vectorize(lambda v: v * 0.5 * math.erfc(-v * 0.5**0.5) if math.isfinite(v) else v)(wide)
    clean = np.ones(89, bool)
    clean[7] = False  # a NaN and infinities meet all columns of their row
    np.testing.assert_array_equal(value[3], x[3])
    np.testing.assert_array_equal(value[5], 0 * x[5])
    assert np.isnan(value[7]).all()
    error, size = np.abs(value - expected)[clean], np.abs(wide)[clean]
    assert (error <= 4e-5 * size).all() and (error[size >= 4] <= 4e-5 * 5.0).all()
