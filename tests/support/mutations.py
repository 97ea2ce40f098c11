"""Damaged models: random changes of bytes and of protobuf fields, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.message import Message

NUMBERS = (0, -1, 1, 2, 3, 7, -7, 100, 2**31 - 1, -(2**31), 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -1.0, float("nan"), float("inf"), 1e38)
NAMES = ("", "x", "com.microsoft", "n1", "\u00e9\u20ac", "a" * 300)
OPERATORS = ("Relu Conv Add Loop If Nope MaxPool Resize LSTM Gather Transpose Softmax Scan Split TopK Einsum Pad "
             "ConvTranspose OneHot NonZero Identity Slice Reshape Concat Cast Unsqueeze").split()  # fmt: skip
INTEGER, REAL, TEXT, MESSAGE, BYTES = {3, 4, 5, 13, 14}, {1, 2}, 9, 11, 12  # protobuf's numbers of field types


def damaged(model: onnx.ModelProto, seed: int) -> bytes:
    """``model`` with a quarter of a chance cut or with other bytes, else with one to three fields changed."""
    rng = random.Random(seed)
    if rng.random() < 0.25:
        return _bytes_changed(model.SerializeToString(), rng)
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        message, field = rng.choice(list(_fields(changed)))
        try:
            _change(message, field, rng, changed)
        except (ValueError, TypeError):  # a number that the field can't hold
            continue
    return changed.SerializeToString()


def _bytes_changed(data: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 5, 20))):
        changed[rng.randrange(min(len(changed), rng.choice((200, 2000, len(changed)))))] = rng.randrange(256)
    return bytes(changed)


def _fields(message: Message) -> Iterator[tuple[Message, Any]]:
    """Every field that is set, in every message below, with the message that has it."""
    for field, value in message.ListFields():
        yield message, field
        if field.type == MESSAGE:
            for inner in value if _repeated(message, field) else [value]:
                yield from _fields(inner)


def _repeated(message: Message, field: Any) -> bool:
    return hasattr(getattr(message, field.name), "__delitem__")


def _change(message: Message, field: Any, rng: random.Random, model: onnx.ModelProto) -> None:
    if rng.random() < 0.12:
        message.ClearField(field.name)
    elif _repeated(message, field):
        _change_list(getattr(message, field.name), field, rng, model)
    elif field.type != MESSAGE:
        setattr(message, field.name, _other(getattr(message, field.name), field, rng, model))


def _change_list(values: Any, field: Any, rng: random.Random, model: onnx.ModelProto) -> None:
    at, chance = rng.randrange(len(values)), rng.random()
    if chance < 0.3:
        del values[at]
    elif field.type == MESSAGE:
        other = values[rng.randrange(len(values))]
        if chance < 0.6:
            values.add().CopyFrom(other)
        else:
            kept = type(other)()
            kept.CopyFrom(values[at])
            values[at].CopyFrom(other)
            other.CopyFrom(kept)
    elif chance < 0.5:
        values.append(values[at])
    else:
        values[at] = _other(values[at], field, rng, model)


def _other(value: Any, field: Any, rng: random.Random, model: onnx.ModelProto) -> Any:
    if field.type in INTEGER:
        return rng.choice(NUMBERS)
    if field.type in REAL:
        return rng.choice(REALS)
    if field.type == TEXT:
        if field.name == "op_type":
            return rng.choice(OPERATORS)
        return rng.choice([*(n for node in model.graph.node for n in (*node.input, *node.output)), *NAMES])
    if field.type == BYTES:
        return rng.choice((value[: len(value) // 2], b"", value + b"\0" * 5, bytes(255 - b for b in value)))
    return not value
