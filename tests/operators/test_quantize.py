"""Quantisation against ONNX Runtime: saturation, ties, zero points, axes and blocks."""

from __future__ import annotations

import halotile
import ml_dtypes
import numpy as np
import pytest
from evaluate import agree, evaluate, one_node, peer
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_quantize_and_back(dtype: str, axis: int | None) -> None:
    x = np.concatenate([RNG.standard_normal((3, 5)) * 40, [[-1e9, 1e9, 0.25, 0.75, -0.25]]]).astype("float32")
    count = None if axis is None else x.shape[axis]
    scale = np.float32(0.5) if count is None else np.linspace(0.5, 2, count).astype("float32")
    zero = np.array(3 if count is None else np.arange(count), dtype)
    attributes = {} if axis is None else {"axis": axis}
    (q,) = agree("QuantizeLinear", [x, scale, zero], **attributes)
    agree("DequantizeLinear", [q, scale, zero], **attributes)


def test_blocks() -> None:
    x = np.arange(-12, 12, dtype="int8").reshape(2, 12)
    scale = np.array([[1, 2, 4], [0.5, 8, 1]], "float32")
    model, feeds = one_node("DequantizeLinear", [x, scale], axis=1, block_size=4, opset=21)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], x * np.repeat(scale, 4, 1))


@pytest.mark.parametrize("per_column", [False, True])
def test_integer_products(per_column: bool) -> None:
    a = RNG.integers(0, 256, (4, 6)).astype("uint8")
    b = RNG.integers(-128, 128, (6, 5)).astype("int8")
    zero = RNG.integers(-5, 5, 5).astype("int8") if per_column else np.int8(-3)
    model, feeds = one_node("MatMulInteger", [a, b, np.uint8(7), zero])
    expected = (a.astype("int32") - 7) @ (b.astype("int32") - zero)
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], expected)


@pytest.mark.parametrize("scales", [(0.05, 0.05, 0.05), (0.1, 0.3, 0.06), (0.02, 0.7, 0.28)])
def test_products_that_fall_between_two_whole_numbers(scales: tuple[float, float, float]) -> None:
    """Half of the quotients are ties in decimal: the scales are one factor, which decides where each of them falls."""
    a, b, y = (np.float32(s) for s in scales)
    rows, column = np.arange(256, dtype="uint8")[:, None], np.array([[10, -10, 5]], "int8")
    agree("QLinearMatMul", [rows, a, np.uint8(9), column, b, np.int8(0), y, np.uint8(120)], atol=0)
    image, kernel = rows.reshape(1, 1, 16, 16), column.reshape(3, 1, 1, 1)
    agree("QLinearConv", [image, a, np.uint8(9), kernel, b, np.int8(0), y, np.uint8(120)], atol=0)


def test_integer_convolution_pads_with_the_zero_point() -> None:
    x = np.full((1, 1, 3, 3), 9, "uint8")
    w = np.ones((1, 1, 3, 3), "uint8")
    (y,) = agree("ConvInteger", [x, w, np.uint8(9)], pads=[1, 1, 1, 1])
    assert not y.any()  # every element, and all of the padding, is worth zero


