"""Reading a model from a path, bytes or a ModelProto. External data is not touched here (tensors.py maps it)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from ...errors import ModelError
from ..given import ModelGiven, no_model
from ..options import path_of

TEXT, MESSAGE = 9, 11  # protobuf's numbers of field types
MOST_METADATA = 1 << 16  # characters of one entry; the names of a thousand classes have 30,000


@dataclass(frozen=True)
class Source:
    """A parsed model, the folder that its external data may come from, and a name for it."""

    model: onnx.ModelProto
    folder: Path | None
    name: str
    notes: list[str] = field(default_factory=list)


def load(model: ModelGiven) -> Source:
    """Parses ``model``; raises ModelError when it can't be read or is not ONNX."""
    if isinstance(model, onnx.ModelProto):
        return Source(model, None, model.graph.name)
    if isinstance(model, (bytes, bytearray, memoryview)):
        proto = _parse(bytes(model), "the bytes given")
        return Source(proto, None, proto.graph.name)
    path = path_of(model)
    if path is None:
        raise ModelError(f"a model is a path, bytes or an onnx.ModelProto, not {_kind(model)}")
    if not os.fspath(model):
        raise ModelError("the model's path is empty")
    try:
        if path.is_char_device():  # which may have no end
            raise ModelError(f"model file '{path}' is a device")
        data = path.read_bytes()
    except ValueError:
        raise ModelError(f"model file {str(path)!r} has a name that no file can have") from None
    except FileNotFoundError:
        raise ModelError(no_model(path)) from None
    except IsADirectoryError:
        raise ModelError(f"model file '{path}' is a folder") from None
    except OSError as error:
        raise ModelError(f"model file '{path}' can't be read: {error.strerror}") from None
    return Source(_parse(data, f"model file '{path}'"), path.parent, os.fsencode(path.stem).decode(errors="replace"))


def _parse(data: bytes, what: str) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"{what}: empty, not an ONNX model")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError:
        raise ModelError(f"{what}: not an ONNX model, or truncated (it does not parse as protobuf)") from None
    if not proto.HasField("graph") or not proto.ir_version:
        raise ModelError(f"{what}: not an ONNX model (it has no graph or no IR version)")
    return proto


def check_text(message: onnx.ModelProto, where: str = "the model") -> None:
    """Raises ModelError for a string that is not UTF-8, which protobuf hands over as bytes where a name belongs."""
    for kind, value in message.ListFields():
        if kind.type == TEXT:
            for text in [value] if isinstance(value, (str, bytes)) else value:
                if isinstance(text, bytes):
                    raise ModelError(f"not a valid ONNX model: {where} holds text that is not UTF-8 ({kind.name})")
        elif kind.type == MESSAGE:
            inside = type(message).__name__
            here = f"node '{message.name}'" if inside == "NodeProto" and isinstance(message.name, str) else where
            for inner in [value] if hasattr(value, "ListFields") else value:
                check_text(inner, here)


def metadata_of(model: onnx.ModelProto) -> dict[str, str]:
    """What the exporter tells of the model, by key: names of classes, a detector's stride, an author. What is longer
    than a library's manifest has use for is left out."""
    return {entry.key: entry.value for entry in model.metadata_props if len(entry.value) <= MOST_METADATA}


def printable(text: str) -> str:
    """``text`` in one line: names in a model may hold line breaks and worse."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _kind(model: ModelGiven) -> str:
    return type(model).__name__
