"""Emitter: ONNX nodes in the form that a model's own opset has, from 7 on, for what is put before and behind a graph.

Every method appends one node (or the few that stand for it) and returns the name of its result. Names of ours begin
with ``halotile:`` and are none of the graph's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


class Emitter:
    """Collects nodes and constants for a graph of ``opset``; ``about`` names what they are for."""

    def __init__(self, opset: int, about: str, taken: set[str]) -> None:
        self.opset, self.about, self._taken = opset, about, taken
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def name(self, what: str) -> str:
        """A name that nothing in the graph has."""
        number, found = 0, f"halotile:{self.about}:{what}"
        while found in self._taken:
            number += 1
            found = f"halotile:{self.about}:{what}_{number}"
        self._taken.add(found)
        return found

    def const(self, array: Any, dtype: Any = np.float32) -> str:
        """A constant."""
        name = self.name("constant")
        whole = np.ascontiguousarray(array, dtype).reshape(np.shape(array))
        self.constants.append(numpy_helper.from_array(whole, name))
        return name

    def do(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """One node, its result or its results."""
        name = self.name(op.lower())
        results = [name, *(self.name(f"{op.lower()}:{i}") for i in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), results, name=name, **attributes))
        return name if outputs == 1 else results

    def cast(self, x: str, kind: int) -> str:
        """``x`` as another element type."""
        return self.do("Cast", x, to=kind)

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """``x`` in another shape."""
        return self.do("Reshape", x, self.const(shape, np.int64))

    def slice(self, x: str, axis: int, begin: int, end: int) -> str:
        """A part of ``x`` along one axis."""
        if self.opset < 10:
            return self.do("Slice", x, axes=[axis], starts=[begin], ends=[end])
        return self.do("Slice", x, *(self.const([n], np.int64) for n in (begin, end, axis)))

    def pad(self, x: str, before: Sequence[int], after: Sequence[int], value: float) -> str:
        """``x`` with a constant around it."""
        pads = [*before, *after]
        if self.opset < 11:
            return self.do("Pad", x, pads=pads, mode="constant", value=value)
        return self.do("Pad", x, self.const(pads, np.int64), self.const(value), mode="constant")

    def clip(self, x: str, low: float, high: float) -> str:
        """Floats within two bounds."""
        if self.opset < 11:
            return self.do("Clip", x, min=float(low), max=float(high))
        return self.do("Clip", x, self.const(low), self.const(high))

    def round(self, x: str) -> str:
        """The nearest whole numbers, halves to even; up before opset 11, which has no such operator."""
        if self.opset < 11:
            return self.do("Floor", self.do("Add", x, self.const(0.5)))
        return self.do("Round", x)

    def softmax(self, x: str, axis: int, rank: int) -> str:
        """Along one axis; before opset 13 the operator takes all axes from there on, so that it must be the last."""
        if self.opset >= 13 or axis == rank - 1:
            return self.do("Softmax", x, axis=axis)
        order = [i for i in range(rank) if i != axis] + [axis]
        last = self.do("Softmax", self.do("Transpose", x, perm=order), axis=rank - 1)
        return self.do("Transpose", last, perm=[order.index(i) for i in range(rank)])

    def top(self, x: str, count: int, axis: int) -> list[str]:
        """The largest ``count`` along an axis, in order, and their places."""
        if self.opset < 10:
            return self.do("TopK", x, k=count, axis=axis, outputs=2)
        return self.do("TopK", x, self.const([count], np.int64), axis=axis, outputs=2)
