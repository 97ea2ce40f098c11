"""Loads stay in their steps on 64-bit ARM out of order: no register tile goes to the stack, no instruction does it."""

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
from halotile.benchmarks.cases import Case, conv_case
from halotile.benchmarks.graph import ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.codegen.module import C_CALL
from halotile.compiler.codegen.objects import build_object
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.remote.model import RemoteModel
from halotile.compiler.state import Build, Options
from halotile.compiler.verify import verify
from halotile.schedules.conv.direct import kernel as direct
from halotile.schedules.conv.direct import reduction_steps
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.instructions import load_order
from halotile.schedules.instructions.opaque_numbers import any_number
from halotile.targets.resolve import resolve
from halotile.targets.target import Target
from onnx import TensorProto, helper, numpy_helper

CALL = f'"{load_order.NO_BYTES}"'
# 1x1 layers that ran at 58 to 80% of a Cortex-A76's rate: steps that go on where others ended, and many vectors
SPILLED = (conv_case(64, 256, 28, 1), conv_case(64, 384, 14, 1))
needs_objdump = pytest.mark.skipif(
    not any(shutil.which(f"llvm-objdump{v}") for v in ("", *(f"-{n}" for n in range(14, 31)))),
    reason="NOT RUN: llvm-objdump is not installed (Debian: llvm)",
)


def planned(case: Case, target: Target) -> Build:
    return run_pipeline(case.model(), Options(target, threads=1, winograd=False, tile="off", stop_after="plan"))


def spills(case: Case, target: Target) -> tuple[int, int]:
    """(loops with 32 or more multiply-adds, vectors of theirs that go to the stack and back) of a layer."""
    kernel = max(planned(case, target).kernels, key=lambda k: k.flops)
    code = m.functions(m.disassembly([m.object_of(kernel, target)], target, m.tools().objdump))[m.NAME]
    heavy = [loop for loop in m.loops(code) if loop.multiply_adds >= 32]
    return len(heavy), sum(loop.spills for loop in heavy)


@pytest.mark.parametrize("name", ["raspberry-pi-4", "raspberry-pi-5", "graviton3"])
def test_cores_out_of_order_keep_loads_in_their_steps(name: str) -> None:
    target = resolve(name)
    assert load_order.keeps_loads(target)
    kernel = max(planned(SPILLED[0], target).kernels, key=lambda k: k.flops)
    assert CALL in kernel.function.script()


@pytest.mark.parametrize("name", ["raspberry-pi-3", "x86-64-v3", "x86-64-v4", "raspberry-pi-2-32"])
def test_all_others_are_as_they_were(name: str) -> None:
    target = resolve(name)
    assert not load_order.keeps_loads(target)
    assert not any(CALL in k.function.script() for k in planned(SPILLED[0], target).kernels)
    assert target.is_aarch64 or any_number(target, 7) == 7


@needs_objdump
@pytest.mark.parametrize("name", ["raspberry-pi-4", "raspberry-pi-5", "graviton3"])
def test_no_register_tile_goes_to_the_stack(name: str) -> None:
    for case in SPILLED:
        count, found = spills(case, resolve(name))
        assert count and not found, case.name


@needs_objdump
def test_no_wide_tile_of_seven_products_goes_to_the_stack() -> None:
    """Eight vectors of weights for each of four channels, in products far behind the first."""
    target = resolve("raspberry-pi-4")

    def body(g: ModelGraph, x: str) -> str:
        return conv(g, activation(g, conv(g, x, 256, 1), "relu"), 8, 1)

    options = Options(target, threads=1, tile="off", stop_after="plan")
    kernels = run_pipeline(Case("conv", "halves", (1, 512, 14, 14), body).model(), options).kernels
    (kernel,) = [k for k in kernels if k.schedule == "conv by seven products of halves C4, tile 1x2x8"]
    code = m.functions(m.disassembly([m.object_of(kernel, target)], target, m.tools().objdump))[m.NAME]
    products = [loop for loop in m.loops(code) if loop.multiply_adds >= 32]
    assert len(products) == 7 and not any(loop.spills for loop in products)


@needs_objdump
def test_both_measures_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    target = resolve("raspberry-pi-5")
    with monkeypatch.context() as patch:
        patch.setattr(reduction_steps, "keep_loads", lambda k, target: None)
        assert spills(SPILLED[1], target)[1] > 20, "loads of later steps, paired with those of earlier ones"
    with monkeypatch.context() as patch:
        patch.setattr(direct, "any_number", lambda target, number: number)
        assert spills(SPILLED[0], target)[1] > 20, "a register for every distance"


@needs_objdump
def test_loads_wait_for_what_is_before_and_nothing_is_there() -> None:
    target = resolve("raspberry-pi-5")

    def texts(kept: bool) -> list[str]:
        k = KernelBuilder("order")
        a, b = k.pointer("a", "float32", 8), k.pointer("b", "float32", 8)
        k.store(b, 0, a[0] + a[3])
        if kept:
            load_order.keep_loads(k, target)
        k.store(b, 1, a[1] * a[6])
        named = k.finish().with_attrs({"global_symbol": m.NAME, "calling_conv": C_CALL})
        code = build_object(tvm.IRModule({m.NAME: named}), target)
        found = m.functions(m.disassembly([code], target, m.tools().objdump))[m.NAME]
        return [i.text.split()[0] for i in found if i.address <= next(j.address for j in found if j.text == "ret")]

    assert texts(True) == ["ldr", "ldr", "fadd", "str", "ldr", "ldr", "fmul", "str", "mov", "ret"]
    assert "ldp" in texts(False)[:2], "neighbours, of the sum and of the product"


def layers() -> onnx.ModelProto:
    """1x1 layers of many vectors at odd sizes, whose sums over channels go on behind those that ask for results."""
    rng = np.random.default_rng(3)
    shapes = {"w": (40, 24, 1, 1), "v": (72, 40, 1, 1), "u": (5, 72, 3, 3)}
    weights = {n: (rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "u"], ["y"], pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes, "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 24, 17, 19])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5, 17, 19])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_board_computes_the_same(tmp_path: Path) -> None:
    target = resolve("raspberry-pi-5")
    command = emulator(target)
    needs(command[0])
    needs_zig()
    options = Options(target, threads=1, winograd=False, tile="off", formats=("exe",))
    build = run_pipeline(layers(), options, output=tmp_path / "out")
    texts = [k.function.script() for k in build.kernels]
    assert any(CALL in text and "llvm.arithmetic.fence" in text for text in texts), "steps go on after others"
    x = np.random.default_rng(4).standard_normal((1, 24, 17, 19)).astype(np.float32)
    with RemoteModel(tmp_path / "out", " ".join(command)) as remote:
        assert verify(remote, layers(), remote.inputs, {"x": x}).ok
