"""Functions of numbers that have been rounded to float16: no more digits than these leave."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
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
Make = Callable[[int, int], onnx.ModelProto]


def gelus(rows: int, width: int) -> onnx.ModelProto:
    """GELU of a product by ones on the diagonal, which float16 has all digits of."""
    net = Net((rows, width))
    return net.model(net.add("Gelu", net.add("MatMul", "x0", net.const(np.eye(width, dtype=np.float32)))), opset=20)


def between(rows: int, width: int) -> onnx.ModelProto:
    """The same, and another such product behind it, by which its result is float16 too."""
    net = Net((rows, width))
    one = np.eye(width, dtype=np.float32)
    y = net.add("Gelu", net.add("MatMul", "x0", net.const(one)))
    return net.model(net.add("MatMul", y, net.const(one.copy())), opset=20)


def silu_between(rows: int, width: int) -> onnx.ModelProto:
    """SiLU between two such products."""
    net = Net((rows, width))
    one = np.eye(width, dtype=np.float32)
    x = net.add("MatMul", "x0", net.const(one))
    return net.model(net.add("MatMul", net.add("Mul", x, net.add("Sigmoid", x)), net.const(one.copy())), opset=20)


def silu_stored(rows: int, width: int) -> onnx.ModelProto:
    """SiLU that is float32, as a mean reads it too, and lies in memory as float16; the mean's factor is 1."""
    net = Net((rows, 29, 7, width))
    one = np.eye(29, dtype=np.float32)[:, :, None, None]
    x = net.add("Conv", "x0", net.const(one))
    y = net.add("Mul", x, net.add("Sigmoid", x))
    mean = net.add("Mul", net.add("GlobalAveragePool", y), net.const(np.zeros((), np.float32)))
    gate = net.add("Add", mean, net.const(np.ones((), np.float32)))
    return net.model(net.add("Conv", net.add("Mul", y, gate), net.const(one.copy())), opset=20)


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


@pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)
@pytest.mark.parametrize("make", [between, silu_between, silu_stored])
def test_functions_from_float16_to_float16_have_no_float32(make: Make) -> None:
    """Eight lanes at a time; where the result stays float32, and in builds without float16, there are four."""
    tile = "off" if make is silu_stored else "auto"  # a group of tiles is a driver; its kernels are parts
    for made, precision, half in ((make, "float16", True), (gelus, "float16", False), (make, "float32", False)):
        model = made(31, 67)
        kernels = run_pipeline(model, options(model, precision, stop_after="plan", tile=tile)).kernels
        objects = [m.object_of(k, resolve(PI5)) for k in kernels]
        functions = m.functions(m.disassembly(objects, resolve(PI5), m.tools().objdump)).values()
        lines = [i.text for code in functions for loop in m.loops(code) for i in loop.instructions]
        assert any("smax" in line and ".8h" in line for line in lines) == half
        assert make is silu_stored or any("fmla" in line and ".4s" in line for line in lines) != half


def _gelu(x: float) -> float:
    return x * 0.5 * math.erfc(-x * 0.5**0.5)


def _silu(x: float) -> float:
    return x / (1 + math.exp(-x)) if x > -700 else 0.0


@pytest.mark.parametrize(
    ("make", "function", "most", "end"),
    [(between, _gelu, 1.3e-3, 4), (silu_between, _silu, 1.4e-3, 10.1), (silu_stored, _silu, 1.4e-3, 10.1)],
)
def test_functions_of_every_float16(
    make: Make, function: Callable[[float], float], most: float, end: float, tmp_path: Path
) -> None:
    """As near as is said of them; 0 and x beyond ``end``; NaN stays, where no mean reads it."""
    run = emulator(resolve(PI5))
    needs(run[0])
    needs_zig()
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    numbers = numbers[np.isfinite(numbers)]
    width = 67
    x = np.resize(np.random.default_rng(5).permutation(numbers), (-(-len(numbers) // width), width))
    x = np.concatenate([x, np.full((2, width), np.nan, np.float16)]).astype(np.float32)
    x[-1] = -x[-1]  # of the other sign
    if make is silu_stored:
        x = np.resize(x[:-2], (-(-len(x) // (29 * 7)), 29, 7, width))
    model = make(len(x), width)
    run_pipeline(model, options(model, "float16", formats=("exe",)), output=tmp_path)
    with RemoteModel(tmp_path, " ".join(run)) as remote:
        (value,) = remote({"x0": x}).values()
    if make is not silu_stored:
        assert np.isnan(value[-2:]).all()
        x, value = x[:-2], value[:-2]
    x, value = x.astype(np.float64), value.astype(np.float64)
    assert set(x.ravel().astype(np.float16)) == set(numbers)
    error, size = np.abs(value - np.vectorize(function)(x)), np.abs(x)
    assert (error <= most * size + 2.0**-24).all()
    assert (error[x < 0] <= 9e-4).all()
    np.testing.assert_array_equal(value[size >= end], np.maximum(x, 0)[size >= end])


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
