"""Fused and quantised operators of ONNX Runtime's optimiser: its own answers, from graphs of ordinary operators."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from evaluate import evaluate, peer
from halotile.compiler.frontend import import_model
from halotile.errors import UnsupportedError
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(5)
FLOAT, INT32, UINT8, INT8 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.UINT8, TensorProto.INT8


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest) -> None:
    """What a test draws does not depend on those before it: some sums are near the tolerance, theirs as ours."""
    RNG.bit_generator.state = np.random.default_rng(zlib.crc32(request.node.name.encode())).bit_generator.state


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def byte(*shape: int, signed: bool = False) -> np.ndarray:
    low = -128 if signed else 0
    return RNG.integers(low, low + 256, shape).astype("int8" if signed else "uint8")


def real(number: Any) -> np.ndarray:
    return np.array(number, "float32")


def zero(number: int, signed: bool = False) -> np.ndarray:
    return np.array(number, "int8" if signed else "uint8")


def model_of(operator: str, inputs: list[Any], outputs: tuple[int, ...], run: tuple[int, ...], domain: str, **at: Any):
    names = [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)]
    results = [f"o{n}" if t else "" for n, t in enumerate(outputs)]
    feeds = {names[n]: inputs[n] for n in run}
    graph = helper.make_graph(
        [helper.make_node(operator, names, results, domain=domain, **at)],
        "g",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in zip(results, outputs) if t],
        [numpy_helper.from_array(a, n) for n, a in zip(names, inputs) if a is not None and n not in feeds],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), feeds


def same(
    operator: str, inputs: list[Any], outputs: tuple[int, ...] = (FLOAT,), run: tuple[int, ...] = (0,),
    domain: str = "com.microsoft", atol: float = 1e-5, **attributes: Any,
) -> None:  # fmt: skip
    """Asserts that the operator's outputs (of these element types; 0 for one left out) are ONNX Runtime's."""
    model, feeds = model_of(operator, inputs, outputs, run, domain, **attributes)
    for ours, theirs in zip(evaluate(model, feeds).values(), peer(model, feeds), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.astype("float64"), theirs.astype("float64"), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("operator", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(operator: str) -> None:
    same(operator, [noise(2, 5, 16)])


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_activations_with_a_bias(operator: str) -> None:
    same(operator, [noise(2, 5, 16), noise(16)])


ACTIVATIONS = dict(Relu=[], LeakyRelu=[0.2], Clip=[-0.5, 0.7], Sigmoid=[], Tanh=[], HardSigmoid=[0.2, 0.5])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_convolution_with_its_activation(activation: str) -> None:
    more = {"activation_params": ACTIVATIONS[activation]} if ACTIVATIONS[activation] else {}
    same("FusedConv", [noise(2, 6, 7, 5), noise(4, 6, 3, 3), noise(4)], kernel_shape=[3, 3], pads=[1, 0, 1, 2],
         activation=activation, **more)  # fmt: skip


def test_convolution_with_a_residual() -> None:
    x = noise(2, 6, 7, 5)
    same("FusedConv", [x, noise(6, 6, 3, 3), noise(6), noise(*x.shape)], kernel_shape=[3, 3], pads=[1] * 4,
         activation="Relu", run=(0, 3))  # fmt: skip


MATRICES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 5), (2, 3, 6, 5), {"transB": 1, "alpha": 0.3}),
    ((2, 3, 5, 4), (2, 3, 5, 6), {"transA": 1}),
    ((4, 2, 3, 5), (2, 3, 5, 6), {"transBatchA": 1}),
    ((4, 2, 3, 5), (6, 2, 3, 5), {"transBatchA": 1, "transBatchB": 1, "transB": 1}),
]


@pytest.mark.parametrize("case", MATRICES, ids=str)
def test_products(case: Any) -> None:
    same("FusedMatMul", [noise(*case[0]), noise(*case[1])], run=(0, 1), **case[2])


def test_gemm_with_its_activation() -> None:
    same("FusedGemm", [noise(3, 4), noise(5, 4), noise(5)], transB=1, activation="LeakyRelu", activation_alpha=0.3)


@pytest.mark.parametrize("zeros", [False, True])
def test_weights_in_blocks_of_four_bits(zeros: bool) -> None:
    stored = [byte(6, 3, 8), np.abs(noise(18)), *([byte(12)] if zeros else [])]
    same("MatMulNBits", [noise(2, 3, 40), *stored], K=40, N=6, bits=4, block_size=16, atol=1e-3)


def test_normalisations() -> None:
    x, skip, gamma, beta, bias = noise(2, 5, 16), noise(2, 5, 16), noise(16), noise(16), noise(16)
    same("SkipLayerNormalization", [x, skip, gamma, beta, bias], (FLOAT, 0, 0, FLOAT), (0, 1), epsilon=1e-5)
    same("SkipLayerNormalization", [x, noise(5, 16), gamma], run=(0, 1))
    same("SkipSimplifiedLayerNormalization", [x, skip, gamma], (FLOAT, 0, 0, FLOAT), (0, 1), epsilon=1e-5)
    same("SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-5)


def test_embedding() -> None:
    ids, segments = RNG.integers(0, 9, (2, 5)).astype("int32"), RNG.integers(0, 2, (2, 5)).astype("int32")
    mask = np.array([[1, 1, 1, 0, 0], [1] * 5], "int32")
    tables = [noise(9, 16), noise(7, 16), noise(2, 16), noise(16), noise(16)]
    same("EmbedLayerNormalization", [ids, segments, *tables, mask], (FLOAT, INT32), (0, 1, 7))
    same("EmbedLayerNormalization", [ids, None, *tables[:2], None, *tables[3:]], (FLOAT, INT32))


SEEN = np.array([[1] * 4 + [0] * 3, [1] * 7], "int32")
MASKS: dict[str, Any] = {
    "none": None,
    "raw": np.array([[1, 1, 1, 0, 0], [1] * 5], "int32"),
    "lengths": np.array([3, 5], "int32"),
    "ends and starts": np.array([4, 5, 1, 0], "int32"),
    "for each query": (RNG.random((2, 5, 5)) < 0.7).astype("int32"),
}


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_self_attention(mask: str, causal: int) -> None:
    inputs = [noise(2, 5, 16), noise(16, 48), noise(48), MASKS[mask]]
    run = (0,) if MASKS[mask] is None else (0, 3)
    same("Attention", inputs, run=run, num_heads=4, unidirectional=causal)


def test_self_attention_with_a_past_and_widths() -> None:
    inputs = [noise(2, 5, 16), noise(16, 48), noise(48), None, noise(2, 2, 4, 3, 4)]
    same("Attention", inputs, (FLOAT, FLOAT), (0, 4), num_heads=4, unidirectional=1)
    same("Attention", [noise(2, 5, 16), noise(16, 56), noise(56)], num_heads=4, qkv_hidden_sizes=[16, 16, 24])


CROSS: dict[str, list[Any]] = {
    "apart": [noise(2, 5, 16), noise(2, 7, 16), noise(2, 7, 24)],
    "bias": [noise(2, 5, 16), noise(2, 7, 16), noise(2, 7, 24), noise(56)],
    "keys seen": [noise(2, 5, 16), noise(2, 7, 16), noise(2, 7, 24), None, SEEN],
    "added": [noise(2, 5, 16), noise(2, 7, 16), noise(2, 7, 24), None, None, noise(1, 4, 5, 7)],
}


@pytest.mark.parametrize("form", CROSS)
def test_multi_head_attention(form: str) -> None:
    inputs = CROSS[form]
    same("MultiHeadAttention", inputs, run=tuple(i for i, a in enumerate(inputs) if a is not None), num_heads=4)


def test_packed_operands_are_those_apart() -> None:
    """ONNX Runtime packs queries, keys and values on GPUs only; what is packed is what stands apart."""
    parts = [noise(2, 5, 4, 4) for _ in range(3)]
    flat = [p.reshape(2, 5, 16) for p in parts]
    expected, feeds = model_of("MultiHeadAttention", flat, (FLOAT,), (0, 1, 2), "com.microsoft", num_heads=4)
    wanted = peer(expected, feeds)[0]
    packed = {
        "all": [np.stack(parts, 3)],
        "keys and values": [flat[0], np.stack(parts[1:], 3)],
        "heads apart": [flat[0], *(p.transpose(0, 2, 1, 3) for p in parts[1:])],
    }
    for inputs in packed.values():
        run = tuple(range(len(inputs)))
        model, feeds = model_of("MultiHeadAttention", inputs, (FLOAT,), run, "com.microsoft", num_heads=4)
        np.testing.assert_allclose(evaluate(model, feeds)["o0"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("room", "filled", "length"), [(6, 2, 2), (5, 0, 1), (19, 11, 3), (4, 2, 2)])
def test_keys_in_buffers(room: int, filled: int, length: int, known: bool) -> None:
    """``past_sequence_length``: what lies behind the new keys counts for nothing, be it NaN."""
    parts = [noise(2, length, 8) for _ in range(3)]
    buffers = [noise(2, 2, room, 4) for _ in range(2)]
    for buffer, value in zip(buffers, (np.nan, np.inf)):
        buffer[:, :, filled + length :] = value
    inputs = [*parts, None, None, None, *buffers, np.array([filled], "int32")]
    run = (0, 1, 2, 6, 7) if known else (0, 1, 2, 6, 7, 8)
    for causal in (0, 1):
        same("MultiHeadAttention", inputs, (FLOAT,) * 3, run, num_heads=2, unidirectional=causal)


def test_keys_that_do_not_fit_a_buffer_are_refused() -> None:
    buffers = [noise(2, 2, 4, 4) for _ in range(2)]
    inputs = [*(noise(2, 2, 8) for _ in range(3)), None, None, None, *buffers, np.array([3], "int32")]
    model, _ = model_of("MultiHeadAttention", inputs, (FLOAT,), (0, 1, 2, 6, 7), "com.microsoft", num_heads=2)
    with pytest.raises(UnsupportedError, match="2 keys behind 3 do not fit a buffer of 4"):
        import_model(model)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_statistics_of_norms_are_of_32_bits(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x, one = noise(3, 7).astype(dtype), (noise(7) + 2).astype(dtype)
    atol = 5e-3 if dtype == "float16" else 1e-5
    same("LayerNormalization", [x, one, one], (kind, FLOAT, FLOAT), domain="", atol=atol)
    same("LayerNormalization", [x, one], (kind, 0, FLOAT), domain="", atol=atol)
    same("SimplifiedLayerNormalization", [x, one], (kind, FLOAT), domain="", atol=atol)
    if dtype != "float64":  # which ONNX Runtime does not take
        same("SkipLayerNormalization", [x, x, one, one], (kind, FLOAT, FLOAT, kind), (0, 1), atol=atol)
        same("SkipSimplifiedLayerNormalization", [x, x, one], (kind, 0, FLOAT, kind), (0, 1), atol=atol)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_positions(interleaved: int) -> None:
    places = RNG.integers(0, 9, (2, 5)).astype("int64")
    same("RotaryEmbedding", [noise(2, 5, 16), places, noise(9, 4), noise(9, 4)], run=(0, 1), interleaved=interleaved)
    offset = np.array([2], "int64")
    same("RotaryEmbedding", [noise(2, 2, 5, 8), offset, noise(9, 4), noise(9, 4)], interleaved=interleaved)


# ---------------------------------------------------------------------- 8-bit numbers


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("signed", [False, True])
def test_quantised_binary(operator: str, signed: bool) -> None:
    kind = (INT8 if signed else UINT8,)
    a, b = byte(2, 5, 7, signed=signed), byte(1, 5, 1, signed=signed)
    zeros = [zero(n, signed) for n in ((12, -3, 10) if signed else (120, 130, 100))]
    same(operator, [a, real(0.02), zeros[0], b, real(0.03), zeros[1], real(0.05), zeros[2]], kind, (0, 3))


@pytest.mark.parametrize("place", [7, 8])
def test_quantised_binary_between_two_whole_numbers(place: int) -> None:
    """Ties are even behind the zero point: whichever it is, the others fall the other way."""
    rows, column = np.arange(256, dtype="uint8")[:, None], np.arange(0, 256, 5, dtype="uint8")[None]
    for operator, scales in (("QLinearMul", (0.5, 0.5, 2.0)), ("QLinearAdd", (0.25, 0.5, 0.5))):
        a, b, y = (real(s) for s in scales)
        same(operator, [rows, a, zero(9), column, b, zero(100), y, zero(place)], (UINT8,), (0, 3), atol=0)


def test_quantised_activations_and_means() -> None:
    stored = [real(0.02), zero(120), real(0.01), zero(7)]
    for operator in ("QLinearSigmoid", "QLinearLeakyRelu"):
        same(operator, [byte(2, 50), *stored], (UINT8,))
    same("QLinearSoftmax", [byte(4, 10), real(0.05), zero(120), real(1 / 256), zero(0)], (UINT8,), axis=-1, opset=13)
    same("QLinearGlobalAveragePool", [byte(2, 5, 7, 7), *stored], (UINT8,))
    same("QLinearAveragePool", [byte(2, 5, 9, 7), *stored], (UINT8,), kernel_shape=[3, 2], strides=[2, 2])


def test_quantised_concatenation() -> None:
    a, b = [byte(2, 3, 4), real(0.02), zero(120)], [byte(2, 5, 4), real(0.03), zero(130)]
    same("QLinearConcat", [real(0.05), zero(100), *a, *b], (UINT8,), (2, 5), axis=1)


def test_quantised_products() -> None:
    scales, zeros = np.abs(noise(5)) * 0.01, np.zeros(5, "int8")
    a, bias = [byte(3, 8), real(0.02), zero(120)], RNG.integers(-500, 500, 5).astype("int32")
    same("QGemm", [*a, byte(5, 8, signed=True), scales, zeros, bias, real(0.1), zero(128)], (UINT8,), transB=1)
    b = byte(8, 5, signed=True)
    same("MatMulIntegerToFloat", [byte(3, 8), b, real(0.02), scales, zero(120), zeros, noise(5)])
    same("DynamicQuantizeMatMul", [noise(3, 8), b, scales, zeros, noise(5)])


@pytest.mark.parametrize("last", [0, 1])
def test_quantised_convolution_with_channels_last(last: int) -> None:
    """As ONNX Runtime's optimiser writes it; the weights' order is ONNX's."""
    x = byte(2, 9, 7, 6) if last else byte(2, 6, 9, 7)
    w, bias = byte(8, 3, 3, 3, signed=True) // 2, RNG.integers(-500, 500, 8).astype("int32")
    scales, zeros = np.abs(noise(8)) * 0.01, np.zeros(8, "int8")
    given = [x, real(0.02), zero(120), w, scales, zeros, real(0.1), zero(128), bias]
    same("QLinearConv", given, (UINT8,), channels_last=last, group=2, pads=[1, 0, 0, 1], strides=[2, 1])


