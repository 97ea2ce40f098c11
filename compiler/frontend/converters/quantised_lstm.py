"""DynamicQuantizeLSTM, what ONNX Runtime's dynamic quantiser makes of an LSTM."""

from __future__ import annotations

import numpy as np
from tvm import relax

from ....schedules.words.refusal import Refusal
from ..node import OnnxNode
from ..registry import converts
from ..value import OnnxValue
from .fused import MICROSOFT
from .quantize import by_own_range
from .recurrent import ROUNDED, recurrent

R = relax.op


@converts("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: OnnxNode) -> list[OnnxValue | None]:
    """An LSTM with weights in bytes, whose input and whose state of every step are rounded to bytes of their own range.

    A state's range is that of all sequences side by side; which are when they differ in length, nothing states.
    Weights are [directions, inputs, 4 hidden], the other way round than an LSTM's. Numbers that bytes stand for are
    multiplied in float32, which gives the sums of their products.
    """
    x, lengths = node.need(0), node[4]
    if lengths is not None and (lengths.array is None or (lengths.array != x.shape[0]).any()):
        raise Refusal("its sequences differ in length, and then nothing states the ranges of their states")
    numbers, scale, offset = by_own_range(node, x)
    offset = node.cast(node.cast(offset, "uint8"), x.dtype)
    seen = node.do(R.multiply, node.do(R.subtract, node.cast(numbers, x.dtype), offset), scale)
    operands = [seen, _weights(node, 1, 8), _weights(node, 2, 10), *(node[i] for i in range(3, 8))]
    attributes = {**node.attributes, ROUNDED: True}
    return recurrent(
        OnnxNode("LSTM", "", 14, operands, attributes, node.outputs, node.builder, node.used, node.guarded)
    )


def _weights(node: OnnxNode, at: int, scales: int) -> OnnxValue:
    """Operand ``at`` of bytes, with a scale and a zero point for each direction or each of its columns, as float32."""
    found = [node.constant(i, "its weights' numbers, scale or zero point") for i in (at, scales, scales + 1)]
    numbers, scale, zero = (None if a is None else a.astype("float32") for a in found)
    if numbers is None or scale is None or numbers.ndim != 3:
        raise Refusal("its weights have no scale, or are no three axes")

    def spread(values: np.ndarray) -> np.ndarray:
        return values.reshape(numbers.shape[0], 1, -1)

    real = (numbers - (0 if zero is None else spread(zero))) * spread(scale)
    return node.const(np.ascontiguousarray(real.transpose(0, 2, 1)))
