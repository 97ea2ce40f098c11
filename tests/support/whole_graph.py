"""A graph under construction: nodes whose result shapes ONNX infers, constants, inputs, and what was made so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
MOST = 40_000  # elements of the largest value
Number = float | int


@dataclass(frozen=True)
class Tensor:
    """A value of the graph."""

    name: str
    shape: tuple[int, ...]
    dtype: int = TensorProto.FLOAT

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in (TensorProto.FLOAT, TensorProto.FLOAT16)


class Impossible(Exception):
    """A node that would be empty, too large, or that ONNX does not take; the block that asked gives up."""


class Graph:
    """Collects nodes. ``real`` is the element type of floats: FLOAT, or FLOAT16 for a half-width model."""

    def __init__(self, seed: int, real: int = TensorProto.FLOAT) -> None:
        self.rng = np.random.default_rng(seed)
        self.real = real
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[Tensor] = []
        self.values: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.types: dict[str, onnx.TypeProto] = {}
        self.data: dict[str, onnx.TensorProto] = {}

    # ------------------------------------------------------------------ chance

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high + 1))

    # ------------------------------------------------------------------ tensors

    def _known(self, name: str, dtype: int, shape: Sequence[int]) -> Tensor:
        self.types[name] = helper.make_tensor_type_proto(dtype, shape)
        return Tensor(name, tuple(shape), dtype)

    def input(self, shape: Sequence[int], dtype: int | None = None) -> Tensor:
        made = self._known(f"in{len(self.inputs)}", self.real if dtype is None else dtype, shape)
        self.inputs.append(made)
        self.values.append(made)
        return made

    def constant(self, array: Any, dtype: Any = None) -> Tensor:
        array = np.asarray(array) if dtype is None else np.asarray(array, dtype)
        if array.dtype in (np.float32, np.float64) and dtype is None:
            array = array.astype(np.float16 if self.real == TensorProto.FLOAT16 else np.float32)
        tensor = numpy_helper.from_array(np.ascontiguousarray(array), f"c{len(self.constants)}")
        self.constants.append(tensor)
        if array.size <= 16:
            self.data[tensor.name] = tensor
        return self._known(tensor.name, tensor.data_type, array.shape)

    def ints(self, *numbers: int) -> Tensor:
        return self.constant(np.array(numbers, np.int64))

    def weight(self, *shape: int, fan: int | None = None) -> Tensor:
        fan = int(np.prod(shape[1:])) if fan is None and len(shape) > 1 else fan or 4
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(max(fan, 1)))

    def positive(self, *shape: int) -> Tensor:
        return self.constant(self.rng.uniform(0.5, 1.5, shape))

    def scalar(self, number: Number) -> Tensor:
        return self.constant(np.array(float(number)))

    # ------------------------------------------------------------------ nodes

    def many(self, kind: str, inputs: Sequence[Tensor | None], count: int, **attributes: Any) -> list[Tensor]:
        """Adds a node of ``count`` outputs; raises Impossible if ONNX infers no good shapes."""
        names = [f"v{len(self.nodes)}_{i}" if count > 1 else f"v{len(self.nodes)}" for i in range(count)]
        given = ["" if i is None else i.name for i in inputs]
        while given and not given[-1]:
            given.pop()
        node = helper.make_node(kind, given, names, name=f"n{len(self.nodes)}", **attributes)
        schema = onnx.defs.get_schema(kind, OPSET, "")
        types = {n: self.types[n] for n in given if n}
        data = {n: self.data[n] for n in given if n in self.data}
        try:
            inferred = onnx.shape_inference.infer_node_outputs(
                schema, node, types, data, opset_imports=[helper.make_opsetid("", OPSET)]
            )
        except Exception as error:  # shape inference raises its own and plain runtime errors
            raise Impossible(str(error)) from None
        made = []
        for name in names:
            tensor = inferred[name].tensor_type
            if not tensor.HasField("shape") or any(not d.HasField("dim_value") for d in tensor.shape.dim):
                raise Impossible(f"{kind}: no shape")
            shape = tuple(d.dim_value for d in tensor.shape.dim)
            if int(np.prod(shape)) > MOST or any(d < 1 for d in shape):
                raise Impossible(f"{kind}: {shape}")
            made.append(self._known(name, tensor.elem_type, shape))
        self.nodes.append(node)
        self.values += made
        return made

    def add(self, kind: str, *inputs: Tensor | None, **attributes: Any) -> Tensor:
        return self.many(kind, inputs, 1, **attributes)[0]

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        target = list(shape)
        if self.chance(0.3) and target.count(-1) == 0 and target:  # as exporters write it
            target[self.between(0, len(target) - 1)] = -1
        return self.add("Reshape", x, self.ints(*target))

    def transpose(self, x: Tensor, *axes: int) -> Tensor:
        return self.add("Transpose", x, perm=list(axes))

    def slice(self, x: Tensor, axis: int, start: int, end: int, step: int = 1) -> Tensor:
        return self.add("Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step))

    def chunks(self, x: Tensor, axis: int, count: int) -> list[Tensor]:
        sizes = [x.shape[axis] // count] * (count - 1)
        sizes.append(x.shape[axis] - sum(sizes))
        if min(sizes) < 1:
            raise Impossible("nothing to split")
        return self.many("Split", [x, self.ints(*sizes)], count, axis=axis)

    def cast(self, x: Tensor, dtype: int) -> Tensor:
        return self.add("Cast", x, to=dtype)

    def attempt(self, block: Any, *arguments: Any) -> Any:
        """What ``block`` makes, or None, and no trace of it, when it turns out impossible."""
        marks = len(self.nodes), len(self.values)
        try:
            return block(self, *arguments)
        except Impossible:
            del self.nodes[marks[0] :], self.values[marks[1] :]
            return None

    # ------------------------------------------------------------------ the model

    def model(self, outputs: Sequence[Tensor], name: str) -> onnx.ModelProto:
        def info(t: Tensor) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(t.name, t.dtype, t.shape)

        used = {n for node in self.nodes for n in node.input} | {t.name for t in outputs}
        graph = helper.make_graph(
            self.nodes, name, [info(t) for t in self.inputs], [info(t) for t in outputs],
            [t for t in self.constants if t.name in used],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        onnx.checker.check_model(model)
        return model

    def arrays(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random inputs: floats normal, integers from 0 to 4, booleans either."""
        rng = np.random.default_rng([seed, len(self.nodes)])
        made = {}
        for tensor in self.inputs:
            dtype = helper.tensor_dtype_to_np_dtype(tensor.dtype)
            if dtype == np.bool_:
                made[tensor.name] = rng.random(tensor.shape) < 0.6
            elif dtype.kind in "iu":
                made[tensor.name] = rng.integers(0, 5, tensor.shape).astype(dtype)
            else:
                made[tensor.name] = np.asarray(rng.standard_normal(tensor.shape)).astype(dtype)
        return made
