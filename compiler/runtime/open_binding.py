"""The part of a library's C API that takes a shape, through ctypes: for models whose sizes every run chooses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..spec import Symbol, TensorSpec

ABI = 2  # of the description
_size, _text, _int, _pointer, _long = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int64


class _OpenTensor(ctypes.Structure):
    _fields_ = [
        ("name", _text),
        ("dtype", _text),
        ("rank", _size),
        ("dims", ctypes.POINTER(_text)),
        ("element_bytes", _size),
    ]


class _Symbol(ctypes.Structure):
    _fields_ = [
        ("name", _text),
        ("low", _long),
        ("high", _long),
        ("multiple", _long),
        ("typical", _long),
        ("allowed", _text),
        ("why", _text),
    ]


class Description(ctypes.Structure):
    """What ``<name>_describe`` points to."""

    _fields_ = [
        ("abi", ctypes.c_uint),
        ("name", _text),
        ("version", _text),
        ("target", _text),
        ("fingerprint", _text),
        ("input_count", _size),
        ("inputs", ctypes.POINTER(_OpenTensor)),
        ("output_count", _size),
        ("outputs", ctypes.POINTER(_OpenTensor)),
        ("weight_bytes", _size),
        ("max_threads", _int),
        ("default_threads", _int),
        ("symbol_count", _size),
        ("symbols", ctypes.POINTER(_Symbol)),
    ]


class OpenCalls:
    """The functions of a shape. A shape is an address of int64 numbers, one for each of ``symbols``."""

    def __init__(self, library: object, prefix: str, facts: Description) -> None:
        self.inputs = tuple(_specs(facts.inputs, facts.input_count))
        self.outputs = tuple(_specs(facts.outputs, facts.output_count))
        self.symbols = tuple(_symbols(facts))
        self._count = sum(len(spec.shape) for spec in (*self.inputs, *self.outputs))
        self.run = _function(library, f"{prefix}_run_shape", _int, _pointer, _pointer, _pointer, _pointer)
        self._dims = _function(library, f"{prefix}_shape_dims", _int, _pointer, _pointer)
        self._arena_bytes = _function(library, f"{prefix}_arena_bytes_for", _size, _pointer, _int)
        self._create = _function(library, f"{prefix}_create_for", _int, _int, _pointer, ctypes.POINTER(_pointer))
        self._create_in = _function(
            library, f"{prefix}_create_in_for", _int, _int, _pointer, _pointer, _size, ctypes.POINTER(_pointer)
        )

    def shape(self, sizes: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
        """Sizes as the library reads them."""
        return (_long * len(sizes))(*sizes)

    def dims(self, sizes: Sequence[int]) -> tuple[int, tuple[tuple[int, ...], ...]]:
        """(error code, shapes of all inputs and then of all outputs)."""
        shape, numbers = self.shape(sizes), (_long * max(1, self._count))()
        code = self._dims(ctypes.addressof(shape), ctypes.addressof(numbers))
        at, found = 0, []
        for spec in (*self.inputs, *self.outputs):
            found.append(tuple(numbers[at : at + len(spec.shape)]))
            at += len(spec.shape)
        return code, tuple(found)

    def arena_bytes(self, shape: int, threads: int) -> int:
        """Bytes of an arena; 0 for a shape or a number of threads that can't be."""
        return int(self._arena_bytes(shape, threads))

    def create(self, threads: int, shape: int) -> tuple[int, int]:
        """(error code, address of a new instance that holds this shape)."""
        instance = _pointer()
        code = self._create(threads, shape, ctypes.byref(instance))
        return code, instance.value or 0

    def create_in(self, threads: int, shape: int, arena: int, arena_bytes: int) -> tuple[int, int]:
        """(code, instance) as :meth:`create`, in memory of the caller, who keeps it alive and to himself."""
        instance = _pointer()
        code = self._create_in(threads, shape, arena, arena_bytes, ctypes.byref(instance))
        return code, instance.value or 0


def _function(library: object, name: str, result: type, *arguments: type) -> ctypes._NamedFuncPointer:
    function: ctypes._NamedFuncPointer = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


def _symbols(facts: Description) -> Iterator[Symbol]:
    for i in range(facts.symbol_count):
        s = facts.symbols[i]
        why = s.why.decode()
        found = Symbol(s.name.decode(), s.low, s.high, s.multiple, s.typical, (why,) if why else ())
        yield found if found.bounded else replace(found, high=None)


def _specs(tensors: Any, count: int) -> Iterator[TensorSpec]:
    for i in range(count):
        tensor = tensors[i]
        texts = [tensor.dims[d].decode() for d in range(tensor.rank)]
        shape = tuple(int(text) if text.isdigit() else text for text in texts)
        yield TensorSpec(tensor.name.decode(), tensor.dtype.decode(), shape)
