"""Element types as ONNX Runtime spells them, and what a session says of its inputs, outputs and model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx

from ..runtime.loader import numpy_dtype
from .failures import InvalidArgument

_NAMES = {"float32": "float", "float64": "double"}  # all others are called as NumPy calls them
_EIGHT_BITS = {f"float8_{kind}": f"float8{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")}


@dataclass(frozen=True)
class NodeArg:
    """An input or output: ``type`` such as ``tensor(float)``, ``shape`` with whole numbers, names of open dimensions,
    and None for nameless ones."""

    name: str
    type: str
    shape: list[int | str | None]
    ranked: bool = True  # whether the number of dimensions is known

    def __str__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """What the file says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def metadata_of(model: onnx.ModelProto) -> ModelMetadata:
    """The metadata of a model."""
    return ModelMetadata(
        producer_name=model.producer_name,
        graph_name=model.graph.name,
        domain=model.domain,
        description=model.doc_string,
        graph_description=model.graph.doc_string,
        version=model.model_version,
        custom_metadata_map={p.key: p.value for p in model.metadata_props},
    )


def described(info: onnx.ValueInfoProto, fixed: Mapping[str, int]) -> NodeArg:
    """What ``info`` declares; dimensions that ``fixed`` names have its length."""
    shape = info.type.tensor_type.shape
    dims = [
        d.dim_value if d.HasField("dim_value") else fixed.get(d.dim_param, d.dim_param or None) for d in shape.dim
    ]
    return NodeArg(info.name, _type_text(info.type), dims, info.type.tensor_type.HasField("shape"))


def _type_text(type_: onnx.TypeProto) -> str:
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({_type_text(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_text(type_.optional_type.elem_type)})"
    if kind == "map_type":
        key = onnx.TensorProto.DataType.Name(type_.map_type.key_type).lower()
        return f"map({key},{_type_text(type_.map_type.value_type)})"
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({onnx.TensorProto.DataType.Name(type_.sparse_tensor_type.elem_type).lower()})"
    return f"tensor({onnx.TensorProto.DataType.Name(type_.tensor_type.elem_type).lower()})"


def tensor_text(dtype: np.dtype) -> str:
    """``tensor(float)`` of float32."""
    name = np.dtype(dtype).name
    return f"tensor({_NAMES.get(name) or _EIGHT_BITS.get(name) or name})"


def dtype_of_text(text: str) -> np.dtype:
    """float32 of ``tensor(float)``; ValueError for what is no tensor of numbers."""
    kind = text.removeprefix("tensor(").removesuffix(")").upper()
    if kind not in onnx.TensorProto.DataType.keys() or kind == "STRING":
        raise ValueError(text)
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.DataType.Value(kind)))


def element_number(dtype: np.dtype) -> int:
    """ONNX's number of an element type."""
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def dtype_of_element(kind: Any) -> np.dtype:
    """The dtype that is meant by NumPy's type, its name or ONNX's number of it; InvalidArgument for anything else."""
    try:
        if isinstance(kind, int):
            return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))
        return numpy_dtype(kind) if isinstance(kind, str) else np.dtype(kind)
    except (TypeError, KeyError, AttributeError):
        raise InvalidArgument(f"element_type={kind!r} is no type of elements, such as numpy.float32") from None