def test_quantised_convolution_with_bias() -> None:
    x = RNG.integers(0, 256, (1, 3, 6, 6)).astype("uint8")
    w = RNG.integers(-128, 128, (4, 3, 3, 3)).astype("int8")
    scale = np.linspace(0.01, 0.04, 4).astype("float32")
    inputs = [
        x, np.float32(0.02), np.uint8(120), w, scale, np.zeros(4, "int8"), np.float32(0.5), np.uint8(100),
        RNG.integers(-500, 500, 4).astype("int32"),
    ]  # fmt: skip
    (y,) = agree("QLinearConv", inputs, atol=1, pads=[1, 1, 1, 1])
    assert y.dtype == np.uint8 and y.min() < y.max()


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("zero", [False, True])
def test_weights_of_four_bits_in_blocks(kind: int, zero: bool) -> None:
    """What weight-only quantisation leaves: numbers that only the file holds in four bits."""
    rng = np.random.default_rng(8)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    low = -7 if kind == TensorProto.INT4 else 0
    weights = rng.integers(low, 8, (64, 24)).astype("int32").astype(dtype)
    scales = (rng.random((2, 24)) * 0.1 + 0.01).astype("float32")
    zeros = rng.integers(0, 4, (2, 24)).astype("int32").astype(dtype)
    constants = [("w", weights), ("s", scales), ("z", zeros)]
    names = ["w", "s", "z"] if zero else ["w", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["d"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in constants if n in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.standard_normal((5, 64)).astype("float32")
    wide = weights.astype("float32") - (np.repeat(zeros.astype("float32"), 32, 0) if zero else 0)
    expected = x @ (wide * np.repeat(scales, 32, 0))
    np.testing.assert_allclose(evaluate(model, {"x": x})["y"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype", ["int4", "uint4", "int2", "float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"]
)
def test_activations_of_types_that_do_not_run(dtype: str) -> None:
    """To such a type and back, as in models that were trained for it: the numbers that the type holds, ties to even."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    whole = dtype.strip("u").startswith("int")
    limits = ml_dtypes.iinfo(dtype) if whole else ml_dtypes.finfo(dtype)
    held = np.arange(4 if "2" == dtype[-1] and whole else 16 if "4" in dtype[:6] else 256, dtype="uint8").view(dtype)
    held = np.unique(held.astype("float32")[np.isfinite(held.astype("float32"))])
    middles = (held[1:] + held[:-1]) / 2
    x = np.concatenate([held, middles, middles * (1 + 2**-20), RNG.standard_normal(99) * 3, [9e9, -9e9, np.inf, 1e-30]])
    scale, offset = 0.25, 1 if whole else 0
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    if not whole:
        nodes += [helper.make_node("Cast", ["x"], ["c"], to=kind), helper.make_node("Cast", ["c"], ["z"], to=1)]
    zero = helper.make_tensor("zero", kind, [], [offset])
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [x.size])],
        [helper.make_tensor_value_info(n, 1, [x.size]) for n in ("y", "z")[: 1 if whole else 2]],
        [zero, numpy_helper.from_array(np.float32(scale), "scale")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    got = evaluate(model, {"x": (x * scale).astype("float32")})
    x = x.astype("float32")
    clipped = np.clip(np.rint(x) + offset if whole else x, float(limits.min), float(limits.max))
    np.testing.assert_array_equal(got["y"], (clipped.astype(dtype).astype("float32") - offset) * np.float32(scale))
    if not whole:
        clipped = np.clip(x * np.float32(scale), float(limits.min), float(limits.max))
        np.testing.assert_array_equal(got["z"], clipped.astype(dtype).astype("float32"))


def test_nothing_else_takes_such_a_type() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT8E4M3FN),
             helper.make_node("Reshape", ["c", "s"], ["y"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [4])], [helper.make_tensor_value_info("y", 17, [2, 2])],
        [numpy_helper.from_array(np.array([2, 2]), "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    with pytest.raises(UnsupportedError, match="float8_e4m3fn is not supported"):
        evaluate(model, {"x": np.ones(4, "float32")})


@pytest.mark.parametrize("sign", [0.0, 1.0, -1.0, None])
def test_a_range_of_its_own(sign: float | None) -> None:
    """Of zeros alone the scale is 1, not 0."""
    x = RNG.standard_normal((4, 33)).astype("float32")
    x = x if sign is None else np.abs(x) * np.float32(sign)
    model, feeds = one_node("DynamicQuantizeLinear", [x], 3)
    got = evaluate(model, feeds)
    for name, expected in zip(("o0", "o1", "o2"), peer(model, feeds)):
        np.testing.assert_array_equal(got[name], expected)
    assert sign != 0.0 or got["o1"] == 1


@pytest.mark.parametrize("opset", [10, 13, 17, 21])
@pytest.mark.parametrize("trained", [False, True])
def test_weights_between_quantised_layers_are_known_at_import(opset: int, trained: bool) -> None:
    """Whatever the version: weights of run time have other kernels, which pack them in every call."""
    w = RNG.standard_normal((24, 16, 3, 3)).astype("float32")
    w[0, 0, 0] = [1e9, -1e9, 0.125]  # out of range, and half way between two numbers
    scale, zero = np.float32(0.05), np.int8(0)
    codes = np.clip(np.rint(w / scale), -128, 127).astype("int8")
    nodes = [helper.make_node("QuantizeLinear", ["w", "s", "z"], ["q"])] if trained else []
    nodes += [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Conv", ["x", "d"], ["y"], pads=[1] * 4),
    ]
    given = {"s": scale, "z": zero} | ({"w": w} if trained else {"q": codes})
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 17, 19])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 24, 17, 19])],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in given.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    feeds = {"x": RNG.standard_normal((1, 16, 17, 19)).astype("float32")}
    built = halotile.compile(model)
    np.testing.assert_allclose(built(feeds)["y"], peer(model, feeds)[0], rtol=1e-4, atol=1e-3)
    kernels = [k["schedule"] for k in built.report["kernels"]]
    assert sum("conv" in k or "winograd" in k for k in kernels) == 1 and "loops" not in kernels
