"""Models whose lengths depend on the data, and what they must give: ONNX Runtime's answers to the count, then zeros."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from evaluate import peer
from halotile.compiler.frontend import import_model
from halotile.schedules.operators.reference import compile_reference
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(3)
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def noise(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def boxes_of(batch: int, count: int) -> np.ndarray:
    """Overlapping boxes, as two corners in any order."""
    low = RNG.random((batch, count, 2))
    both = np.concatenate([low, low + RNG.random((batch, count, 2)) * 0.5 - 0.1], -1)
    return both.astype("float32")


def model_of(
    nodes: list[Any], feeds: dict[str, np.ndarray], outputs: tuple[str, ...], opset: int = 17, **known: Any
) -> Any:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, KINDS[a.dtype.name], a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(n, 0, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in known.items()],
    )
    for output in graph.output:
        output.ClearField("type")
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def same(
    nodes: list[Any],
    feeds: dict[str, np.ndarray],
    *outputs: str,
    opset: int = 17,
    more: Sequence[Any] = (),
    **known: Any,
) -> None:
    """What is there of every output is ONNX Runtime's, and zeros follow; on ``feeds`` and on changes of them."""
    model = model_of(nodes, feeds, outputs, opset, **known)
    imported = import_model(model)
    run = compile_reference(imported.module)
    for changes in ({}, *more):
        given = {**feeds, **changes}
        ours = {o.name: r for o, r in zip(imported.outputs, run(*(given[i.name] for i in imported.inputs)))}
        for name, wanted in zip(outputs, peer(model, given), strict=True):
            close(ours[name], ours.get(f"{name}.length"), wanted)


def close(array: np.ndarray, length: np.ndarray | None, wanted: np.ndarray) -> None:
    assert array.dtype == wanted.dtype and array.ndim == wanted.ndim
    if length is not None:
        axis = next((a for a in range(array.ndim) if array.shape[a] != wanted.shape[a]), None)
        axis = array.shape.index(length[0]) if axis is None else axis
        assert array.shape[axis] >= length[0] == wanted.shape[axis]
        assert not array.take(range(length[0], array.shape[axis]), axis).any()
        array = array.take(range(length[0]), axis)
    np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-5)


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(operator, [i.strip("-") for i in inputs.split()], outputs.split(), **attributes)
