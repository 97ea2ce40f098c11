"""Matrix products of bytes: whatever form a model gives them, one kernel of bytes, and not one unit off."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from compiled import native
from evaluate import one_node, peer
from halotile.compiler.frontend import ahead
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.instructions.int8_dot import data_dtype
from halotile.targets.resolve import resolve
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"
SHAPES = [((7,), 5, 3), ((1,), 9, 31), ((13,), 67, 47), ((2, 3, 11), 127, 19), ((3, 5), 1, 6)]
here = pytest.mark.skipif(
    data_dtype(native()) is None, reason="NOT RUN: this machine has no instruction for products of bytes"
)


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Random bytes, half of them the ends of the range: sums of two products leave 16 bits."""
    rng, limits = np.random.default_rng(seed), np.iinfo(dtype)
    some = rng.integers(limits.min, limits.max + 1, shape)
    return np.where(rng.random(shape) < 0.5, some, rng.choice([limits.min, limits.max], shape)).astype(dtype)


def built(model: Any, feeds: dict[str, np.ndarray], products: int = 1, **options: Any) -> list[np.ndarray]:
    """The outputs; all products have to be of bytes."""
    module = halotile.compile(model, threads=2, **options)
    schedules = [k["schedule"] for k in module.report["kernels"]]
    assert sum(s.startswith("matmul of bytes") for s in schedules) == products, schedules
    assert not any(s.startswith("matmul packed") for s in schedules), schedules
    return list(module(feeds).values())


@pytest.mark.sampled
@here
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("zero", [None, 0, 128, 37])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_integer_products(dtype: str, zero: int | None, exact: bool) -> None:
    for i, (rows, k, n) in enumerate(SHAPES):
        a, b = drawn((*rows, k), dtype, i), drawn((k, n), "int8", i + 9)
        offset = None if zero is None else np.array(zero - (128 if dtype == "int8" else 0), dtype)
        inputs = [a, b] if offset is None else [a, b, offset]
        (found,) = built(*one_node("MatMulInteger", inputs), exact=exact)
        wide = a.astype(np.int64) - (0 if offset is None else offset.astype(np.int64))
        np.testing.assert_array_equal(found, wide @ b.astype(np.int64))


@pytest.mark.sampled
@here
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("depth", [1031, 1301, 2053, 4099])
def test_long_sums_are_one_product(depth: int, dtype: str, exact: bool) -> None:
    """The importer cuts them into parts, whose sums float32 holds, or leaves them to sums of int32."""
    a, b = drawn((5, depth), dtype, depth), drawn((depth, 33), "int8", 1)
    zero = np.array(77, dtype)
    (found,) = built(*one_node("MatMulInteger", [a, b, zero]), exact=exact)
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 77) @ b.astype(np.int64))


@here
@pytest.mark.parametrize("depth", [67, 2053])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_zero_points_of_run_time(depth: int, dtype: str) -> None:
    a, b, zero = drawn((3, 5, depth), dtype, 3), drawn((depth, 33), "int8", 4), np.array(91, dtype)
    (found,) = built(*one_node("MatMulInteger", [a, b, zero], run_time=(0, 2)))
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 91) @ b.astype(np.int64))


@here
def test_bytes_of_weights_around_128() -> None:
    a, b = drawn((11, 67), "uint8", 5), drawn((67, 33), "uint8", 6)
    (found,) = built(*one_node("MatMulInteger", [a, b, np.uint8(3), np.uint8(128)]))
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 3) @ (b.astype(np.int64) - 128))


