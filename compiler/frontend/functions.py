"""Function bodies: what lets an operator without a converter be written in operators that have one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from .value import OnnxValue

Body = tuple[list[str], list[str], list[onnx.NodeProto], dict[str, int]]


def model_functions(model: onnx.ModelProto) -> dict[tuple[str, str, str], onnx.FunctionProto]:
    return {(_domain(f.domain), f.name, f.overload): f for f in model.functions}


def schema_body(
    proto: onnx.NodeProto, opset: int, inputs: Sequence[OnnxValue | None]
) -> onnx.FunctionProto | None:
    """The function body that ONNX itself gives for this node at this opset, or None.

    Bodies that depend on the node (its attributes, which operands are present, their types) are asked for with them.
    """
    try:
        schema: Any = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if versions:
            types = [value_type(v).SerializeToString() for v in inputs]
            raw = schema.get_context_dependent_function_with_opset_version(
                max(versions), proto.SerializeToString(), types
            )
            body = onnx.FunctionProto.FromString(raw) if raw else None
            if body is not None and body.node:
                return body
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        if versions:
            raw = schema.get_function_with_opset_version(max(versions))
            body = onnx.FunctionProto.FromString(raw) if isinstance(raw, bytes) else raw
            if body is not None and body.node:
                return body
    return None


def with_defaults(proto: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """The node with every attribute it leaves out at the schema's default, as a function body expects."""
    try:
        schema = onnx.defs.get_schema(proto.op_type, opset, proto.domain)
    except onnx.defs.SchemaError:
        return proto
    present = {a.name for a in proto.attribute}
    missing = [
        a.default_value
        for n, a in schema.attributes.items()
        if n not in present and a.default_value is not None and a.default_value.type
    ]
    if not missing:
        return proto
    full = onnx.NodeProto()
    full.CopyFrom(proto)
    full.attribute.extend(missing)
    return full


def bind_attributes(proto: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A body's node with references to the function's attributes replaced by the caller's; absent ones vanish."""
    if not any(_refers(a) for a in proto.attribute):
        return proto
    bound = onnx.NodeProto()
    bound.CopyFrom(proto)
    del bound.attribute[:]
    for attribute in proto.attribute:
        if attribute.ref_attr_name:
            source = given.get(attribute.ref_attr_name)
            if source is not None:
                copy = bound.attribute.add()
                copy.CopyFrom(source)
                copy.name = attribute.name
            continue
        copy = bound.attribute.add()
        copy.CopyFrom(attribute)
        graphs = [copy.g] if copy.HasField("g") else list(copy.graphs)
        for graph in graphs:
            nodes = [bind_attributes(n, given) for n in graph.node]
            del graph.node[:]
            graph.node.extend(nodes)
    return bound


def _refers(attribute: onnx.AttributeProto) -> bool:
    if attribute.ref_attr_name:
        return True
    graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return any(_refers(a) for g in graphs for n in g.node for a in n.attribute)


def value_type(value: OnnxValue | None) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    shape = [d if isinstance(d, int) else str(d) for d in value.shape]
    return onnx.helper.make_tensor_type_proto(element_type(value.dtype), shape)


def element_type(dtype: str) -> int:
    """ONNX's element type number of a numpy dtype name."""
    return _ELEMENT[dtype]


_ELEMENT = {
    onnx.helper.tensor_dtype_to_np_dtype(n).name: n
    for n in onnx.TensorProto.DataType.values()
    if n not in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING)
}


def element_name(element: int) -> str:
    """ONNX's name of an element type number, or the number where it has none."""
    known = element in onnx.TensorProto.DataType.values()
    return str(onnx.TensorProto.DataType.Name(element)) if known else f"type {element}"


def dtype_name(element: int) -> str | None:
    """The numpy dtype name of an ONNX element type; None for strings and unknown ones."""
    return _NAME.get(element)


_NAME = {v: k for k, v in _ELEMENT.items()}


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain
