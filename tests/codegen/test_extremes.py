"""Maxima and minima are one instruction on 64-bit ARM, keep every NaN, and stay choices everywhere else."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from board_tools import needs, needs_zig
from halotile.benchmarks import machine_code as m
from halotile.benchmarks.boards import emulator
from halotile.compiler.codegen.extremes import LARGER, SMALLER, extremes, has_extremes
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Options
from halotile.schedules.emit.builder import KernelBuilder
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from onnx import TensorProto, helper
from tvm import tirx
from tvm.ir.prim import expr as prim

needs_objdump = pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)
PI5 = "raspberry-pi-5"


def rewritten(make: object, target: Target, dtype: str = "float32") -> str:
    """The text of one store of what ``make`` writes of two elements."""
    k = KernelBuilder("extremes")
    a, b, c = (k.pointer(name, dtype, 4) for name in "abc")
    zero = tirx.IntImm("int32", 0)
    k.store(c, 0, make(a[zero], b[zero]))  # type: ignore[operator]
    return extremes(k.finish(), target).script()


def number(value: float) -> tirx.FloatImm:
    return tirx.FloatImm("float32", value)


INF = number(float("inf"))


@pytest.mark.parametrize(("make", "name"), [
    (lambda a, b: tirx.Select(a < number(0), number(0), a), LARGER),
    (lambda a, b: tirx.Select(number(6) < a, number(6), a), SMALLER),
    (lambda a, b: tirx.Select(prim.GT(a, number(6)), number(6), a), SMALLER),
    (lambda a, b: tirx.Select(prim.GE(number(0), a), number(0), a), LARGER),
    (lambda a, b: tirx.Select(b <= INF, tirx.Select(a < b, b, a), b), LARGER),
    (lambda a, b: tirx.Select(b <= INF, tirx.Select(b < a, b, a), b), SMALLER),
])  # fmt: skip
def test_choices_that_keep_nan_are_the_instruction(make: object, name: str) -> None:
    text = rewritten(make, resolve(PI5))
    assert name in text and "Select" not in text


@pytest.mark.parametrize("make", [
    lambda a, b: tirx.Select(a < b, b, a),  # of NaN and a number it takes the number, or NaN
    lambda a, b: tirx.Select(number(0) < a, a, number(0)),  # NaN becomes 0
    lambda a, b: tirx.Select(a < number(0), number(1), a),
    lambda a, b: tirx.Select(a < number(float("nan")), number(float("nan")), a),
    lambda a, b: tirx.Select(b <= INF, tirx.Select(a < b, b, a), a),
    lambda a, b: tirx.Select(a <= INF, tirx.Select(a < b, b, a), b),
    lambda a, b: tirx.Select(b <= number(1), tirx.Select(a < b, b, a), b),
    lambda a, b: tirx.Select(tirx.EQ(a, number(0)), number(0), a),
])  # fmt: skip
def test_other_choices_stay(make: object) -> None:
    text = rewritten(make, resolve(PI5))
    assert LARGER not in text and SMALLER not in text and "Select" in text


def test_halves_need_an_instruction_of_halves() -> None:
    def make(a: object, b: object) -> object:
        zero = tirx.FloatImm("float16", 0.0)
        return tirx.Select(a < zero, zero, a)  # type: ignore[operator]

    assert LARGER in rewritten(make, resolve(PI5), "float16")
    assert LARGER not in rewritten(make, resolve("raspberry-pi-4"), "float16")


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "raspberry-pi-2-32", "wasm32"])
def test_others_have_none(name: str) -> None:
    assert not has_extremes(resolve(name))


def model() -> onnx.ModelProto:
    """Every kind of extreme, of values that infinities, NaN and zeros are among."""
    value = helper.make_tensor_value_info
    low, high = (helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in (("low", -0.5), ("high", 1.5)))
    nodes = [
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Clip", ["x", "low", "high"], ["clip"]),
        helper.make_node("Max", ["x", "z"], ["max"]),
        helper.make_node("Min", ["x", "z"], ["min"]),
        helper.make_node("MaxPool", ["x"], ["pool"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        helper.make_node("ReduceMin", ["x"], ["least"], axes=[3], keepdims=0),
    ]
    shape = [1, 5, 11, 13]
    outputs = {"relu": shape, "clip": shape, "max": shape, "min": shape, "pool": [1, 5, 6, 7], "most": [1, 11, 13],
               "least": [1, 5, 11]}  # fmt: skip
    graph = helper.make_graph(
        nodes, "extremes", [value("x", TensorProto.FLOAT, shape), value("z", TensorProto.FLOAT, shape)],
        [value(n, TensorProto.FLOAT, s) for n, s in outputs.items()], [low, high],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_board_keeps_nan_and_takes_the_right_ones(tmp_path: Path) -> None:
    target = resolve(PI5)
    command = emulator(target)
    needs(command[0])
    needs_zig()
    build = run_pipeline(model(), Options(target, threads=1, formats=("exe",)), output=tmp_path / "out")
    assert build.kernels
    rng = np.random.default_rng(6)
    x, z = rng.standard_normal((2, 1, 5, 11, 13)).astype(np.float32)
    for array in (x, z):
        special = rng.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], array.shape).astype(np.float32)
        array[:] = np.where(rng.random(array.shape) < 0.08, special, array)
    with RemoteModel(tmp_path / "out", " ".join(command)) as remote:
        found = remote({"x": x, "z": z})
    windows = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    pools = [windows[:, :, i : i + 11 : 2, j : j + 13 : 2] for i in range(3) for j in range(3)]
    zero = np.float32(0)
    wanted = {
        "relu": np.maximum(x, zero), "clip": np.minimum(np.maximum(x, np.float32(-0.5)), np.float32(1.5)),
        "max": np.maximum(x, z), "min": np.minimum(x, z), "pool": np.fmax.reduce(pools),
        "most": x.max(axis=1), "least": x.min(axis=3),
    }  # fmt: skip
    for name, array in wanted.items():
        assert np.isnan(array).any() or name == "pool", name  # which passes over NaN, as ONNX Runtime's does
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@needs_objdump
def test_an_epilogue_compares_and_chooses_no_more() -> None:
    clipped = helper.make_model(
        helper.make_graph(
            [helper.make_node("Clip", ["x", "low", "high"], ["y"])], "clip",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 8, 8])],
            [helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in (("low", 0.0), ("high", 6.0))],
        ), opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip

    def names(target: Target) -> set[str]:
        build = run_pipeline(clipped, Options(target, threads=1, stop_after="plan"))
        text = m.disassembly([m.object_of(k, target) for k in build.kernels], target, m.tools().objdump)
        return {i.text.split()[0] for i in m.functions(text)[m.NAME]}

    found = names(resolve(PI5))
    assert {"fmax", "fmin"} <= found and not found & {"fcmgt", "fcmlt", "bit", "bic", "bsl"}
    assert tvm.__version__ and {"vmaxps", "vminps"} <= names(resolve("x86-64-v3"))
