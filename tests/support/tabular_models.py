"""Models of one operator of ``ai.onnx.ml``, and their comparison with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from evaluate import evaluate, peer
from onnx import helper, numpy_helper


def model_of(
    operator: str, inputs: Sequence[np.ndarray], outputs: int, version: int = 3, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The first operand is the model's input, others are constants."""
    names = [f"i{n}" for n in range(len(inputs))]
    node = helper.make_node(operator, names, [f"o{n}" for n in range(outputs)], domain="ai.onnx.ml", **attributes)
    info = helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)
    weights = [numpy_helper.from_array(a, n) for a, n in zip(inputs[1:], names[1:])]
    results = [onnx.ValueInfoProto(name=n) for n in node.output]
    graph = helper.make_graph([node], "g", [info], results, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return onnx.shape_inference.infer_shapes(model), {"i0": inputs[0]}


def agrees(operator: str, inputs: Sequence[np.ndarray], outputs: int, version: int = 3, **attributes: Any) -> None:
    model, feeds = model_of(operator, inputs, outputs, version, **attributes)
    for ours, theirs in zip(evaluate(model, feeds).values(), peer(model, feeds), strict=True):
        assert (ours.shape, ours.dtype) == (np.shape(theirs), np.asarray(theirs).dtype)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def forest(
    trees: int, depth: int, features: int, results: Sequence[int], seed: int = 0, *, side: str = "target",
    modes: Sequence[str] = ("BRANCH_LEQ",), positive: bool = False, missing: bool = False, per_tree: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Random trees as attributes; leaves weigh all ``results``, or with ``per_tree`` one of them in turn."""
    rng = np.random.default_rng(seed)
    columns = "treeids nodeids featureids values modes truenodeids falsenodeids missing_value_tracks_true".split()
    at: dict[str, list[Any]] = {f"nodes_{c}": [] for c in columns}
    at |= {f"{side}_{c}": [] for c in ("treeids", "nodeids", "ids", "weights")}

    def grow(tree: int, left: int) -> int:
        row = len(at["nodes_treeids"])
        number = at["nodes_treeids"].count(tree)
        leaf = not left or (left < depth and rng.random() < 0.25)
        tracks = int(missing and not leaf and rng.random() < 0.5)
        limit = 0.0 if leaf else float(np.round(2 * rng.standard_normal()) / 2)
        mode = "LEAF" if leaf else modes[rng.integers(len(modes))]
        for name, value in zip(columns, (tree, number, int(rng.integers(features)), limit, mode, 0, 0, tracks)):
            at[f"nodes_{name}"].append(value)
        if not leaf:
            at["nodes_truenodeids"][row] = grow(tree, left - 1)
            at["nodes_falsenodeids"][row] = grow(tree, left - 1)
            return number
        for result in [results[tree % len(results)]] if per_tree else results:
            weight = float(np.round(2 * rng.random()) / trees) if positive else float(rng.standard_normal())
            for name, value in zip(("treeids", "nodeids", "ids", "weights"), (tree, number, result, weight)):
                at[f"{side}_{name}"].append(value)
        return number

    for tree in range(trees):
        grow(tree, depth)
    return at
