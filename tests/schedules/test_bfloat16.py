"""Precision bfloat16: one product on the matrix unit where float32 takes three, of numbers rounded to the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import halotile
import numpy as np
import onnx
import pytest
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.recipe import rtol_of
from halotile.compiler.state import Options
from halotile.errors import HalotileError
from halotile.schedules.instructions.bf16_parts import split_array
from halotile.schedules.words.group import Packed
from halotile.targets.resolve import resolve
from matrix_unit import unit
from onnx import TensorProto, helper, numpy_helper

NAMED = "x86_64-linux-gnu+sapphirerapids"
NEEDS = pytest.mark.usefixtures("on_unit")
ODD = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)  # all NaN


@pytest.fixture
def on_unit() -> Iterator[None]:
    with unit():
        yield


def model(node: onnx.NodeProto, x: tuple[int, ...], w: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        [node], "one", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rounded(x: np.ndarray) -> np.ndarray:
    """The nearest bfloat16 of each number, by arithmetic: a step is 2**-7 of the power of two below it."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.floor(np.abs(fraction) * 256 + 0.5) / 256 * np.sign(fraction), exponent)


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convolved(x: np.ndarray, w: np.ndarray, stride: int, pad: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nihwyx,oiyx->nohw", windows, w, optimize=True)


def transposed(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    n, _, height, width = x.shape
    y = np.zeros((n, w.shape[1], (height - 1) * stride + w.shape[2], (width - 1) * stride + w.shape[3]))
    for i, j in np.ndindex(height, width):
        part = np.einsum("nc,cokl->nokl", x[:, :, i, j], w)
        y[:, :, i * stride : i * stride + w.shape[2], j * stride : j * stride + w.shape[3]] += part
    return y


CASES: dict[str, tuple[onnx.NodeProto, tuple[int, ...], tuple[int, ...], Any]] = {
    "3x3, primes": (
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4), (2, 67, 29, 31), (73, 67, 3, 3),
        lambda x, w: convolved(x, w, 1, 1),
    ),
    "1x1, strides": (
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2]), (1, 96, 37, 41), (96, 96, 1, 1),
        lambda x, w: convolved(x, w, 2, 0),
    ),
    "few channels": (
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], pads=[3] * 4), (1, 3, 113, 97), (64, 3, 7, 7),
        lambda x, w: convolved(x, w, 2, 3),
    ),
    "transposed": (
        helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), (1, 128, 23, 19), (128, 80, 2, 2),
        lambda x, w: transposed(x, w, 2),
    ),
    "product": (helper.make_node("MatMul", ["x", "w"], ["y"]), (157, 203), (203, 301), lambda x, w: x @ w),
    "images": (helper.make_node("MatMul", ["x", "w"], ["y"]), (3, 131, 384), (384, 257), lambda x, w: x @ w),
}  # fmt: skip


@NEEDS
@pytest.mark.parametrize("name", CASES)
def test_products_are_those_of_the_nearest_bfloat16(name: str) -> None:
    node, shape, weights, reference = CASES[name]
    x, w = random(shape, 1), random(weights, 2) / np.float32(np.sqrt(np.prod(weights[1:])))
    built = halotile.compile(model(node, shape, w), precision="bfloat16", threads=2)
    assert built.report["precision"] == {"asked": "bfloat16", "kernels": 1, "of": 1}, built.report["kernels"]
    wanted = reference(rounded(x), rounded(w))
    size = reference(np.abs(rounded(x)), np.abs(rounded(w)))
    found = built(x)
    assert (np.abs(found - wanted) <= 1e-5 * size + 1e-30).all()
    assert np.abs(found - reference(x.astype(np.float64), w.astype(np.float64))).max() > 1e-4  # and no float32's
    assert (found == built(x, threads=1)).all()
    assert built.verify().ok and rtol_of(built.recorded) == 0.1


@NEEDS
def test_what_is_no_number_stays_none_and_infinity_stays_infinite() -> None:
    node, shape, weights, _ = CASES["1x1, strides"]
    w = np.abs(random(weights, 2)) + np.float32(0.1)
    built = halotile.compile(model(node, shape, w), precision="bfloat16", threads=1)
    x = random(shape, 1)
    for i, value in enumerate((*ODD, np.float32(np.inf), np.float32(-np.inf))):
        x[0, 7 * i, 2 * i, 4] = value
    y = built(x)[0, :, :, 2]
    assert np.isnan(y[:, : len(ODD)]).all()
    assert (y[:, len(ODD)] == np.inf).all() and (y[:, len(ODD) + 1] == -np.inf).all()
    assert np.isfinite(y[:, len(ODD) + 2 :]).all()


