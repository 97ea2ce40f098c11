"""Why ONNX itself would not take a node, in its own words: for what no converter of ours can do anything with."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import onnx

from .functions import element_type, value_type
from .value import OnnxValue

SMALL = 64  # elements of a known operand that shape inference may look at
RANGE = 2**31  # whole numbers that windows, axes and counts are within


def objection(proto: onnx.NodeProto, opsets: dict[str, int], inputs: Sequence[object]) -> str | None:
    """What ONNX's shape inference says against ``proto`` on these operands; None when it has nothing to say."""
    huge = out_of_range({a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute})
    if huge is not None:
        return huge
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    values = [i if isinstance(i, OnnxValue) else None for i in inputs]
    types = {n: value_type(v) for n, v in zip(proto.input, values) if n and v is not None}
    data = {
        n: onnx.numpy_helper.from_array(v.array, n)
        for n, v in zip(proto.input, values)
        if n and v is not None and v.array is not None and v.size <= SMALL
    }
    imports = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
    try:
        schema = onnx.defs.get_schema(proto.op_type, opsets.get(domain, 1), domain)
        if (wrong := _wrong_type(schema, values)) is not None:
            return wrong
        onnx.shape_inference.infer_node_outputs(schema, proto, types, data, opset_imports=imports)
    except onnx.shape_inference.InferenceError as error:
        return _plain(str(error))
    except Exception:  # whatever else goes wrong here says nothing about the node
        return None
    return None


def wrong_types(operator: str, domain: str, opset: int, inputs: Sequence[OnnxValue | None]) -> str | None:
    """Why operands can't be of the types that they are: bool where arithmetic on it would end in LLVM, or two where
    ONNX has one."""
    if domain or not onnx.defs.has(operator, opset, domain):
        return None
    schema = onnx.defs.get_schema(operator, opset, domain)
    values = [i if isinstance(i, OnnxValue) else None for i in inputs]
    wrong = _wrong_type(schema, [v if v is not None and v.dtype == "bool" else None for v in values])
    return wrong or _mixed(schema, values)


def _mixed(schema: onnx.defs.OpSchema, values: Sequence[OnnxValue | None]) -> str | None:
    """Operands of different types that share one variable of the schema."""
    first: dict[str, tuple[int, str]] = {}
    for index, value in enumerate(values):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if value is None or formal.type_str.startswith("tensor(") or not formal.is_homogeneous:
            continue
        place, dtype = first.setdefault(formal.type_str, (index, value.dtype))
        if dtype != value.dtype:
            return f"operand {index} is {value.dtype} and operand {place} {dtype}, which must be of one type"
    return None


def _wrong_type(schema: onnx.defs.OpSchema, values: Sequence[OnnxValue | None]) -> str | None:
    """The first operand of a type that the operator does not take there."""
    for index, value in enumerate(values):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        kind = value and onnx.TensorProto.DataType.Name(element_type(value.dtype)).lower()
        if kind is not None and f"tensor({kind})" not in formal.types:
            return f"operand {index} ({formal.name}) can't be {kind}"
    return None


def out_of_range(attributes: Mapping[str, int | list[int] | str]) -> str | None:
    """What is wrong with the first attribute that holds a whole number no tensor could have a use for."""
    for name, value in attributes.items():
        for number in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(number, int) and not -RANGE <= number < RANGE:
                return f"its attribute {name} holds {number}, which is out of range"
    return None


def _plain(text: str) -> str:
    """``[ShapeInferenceError] (op_type:X, node name: n): what is wrong`` without what the reader knows."""
    line = " ".join(text.split())
    line = re.sub(r"\[\w*Error\]\s*", "", line)
    line = re.sub(r"^\(op_type:[^)]*\):\s*", "", line)
    return line[:300].rstrip(" .")