@pytest.mark.sampled
@here
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("run_time", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(("k", "products"), [(1, 1), (67, 1), (521, 2)])
def test_unsigned_weights_less_any_zero_points(
    k: int, products: int, dtype: str, run_time: bool, exact: bool
) -> None:
    """They leave int8: rows are summed as well. What the importer cuts stays in parts."""
    a, b = drawn((3, 5, k), dtype, k), drawn((k, 33), "uint8", 6)
    zeros = np.random.default_rng(k).integers(0, 256, 33).astype("uint8")
    zeros[:3] = 0, 255, 128
    model, feeds = one_node("MatMulInteger", [a, b, np.array(57, dtype), zeros], run_time=(0, 2) if run_time else (0,))
    (found,) = built(model, feeds, products, exact=exact)
    np.testing.assert_array_equal(found, (a.astype(np.int64) - 57) @ (b.astype(np.int64) - zeros))


@here
@pytest.mark.parametrize("operator", ["MatMulInteger", "ConvInteger"])
def test_large_weights_are_widened_when_they_are_read(operator: str, monkeypatch) -> None:
    """A classifier's of thousands of characters, which the import would leave to run time were they no weights."""
    monkeypatch.setattr(ahead, "LARGEST", 1 << 10)
    shape = ((5, 67), (67, 33)) if operator == "MatMulInteger" else ((1, 67, 5, 3), (33, 67, 1, 1))
    a, b = (drawn(s, "uint8", i) for i, s in enumerate(shape))
    model, feeds = one_node(operator, [a, b, np.uint8(3), np.uint8(119)])
    module = halotile.compile(model, threads=2)
    schedules = [k["schedule"] for k in module.report["kernels"]]
    assert any("of bytes" in s or "direct conv" in s for s in schedules), schedules
    wide = a.astype(np.int64) - 3, b.astype(np.int64) - 119
    sums = "mk,kn->mn" if operator == "MatMulInteger" else "nchw,ocij->nohw"
    np.testing.assert_array_equal(next(iter(module(feeds).values())), np.einsum(sums, *wide))


@pytest.mark.sampled
@here
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
def test_quantised_products_equal_onnxruntime(per_column: bool, signed: bool, exact: bool) -> None:
    dtype = "int8" if signed else "uint8"
    for i, (rows, k, n) in enumerate(SHAPES):
        a = drawn((*rows, k), dtype, i)
        b = drawn((k, n), "int8", i + 9) // 2  # of eight bits, ONNX Runtime's sums saturate on x86-64 without VNNI
        scale = np.linspace(0.01, 0.03, n).astype(np.float32) if per_column else np.float32(0.02)
        zeros = np.zeros(n, "int8") if per_column else np.int8(0)
        step = np.float32(1.7 * np.sqrt(k))
        zero = np.array(19, dtype)
        inputs = [a, np.float32(0.7), zero, b, scale, zeros, step, zero]
        model, feeds = one_node("QLinearMatMul", inputs, opset=21)
        (found,) = built(model, feeds, exact=exact)
        (wanted,) = peer(model, feeds)
        assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


@here
@pytest.mark.parametrize("k", [67, 1301])
def test_products_quantised_as_they_run(k: int) -> None:
    rng = np.random.default_rng(k)
    x, b = rng.standard_normal((11, k)).astype(np.float32), drawn((k, 31), "int8", 2)
    scale = rng.uniform(0.01, 0.02, 31).astype(np.float32)
    bias = rng.standard_normal(31).astype(np.float32)
    model, feeds = one_node("DynamicQuantizeMatMul", [x, b, scale, None, bias], domain=MICROSOFT)
    (found,) = built(model, feeds)
    np.testing.assert_allclose(found, peer(model, feeds)[0], rtol=1e-5, atol=1e-4)
    a = drawn((5, k), "uint8", 3)
    model, feeds = one_node(
        "MatMulIntegerToFloat", [a, b, np.float32(0.3), scale, np.uint8(93), None, bias], domain=MICROSOFT
    )
    (found,) = built(model, feeds)
    np.testing.assert_allclose(found, peer(model, feeds)[0], rtol=1e-5, atol=1e-4)


@here
def test_general_products() -> None:
    a, b, c = drawn((11, 67), "uint8", 1), drawn((29, 67), "int8", 2), drawn((29,), "int8", 3).astype(np.int32)
    inputs = [a, np.float32(0.3), np.uint8(93), b, np.float32(0.02), np.int8(0), c, np.float32(2.5), np.uint8(7)]
    model, feeds = one_node("QGemm", inputs, domain=MICROSOFT, transB=1)
    (found,) = built(model, feeds)
    np.testing.assert_array_equal(found, peer(model, feeds)[0])


# -- products between scales, as quantisers leave them -------------------------------------------


def between_scales(
    rows: tuple[int, ...], k: int, n: int, dtype: str, zero: int, per_column: bool, seed: int, moved: bool = False
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """x -> quantise -> dequantise [-> transpose] -> matmul with dequantised weights -> + bias, and quantised again;
    its own numbers are an output as well."""
    rng = np.random.default_rng(seed)
    whole = drawn((k, n), "int8", seed)
    whole[whole == -128] = -127
    arrays = {
        "w": whole,
        "sw": rng.uniform(0.001, 0.01, n if per_column else ()).astype(np.float32),
        "zw": np.zeros(n if per_column else (), np.int8),
        "sx": np.float32(0.031),
        "zx": np.array(zero, dtype),
        "bias": rng.standard_normal(n).astype(np.float32),
        "sy": np.float32(0.02 * np.sqrt(k)),
    }
    order = [*range(1, len(rows)), 0, len(rows)]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
        *([helper.make_node("Transpose", ["d"], ["t"], perm=order)] if moved else []),
        helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=1),
        helper.make_node("MatMul", ["t" if moved else "d", "dw"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["y"]),
        helper.make_node("Relu", ["y"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "sy", "zx"], ["o"]),
    ]
    out = [*(rows[i] for i in order[:-1]), n] if moved else [*rows, n]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [*rows, k])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, out),
         helper.make_tensor_value_info("o", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), out)],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model, {"x": (rng.standard_normal((*rows, k)) * 3).astype(np.float32)}


