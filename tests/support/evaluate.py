"""Builds one-node models, evaluates them through Halotile's import, and compares with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from halotile.compiler.frontend import import_model
from halotile.compiler.verify import session
from halotile.schedules.operators.reference import compile_reference
from onnx import helper, numpy_helper


def evaluate(model: Any, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs by name, computed operator by operator without any schedule."""
    imported = import_model(model)
    results = compile_reference(imported.module)(*(inputs[i.name] for i in imported.inputs))
    return {o.name: r for o, r in zip(imported.outputs, results)}


def one_node(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    outputs: int = 1,
    *,
    run_time: Sequence[int] = (0,),
    opset: int = 19,
    domain: str = "",
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of a single node; the inputs at the positions in ``run_time`` are the model's, the rest constants."""
    names = [f"i{n}" if a is not None else "" for n, a in enumerate(inputs)]
    results = [f"o{n}" for n in range(outputs)]
    node = helper.make_node(operator, names, results, name="it", domain=domain, **attributes)
    feeds = {names[n]: a for n, a in enumerate(inputs) if a is not None and n in run_time}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    weights = [
        numpy_helper.from_array(a, names[n])
        for n, a in enumerate(inputs)
        if a is not None and n not in run_time
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=r) for r in results], weights)
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True), feeds  # gives the outputs their types


def peer(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime makes of it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return session(model.SerializeToString(), options).run(None, dict(inputs))


def agree(
    operator: str,
    inputs: Sequence[np.ndarray | None],
    outputs: int = 1,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    **kwargs: Any,
) -> list[np.ndarray]:
    """Asserts that Halotile and ONNX Runtime agree on a node, and returns the outputs."""
    model, feeds = one_node(operator, inputs, outputs, **kwargs)
    ours = list(evaluate(model, feeds).values())
    for a, b in zip(ours, peer(model, feeds), strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype, f"{a.dtype}{a.shape} instead of {b.dtype}{b.shape}"
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=rtol, atol=atol)
    return ours
