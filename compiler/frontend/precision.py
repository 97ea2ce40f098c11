"""Half-width floats (float16, bfloat16) are stored in their type and computed in float32.

    Add -> Relu -> Mul on float16     becomes     one chain in float32, rounded where its result leaves the model

A converter sees float32 operands. Its results are rounded to the type that ONNX gives them, and the unrounded ones are
kept beside them (``OnnxValue.wide``) for the operators that read them next; the rounding that nothing reads falls away.
So a chain rounds at the model's outputs and explicit Casts, and where an operator's result jumps (comparisons,
roundings, arg-max, quantisation): those see the rounded values, as ONNX would have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from .node import OnnxNode
from .registry import Converter
from .value import OnnxValue

NARROW = ("float16", "bfloat16")

# Operators that see the rounded values: their results jump, or do not depend on the numbers at all.
ROUNDED = frozenset(
    "Cast CastLike BitCast QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul "
    "Floor Ceil Round Sign Mod Equal Greater Less GreaterOrEqual LessOrEqual Not And Or Xor IsInf IsNaN "
    "ArgMax ArgMin TopK Hardmax NonZero Compress Unique OneHot "
    "Constant ConstantOfShape Shape Size Range EyeLike RandomNormalLike RandomUniformLike Bernoulli".split()
)
# Operators that only move elements: they follow the form that their operands are in.
MOVING = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Expand Tile Gather GatherND "
    "GatherElements DepthToSpace SpaceToDepth Pad Trilu ReverseSequence".split()
)
# Norms that ONNX has no schema of (at their opset): their means and deviations stay in float32.
NORMS = {
    "LayerNormalization": {0},
    "SimplifiedLayerNormalization": {0},
    "SkipLayerNormalization": {0, 3},
    "SkipSimplifiedLayerNormalization": {0, 3},
}


def write(convert: Converter, node: OnnxNode) -> list[OnnxValue | None]:
    """The results of ``convert(node)``, computed in float32 where the operands are half-width floats."""
    given = list(node.inputs)
    narrow = next((v.dtype for v in given if v is not None and v.dtype in NARROW), None)
    moving = node.operator in MOVING and not any(v is not None and v.wide is not None for v in given)
    if narrow is None or moving or node.operator in ROUNDED:
        return _listed(convert(node))
    node.inputs = [_widened(node, v) for v in given]
    unchanged = {id(wide): v for wide, v in zip(node.inputs, given) if wide is not v}
    tied = _tied(node, given)
    results = _listed(convert(node))
    for i, result in enumerate(results):
        if result is not None and result.dtype == "float32" and (tied is None or i in tied):
            results[i] = unchanged.get(id(result)) or _rounded(node, result, narrow)
    return results


def _listed(written: OnnxValue | list[OnnxValue | None]) -> list[OnnxValue | None]:
    return list(written) if isinstance(written, list) else [written]


def _widened(node: OnnxNode, value: OnnxValue | None) -> OnnxValue | None:
    if value is None or value.dtype not in NARROW:
        return value
    if value.wide is None:
        value.wide = node.cast(value, "float32")
    return value.wide


def _rounded(node: OnnxNode, wide: OnnxValue, dtype: str) -> OnnxValue:
    value = node.cast(wide, dtype)
    if not wide.is_constant:
        value.wide = wide
    return value


def _tied(node: OnnxNode, given: Sequence[OnnxValue | None]) -> set[int] | None:
    """The outputs whose type is that of a half-width operand, by the schema; None (all) for an unknown operator that
    is no norm."""
    try:
        schema = onnx.defs.get_schema(node.operator, node.opset, node.domain)
    except onnx.defs.SchemaError:
        return NORMS.get(node.operator)
    formals = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(given))]
    types = {t for t, v in zip(formals, given) if v is not None and v.dtype in NARROW}
    outputs = [schema.outputs[min(i, len(schema.outputs) - 1)].type_str for i in range(len(node.outputs))]
    return {i for i, t in enumerate(outputs) if t in types}