@pytest.mark.parametrize("signed", [False, True])
def test_maxima_of_bytes_with_channels_last(signed: bool) -> None:
    kind = INT8 if signed else UINT8
    same("NhwcMaxPool", [byte(2, 9, 7, 5, signed=signed)], (kind,), kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1)


def test_quantised_choice() -> None:
    a, b = [byte(3, 4), real(0.02), zero(120)], [byte(4), real(0.03), zero(130)]
    same("QLinearWhere", [RNG.random((3, 1)) < 0.5, *a, *b, real(0.05), zero(100)], (UINT8,), (0, 1, 4))


@pytest.mark.parametrize(("axes", "keep"), [([1], 1), ([-1, 0], 0), (None, 1)])
def test_quantised_mean(axes: list[int] | None, keep: int) -> None:
    given = [byte(3, 4, 5), real(0.02), zero(120), real(0.013), zero(100)]
    more = {} if axes is None else {"axes": axes}
    model, feeds = model_of("QLinearReduceMean", given, (UINT8,), (0,), "com.microsoft", keepdims=keep, **more)
    exact = ((given[0].astype("f8") - 120) * 0.02).mean(None if axes is None else tuple(axes), keepdims=bool(keep))
    wanted = np.clip(np.rint(exact / 0.013) + 100, 0, 255).astype("uint8")
    np.testing.assert_array_equal(evaluate(model, feeds)["o0"], wanted)


