"""bfloat16 in memory: its bits, the instruction that makes them, and which values of a model are stored so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import halotile
import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from halotile.compiler.codegen.imported_ir import importing
from halotile.compiler.codegen.narrowing import narrow
from halotile.compiler.pipeline import run_pipeline
from halotile.compiler.state import Options
from halotile.schedules.emit.builder import KernelBuilder
from halotile.schedules.general.pixel_shuffle import NOTE as TRANSPOSED
from halotile.schedules.instructions.bf16_pairs import narrows
from halotile.schedules.math.bfloat16 import ATTRIBUTE, BITS, NAME, Narrow, bits_of, rounded_array
from halotile.targets.resolve import resolve
from matrix_unit import unit
from onnx import TensorProto, helper, numpy_helper
from tvm import tirx

NAMED = "x86_64-linux-gnu+sapphirerapids"
NEEDS = pytest.mark.usefixtures("on_unit")
STORED = "values between layers are stored as bfloat16"


@pytest.fixture
def on_unit() -> Iterator[None]:
    with unit():
        yield


def random(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- the numbers ---------------------------------------------------------------------------------


def test_the_nearest_one_is_taken_and_of_two_the_even_one() -> None:
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0xBF818000], np.uint32).view(np.float32)
    wide = np.array([3.3895314e38, 3.4e38, -3.4e38, np.inf, -np.inf, 0.0, -0.0, 1e-40], np.float32)
    x = np.concatenate([random((9973,), 1) * np.float32(10.0) ** random((9973,), 2), ties, wide])
    with np.errstate(over="ignore"):
        assert (rounded_array(x).view(ml_dtypes.bfloat16) == x.astype(ml_dtypes.bfloat16)).all()
    odd = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
    assert np.isnan(rounded_array(odd).view(ml_dtypes.bfloat16).astype(np.float32)).all()


def lowered(lanes: int, offset: int = 0, stride: int = 1) -> Any:
    """A kernel that stores two vectors of sums, after vectorising."""
    k = KernelBuilder("f")
    x, y = k.pointer("x", "float32", 8 * lanes), Narrow(k.pointer("y", BITS, 8 * lanes))
    with k.loop(2) as i, k.loop(lanes, "vectorized") as v:
        k.store(y, (i * lanes + v) * stride + offset, x[i * lanes + v] + tirx.const(1.0, "float32"))
    function = k.finish().with_attrs({"global_symbol": "f", "calling_conv": 1})
    assert int(function.attrs[ATTRIBUTE]) == 1
    target = resolve(NAMED)
    lower, _, _ = tvm.tirx.get_tir_pipeline("s_tir")
    bound = target.tvm_of_loops()
    module = tirx.transform.BindTarget(bound.with_host(bound))(tvm.IRModule({"f": function}))
    return lower(module)["f"]


@pytest.mark.parametrize("lanes", [8, 16, 32])
def test_whole_vectors_are_rounded_by_the_instruction(lanes: int) -> None:
    assert f"halotile_narrow_{lanes}" in narrow(lowered(lanes), resolve(NAMED)).script()


def test_functions_of_several_texts_have_one_and_still_end_where_they_return() -> None:
    # what is behind a return is never reached: memory of the workspace would not be given back there
    body = importing(narrow(lowered(16), resolve(NAMED)).body, "declare void @other()")
    assert isinstance(body.seq[-1], tirx.Return)
    assert body.script().count("pragma_import_llvm") == 1 and "@other" in body.seq[0].value.value
    assert "halotile_narrow_16" in body.seq[0].value.value


def test_other_stores_stay_as_they_are() -> None:
    for function in (lowered(4), lowered(16, stride=2)):
        assert narrow(function, resolve(NAMED)).same_as(function)


def test_only_some_targets_have_it() -> None:
    assert narrows(resolve(NAMED))
    for name in ("x86-64-v3", "x86-64-v4", "raspberry-pi-5"):
        assert not narrows(resolve(name))


def test_what_is_only_moved_keeps_its_bits() -> None:
    k = KernelBuilder("f")
    x, y = (Narrow(k.pointer(name, BITS, 16)) for name in "xy")
    assert bits_of(x[3] + x[4]) is None
    with k.loop(16, "vectorized") as v:
        k.store(y, v, x[v])
    text = k.finish().script()
    assert "reinterpret" not in text and "float32" not in text


# -- which values --------------------------------------------------------------------------------


class Net:
    """A model written line by line: every call adds a node and gives its result's name."""

    def __init__(self, *shape: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape

    def __call__(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else names

    def weight(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def conv(self, x: str, channels: tuple[int, int], taps: int = 3, **attrs: Any) -> str:
        groups = attrs.get("group", 1)
        w = random((channels[1], channels[0] // groups, taps, taps), len(self.nodes) + 1)
        w /= np.float32(np.sqrt(w[0].size))
        return str(self("Conv", x, self.weight(w), pads=[taps // 2] * 4, **attrs))

    def model(self, *results: str, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(r, kind, None) for r in results], self.weights,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def images() -> onnx.ModelProto:
    """Convolutions of every kind and what stands between them: maps, pools, joins, resizing, borders, shuffles."""
    net = Net(1, 3, 63, 57)
    a = net("Relu", net.conv("x", (3, 40)))
    b = net("Add", net.conv(a, (40, 40), 1), a)
    c = net("HardSwish", net.conv(b, (40, 40), group=40))
    p = net("MaxPool", c, kernel_shape=[2, 2], strides=[2, 2])
    d = net("Sigmoid", net.conv(p, (40, 67)))
    up = net("ConvTranspose", d, net.weight(random((67, 48, 2, 2), 91) / 16), strides=[2, 2])
    cut = net("Slice", c, *(net.weight(np.array(v)) for v in ([0, 0], [62, 56], [2, 3])))
    e = net.conv(net("Concat", up, cut, axis=1), (88, 48))
    f = net("Resize", e, "", net.weight(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    g = net("AveragePool", net("Pad", f, net.weight(np.array([0, 0, 1, 2, 0, 0, 3, 1]))), kernel_shape=[3, 3])
    s = net("Reshape", g, net.weight(np.array([1, 4, 12, 126, 113])))
    s = net("Reshape", net("Transpose", s, perm=[0, 2, 1, 3, 4]), net.weight(np.array([1, 48, 126, 113])))
    h = net.conv(s, (48, 32), 3, group=2)
    m = net("Softmax", net.conv(h, (32, 21), 1), axis=1)
    return net.model(net.conv(m, (21, 5)))


def tokens() -> onnx.ModelProto:
    """A layer of a transformer, of odd sizes."""
    net, width = Net(2, 37, 96), 96

    def product(x: str, n: int, k: int = width) -> str:
        w = random((k, n), len(net.nodes) + 1) / np.float32(np.sqrt(k))
        return str(net("MatMul", x, net.weight(w)))

    def norm(x: str) -> str:
        ones = net.weight(np.ones(width, np.float32))
        return str(net("LayerNormalization", x, ones, net.weight(np.zeros(width, np.float32)), axis=-1))

    start = net("Tanh", product("x", width))
    x = norm(start)
    split = net.weight(np.array([2, 37, 4, 24]))
    q, k, v = (net("Transpose", net("Reshape", product(x, width), split), perm=[0, 2, 1, 3]) for _ in range(3))
    scores = net("MatMul", q, net("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net("Softmax", net("Mul", scores, net.weight(np.array(24**-0.5, np.float32))), axis=-1)
    merged = net("Transpose", net("MatMul", scores, v), perm=[0, 2, 1, 3])
    merged = net("Reshape", merged, net.weight(np.array([2, 37, width])))
    x = norm(net("Add", product(merged, width), start))
    y = net("Add", product(net("Erf", product(x, 203)), width, 203), x)
    return net.model(product(y, 53))


def planned(model: onnx.ModelProto, precision: str = "bfloat16", **options: Any) -> Any:
    target = resolve(options.pop("target", NAMED))
    return run_pipeline(model, Options(target, precision=precision, stop_after="plan", threads=1, **options))


@pytest.mark.parametrize("model", [images, tokens])
def test_what_lies_between_layers_takes_half_of_the_bytes(model: Any) -> None:
    narrow, wide = planned(model(), tile="off"), planned(model(), "float32", tile="off")
    stored = {v for v, layout in narrow.layouts.items() if layout.stored}
    between = [v for k in narrow.kernels for v in k.outputs if v not in narrow.graph.outputs]
    share = len([v for v in between if v in stored]) / len(between)
    assert share >= 0.8, [v.name for v in between if v not in stored]
    assert any(STORED in note for note in narrow.notes["layout"])
    assert {narrow.layouts[v].stored for v in stored} == {NAME}
    assert narrow.memory.planned_bytes <= 0.7 * wide.memory.planned_bytes
    for value in (*narrow.graph.inputs, *narrow.graph.outputs):
        assert value not in stored and value.dtype == "float32"
    assert not any(layout.stored for layout in wide.layouts.values())


def test_last_sums_and_what_finds_positions_stay_in_float32() -> None:
    net = Net(1, 32, 19, 23)
    a = net("Relu", net.conv("x", (32, 48)))
    b = net("Relu", net.conv(a, (48, 32), 1))
    values, _ = net("TopK", net("Reshape", b, net.weight(np.array([32, 437]))), net.weight(np.array([5])), outputs=2)
    build = planned(net.model(net.conv(net("Reshape", b, net.weight(np.array([1, 32, 19, 23]))), (32, 8)), values))
    stored = {v.shape for v, layout in build.layouts.items() if layout.stored}
    assert (1, 48, 19, 23) in stored
    assert not stored & {(1, 32, 19, 23), (32, 437), (1, 8, 19, 23)}


@pytest.mark.parametrize("options", [{"target": "x86-64-v4"}, {"precision": "float32"}, {"matrix": False}])
def test_without_products_of_bfloat16_nothing_is_stored_so(options: dict[str, Any]) -> None:
    build = planned(images(), **options)
    assert not any(layout.stored for layout in build.layouts.values())


def test_shuffled_pixels_are_rounded_where_their_vectors_are_written() -> None:
    """Vectors that are transposed in registers go to memory past what writes an element."""
    net = Net(1, 64, 48, 48)
    a = net("Relu", net.conv("x", (64, 144)))
    b = net("DepthToSpace", net("Relu", net.conv(a, (144, 36))), blocksize=2)
    proto = net.model(net.conv(net("Tanh", b), (9, 32)))
    build = run_pipeline(proto, Options(resolve(NAMED), precision="bfloat16", threads=1, stop_after="lower"))
    shuffles = [k for k in build.kernels if TRANSPOSED in k.notes]
    assert [build.layouts[v].stored for k in shuffles for v in k.outputs] == [NAME]
    assert all(ATTRIBUTE in k.function.attrs for k in shuffles)


# -- on a machine with the unit ------------------------------------------------------------------


def expected(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0])


@NEEDS
@pytest.mark.parametrize("tile", ["auto", "off"])
@pytest.mark.parametrize("model", [images, tokens])
def test_models_are_right_within_the_bound(model: Any, tile: str) -> None:
    proto = model()
    shape = tuple(d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim)
    x = random(shape, 5)
    built = halotile.compile(proto, precision="bfloat16", tile=tile, threads=2)
    found, wanted = built(x), expected(proto, x)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 2e-2 * np.abs(wanted).max()
    assert (found == built(x, threads=1)).all()


@NEEDS
def test_a_budget_of_memory_is_met_by_stripes_of_it() -> None:
    net = Net(1, 32, 96, 88)
    last = "x"
    for _ in range(4):
        last = net("Relu", net.conv(last, (32, 32)))
    proto, x = net.model(net.conv(last, (32, 16), 1)), random((1, 32, 96, 88), 6)
    free = halotile.compile(proto, precision="bfloat16", tile="off", threads=1)
    built = halotile.compile(proto, precision="bfloat16", memory_budget=free.arena_bytes(1) // 2, threads=1)
    assert built.arena_bytes(1) <= free.arena_bytes(1) // 2
    wanted = expected(proto, x)
    assert np.abs(built(x) - wanted).max() <= 2e-2 * np.abs(wanted).max()


@NEEDS
def test_nan_and_infinity_go_where_they_go_in_float32() -> None:
    net = Net(1, 16, 29, 31)
    a = net("LeakyRelu", net.conv("x", (16, 32), 1))
    b = net("AveragePool", net("Add", a, net.conv(a, (32, 32), 1)), kernel_shape=[2, 2])
    proto, x = net.model(net.conv(net("Abs", net.conv(b, (32, 32), 1)), (32, 16), 1)), random((1, 16, 29, 31), 7)
    x[0, 3, 5, 6], x[0, 7, 20, 9], x[0, 9, 11, 25] = np.nan, np.inf, -np.inf
    built = halotile.compile(proto, precision="bfloat16", threads=1)(x)
    wanted = halotile.compile(proto, exact=True, threads=1)(x)
    assert np.isnan(wanted).any()
    assert (np.isnan(built) == np.isnan(wanted)).all() and (np.isinf(built) == np.isinf(wanted)).all()
    finite = np.isfinite(wanted)
    assert (~finite).any() and np.abs(built - wanted)[finite].max() <= 2e-2 * np.abs(wanted[finite]).max()
