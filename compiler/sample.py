"""Random inputs for a model: seeded, of the right types, and in range where an integer is used as an index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .spec import TensorSpec

if TYPE_CHECKING:
    import onnx

# Operators whose result still holds the same integers, so that an index may hide behind them.
_PASS_ON = {
    "Identity",
    "Cast",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Transpose",
    "Expand",
    "Slice",
    "Concat",
}
_FLOATS = (1, 10, 11, 16)  # of ONNX's types: float, float16, double, bfloat16
# (position of the data, position of the indices) of operators that look something up.
_LOOKUPS = {
    "Gather": (0, 1),
    "GatherElements": (0, 1),
    "GatherND": (0, 1),
    "ScatterElements": (0, 1),
    "ScatterND": (0, 1),
    "RoiAlign": (0, 2),  # images
    "MaxUnpool": (0, 1),  # elements of a result that has no fewer
    "RotaryEmbedding": (1, 3),
}


def random_inputs(
    specs: Sequence[TensorSpec], proto: onnx.ModelProto | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """One array for each spec. Floats are normal; integers small, and below the table's length where they index one.

    ``proto`` is the ONNX model that tells which integers are indices, and which become floats: those are flags, such as
    masks of tokens, 0 or 1. Without it all are, for which hardly any table is too short.
    """
    bounds = index_bounds(proto) if proto is not None else {}
    flags = {spec.name for spec in specs} if proto is None else _flags(proto)
    return {
        spec.name: _draw(spec, np.random.default_rng([seed, i]), bounds.get(spec.name), 2 if spec.name in flags else 4)
        for i, spec in enumerate(specs)
    }


def _flags(proto: onnx.ModelProto) -> set[str]:
    """Inputs that are cast to floats: (1 - mask) * -3.4e38 of any other integer is an infinity, and NaN behind it."""
    found = set()
    for name in [v.name for v in proto.graph.input]:
        carried = {name}
        for node in proto.graph.node:
            if node.op_type in _PASS_ON and carried & set(node.input):
                carried.update(node.output)
                if node.op_type == "Cast" and any(a.name == "to" and a.i in _FLOATS for a in node.attribute):
                    found.add(name)
    return found


def index_bounds(proto: onnx.ModelProto) -> dict[str, int]:
    """Largest number of entries that every table looked up by an input has; inputs that index nothing are absent."""
    graph = proto.graph
    dims: dict[str, list[int]] = {t.name: list(t.dims) for t in graph.initializer}
    for value in [*graph.input, *graph.value_info]:
        shape = value.type.tensor_type.shape
        dims.setdefault(value.name, [d.dim_value for d in shape.dim])
    bounds: dict[str, int] = {}
    for name in [v.name for v in graph.input]:
        carried, bound = {name}, None
        for node in graph.node:
            if node.op_type in _PASS_ON and carried & set(node.input):
                carried.update(node.output)
            elif node.op_type in _LOOKUPS:
                data, indices = (node.input[i] if i < len(node.input) else "" for i in _LOOKUPS[node.op_type])
                if indices in carried:
                    size = _table_length(node, dims.get(data, []))
                    bound = size if bound is None else min(bound, size)
        if bound is not None:
            bounds[name] = bound
    return bounds


def _table_length(node: onnx.NodeProto, dims: list[int]) -> int:
    """Entries along the axis that the indices run over; 1 (only index 0 is safe) when that is not known."""
    if not dims:
        return 1
    if node.op_type == "MaxUnpool":
        return max(1, math.prod(dims))
    if node.op_type.endswith("ND"):
        return max(1, min(dims))
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return max(1, dims[axis]) if -len(dims) <= axis < len(dims) else 1


def _draw(spec: TensorSpec, rng: np.random.Generator, bound: int | None, usual: int) -> np.ndarray:
    if spec.dtype == "bool":
        return rng.random(spec.shape) < 0.5
    if spec.dtype.startswith(("int", "uint")):
        wide = 100 if spec.itemsize == 1 else usual
        return rng.integers(0, wide if bound is None else bound, spec.shape).astype(spec.dtype)
    values = rng.standard_normal(spec.shape, dtype=np.float32)
    return np.asarray(values).astype(dtype_of(spec.dtype))


def dtype_of(name: str) -> np.dtype:
    """numpy's dtype of a spec's name, the narrow floats of ml_dtypes included."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