@pytest.mark.parametrize("masked", [False, True])
def test_quantised_attention(masked: bool) -> None:
    x, w = byte(2, 5, 16), byte(16, 48, signed=True)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], "int32") if masked else None
    given = [x, w, noise(48), real(0.02), real(0.01), mask, zero(120), zero(0, True)]
    same("QAttention", given, run=(0, 5) if masked else (0,), num_heads=4, atol=1e-4)


def test_operators_that_onnx_took_over() -> None:
    same("ExpandDims", [noise(3, 4), np.array([-1], "int32")])
    same("Trilu", [noise(3, 4), np.array(1, "int64")], upper=0)
    same("GatherND", [noise(3, 4), np.array([[0, 1], [2, 3]], "int64")], run=(0, 1))
    same("GridSample", [noise(1, 2, 5, 6), noise(1, 3, 4, 2)], run=(0, 1), mode="bilinear", padding_mode="border")
    same("Pad", [noise(3, 4), np.array([1, 0, 2, 1], "int64"), real(3)], mode="constant")
    for metric in ("euclidean", "sqeuclidean"):
        same("CDist", [noise(3, 7), noise(5, 7)], run=(0, 1), metric=metric, atol=1e-4)


def test_a_domain_that_is_not_imported() -> None:
    """tf2onnx writes com.microsoft.Range into branches of models that lack the domain; ONNX Runtime runs them."""
    branches = []
    for last in (3, 4):
        nodes = [
            helper.make_node("Constant", [], ["from"], value_int=1),
            helper.make_node("Constant", [], ["to"], value_int=last),
            helper.make_node("Range", ["from", "to"], ["count"], domain="com.microsoft"),
            helper.make_node("Cast", ["count"], ["floats"], to=FLOAT),
            helper.make_node("ReduceSum", ["floats"], ["total"]),
        ]
        info = helper.make_tensor_value_info("total", FLOAT, None)
        branches.append(helper.make_graph(nodes, "branch", [], [info]))
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["s"], then_branch=branches[0], else_branch=branches[1]),
         helper.make_node("Add", ["x", "s"], ["y"])],
        "g", [helper.make_tensor_value_info("x", FLOAT, [2])], [helper.make_tensor_value_info("y", FLOAT, [2])],
        [numpy_helper.from_array(np.array(False), "c")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = {"x": noise(2)}
    np.testing.assert_allclose(evaluate(model, x)["y"], peer(model, x)[0], rtol=1e-6)


def test_distinct_values_in_the_order_they_are_met() -> None:
    x = np.float32([2, 1, 2, 3, 1, 2])
    model, feeds = model_of("Unique", [x], (FLOAT, TensorProto.INT64, TensorProto.INT64), (0,), "com.microsoft")
    ours = evaluate(model, feeds)
    for name, theirs in zip(("o0", "o1", "o2"), peer(model, feeds), strict=True):
        np.testing.assert_array_equal(ours[name][: len(theirs)], theirs)


def test_weights_in_the_order_of_one_processor() -> None:
    graph = helper.make_graph(
        [helper.make_node("ReorderInput", ["x"], ["y"], domain="com.microsoft.nchwc")], "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 16, 4, 4])], [helper.make_tensor_value_info("y", FLOAT, None)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft.nchwc", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    with pytest.raises(UnsupportedError, match="for one processor.*ORT_ENABLE_EXTENDED"):
        import_model(model)


def test_what_is_not_supported_says_so() -> None:
    model, _ = model_of("PagedAttention", [noise(1, 2, 8)], (FLOAT,), (0,), "com.microsoft", num_heads=2)
    with pytest.raises(UnsupportedError, match=r"com.microsoft.PagedAttention.*domain 'com.microsoft'"):
        import_model(model)
    model, _ = model_of("GroupQueryAttention", [noise(1, 2, 8)], (FLOAT,), (0,), "com.microsoft", num_heads=2)
    with pytest.raises(UnsupportedError, match="attribute kv_num_heads is missing"):
        import_model(model)
    inputs = [noise(2, 5, 16), noise(16, 48), noise(48), np.zeros((1, 1), "int32")]
    model, _ = model_of("Attention", inputs, (FLOAT,), (0, 3), "com.microsoft", num_heads=4)
    with pytest.raises(UnsupportedError, match="the mask int32"):
        import_model(model)


def test_a_layer_norm_in_an_old_opset() -> None:
    graph = helper.make_graph(
        [helper.make_node("LayerNormalization", ["x", "g"], ["y"], epsilon=1e-5)], "g",
        [helper.make_tensor_value_info("x", FLOAT, [2, 5])], [helper.make_tensor_value_info("y", FLOAT, [2, 5])],
        [numpy_helper.from_array(noise(5), "g")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = {"x": noise(2, 5)}
    np.testing.assert_allclose(evaluate(model, x)["y"], peer(model, x)[0], rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------------- keys and values shared by groups of heads


def grouped(batch: int, length: int, past: int, lengths: list[int], *, packed: bool = False, **attributes: Any) -> None:
    """Four heads in two groups; ``lengths`` are the rows' own, with the new tokens."""
    size, heads, shared = 16, 4, 2
    total = np.array(past + length, "int32")
    qkv = [noise(batch, length, n * size) for n in (heads, shared, shared)]
    if packed:
        qkv = [np.concatenate(qkv, -1), None, None]
    cache = [noise(batch, shared, past, size) for _ in range(2)] if past else [None, None]
    angles = np.outer(np.arange(32), 1 / 10 ** np.arange(size // 2)).astype("float32")
    rotary = [np.cos(angles), np.sin(angles)] if attributes.get("do_rotary") else [None, None]
    inputs = [*qkv, *cache, np.array(lengths, "int32") - 1, total, *rotary]
    run = tuple(i for i in range(6) if inputs[i] is not None)
    same("GroupQueryAttention", inputs, (FLOAT, FLOAT, FLOAT), run, num_heads=heads, kv_num_heads=shared, **attributes)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [{}, {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1}])
def test_group_query_attention_of_a_prompt(rotary: dict[str, int], packed: bool) -> None:
    grouped(2, 6, 0, [6, 6], packed=packed, **rotary)


@pytest.mark.parametrize("rotary", [{}, {"do_rotary": 1}])
@pytest.mark.parametrize(("length", "lengths"), [(1, [10, 10]), (1, [10, 7]), (3, [12])])
def test_group_query_attention_after_a_cache(length: int, lengths: list[int], rotary: dict[str, int]) -> None:
    grouped(len(lengths), length, 9, lengths, **rotary)


@pytest.mark.parametrize("past", [0, 9])
@pytest.mark.parametrize("change", [{"local_window_size": 3}, {"softcap": 2.0}, {"scale": 0.2}])
def test_variants_of_group_query_attention(change: dict[str, float], past: int) -> None:
    grouped(1, 1 if past else 6, past, [10 if past else 6], **change)


def test_a_quantised_cache_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="smooth_softmax"):
        grouped(1, 4, 0, [4], smooth_softmax=1)
