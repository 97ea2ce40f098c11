"""Operators of all families, each built once with open dims and run at several sizes, against ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import halotile
import numpy as np
import onnx
import onnxruntime
import pytest
from halotile.errors import HalotileError
from onnx import helper, numpy_helper, parser

Feed = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _floats(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(size=shape).astype("float32")


def _permuted(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Every element another one, so that every order is one."""
    return (random.permutation(math.prod(shape)) - math.prod(shape) // 2).reshape(shape).astype("float32")


def _sparse(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (random.random(shape) < 0.4).astype("float32")


def _boxes(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    corner, extent = random.random((2, *shape[:-1], 2))
    return np.concatenate([corner, corner + extent], -1).astype("float32")


def _below(limit: int) -> Feed:
    return lambda random, shape: random.integers(-limit, limit, shape)


def _model(text: str, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    return model


def _open_build(model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setenv("HALOTILE_OPEN", "1")
    return halotile.compile(model, **options)


def _agrees(
    model: onnx.ModelProto, sizes: Sequence[dict[str, int]], feeds: dict[str, Feed], monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Builds once, and compares at each of the sizes; gives the build."""
    built = _open_build(model, monkeypatch)
    assert {s.name for s in built.symbols} == set(sizes[0])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    constants = {i.name for i in model.graph.initializer}
    random = np.random.default_rng(7)
    for size in sizes:
        given = {}
        for info in model.graph.input:
            if info.name not in constants:
                dims = info.type.tensor_type.shape.dim
                shape = tuple(size[d.dim_param] if d.dim_param else d.dim_value for d in dims)
                given[info.name] = feeds.get(info.name, _floats)(random, shape)
        found = built(given)
        for output, wanted in zip(session.get_outputs(), session.run(None, given)):
            result = found[output.name]
            length = found.get(f"{output.name}.length")
            if length is not None:  # as much as is there
                result = result[tuple(slice(0, n) for n in wanted.shape)]
                assert int(length[0]) in wanted.shape
            assert result.shape == wanted.shape, (size, output.name)
            np.testing.assert_allclose(result, wanted, rtol=2e-4, atol=2e-5, err_msg=f"{output.name} at {size}")
    return built


def _sizes(**each: Sequence[int]) -> list[dict[str, int]]:
    return [dict(zip(each, values)) for values in zip(*each.values())]


N, M = [1, 2, 7, 17, 31, 5], [1, 33, 16, 3, 127, 40]
ROWS = _sizes(n=N, m=M)

CASES: dict[str, tuple[str, dict[str, np.ndarray], list[dict[str, int]], dict[str, Feed]]] = {
    "running sums": (
        """g (float[n, m] x) => (y, z) {
            a = Constant<value_int=0>()  b = Constant<value_int=1>()
            y = CumSum(x, a)  z = CumSum<reverse=1, exclusive=1>(x, b) }""",
        {}, [*ROWS, {"n": 3, "m": 0}], {},
    ),
    "the largest": (
        """g (float[n, m] x) => (v, i, w, j) {
            k = Constant<value_ints=[3]>()  one = Constant<value_ints=[1]>()
            v, i = TopK(x, k)  w, j = TopK<largest=0, axis=0>(x, one) }""",
        {}, _sizes(n=[1, 7, 16, 40], m=[3, 5, 100, 35]), {"x": _permuted},
    ),
    "all in order": (  # as of lengths that a batch is sorted by
        """g (float[n, m] x, int64[n] t) => (v, i, w, j, u, r) {
            m = Shape<start=1>(x)  n = Shape(t)
            v, i = TopK(x, m)  w, j = TopK<largest=0, axis=0>(x, n)  u, r = TopK(t, n) }""",
        {}, _sizes(n=[1, 7, 16, 40], m=[3, 1, 100, 35]), {"x": _permuted, "t": _below(1000)},
    ),
    "written at positions": (
        """g (float[n, 9] x, int64[k, 1] at, float[k, 9] u) => (y, z) {
            y = ScatterND(x, at, u)  more = Expand(at, shape)  z = ScatterElements<axis=0>(x, more, u) }""",
        {"shape": np.array([1, 9])}, _sizes(n=[6, 4, 13], k=[1, 3, 4]),
        {"at": lambda random, shape: random.permutation(4)[: shape[0]].reshape(shape)},
    ),
    "read at positions": (
        """g (float[n, m] x, int64[k, 2] at, int64[k] rows) => (y, z) {
            y = GatherND(x, at)  z = Gather(x, rows) }""",
        {}, _sizes(n=[3, 4, 13], m=[5, 3, 31], k=[1, 3, 4]), {"at": _below(3), "rows": _below(3)},
    ),
    "reversed sequences": (
        "g (float[t, b, 3] x, int64[b] n) => (y) { y = ReverseSequence<time_axis=0, batch_axis=1>(x, n) }",
        {}, _sizes(t=[4, 5, 9], b=[1, 2, 7]), {"n": lambda random, shape: random.integers(1, 5, shape)},
    ),
    "sums and norms": (
        """g (float[n, m, 5] x) => (s, l, p, q, e) {
            s = ReduceMean<axes=[1], keepdims=0>(x)  l = ReduceLogSumExp<axes=[1, 2]>(x)
            p = Softmax<axis=1>(x)  q = LpNormalization<axis=1>(x)  e = ArgMax<axis=1>(x) }""",
        {}, _sizes(n=[1, 2, 7], m=[1, 33, 16]), {},
    ),
    "pools": (
        """g (float[n, 3, h, w] x) => (a, b, c, d) {
            a = AveragePool<kernel_shape=[3, 3], pads=[1, 1, 1, 1]>(x)
            b = MaxPool<kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1>(x)
            c = GlobalMaxPool(x)  d = AveragePool<kernel_shape=[5, 5], auto_pad="SAME_UPPER">(x) }""",
        {}, _sizes(n=[1, 2, 1], h=[5, 8, 31], w=[7, 16, 6]), {},
    ),
    "same padding of every parity": (
        """g (float[1, 3, h, w] x) => (a, b, c, d, e) {
            a = Conv<auto_pad="SAME_UPPER", strides=[2, 2]>(x, k)
            b = Conv<auto_pad="SAME_LOWER", strides=[3, 2], group=3>(x, l)
            c = MaxPool<kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER">(x)
            d = AveragePool<kernel_shape=[2, 3], strides=[2, 3], auto_pad="SAME_LOWER">(x)
            e = AveragePool<kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER", count_include_pad=1>(x) }""",
        {"k": np.random.default_rng(1).normal(size=(5, 3, 3, 3)).astype("float32"),
         "l": np.random.default_rng(2).normal(size=(3, 1, 5, 2)).astype("float32")},
        _sizes(h=[8, 3, 12, 31, 7], w=[7, 16, 6, 33, 5]), {},
    ),
    "cut or padded to a length": (  # as attention does with a table of relative positions
        """g (float[n, 2] x) => (y, z) {
            n = Shape<start=0, end=1>(x)  less = Sub(n, five)  pads = Concat<axis=0>(less, zero, less, zero)
            y = Pad(table, pads)  z = Relu(x) }""",
        {"table": np.arange(18, dtype="float32").reshape(9, 2), "five": np.array([5]), "zero": np.array([0])},
        _sizes(n=[1, 4, 5, 6, 17]), {},
    ),
    "repeated where they are one": (
        """g (float[n, m] x, float[3, 6] z, float[b, 2, 6] p, float[4, 6, 5] q) => (y, w, v) {
            y = Expand(x, shape)  w = Add(x, z)  v = MatMul(p, q) }""",
        {"shape": np.array([3, 6])}, _sizes(n=[3, 1, 3, 1], m=[6, 6, 1, 1], b=[4, 1, 4, 1]), {},
    ),
    "moved": (
        """g (float[n, m, 4] x) => (a, b, c, d, e, h) {
            a = Transpose<perm=[2, 0, 1]>(x)  b = Reshape(x, flat)  c = Slice(x, one, end, one)
            d = Pad(x, pads)  h = Pad<mode="edge">(x, pads)  f = Concat<axis=1>(x, c)  e = Tile(f, times) }""",
        {"flat": np.array([0, -1]), "one": np.array([1]), "end": np.array([-1]), "pads": np.array([0, 1, 2, 0, 3, 0]),
         "times": np.array([1, 2, 1])},
        _sizes(n=[2, 3, 17], m=[1, 33, 16]), {},
    ),
    "chosen by their values": (
        "g (float[n, m] x) => (q, y) { q = NonZero(x)  t = Transpose(q)  y = GatherND(x, t) }",
        {}, [*ROWS, {"n": 1, "m": 0}], {"x": _sparse},
    ),
    "chosen boxes": (
        """g (float[1, m, 4] b, float[1, 3, m] s) => (q, y) {
            most = Constant<value_ints=[5]>()  near = Constant<value_floats=[0.5]>()
            q = NonMaxSuppression(b, s, most, near)
            c = Gather<axis=1>(q, two)  f = Squeeze(b, zero)  i = Squeeze(c, one)  y = Gather(f, i) }""",
        {"zero": np.array([0]), "one": np.array([1]), "two": np.array([2])}, _sizes(m=[1, 3, 40]), {"b": _boxes},
    ),
    "columns of as many as there are": (
        """g (float[n, m] x, int64[n] i) => (y, z, t) {
            m = Shape<start=1>(x)  both = Size(x)  last = Squeeze(m)  whole = Cast<to=7>(x)
            y = OneHot(i, m, v)  z = OneHot<axis=0>(i, both, v)  t = OneHot<axis=-2>(whole, last, v) }""",
        {"v": np.array([0.5, 2], "float32")}, ROWS,
        {"i": _below(9), "x": lambda random, shape: random.integers(-9, 9, shape).astype("float32")},
    ),
    "positions of what is nowhere zero": (  # as exporters counted before Range
        """g (float[n, m] x) => (y, q, u, w) {
            n = Shape<end=1>(x)  ones = ConstantOfShape<value = int64[1] {1}>(n)  row = NonZero(ones)
            column = Transpose(row)  y = GatherND(x, column)
            all = Shape(x)  halves = ConstantOfShape<value = float[1] {0.5}>(all)  q = NonZero(halves)
            true = Cast<to=9>(halves)  turned = Transpose(true)  u = NonZero(turned)
            more = Expand(ones, three)  w = NonZero(more) }""",
        {"three": np.array([3, 1])}, [*ROWS, {"n": 3, "m": 0}], {},
    ),
    "side by side": (
        "g (float[n, m] x) => (y) { y = Tile(x, times) }", {"times": np.array([7, 6])}, ROWS, {},
    ),
    "rows that come by the dozen": (  # never two or three of them, for which tiles of half the height would be
        "g (float[n, 15, 16] x) => (y) { y = MatMul(x, w) }",
        {"w": np.random.default_rng(1).normal(size=(16, 9)).astype("float32")}, _sizes(n=[1, 0, 7]), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_build_serves_all_sizes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, constants, sizes, feeds = CASES[name]
    _agrees(_model(text, constants), sizes, feeds, monkeypatch)


def test_what_is_nowhere_zero_has_no_count_of_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    text, constants, _, _ = CASES["positions of what is nowhere zero"]
    built = _open_build(_model(text, constants), monkeypatch)
    assert [o.name for o in built.outputs] == ["y", "q", "u", "w"]


def test_casts_to_fewer_values_make_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """g (float[n] x) => (a, b) {
        n = Shape(x)  wide = ConstantOfShape<value = int64[1] {256}>(n)  byte = Cast<to=2>(wide)  a = NonZero(byte)
        half = ConstantOfShape<value = float[1] {0.5}>(n)  whole = Cast<to=7>(half)  b = NonZero(whole) }"""
    _agrees(_model(text, {}), _sizes(n=[1, 7]), {}, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "gates", "attributes"),
    [
        ("LSTM", 4, {"direction": "bidirectional"}),
        ("GRU", 3, {"linear_before_reset": 1}),
        ("GRU", 3, {"direction": "reverse"}),
        ("RNN", 1, {}),
    ],
)
def test_recurrent_layers_of_any_length_and_batch(
    kind: str, gates: int, attributes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of every height of a register tile, sequences of different lengths, states given."""
    hidden, width = 20, 9
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    random = np.random.default_rng(3)
    constants = {
        "W": random.normal(0, 0.3, (directions, gates * hidden, width)),
        "R": random.normal(0, 0.3, (directions, gates * hidden, hidden)),
        "B": random.normal(0, 0.3, (directions, 2 * gates * hidden)),
    }
    inputs = [
        helper.make_tensor_value_info("x", 1, ["t", "b", width]),
        helper.make_tensor_value_info("n", 6, ["b"]),
        helper.make_tensor_value_info("h", 1, [directions, "b", hidden]),
    ]
    names = ["y", "last", *(["cell"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, ["x", "W", "R", "B", "n", "h"], names, hidden_size=hidden, **attributes)
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_tensor_value_info(o, 1, None) for o in names],
        [numpy_helper.from_array(a.astype("float32"), n) for n, a in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    sizes = _sizes(t=[2, 3, 7, 2, 60, 5, 4], b=[1, 2, 5, 13, 1, 3, 10])
    feeds = {"n": lambda random, shape: random.integers(1, 3, shape).astype("int32")}
    built = _agrees(model, sizes, feeds, monkeypatch)
    with pytest.raises(HalotileError, match="t is 0"):
        built({"x": np.zeros((0, 2, width), "f"), "n": np.ones(2, "i"), "h": np.zeros((directions, 2, hidden), "f")})
