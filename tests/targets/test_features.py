"""The instructions of a board's features come out of LLVM: half-width arithmetic and dot products where it has them."""

from __future__ import annotations

import re

import pytest
import tvm
from halotile.targets import llvm
from halotile.targets.boards import boards
from halotile.targets.resolve import resolve
from halotile.targets.target import Target, normalised
from tvm import te
from tvm.script import tirx as T  # noqa: N812

ARM = [name for name, board in boards().items() if board.target.is_aarch64]
# Which boards have which: stated here by hand, from Arm's manuals of their cores, and compared with LLVM's lists.
WITH_DOT = {"raspberry-pi-5", "jetson-orin", "rk3588", "graviton2", "graviton3", "ampere-altra"}
WITH_MATRIX = {"graviton3"}


def features(name: str) -> frozenset[str]:
    target = resolve(name)
    return llvm.features("aarch64", target.cpu, target.features)


def halves(target: Target) -> str:
    """Assembly of a product of float16 numbers."""
    a, b = (te.placeholder((8, 8), "float16", name) for name in "ab")
    out = te.compute((8, 8), lambda i, j: a[i, j] * b[i, j], "out")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, b, out]))
    schedule.vectorize(schedule.get_loops("out")[1])
    return str(tvm.compile(schedule.mod, target=target.tvm()).mod.inspect_source("asm"))


def products_of_bytes(target: Target, intrinsic: str) -> str:
    """Assembly of one intrinsic on 16 and 16 bytes that adds into 4 integers."""

    @T.prim_func(s_tir=True)
    def dot(x: T.handle("int8"), y: T.handle("int8"), z: T.handle("int32")):
        X = T.decl_buffer((16,), "int8", data=x)
        Y = T.decl_buffer((16,), "int8", data=y)
        Z = T.decl_buffer((4,), "int32", data=z)
        Z[T.ramp(0, 1, 4)] = T.call_llvm_pure_intrin(
            "int32x4", intrinsic, Z[T.ramp(0, 1, 4)], X[T.ramp(0, 1, 16)], Y[T.ramp(0, 1, 16)]
        )

    module = tvm.IRModule({"dot": dot.with_attr("global_symbol", "dot").with_attr("calling_conv", 1)})
    return str(tvm.tirx.build(module, target=target.tvm(), pipeline="s_tir").inspect_source("asm"))


@pytest.mark.parametrize("name", ARM)
def test_the_features_are_the_cores_own(name: str) -> None:
    on = features(name)
    assert ("dotprod" in on) == ("fullfp16" in on) == (name in WITH_DOT)
    assert ("i8mm" in on) == (name in WITH_MATRIX)


@pytest.mark.parametrize("name", ARM)
def test_half_width_arithmetic_where_the_core_has_it(name: str) -> None:
    text = halves(resolve(name))
    assert bool(re.search(r"\bfmul\s+v\d+\.8h", text)) == (name in WITH_DOT)
    assert bool(re.search(r"\bfcvtl", text)) == (name not in WITH_DOT)


@pytest.mark.parametrize("name", sorted(WITH_DOT))
def test_dot_products_of_bytes(name: str) -> None:
    text = products_of_bytes(resolve(name), "llvm.aarch64.neon.sdot.v4i32.v16i8")
    assert re.search(r"\bsdot\s+v\d+\.4s, v\d+\.16b", text)


@pytest.mark.parametrize("name", sorted(WITH_MATRIX))
def test_matrix_products_of_bytes(name: str) -> None:
    text = products_of_bytes(resolve(name), "llvm.aarch64.neon.smmla.v4i32.v16i8")
    assert re.search(r"\bsmmla\s+v\d+\.4s", text)


@pytest.mark.parametrize("name", [n for n, b in boards().items() if b.target.triple.startswith("armv")])
def test_floats_go_to_libm_in_float_registers(name: str) -> None:
    """The hard-float ABI: with a triple that LLVM reads half, expf would look for its argument in another register."""
    a = te.placeholder((16,), "int64", "a")
    out = te.compute((16,), lambda i: te.exp(a[i].astype("float32")), "out")
    text = str(tvm.compile(te.create_prim_func([a, out]), target=resolve(name).tvm()).mod.inspect_source("asm"))
    assert ".eabi_attribute\t28, 1" in text and "__aeabi_l2f" in text and "__floatdisf" not in text


@pytest.mark.parametrize(
    ("triple", "whole"),
    [
        ("armv7l-linux-gnueabihf", "armv7l-unknown-linux-gnueabihf"),
        ("aarch64-linux-musl", "aarch64-unknown-linux-musl"),
        ("x86_64-pc-linux-gnu", "x86_64-pc-linux-gnu"),
        ("aarch64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"),
    ],
)
def test_a_triple_without_a_vendor_gets_one(triple: str, whole: str) -> None:
    assert normalised(triple) == whole
