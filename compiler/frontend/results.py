"""What is taken in place of an output: the operators that make of it what was asked for, behind the model's graph.

    the model's output -> dequantise -> softmax -> argmax or top -> multiply -> round, clip, Cast -> layout
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from onnx import TensorProto

from ...errors import HalotileError, ShapeError, several
from ..images import Output
from .emitter import FLOAT, Emitter

if TYPE_CHECKING:
    from ...schedules.words.size_like import SizeLike

KINDS = {
    "uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "int32": TensorProto.INT32, "int64": TensorProto.INT64,
    "float32": FLOAT,
}  # fmt: skip
BOUNDS = {"uint8": (0, 255), "int8": (-128, 127)}
MOST_EXACT = 2147483520  # the largest float32 that int32 holds
REAL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class GraphResult:
    """A tensor of the graph: its name, shape (numbers, names, None) and ONNX's number of its type."""

    tensor: str
    dims: list[SizeLike]
    kind: int


def put_behind(emit: Emitter, wanted: Output, given: GraphResult) -> list[GraphResult]:
    """Appends the operators to ``emit``; the results, of which the first takes the output's name."""
    what = f"output {emit.about!r}"
    x, dims, kind = given.tensor, list(given.dims), given.kind
    if wanted.dequantise is not None:
        scale, zero = wanted.dequantise
        x = emit.do("Sub", emit.cast(x, FLOAT), emit.const(zero))
        x, kind = emit.do("Mul", x, emit.const(scale)), FLOAT
    axis = _axis(wanted, dims, what)
    if wanted.softmax:
        if kind not in REAL:
            raise HalotileError(f"{what}: softmax is of floats, and the model gives integers; dequantise them first")
        x = emit.softmax(x, axis, len(dims))
    others: list[GraphResult] = []
    if wanted.argmax:
        classes = dims.pop(axis)
        if wanted.dtype in BOUNDS and not (isinstance(classes, int) and classes <= BOUNDS[wanted.dtype][1] + 1):
            raise HalotileError(f"{what}: {classes} places do not fit {wanted.dtype}; take int32")
        x, kind = emit.do("ArgMax", x, axis=axis, keepdims=0), KINDS[wanted.dtype or "int32"]
        if kind != TensorProto.INT64:
            x = emit.cast(x, kind)
        return [GraphResult(x, dims, kind)]
    if wanted.top is not None:
        if isinstance(dims[axis], int) and wanted.top > dims[axis]:
            raise ShapeError(f"{what}: top={wanted.top} of {dims[axis]}")
        x, places = emit.top(x, wanted.top, axis)
        dims[axis] = wanted.top
        others.append(GraphResult(emit.cast(places, TensorProto.INT32), list(dims), TensorProto.INT32))
    if wanted.multiply != 1.0:
        x = emit.do("Mul", x if kind == FLOAT else emit.cast(x, FLOAT), emit.const(wanted.multiply))
        kind = FLOAT
    x, kind = _typed(emit, x, kind, wanted)
    if wanted.layout is not None:
        if len(dims) != 4:
            dimensions = several(len(dims), "dimension")
            raise ShapeError(f"{what}: it has {dimensions}; layout={wanted.layout} is for one of 4")
        order = [0, 2, 3, 1] if wanted.layout == "NHWC" else [0, 3, 1, 2]
        x, dims = emit.do("Transpose", x, perm=order), [dims[i] for i in order]
        others = [GraphResult(emit.do("Transpose", o.tensor, perm=order), dims, o.kind) for o in others]
    if x == given.tensor:
        x = emit.do("Identity", x)
    return [GraphResult(x, dims, kind), *others]


def _axis(wanted: Output, dims: Sequence[SizeLike], what: str) -> int:
    used = wanted.softmax or wanted.argmax or wanted.top is not None
    if used and not -len(dims) <= wanted.axis < len(dims):
        raise ShapeError(f"{what}: axis {wanted.axis} is none of its {several(len(dims), 'dimension')}")
    return wanted.axis % len(dims) if used else 0


def _typed(emit: Emitter, x: str, kind: int, wanted: Output) -> tuple[str, int]:
    if wanted.dtype is None or KINDS[wanted.dtype] == kind:
        return x, kind
    if wanted.dtype != "float32":
        x = x if kind == FLOAT else emit.cast(x, FLOAT)
        if kind in REAL:
            x = emit.round(x)
        low, high = BOUNDS.get(wanted.dtype, (-(2**31), MOST_EXACT))
        x = emit.clip(x, np.float32(low).item(), np.float32(high).item())
    return emit.cast(x, KINDS[wanted.dtype]), KINDS[wanted.dtype]