@NEEDS
def test_tiles_have_the_same_bits_as_whole_layers() -> None:
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i, (cin, cout) in enumerate(((48, 64), (64, 64), (64, 80))):
        array = (rng.standard_normal((cout, cin, 3, 3)) / 24).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        last = f"r{i}"
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 48, 71, 67))],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)], weights,
    )  # fmt: skip
    chain = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = random((1, 48, 71, 67), 3)
    whole = halotile.compile(chain, precision="bfloat16", tile="off", threads=2)
    small = halotile.compile(chain, precision="bfloat16", tile={"last": "c2", "shape": (16, 67)}, threads=2)
    assert len(small.report["kernels"]) < len(whole.report["kernels"])
    assert small.report["precision"]["kernels"] >= 1
    assert np.abs(small(x) - whole(x)).max() <= 2e-2 * np.abs(whole(x)).max()
    assert (small(x, threads=1) == small(x, threads=2)).all()


def planned(precision: str, **options: Any) -> Any:
    node, shape, weights, _ = CASES["1x1, strides"]
    target = resolve(options.pop("target", NAMED))
    wish = Options(target, precision=precision, stop_after="schedule", threads=1, **options)
    return run_pipeline(model(node, shape, random(weights, 2)), wish)


def test_on_any_machine_there_is_one_product_and_half_of_the_bytes() -> None:
    def weights(build: Any) -> int:
        return sum(o.data.nbytes for kernel in build.kernels for o in kernel.operands if isinstance(o, Packed))

    once, thrice = planned("bfloat16"), planned("float32")
    assert [k.schedule.endswith(", bfloat16") for k in once.kernels if "matrix" in k.schedule] == [True]
    assert [k.schedule.endswith(", 3 products") for k in thrice.kernels if "matrix" in k.schedule] == [True]
    assert 2 * weights(once) == weights(thrice)
    assert once.report["precision"]["kernels"] == 1 and "precision" not in thrice.report
    assert weights(planned("bfloat16", weights="float16")) == weights(once)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "raspberry-pi-5"])
def test_a_target_without_the_unit_stays_in_float32_and_says_so(target: str) -> None:
    asked, plain = planned("bfloat16", target=target), planned("float32", target=target)
    assert any("all layers stay in float32" in line for line in asked.report["warnings"])
    assert [k.schedule for k in asked.kernels] == [k.schedule for k in plain.kernels]
    assert asked.report["precision"]["kernels"] == 0


def test_exact_forbids_it() -> None:
    node, shape, weights, _ = CASES["product"]
    with pytest.raises(HalotileError, match="exact forbids"):
        halotile.compile(model(node, shape, random(weights, 2)), precision="bfloat16", exact=True)
    with pytest.raises(HalotileError, match="precision='half' is not one of"):
        halotile.compile(model(node, shape, random(weights, 2)), precision="half")


def test_one_part_is_the_nearest_and_keeps_what_is_no_number() -> None:
    x = np.concatenate([random((10_000,), 1) * np.float32(10.0) ** random((10_000,), 2), [0.0, -0.0, 1.00390625]])
    (part,) = split_array(x.astype(np.float32), 1)
    assert ((part.astype(np.uint32) << 16).view(np.float32) == rounded(x.astype(np.float32))).all()
    (part,) = split_array(ODD, 1)
    assert np.isnan((part.astype(np.uint32) << 16).view(np.float32)).all()
    (part,) = split_array(np.array([np.inf, -np.inf], np.float32), 1)
    assert ((part.astype(np.uint32) << 16).view(np.float32) == [np.inf, -np.inf]).all()


@NEEDS
def test_what_is_no_number_stays_within_a_register_of_few_channels() -> None:
    """First layers of few channels multiply what lies beside a tap by zero (docs/numerics.md)."""
    w, x = random((16, 3, 3, 3), 3), random((1, 3, 24, 120), 4)
    x[0, 1, 11, 60], x[0, 2, 12, 60] = np.nan, np.inf
    proto = model(helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4), x.shape, w)
    half = halotile.compile(proto, precision="bfloat16", threads=1)
    whole = halotile.compile(proto, exact=True, threads=1)
    assert any("pixels of" in kernel["schedule"] for kernel in half.report["kernels"])
    odd, wanted = (~np.isfinite(built({"x": x})["y"]) for built in (half, whole))
    assert wanted.any() and (odd | ~wanted).all()
    rows, columns = np.nonzero(odd.any((0, 1)))
    assert columns.min() >= 60 - 32 and columns.max() <= 60 + 32 and rows.min() >= 4 and rows.max() <= 19