def wanted_of(model: onnx.ModelProto, x: np.ndarray, moved: bool = False) -> np.ndarray:
    """The sums in 64 bits."""
    arrays = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    zero, limits = arrays["zx"].astype(np.int64), np.iinfo(arrays["zx"].dtype)
    data = np.clip(np.rint(x / arrays["sx"]).astype(np.int64) + zero, limits.min, limits.max) - zero
    if moved:
        data = data.transpose([*range(1, x.ndim - 1), 0, x.ndim - 1])
    sums = data @ arrays["w"].astype(np.int64)
    return sums * arrays["sw"].astype(np.float64) * float(arrays["sx"]) + arrays["bias"]


@pytest.mark.sampled
@here
@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 128), ("uint8", 201), ("int8", 0), ("int8", -33)])
def test_products_between_scales(dtype: str, zero: int, per_column: bool) -> None:
    for i, (rows, k, n) in enumerate(SHAPES):
        model, feeds = between_scales(rows, k, n, dtype, zero, per_column, i)
        y, o = built(model, feeds)
        np.testing.assert_allclose(y, wanted_of(model, feeds["x"]), rtol=1e-6, atol=2e-6 * np.abs(y).max())
        theirs = peer(model, feeds)
        np.testing.assert_allclose(y, theirs[0], rtol=1e-5, atol=1e-4 * np.abs(y).max())  # it rounds biases
        difference = np.abs(o.astype(int) - theirs[1])
        assert difference.max() <= 1 and difference.mean() < 0.01 + 1 / difference.size


@here
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_bytes_are_seen_through_moves(dtype: str) -> None:
    model, feeds = between_scales((3, 7, 5), 67, 29, dtype, 5, True, 4, moved=True)
    y, _ = built(model, feeds)
    np.testing.assert_allclose(y, wanted_of(model, feeds["x"], moved=True), rtol=1e-6, atol=2e-6 * np.abs(y).max())


def schedules(model: onnx.ModelProto, **options: Any) -> list[str]:
    build = run_pipeline(model, Options(**{"target": resolve("x86_64-linux-gnu+icelake-server"), **options}))
    return [k.schedule for k in build.kernels]


def test_where_products_stay_in_float32() -> None:
    model, _ = between_scales((7,), 67, 29, "uint8", 128, True, 0)
    until = {"stop_after": "schedule"}
    assert any("of bytes" in s for s in schedules(model, **until))
    assert not any("of bytes" in s for s in schedules(model, dots=False, **until))
    assert not any("of bytes" in s for s in schedules(model, exact=True, **until))  # scales would leave sums
    for target in ("x86-64-v4", "raspberry-pi-4"):
        assert not any("of bytes" in s for s in schedules(model, target=resolve(target), **until))


INSTRUCTIONS = {
    "x86_64-linux-gnu+icelake-server": r"vpdpbusd.*%zmm",
    "x86_64-linux-gnu+alderlake": r"vpdpbusd.*%ymm",
    "x86-64-v3": r"vpmaddwd.*%ymm",
    "x86_64-linux-gnu+x86-64-v2": r"pmaddwd.*%xmm",
    "raspberry-pi-5": r"\bsdot\b",
}


@pytest.mark.skipif(shutil.which("llvm-objdump") is None, reason="NOT RUN: needs llvm-objdump")
@pytest.mark.parametrize("target", INSTRUCTIONS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_the_instruction_is_in_the_code(target: str, dtype: str, tmp_path: Path) -> None:
    """As often as there are sums in the register tile, or more."""
    model, _ = between_scales((13,), 64, 96, dtype, 3, True, 0)
    build = run_pipeline(model, Options(resolve(target), stop_after="assemble", threads=1))
    (kernel,) = (k for k in build.kernels if k.schedule.startswith("matmul of bytes"))
    height, width, _lanes = map(int, re.findall(r"\d+", kernel.schedule)[:3])
    code = ""
    for i, piece in enumerate((build.library.object_bytes, *build.library.kernel_objects)):
        (tmp_path / f"{i}.o").write_bytes(piece)
        command = ["llvm-objdump", "-d", "--mattr=+dotprod", f"{i}.o"]
        code += subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert len(re.findall(INSTRUCTIONS[target], code)) >= height * width
