"""Transposes, reshapes and slices around a matrix product vanish into its loads and stores, or stay apart and right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from compiled import Suite, native, weight
from halotile.schedules.matmul.folded_moves import along_memory, outgoing
from halotile.schedules.operators.te_graph import GroupGraph
from halotile.schedules.words.group import Group, Value
from tvm import relax

R = relax.op
RNG = np.random.default_rng(3)


def _array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def _chain(*steps: Callable[[Any], Any]) -> Callable[..., Any]:
    def body(x: Any, *_: Any) -> Any:
        for step in steps:
            x = step(x)
        return x

    return body


def _times(w: np.ndarray) -> Callable[[Any], Any]:
    return lambda x: R.matmul(x, weight(w))


W = _array(12, 35)
BIAS = _array(35)
# name: input, body, the same in NumPy, kernels
CASES: dict[str, tuple[np.ndarray, Callable[..., Any], np.ndarray, int]] = {}


def _case(name: str, x: np.ndarray, body: Callable[..., Any], wanted: np.ndarray, kernels: int = 1) -> None:
    CASES[name] = (x, body, wanted, kernels)


X = _array(1, 6, 7, 4, 3, 12)
WINDOWS = X.transpose(0, 1, 3, 2, 4, 5).reshape(24, 21, 12)
_case(
    "windows of an image",
    X,
    _chain(lambda x: R.permute_dims(x, [0, 1, 3, 2, 4, 5]), lambda x: R.reshape(x, (24, 21, 12)), _times(W)),
    WINDOWS @ W,
)
_case(
    "a transposed left operand",
    (T := _array(12, 53)),
    _chain(lambda x: R.permute_dims(x, [1, 0]), _times(W), lambda x: R.add(x, weight(BIAS))),
    T.T @ W + BIAS,
)
_case(
    "a slice of the left operand",
    (S := _array(3, 19, 24)),
    _chain(lambda x: R.strided_slice(x, [2], [5], [17]), _times(W)),
    S[:, :, 5:17] @ W,
)
B, RESIDUAL = _array(24, 21, 12), _array(1, 42, 12, 35)
_back = (B @ W + BIAS).reshape(1, 6, 4, 7, 3, 35).transpose(0, 1, 3, 2, 4, 5).reshape(1, 42, 12, 35)
_case(
    "windows back to an image, residual and activation behind",
    B,
    _chain(
        _times(W),
        lambda x: R.add(x, weight(BIAS)),
        lambda x: R.reshape(x, (1, 6, 4, 7, 3, 35)),
        lambda x: R.permute_dims(x, [0, 1, 3, 2, 4, 5]),
        lambda x: R.reshape(x, (1, 42, 12, 35)),
        lambda x: R.nn.relu(R.add(x, weight(RESIDUAL))),
    ),
    np.maximum(_back + RESIDUAL, 0),
)
_case(
    "heads split on both sides",
    (H := _array(2, 3, 17, 4)),
    _chain(
        lambda x: R.permute_dims(x, [0, 2, 1, 3]),
        lambda x: R.reshape(x, (2, 17, 12)),
        _times(W),
        lambda x: R.reshape(x, (2, 17, 5, 7)),
        lambda x: R.permute_dims(x, [0, 2, 1, 3]),
    ),
    (H.transpose(0, 2, 1, 3).reshape(2, 17, 12) @ W).reshape(2, 17, 5, 7).transpose(0, 2, 1, 3),
    3,  # steps of K and vectors of the result would both jump from head to head
)
_case(
    "a transposed result",
    (A := _array(2, 17, 12)),
    _chain(_times(W), lambda x: R.permute_dims(x, [0, 2, 1])),
    (A @ W).transpose(0, 2, 1),
    2,
)
_case(
    "a computed left operand",
    (C := _array(12, 53)),
    _chain(lambda x: R.permute_dims(R.tanh(x), [1, 0]), _times(W)),
    np.tanh(C).T @ W,
    2,
)


@pytest.fixture(scope="module")
def suite() -> Suite:
    suite = Suite(native())
    for name, (x, body, wanted, _) in CASES.items():
        suite.add(name, [x], body, wanted, 1e-4, 1e-4)
    return suite


@pytest.mark.parametrize("name", CASES)
def test_moves_around_a_product(suite: Suite, name: str) -> None:
    suite.check(name)
    schedules = suite.schedules(name)
    assert len(schedules) == CASES[name][3], schedules
    assert sum(s.startswith("matmul") for s in schedules) == 1


def _moved(steps: list[Callable[[Any], Any]], shape: tuple[int, ...]) -> tuple[Any, Value, Value, GroupGraph]:
    from halotile.passes.fuse.graph import build_graph

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(R.negative(x))
            for step in steps:
                y = builder.emit(step(y))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    graph = build_graph(builder.get())
    group = Group("g", graph.nodes, graph.inputs, graph.outputs, graph.nodes[0])
    places = outgoing(group, graph.nodes[0])
    result, last = graph.nodes[0].results[0], graph.outputs[0]
    return (places[last] if places else None), result, last, GroupGraph(group, [graph.nodes[0]])


def test_the_place_of_an_element_is_where_numpy_moves_it() -> None:
    shape = (2, 6, 35)
    steps: list[Callable[[Any], Any]] = [
        lambda x: R.reshape(x, (2, 2, 3, 35)),
        lambda x: R.permute_dims(x, [0, 2, 1, 3]),
        lambda x: R.reshape(x, (6, 2, 5, 7)),
        lambda x: R.permute_dims(x, [1, 0, 2, 3]),
    ]
    place, result, last, _ = _moved(steps, shape)
    numbers = np.arange(2 * 6 * 35).reshape(shape)
    moved = numbers.reshape(2, 2, 3, 35).transpose(0, 2, 1, 3).reshape(6, 2, 5, 7).transpose(1, 0, 2, 3)
    from tvm import sym, tirx

    for where in np.ndindex(*shape):
        found = place([tirx.IntImm("int32", i) for i in where])
        index = tuple(int(sym.Analyzer().simplify(i)) for i in found)
        assert moved[index] == numbers[where]
    assert along_memory(result, place, last)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: R.concat([x, x], 0),
        lambda x: R.strided_slice(x, [0], [0], [1]),
        lambda x: R.add(x, R.permute_dims(x, [0, 2, 1])),
        lambda x: R.flip(x, 1),
    ],
)
def test_what_is_no_move_has_no_place(step: Callable[[Any], Any]) -> None:
    place, *_ = _moved([lambda x: step(x)], (2, 5, 5))
    assert place is None
