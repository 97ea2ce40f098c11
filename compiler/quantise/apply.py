"""A model with QuantizeLinear and DequantizeLinear around what is to be computed in bytes.

    quantised(model, ranges, left) -> ModelProto      model and ranges of prepare.py and ranges.py
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import onnx

from ...errors import UnsupportedError
from .prepare import onnxruntime

# Sums of products, with weights that are known: what bytes make faster.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# What hands bytes on from one product to the next without a loss of its own, or nearly so.
BETWEEN = ("Add", "AveragePool", "Clip", "Concat", "Flatten", "GlobalAveragePool", "MaxPool", "Pad", "Relu", "Reshape",
           "Resize", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze")  # fmt: skip


def products(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes that are sums of products with float32 weights, in order."""
    weights = {t.name for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    return [n for n in model.graph.node if n.op_type in PRODUCTS and len(n.input) > 1 and n.input[1] in weights]


def quantised(
    model: onnx.ModelProto, ranges: Mapping[str, tuple[float, float]], left: Collection[str] = ()
) -> onnx.ModelProto:
    """The model with weights in int8, a scale for each channel, and activations in uint8. ``left`` names products that
    stay in float32. Equal arguments give equal models."""
    onnxruntime()
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    kept = {n.name for n in products(model)} - set(left)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    out = [n.name for n in copy.graph.node if n.op_type in PRODUCTS and n.name not in kept]
    out += _around_float(copy, kept)
    data = {n: (np.float32(low), np.float32(high)) for n, (low, high) in ranges.items()}
    with _quietly():
        quantizer = QDQQuantizer(
            copy, True, False, QuantType.QInt8, QuantType.QUInt8,
            TensorsData(CalibrationMethod.MinMax, {n: tuple(map(np.asarray, v)) for n, v in data.items()}), [],
            sorted(out), [*PRODUCTS, *BETWEEN],
            {"MatMulConstBOnly": True, "QDQOpTypePerChannelSupportToAxis": {"MatMul": 1}},
        )  # fmt: skip
        try:
            quantizer.quantize_model()
        except Exception as error:
            reason = str(error).strip().split("\n")[0]
            raise UnsupportedError(f"ONNX Runtime's quantiser can't take the model: {reason}") from None
    result = quantizer.model.model
    result.producer_name, result.producer_version = model.producer_name, model.producer_version
    return result


def _around_float(model: onnx.ModelProto, kept: Collection[str]) -> list[str]:
    """What hands bytes on, but lies between no product in bytes and another: it would only lose digits."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    writers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def reaches(node: onnx.NodeProto, ahead: bool, seen: set[str]) -> bool:
        if node.name in seen:
            return False
        seen.add(node.name)
        near = (
            [r for name in node.output for r in readers.get(name, ())] if ahead
            else [writers[name] for name in node.input if name in writers]
        )  # fmt: skip
        return any(n.name in kept or (n.op_type in BETWEEN and reaches(n, ahead, seen)) for n in near)

    return [
        n.name for n in model.graph.node
        if n.op_type in BETWEEN and not (reaches(n, True, set()) and reaches(n, False, set()))
    ]  # fmt: skip


@contextmanager
def _quietly() -> Iterator[None]:
    """The quantiser logs to the root logger what it leaves out."""
    before = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.root.setLevel(before)
