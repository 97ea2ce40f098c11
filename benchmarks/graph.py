"""A small builder of ONNX graphs with seeded weights, which writes them in the forms that exporters write.

    g = Graph("tiny", Form(style="torchscript", opset=17))
    x = g.input("input", (1, 3, 32, 32))
    with g.scope("stem"):
        x = g.op("Relu", x)                  # node /stem/Relu, value /stem/Relu_output_0
    model = g.finish(output=x)

Values are their ONNX names; ``g.shape(value)`` is known for each of them, so that layers need not be told
their input channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

Dim = int | str
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class ExportForm:
    """How an exporter writes the same network.

    ``style``: ``torchscript`` (scalars are Constant nodes, GELU and attention decomposed, scopes in names) or
    ``dynamo`` (scalars are initialisers, composite operators kept where the opset has them).
    ``raw``: shapes of reshapes are computed at run time (Shape, Gather, Unsqueeze, Concat) even where they are known.
    """

    style: str = "torchscript"
    opset: int = 17
    raw: bool = False

    def __post_init__(self) -> None:
        if self.style not in ("torchscript", "dynamo"):
            raise ValueError(f"style {self.style!r} is neither torchscript nor dynamo")
        if not 13 <= self.opset <= 23:
            raise ValueError(f"opset {self.opset} is outside 13 to 23, the range the builder writes")

    @property
    def torchscript(self) -> bool:
        return self.style == "torchscript"


class ModelGraph:
    """Nodes, weights and known shapes of one model under construction; deterministic in ``seed``."""

    def __init__(self, name: str, form: ExportForm | None = None, seed: int = 0) -> None:
        self.name = name
        self.form = form or ExportForm()
        self.rng = np.random.default_rng(seed)
        self._types: dict[str, onnx.TypeProto] = {}
        self._data: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._scope: list[str] = []
        self._used: set[str] = set()

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names of nodes and weights made inside carry ``name``, as an exporter's module path does."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def input(self, name: str, shape: Sequence[Dim], dtype: str = "float32") -> str:
        info = helper.make_tensor_value_info(name, _element(dtype), list(shape))
        self._inputs.append(info)
        self._types[name] = info.type
        return name

    def shape(self, value: str) -> Shape:
        dims = self._types[value].tensor_type.shape.dim
        return tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or "?") for d in dims)

    def dim(self, value: str, axis: int) -> int:
        """A dimension that must be a number."""
        size = self.shape(value)[axis]
        if not isinstance(size, int):
            raise ValueError(f"{self.name}: dimension {axis} of {value} is open ({size})")
        return size

    def weight(self, name: str, array: np.ndarray) -> str:
        """A named initialiser."""
        return self._initialiser(self._unique(".".join([*self._scope, name])), array)

    def const(self, value: object, dtype: str = "float32") -> str:
        """A scalar or small array in the body: a Constant node in TorchScript style, an initialiser in dynamo's."""
        array = np.asarray(value, dtype=dtype)
        if not self.form.torchscript:
            return self._initialiser(self._unique("val"), array)
        tensor = numpy_helper.from_array(array)
        result = self.op("Constant", value=tensor)
        self._data[result] = tensor
        return result

    def op(self, kind: str, *inputs: str, shape: Sequence[Dim] | None = None, **attributes: object) -> str:
        """A node with one output. ``shape`` states what inference can't see (a reshape to a computed shape)."""
        return self.ops(kind, *inputs, outputs=1, shape=shape, **attributes)[0]

    def ops(
        self, kind: str, *inputs: str, outputs: int, shape: Sequence[Dim] | None = None, **attributes: Any
    ) -> list[str]:
        """A node with several outputs; an empty input name is an absent optional input."""
        path = "/" + "/".join([*self._scope, kind]) if self.form.torchscript else f"node_{kind.lower()}"
        path = self._unique(path)
        suffix = "_output_" if self.form.torchscript else "_out_"
        names = [f"{path}{suffix}{i}" for i in range(outputs)]
        node = helper.make_node(kind, list(inputs), names, name=path, **attributes)
        self._nodes.append(node)
        inferred = self._infer(node)
        for name in names:
            self._types[name] = inferred.get(name, onnx.TypeProto())
        if shape is not None:
            element = (
                self._types[names[0]].tensor_type.elem_type or self._types[inputs[0]].tensor_type.elem_type
            )
            self._types[names[0]] = helper.make_tensor_type_proto(element, list(shape))
        return names

    def finish(self, **outputs: str) -> onnx.ModelProto:
        """The checked model; the keywords name its outputs (through Identity-free renaming of the producing value)."""
        rename = {value: name for name, value in outputs.items()}
        if len(rename) != len(outputs):
            raise ValueError(f"{self.name}: one value was given as two outputs")
        for node in self._nodes:
            node.input[:] = [rename.get(v, v) for v in node.input]
            node.output[:] = [rename.get(v, v) for v in node.output]
        infos = [
            helper.make_tensor_value_info(
                name, self._types[value].tensor_type.elem_type, list(self.shape(value))
            )
            for name, value in outputs.items()
        ]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, infos, initializer=self._weights)
        opsets = [helper.make_opsetid("", self.form.opset)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="halotile.benchmarks")
        model.ir_version = 8 if self.form.opset < 19 else 10
        return model

    def _infer(self, node: onnx.NodeProto) -> dict[str, onnx.TypeProto]:
        types = {v: self._types[v] for v in node.input if v}
        data = {v: self._data[v] for v in node.input if v in self._data}
        schema = onnx.defs.get_schema(node.op_type, self.form.opset)
        opsets = [helper.make_opsetid("", self.form.opset)]
        return shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=opsets, ir_version=8
        )

    def _initialiser(self, name: str, array: np.ndarray) -> str:
        tensor = numpy_helper.from_array(array.copy(order="C"), name)
        self._weights.append(tensor)
        self._types[name] = helper.make_tensor_type_proto(tensor.data_type, list(array.shape))
        if array.size <= 16:
            self._data[name] = tensor
        return name

    def _unique(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self._used:
            number += 1
            candidate = f"{name}_{number}"
        self._used.add(candidate)
        return candidate

    # Random weights: every layer keeps the mean square of its input, so that nothing explodes or fades with depth.

    def normal(self, shape: Sequence[int], scale: float) -> np.ndarray:
        return self.rng.standard_normal(tuple(shape), dtype=np.float32) * np.float32(scale)

    def uniform(self, shape: Sequence[int], low: float, high: float) -> np.ndarray:
        return self.rng.uniform(low, high, tuple(shape)).astype(np.float32)

    def fan_in(self, shape: Sequence[int], gain: float, fan: int | None = None) -> np.ndarray:
        """Normal weights of variance ``gain / fan``; the fan is the product of all but the first dimension."""
        return self.normal(shape, math.sqrt(gain / (fan or math.prod(shape[1:]))))


def _element(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))) if dtype != "bool" else TensorProto.BOOL
