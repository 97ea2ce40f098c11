"""Quantised weights stay bytes in the library where a kernel reads them so, and every bit of the results stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import halotile
import numpy as np
import onnx
import pytest
from compiled import native
from halotile.schedules.math.scaled_integers import LEAST, Numbers, numbers_of
from halotile.schedules.matmul import scaled_integers as products
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
TARGET = replace(native(), l2_bytes=1 << 12)  # which no weights of these tests fit
Make = Callable[["Net"], None]


class Net:
    """A model with quantised weights, and how many bytes these are."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(13)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.held: dict[str, np.ndarray] = {}
        self.bytes = 0

    def feed(self, *shape: int, dtype: int = FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(f"x{len(self.inputs)}", dtype, shape))
        return self.inputs[-1].name

    def hold(self, array: np.ndarray) -> str:
        self.held[f"c{len(self.held)}"] = array
        return f"c{len(self.held) - 1}"

    def do(self, operator: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def give(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, FLOAT, None))

    def quantised(self, *shape: int, axis: int | None = None, dtype: str = "int8", wide: int = 1) -> str:
        """Weights behind a DequantizeLinear: one scale for all, or one for each position of ``axis``; bytes without
        sign have a zero point. ``wide``: bytes that a number less its zero point takes."""
        limits = np.iinfo(dtype)
        q = self.random.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        count = () if axis is None else (shape[axis],)
        scale = self.random.uniform(0.5, 1, count).astype(np.float32) / np.float32(100 * np.sqrt(shape[-1]))
        zero = np.full(count, 0 if dtype == "int8" else 119, dtype)
        self.bytes += q.size * wide
        names = [self.hold(a) for a in (q, scale, zero)]
        return self.do("DequantizeLinear", *names, **({} if axis is None else {"axis": axis}))

    def model(self) -> onnx.ModelProto:
        held = [numpy_helper.from_array(a, n) for n, a in self.held.items()]
        graph = helper.make_graph(self.nodes, "numbers", self.inputs, self.outputs, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def tables(net: Net) -> None:
    """Embeddings: one scale, one a row, bytes without sign; ids of several ranks, and one table read twice."""
    for options in ({}, {"axis": 0}, {"dtype": "uint8", "wide": 2}):
        table = net.quantised(67, 93, **options)
        for shape in ((5,), (2, 3)):
            net.give(net.do("Tanh", net.do("Gather", table, net.feed(*shape, dtype=INT64))))


def vectors(net: Net) -> None:
    """One row, with a scale for all and one a column, with and without a rest of the panels; and two layers."""
    for n, options in ((384, {}), (401, {"axis": 1}), (128, {"axis": 1, "dtype": "uint8", "wide": 2})):
        x = net.do("MatMul", net.feed(1, 150), net.quantised(150, n, **options))
        net.give(net.do("Relu", net.do("Add", x, net.hold(net.random.standard_normal(n).astype(np.float32)))))
    net.give(net.do("Gemm", net.feed(1, 300), net.quantised(70, 300, axis=0), transB=1))


def matrices(net: Net) -> None:
    """Many rows, which panels are widened for."""
    for n, options in ((90, {}), (133, {"axis": 1})):
        net.give(net.do("MatMul", net.feed(3, 100, 61), net.quantised(61, n, **options)))


def recurrent(operator: str, directions: int = 1, **attributes: object) -> Make:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[operator]

    def make(net: Net) -> None:
        for hidden, batch in ((40, 1), (48, 3)):
            steps, width = 5, 20
            shape = directions, gates * hidden, hidden
            axis = {"axis": 1} if directions == 1 else {}
            w = net.hold(net.random.standard_normal((*shape[:2], width)).astype(np.float32) / 5)
            r, bias = (
                net.quantised(*shape, **axis),
                net.hold(np.zeros((directions, 2 * gates * hidden), np.float32)),
            )
            net.bytes += net.held[w].nbytes
            x = net.feed(steps, batch, width)
            net.give(net.do(operator, x, w, r, bias, hidden_size=hidden, **attributes))

    return make


CASES: dict[str, Make] = {
    "tables": tables, "vectors": vectors, "matrices": matrices,
    "LSTM": recurrent("LSTM"), "two ways": recurrent("LSTM", 2, direction="bidirectional"), "RNN": recurrent("RNN"),
    "GRU": recurrent("GRU"), "GRU, reset before": recurrent("GRU", linear_before_reset=1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_weights_stay_bytes_and_results_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    CASES[name](net)
    model = net.model()
    built = halotile.compile(model, target=TARGET)
    assert built.report["weight_bytes"] <= 1.2 * net.bytes + (1 << 13)
    built.verify(atol=1e-6).raise_if_failed()
    for place in ("schedules.matmul.scaled_integers", "passes.numbers.numbers"):
        monkeypatch.setattr(f"halotile.{place}.numbers_of", lambda weights: None)
    floats = halotile.compile(model, target=TARGET)
    assert floats.report["weight_bytes"] > 1.9 * built.report["weight_bytes"]
    feeds = {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        integers = value.type.tensor_type.elem_type == INT64
        feeds[value.name] = (
            net.random.integers(0, 67, shape) if integers else net.random.standard_normal(shape)
        )
        feeds[value.name] = feeds[value.name].astype("int64" if integers else "float32")
    for one, other in zip(built(feeds).values(), floats(feeds).values(), strict=True):
        assert np.array_equal(one.view(np.int32), other.view(np.int32))


def test_few_rows_and_many_are_read_as_bytes_and_others_where_memory_goes_first() -> None:
    def schedule(rows: int, **options: object) -> str:
        net = Net()
        net.give(net.do("MatMul", net.feed(rows, 61), net.quantised(61, 401)))
        built = halotile.compile(net.model(), target=TARGET, **options)
        built.verify(atol=1e-6).raise_if_failed()
        return str(built.report["kernels"][-1]["schedule"])

    assert schedule(1).startswith("matmul of numbers") and "widened" not in schedule(1)
    assert schedule(products.MANY).endswith("widened first")
    assert schedule(17).startswith("matmul packed")
    assert schedule(17, optimize="memory").startswith("matmul of numbers")


def test_small_recurrent_weights_stay_floats() -> None:
    net = Net()
    recurrent("LSTM")(net)
    built = halotile.compile(net.model(), target=replace(TARGET, l2_bytes=1 << 22))
    assert built.report["weight_bytes"] > 1.9 * net.bytes


def whole(dtype: str = "int8", shape: tuple[int, ...] = (40, 30)) -> np.ndarray:
    return np.random.default_rng(1).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, endpoint=True)


@pytest.mark.parametrize(
    ("numbers", "scales", "dtype", "count"),
    [
        (whole(), np.float32(0.0371), "int8", 1),
        (whole(), np.float32(1), "int8", 1),
        (whole("uint8"), np.float32(3e-5), "uint8", 1),
        (whole("uint8") - 119, np.float32(0.011), "int16", 1),
        (
            whole() * (np.arange(40) != 3)[:, None],
            np.linspace(0.01, 0.9, 40, dtype=np.float32)[:, None],
            "int8",
            40,
        ),
        (whole(shape=(40, 5, 6)), np.linspace(0.01, 0.9, 40, dtype=np.float32)[:, None, None], "int8", 40),
    ],
)
def test_numbers_are_found_again(numbers: np.ndarray, scales: np.ndarray, dtype: str, count: int) -> None:
    weights = numbers.astype(np.float32) * scales
    found = numbers_of(weights)
    assert isinstance(found, Numbers) and str(found.numbers.dtype) == dtype and found.scales.size == count
    spread = found.spread(40).reshape(-1, *(1 for _ in weights.shape[1:]))
    assert np.array_equal((found.numbers.astype(np.float32) * spread).view(np.int32), weights.view(np.int32))


def test_what_are_no_numbers() -> None:
    random = np.random.default_rng(2)
    weights = whole().astype(np.float32) * np.float32(0.01)
    for odd in (np.nan, np.inf, -0.0, np.nextafter(weights[3, 4], np.float32(9)), np.float32(1e-30)):
        other = weights.copy()
        other[3, 4] = odd
        assert numbers_of(other) is None, odd
    assert numbers_of(random.standard_normal((64, 64)).astype(np.float32)) is None
    assert numbers_of(weights.astype(np.float64)) is None
    assert numbers_of(weights.reshape(-1)[: LEAST - 1]) is None
    assert numbers_of(whole("int16").astype(np.float32)) is None
    assert numbers_of(np.full((40, 40), 1e-42, np.float32)) is None, "denormal steps"
