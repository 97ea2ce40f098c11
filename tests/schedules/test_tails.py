"""The last vector of output channels, or all of them, shared by several input channels: when, and that it is right in
every form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from compiled import Compiled, Suite, module_of, narrow, native, staged, weight
from halotile.benchmarks.graph import ExportForm, ModelGraph
from halotile.benchmarks.layers import activation, conv
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.conv.direct.last_vector import pack_tail
from halotile.schedules.conv.facts import ConvFacts
from halotile.schedules.conv.register_tile import Tile
from halotile.schedules.words.group import Value
from onnx.reference import ReferenceEvaluator
from tvm import relax
from winograd_layers import compiled_directly

R = relax.op
F = "float32"


def tile_text(cin: int, cout: int, groups: int = 1, bits: int = 512, ports: int = 1, kernel: int = 1) -> str:
    """The schedule of a convolution."""
    x, k = np.zeros((1, cin, 17, 19), F), np.ones((cout, cin // groups, kernel, kernel), F)
    target = replace(native(), vector_bits=bits, vector_registers=32, fma_ports=ports, fma_latency=4, cores=1)
    module = module_of([x], lambda x: R.nn.conv2d(x, weight(k), groups=groups))
    (found,) = [k.schedule for k in staged(module, target, tiled=False).kernels if "conv" in k.schedule]
    return found


@pytest.mark.parametrize(
    "cin, cout, bits, parts",
    [
        (96, 24, 512, 2),  # half a vector
        (33, 65, 512, 16),  # one channel: lanes run over the input only
        (50, 70, 512, 2),  # six lanes twice
        (64, 36, 512, 4),
        (64, 12, 256, 2),
        (64, 13, 128, 4),
        (64, 30, 128, 2),
        (96, 28, 512, 1),  # more than half a vector
        (96, 32, 512, 1),
        (5, 65, 512, 16),  # a block of few channels takes one step
        (3, 65, 512, 1),  # few channels lie plain
        (64, 1032, 512, 1),  # half a vector of 65: nothing to gain
    ],
)
def test_chosen_by_channels(cin: int, cout: int, bits: int, parts: int) -> None:
    text = tile_text(cin, cout, bits=bits)
    assert text.endswith(f"x1/{parts}") if parts > 1 else "/" not in text, text


def test_group_convolutions_keep_whole_vectors() -> None:
    assert "/" not in tile_text(48, 24, groups=2)
    assert "/" not in tile_text(96, 48, groups=2, ports=2)


@pytest.mark.parametrize(
    "cin, cout, kernel, shared",
    [
        (96, 24, 1, "x3/2"),
        (32, 16, 1, "x2/2"),
        (64, 12, 1, "x3/4"),
        (64, 20, 1, "x5/4"),
        (64, 8, 1, "x2/4"),
        (64, 21, 1, "x3/2"),  # six lanes of zeros
        (64, 19, 1, "x5/4"),
        (64, 9, 1, "x3/4"),
        (64, 6, 1, "x2/4"),
        (64, 17, 1, "x1/16"),  # a sixteenth of a vector alone costs less
        (96, 40, 1, "x1/2"),  # the last vector alone: those before it have two in a tile
        (64, 32, 1, ""),
        (16, 16, 1, ""),  # too short a sum
        (32, 16, 5, ""),  # taps share their data
    ],
)
def test_joined_where_tiles_of_one_vector_wait_for_loads(cin: int, cout: int, kernel: int, shared: str) -> None:
    text = tile_text(cin, cout, ports=2, kernel=kernel)
    assert text.endswith(shared) if shared else "/" not in text, text


def test_packed_in_the_order_of_reading() -> None:
    w = np.arange(1, 18 * 20 * 3 + 1, dtype=F).reshape(18, 20, 1, 3)
    value, one = Value("w", w.shape, F, w), (1, 1)
    x, y = Value("x", (1, 20, 5, 5), F), Value("y", (1, 18, 5, 3), F)
    facts = ConvFacts(x, value, y, (1, 3), one, one, (0, 0), (0, 0), 1)
    packed = pack_tail(facts, 16, Tile(1, 3, 1, 8))
    first, last = packed[: 3 * 2 * 16].reshape(3, 2, 2, 8), packed[3 * 2 * 16 :].reshape(3, 1, 2, 8)
    np.testing.assert_array_equal(first[1, 1, 1], w[17, 8:16, 0, 1])
    np.testing.assert_array_equal(last[2, 0, 0, :4], w[16, 16:, 0, 2])
    assert not last[:, :, :, 4:].any()


# outputs, inputs, size, kernel, strides, dilation, pads, batch
SHAPES = {
    "half": (24, 40, (9, 11), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    "half_only": (7, 37, (8, 13), (3, 2), (1, 1), (1, 1), (1, 1, 1, 1), 2),
    "one_more": (33, 35, (13, 7), (3, 2), (2, 1), (1, 2), (1, 0, 1, 2), 2),
    "quarter": (52, 19, (31, 29), (3, 5), (1, 2), (1, 1), (1, 1, 1, 1), 1),
    "few_channels": (17, 6, (10, 10), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "joined": (16, 40, (9, 11), (1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 2),
    "joined_by_four": (20, 37, (12, 17), (1, 1), (2, 1), (1, 1), (0, 0, 0, 0), 3),
    "joined_odd": (21, 33, (12, 17), (1, 1), (1, 2), (1, 1), (0, 0, 0, 0), 2),
    "joined_odd_by_four": (9, 40, (13, 11), (3, 1), (1, 1), (2, 1), (1, 0, 2, 0), 3),
    "large": (24, 72, (41, 43), (3, 2), (1, 1), (2, 1), (2, 1, 2, 0), 2),  # shared by cores
    "row": (10, 24, (30,), (5,), (2,), (1,), (2, 1), 3),
    "volume": (18, 20, (5, 6, 7), (2, 3, 1), (1, 1, 2), (1, 1, 1), (1, 1, 0, 0, 1, 0), 1),
}


def filled(suite: Suite, dtype: str = F) -> Suite:
    """A convolution, bias, residual and ReLU of an intermediate, against NumPy in float64."""
    for seed, (name, (cout, cin, size, kernel, strides, dilation, pads, batch)) in enumerate(SHAPES.items()):
        rng = np.random.default_rng(seed)
        rank = len(size)
        x = rng.standard_normal((batch, cin, *size)).astype(dtype)
        w = rng.standard_normal((cout, cin, *kernel)).astype(dtype)
        wanted = _reference(x, w, strides, dilation, pads)
        b = np.linspace(-1, 2, cout).reshape(1, cout, *[1] * rank).astype(dtype)
        r = np.cos(np.arange(wanted.size)).reshape(wanted.shape).astype(dtype)
        operator = {1: R.nn.conv1d, 2: R.nn.conv2d, 3: R.nn.conv3d}[rank]
        options = {"strides": strides, "padding": pads, "dilation": dilation}

        def body(x: Any, r: Any, w: Any = w, b: Any = b, op: Any = operator, options: Any = options) -> Any:
            return R.nn.relu(R.add(R.add(op(x, weight(w), **options), weight(b)), r))

        exact = np.maximum(wanted + b + r, 0)
        tolerance = 1e-12 if dtype == "float64" else 2e-6
        suite.add(name, [x, r], body, exact.astype(dtype), tolerance, tolerance * float(np.abs(wanted).max()))
    return suite


def _reference(x: np.ndarray, w: np.ndarray, strides: Any, dilation: Any, pads: Any) -> np.ndarray:
    rank = len(strides)
    wide = np.pad(x.astype("float64"), [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])])
    kernel = w.shape[2:]
    out = [(wide.shape[2 + i] - (kernel[i] - 1) * dilation[i] - 1) // strides[i] + 1 for i in range(rank)]
    result = np.zeros((x.shape[0], w.shape[0], *out))
    for tap in np.ndindex(*kernel):
        cut = [slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, out, strides)]
        result += np.einsum("oc,nc...->no...", w[(slice(None), slice(None), *tap)], wide[(..., *cut)])
    return result


@pytest.fixture(scope="module", params=[512, 256, 128])
def suite(request: pytest.FixtureRequest) -> Suite:
    return compiled_directly(filled(Suite(narrow(request.param))))


@pytest.mark.parametrize("name", SHAPES)
def test_equals_numpy(suite: Suite, name: str) -> None:
    suite.check(name)
    lanes, outputs = suite.target.lanes(F), SHAPES[name][0]
    (used,) = [s for s in suite.schedules(name) if "direct conv" in s or "tiled" in s]
    if "direct" in used and "joined" not in name:
        assert ("/" in used) is (0 < outputs % lanes <= lanes // 2)
    elif "joined" not in name:
        assert name == "large"  # of two members, by the same kernels


def model(cout: int, kernel: int) -> onnx.ModelProto:
    g = ModelGraph("tail", ExportForm(opset=17))
    x = activation(g, conv(g, g.input("x", (2, 3, 23, 29)), 40, 3), "relu")
    return g.finish(y=activation(g, conv(g, x, cout, kernel), "sigmoid"))


@pytest.mark.sampled
@pytest.mark.parametrize("shape", [(5, None), (7, 11)])
@pytest.mark.parametrize("cout, kernel", [(7, 5), (24, 5), (24, 1), (16, 1), (20, 1), (21, 1), (9, 1)])
def test_boxes_give_the_same_bits(shape: tuple[int, Any], cout: int, kernel: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 23, 29)).astype(F)
    results = []
    for tile in ("off", {"shape": shape}):
        options = Options(native(), stop_after="plan", threads=2, tile=tile, winograd=False)
        build = run_pipeline(model(cout, kernel), options)
        assert any("tiled" in k.schedule for k in build.kernels) is (tile != "off")
        results.append(Compiled(build).run([x])[0])
    np.testing.assert_array_equal(*results)


def exact(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """In double precision: two float32 results may be further from each other than either from this."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for constant in wide.graph.initializer:
        value = onnx.numpy_helper.to_array(constant)
        if value.dtype == np.float32:
            constant.CopyFrom(onnx.numpy_helper.from_array(value.astype(np.float64), constant.name))
    for value in (*wide.graph.input, *wide.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    del wide.graph.value_info[:]
    (found,) = ReferenceEvaluator(wide).run(None, {"x": x.astype(np.float64)})
    return found


def test_transposed_convolutions_too() -> None:
    g = ModelGraph("up", ExportForm(opset=17))
    x = conv(g, g.input("x", (1, 21, 6, 7)), 24, 3)
    rng = np.random.default_rng(5)
    w = g.const(rng.standard_normal((24, 24, 4, 4)).astype(F))
    b = g.const(np.linspace(-1, 2, 24).astype(F))
    model = g.finish(y=g.op("ConvTranspose", x, w, b, strides=[2, 2], pads=[1, 1, 1, 1]))
    build = run_pipeline(model, Options(narrow(512), stop_after="plan", tile="off"))
    assert any("transposed" in k.schedule and "/2" in k.schedule for k in build.kernels)
    x_value = rng.standard_normal((1, 21, 6, 7)).astype(F)
    np.testing.assert_allclose(Compiled(build).run([x_value])[0], exact(model, x_value), rtol=1e-5, atol=1e-5)
