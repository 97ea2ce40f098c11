"""Plain data, as JSON or TOML has it, as the dataclass or type that an annotation names; nothing but Python is needed.

    convert({"name": "x", "shape": [2, "n"]}, Tensor) -> Tensor("x", (2, "n"))

Types are int, float, bool, str, None, Any, Literal, Path, tuples, lists, mappings, dataclasses and unions of these.
``Annotated[int, Limits(low=0)]`` and ``Annotated[str, Limits(form="...")]`` bound numbers and texts. Fields that a
dataclass does not have are passed over; numbers are never made of text, nor integers of floats or booleans.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_WORDS = {bool: "bool", int: "int", float: "float", str: "str", list: "array", tuple: "array", dict: "object",
          type(None): "null"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class FactLimits:
    """What a number or a text may be: from ``low`` to ``high``, or of a ``form`` (a regular expression)."""

    low: int | None = None
    high: int | None = None
    form: str | None = None


class Mismatch(ValueError):
    """Data of another type: ``field`` is the place (``.inputs[0].shape``), ``reason`` what is wrong there."""

    def __init__(self, reason: str, field: str = "") -> None:
        super().__init__(reason)
        self.reason, self.field = reason, field


def convert(data: Any, kind: Any, field: str = "") -> Any:
    """``data`` as ``kind``; raises :class:`Mismatch`, which names the place."""
    if kind is Any:
        return data
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *limits = get_args(kind)
        value = convert(data, inner, field)
        for limit in limits:
            _bounded(value, limit, field)
        return value
    if origin in (Union, types.UnionType):
        return convert(data, _member(data, get_args(kind), field), field)
    if origin is Literal:
        if any(type(data) is type(choice) and data == choice for choice in get_args(kind)):
            return data
        raise Mismatch(f"invalid value {data!r}", field)
    if dataclasses.is_dataclass(kind):
        return _record(data, kind, field)
    if not _accepts(kind, data):
        raise Mismatch(f"expected {_word(kind)}, got {_WORDS.get(type(data), type(data).__name__)}", field)
    return _container(data, kind, origin, field)


def _container(data: Any, kind: Any, origin: type | None, field: str) -> Any:
    """``data``, whose Python type is right, with its elements converted."""
    shape, arguments = origin or kind, get_args(kind)
    if shape is tuple or shape is list:
        if shape is tuple and arguments and arguments[-1] is not Ellipsis:
            if len(data) != len(arguments):
                raise Mismatch(f"expected array of length {len(arguments)}, got {len(data)}", field)
            return tuple(convert(v, k, f"{field}[{i}]") for i, (v, k) in enumerate(zip(data, arguments)))
        inner = arguments[0] if arguments else Any
        return shape(convert(value, inner, f"{field}[{i}]") for i, value in enumerate(data))
    if isinstance(shape, type) and issubclass(shape, Mapping):
        keys, values = arguments or (Any, Any)
        return {convert(k, keys, f"key in {field}"): convert(v, values, f"{field}[...]") for k, v in data.items()}
    if shape is float:
        return float(data)
    if shape is Path:
        return Path(data)
    if isinstance(data, str):
        data.encode()  # UnicodeEncodeError where it holds half a character
    return data


def _record(data: Any, kind: Any, field: str) -> Any:
    """The dataclass ``kind`` with the fields that ``data`` has."""
    if type(data) is kind:
        return data
    if not isinstance(data, Mapping):
        raise Mismatch(f"expected object, got {_WORDS.get(type(data), type(data).__name__)}", field)
    found = {}
    for name, inner, needed in _fields(kind):
        if name in data:
            found[name] = convert(data[name], inner, f"{field}.{name}")
        elif needed:
            raise Mismatch(f"object missing required field {name}", field)
    return kind(**found)


@cache
def _fields(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    """(name, type, whether there has to be one) of every field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    none = dataclasses.MISSING
    return tuple(
        (f.name, hints[f.name], f.default is none and f.default_factory is none)
        for f in dataclasses.fields(kind)
        if f.init
    )


def _member(data: Any, members: Sequence[Any], field: str) -> Any:
    """The member of a union that data of this Python type belongs to."""
    fitting = [m for m in members if _accepts(m, data)]
    if not fitting:
        words = " | ".join(_word(m) for m in members)
        raise Mismatch(f"expected {words}, got {_WORDS.get(type(data), type(data).__name__)}", field)
    exact = [m for m in fitting if _plain(m) is type(data)]
    return (exact or fitting)[0]


def _plain(kind: Any) -> Any:
    """A type without its limits and arguments."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) or kind


def _accepts(kind: Any, data: Any) -> bool:
    """Whether data of this Python type can be ``kind``, whatever its elements are."""
    plain = _plain(kind)
    if plain is Any:
        return True
    if plain is Literal:
        return any(type(data) is type(choice) for choice in get_args(kind))
    if plain in (None, type(None)):
        return data is None
    if plain is int:
        return type(data) is int
    if plain is float:
        return type(data) in (int, float)
    if plain in (tuple, list):
        return isinstance(data, (tuple, list))
    if plain is Path:
        return isinstance(data, (str, Path))
    if dataclasses.is_dataclass(plain):
        return isinstance(data, Mapping) or type(data) is plain
    if isinstance(plain, type) and issubclass(plain, Mapping):
        return isinstance(data, Mapping)
    return isinstance(plain, type) and isinstance(data, plain)


def _word(kind: Any) -> str:
    plain = _plain(kind)
    if plain is None:
        return "null"
    if dataclasses.is_dataclass(plain) or (isinstance(plain, type) and issubclass(plain, Mapping)):
        return "object"
    if plain is Literal:
        return " | ".join(repr(choice) for choice in get_args(kind))
    return "str" if plain is Path else _WORDS.get(plain, getattr(plain, "__name__", str(plain)))


def _bounded(value: Any, limit: FactLimits, field: str) -> None:
    """Raises Mismatch where a limit is passed."""
    if not isinstance(limit, FactLimits):
        return
    if limit.low is not None and value < limit.low:
        raise Mismatch(f"expected {_WORDS[type(value)]} >= {limit.low}, got {value}", field)
    if limit.high is not None and value > limit.high:
        raise Mismatch(f"expected {_WORDS[type(value)]} <= {limit.high}, got {value}", field)
    if limit.form is not None and not re.search(limit.form, value):
        raise Mismatch(f"expected str matching regex {limit.form!r}", field)
