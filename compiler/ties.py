"""How much of a quantised model's answer hangs on the last bit of what it rounds to integers.

    q = round(x / scale)

The mean of four integers lies halfway between two as often as not, and there the order in which floats were added
decides which of them is taken: neither is wrong. The same model with all such scales a millionth larger takes the one
for every tie, a millionth smaller the other; how far both move each output is what ties may do to it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from .distances import Arrays, Distance, apart

NUDGE = 1e-6  # eight ulps of float32: more than the order of a sum moves its result, and no step of an 8-bit integer
SCALE = {
    "QuantizeLinear": 1,
    "QLinearConv": 6,
    "QLinearMatMul": 6,
    "QLinearAdd": 6,
    "QLinearMul": 6,
    "QLinearAveragePool": 3,
    "QLinearGlobalAveragePool": 3,
    "QLinearLeakyRelu": 3,
    "QLinearSigmoid": 3,
    "QLinearSoftmax": 3,
    "QLinearConcat": 0,
    "QLinearReduceMean": 3,
    "QLinearWhere": 7,
    "QGemm": 7,
}  # the operand that is the scale of the result


def nudged(model: onnx.ModelProto, factor: float) -> onnx.ModelProto | None:
    """The model with the scale of everything it rounds times ``factor``; None if it rounds nothing by a known scale."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    known = {t.name: t for t in other.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    moved: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for node in other.graph.node:
        nodes.append(node)
        if node.op_type == "DynamicQuantizeLinear":
            nodes += _rounded_again(node, factor, len(nodes))
            moved[node.output[0]] = ""
        place = SCALE.get(node.op_type, len(node.input))
        if place >= len(node.input) or node.input[place] not in known:
            continue
        name = node.input[place]
        if name not in moved:
            moved[name] = f"{name} nudged"
            array = numpy_helper.to_array(known[name]).astype(np.float64) * factor
            other.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), moved[name]))
        node.input[place] = moved[name]
    again = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del other.graph.node[:]
    other.graph.node.extend(again)
    return other if moved else None


def _rounded_again(node: onnx.NodeProto, factor: float, number: int) -> list[onnx.NodeProto]:
    """What follows a DynamicQuantizeLinear, so that its integers come from a scale times ``factor``; what it gave so
    far gets another name."""
    y, scale, zero = node.output
    node.output[0] = f"{y} as it was {number}"
    by, moved = f"{scale} factor {number}", f"{scale} nudged {number}"
    value = numpy_helper.from_array(np.array(factor, np.float32))
    return [
        onnx.helper.make_node("Constant", [], [by], value=value),
        onnx.helper.make_node("Mul", [scale, by], [moved]),
        onnx.helper.make_node("QuantizeLinear", [node.input[0], moved, zero], [y]),
    ]


def spreads(
    model: onnx.ModelProto, run: Callable[[onnx.ModelProto], Arrays], theirs: Arrays
) -> dict[str, Distance]:
    """Output -> the largest distances between any two of the answers; empty if ``model`` has no ties to break."""
    up, down = nudged(model, 1 + NUDGE), nudged(model, 1 - NUDGE)
    if up is None or down is None:
        return {}
    answers = [theirs, run(up), run(down)]
    return {name: apart([a[name] for a in answers]) for name in theirs}
