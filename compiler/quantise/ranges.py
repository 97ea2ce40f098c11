"""What values each tensor takes over the samples.

    ranges(model, samples) -> {tensor: (lowest, highest)}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from ...errors import RunError
from .answers import answers

Ranges = dict[str, tuple[float, float]]


def ranges(
    model: onnx.ModelProto, samples: Sequence[Mapping[str, np.ndarray]], finite: bool = True
) -> Ranges:
    """The lowest and highest value of every float32 tensor of the graph, inputs included, over all samples. If
    ``finite``, raises RunError where one is NaN or infinite, and leaves out tensors of unknown lengths."""
    names = _tensors(model, finite)
    watching = onnx.ModelProto()
    watching.CopyFrom(model)
    graph = watching.graph
    del graph.output[:]
    for i, name in enumerate(names):
        for kind in ("ReduceMin", "ReduceMax"):
            result = f"halotile_{kind}_{i}"
            graph.node.append(helper.make_node(kind, [name], [result], keepdims=0))
            graph.output.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, []))
    lows, highs = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    for outputs in answers(watching, samples):
        found = np.array([float(value) for value in outputs]).reshape(-1, 2)
        if finite and not np.isfinite(found).all():
            wrong = names[int(np.argmin(np.isfinite(found).all(axis=1)))]
            raise RunError(f"tensor '{wrong}' is NaN or infinite for a calibration sample, which gives no range")
        lows, highs = np.minimum(lows, found[:, 0]), np.maximum(highs, found[:, 1])
    return {name: (float(low), float(high)) for name, low, high in zip(names, lows, highs)}


def _tensors(model: onnx.ModelProto, known_alone: bool) -> list[str]:
    """The float32 tensors of the main graph that have elements, in order; those of unknown lengths may have some."""
    known = {v.name: v for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    constants = {t.name for t in model.graph.initializer}
    order = [*(v.name for v in model.graph.input), *(name for node in model.graph.node for name in node.output)]
    found = []
    for name in dict.fromkeys(order):
        info = known.get(name)
        if info is None or name in constants or info.type.tensor_type.elem_type != TensorProto.FLOAT:
            continue
        dims = info.type.tensor_type.shape.dim
        if all(d.dim_value or d.HasField("dim_param") or not (known_alone or d.HasField("dim_value")) for d in dims):
            found.append(name)
    return found
