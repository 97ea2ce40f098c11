"""A library's C API through ctypes, and nothing above it: numbers in, numbers and pointers out."""

from __future__ import annotations

import ctypes
import os
import threading
from _ctypes import dlclose  # here, because a model may be closed while the interpreter shuts down
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...errors import OutputError, RunError, several
from ..spec import TensorSpec
from . import open_binding
from .elf import check_library
from .open_binding import OpenCalls

ABI = 1
_WRONG_PROCESSOR = 9

_size, _text, _int, _pointer = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("name", _text),
        ("dtype", _text),
        ("rank", _size),
        ("shape", ctypes.POINTER(_size)),
        ("elements", _size),
        ("bytes", _size),
    ]


class _Description(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_uint),
        ("name", _text),
        ("version", _text),
        ("target", _text),
        ("fingerprint", _text),
        ("input_count", _size),
        ("inputs", ctypes.POINTER(_Tensor)),
        ("output_count", _size),
        ("outputs", ctypes.POINTER(_Tensor)),
        ("weight_bytes", _size),
        ("planned_bytes", _size),
        ("workspace_bytes", _size),
        ("max_threads", _int),
        ("default_threads", _int),
    ]


class Binding:
    """An opened library. ``name``, ``version``, ``target``, ``fingerprint``, ``inputs``, ``outputs`` describe it."""

    def __init__(self, path: Path) -> None:
        prefix = check_library(path)
        try:
            self.library = ctypes.CDLL(_fresh_spelling(path))
            self.prefix = prefix
            describe = getattr(self.library, f"{prefix}_describe")
            describe.restype = ctypes.POINTER(ctypes.c_uint)
            abi = int(describe().contents.value)
            if abi not in (ABI, open_binding.ABI):
                raise OutputError(
                    f"{path} has interface version {abi}, this Halotile reads {ABI} and {open_binding.ABI}; build it "
                    "again"
                )
            kind = _Description if abi == ABI else open_binding.Description
            facts: Any = ctypes.cast(describe(), ctypes.POINTER(kind)).contents
            self.open: OpenCalls | None = None
            if abi == ABI:
                self._arena_bytes = self._function(f"{prefix}_arena_bytes", _size, _int)
                self._create = self._function(f"{prefix}_create", _int, _int, ctypes.POINTER(_pointer))
                self._create_in = self._function(
                    f"{prefix}_create_in", _int, _int, _pointer, _size, ctypes.POINTER(_pointer)
                )
                self.run = self._function(f"{prefix}_run", _int, _pointer, _pointer, _pointer)
            else:
                self.open = OpenCalls(self.library, prefix, facts)
            self.threads = self._function(f"{prefix}_threads", _int, _pointer)
            self.destroy = self._function(f"{prefix}_destroy", None, _pointer)
            self._error_text = self._function(f"{prefix}_error_text", _text, _int)
            self._kernel_seconds = self._optional(f"{prefix}_kernel_seconds")
        except (OSError, AttributeError, UnicodeDecodeError) as error:
            raise OutputError(f"can't load {path}: {_one_line(error)}; build it again") from error
        self.name = facts.name.decode()
        self.version = facts.version.decode()
        self.target = facts.target.decode()
        self.fingerprint = facts.fingerprint.decode()
        self.inputs = self.open.inputs if self.open else tuple(_specs(facts.inputs, facts.input_count))
        self.outputs = self.open.outputs if self.open else tuple(_specs(facts.outputs, facts.output_count))
        self.weight_bytes = int(facts.weight_bytes)
        self.max_threads = int(facts.max_threads)

    def _function(self, name: str, result: type | None, *arguments: type) -> ctypes._NamedFuncPointer:
        function = getattr(self.library, name)
        function.restype = result
        function.argtypes = arguments
        return function

    def _optional(self, name: str) -> ctypes._NamedFuncPointer | None:
        """A function that not every library has; the message of its absence holds a path, which need not be UTF-8."""
        try:
            return getattr(self.library, name)
        except (AttributeError, UnicodeDecodeError):
            return None

    def create(self, threads: int) -> int:
        """A new instance as an address; RunError when it can't be made."""
        instance = _pointer()
        self._check(self._create(_as_int(threads), ctypes.byref(instance)), threads)
        return instance.value or 0

    def create_in(self, threads: int, arena: int, arena_bytes: int) -> int:
        """A new instance that works in memory of the caller, who keeps it alive and to himself."""
        instance = _pointer()
        self._check(self._create_in(_as_int(threads), arena, arena_bytes, ctypes.byref(instance)), threads)
        return instance.value or 0

    def checked(self, made: tuple[int, int], threads: int) -> int:
        """An instance of :attr:`open`, (error code, address), as the address; RunError when it could not be made."""
        self._check(made[0], threads)
        return made[1]

    def arena_bytes(self, threads: int) -> int:
        """Bytes that an instance with so many threads needs; 0 for a number that can't be."""
        return int(self._arena_bytes(_as_int(threads)))

    def kernel_seconds(self, instance: int, count: int) -> list[float] | None:
        """Seconds of each of ``count`` kernels in the instance's last run; None for a library without timers."""
        if self._kernel_seconds is None:
            return None
        seconds = (ctypes.c_double * max(1, count))()
        self._kernel_seconds(_pointer(instance), seconds)
        return list(seconds[:count])

    def error_text(self, code: int) -> str:
        return str(self._error_text(code).decode(errors="replace"))

    def _check(self, code: int, threads: int) -> None:
        if code == _WRONG_PROCESSOR:
            raise OutputError(
                f"{self.name} was built for {self.target}: {self.error_text(code)}; run it where it belongs "
                "(`halotile run DIR --on ssh://user@host`), or build it for this machine"
            )
        if code:
            raise RunError(
                f"can't make an instance of {self.name} with {several(threads, 'thread')} "
                f"(at most {self.max_threads}): {self.error_text(code)}"
            )

    def close(self) -> None:
        """Unmaps the library; no instance of it may be left."""
        dlclose(self.library._handle)


def _as_int(threads: int) -> int:
    """What ctypes would cut to its lower bits, and so to another number, is one that no library takes."""
    return threads if -1 <= threads < 2**31 else -1


def _specs(tensors: ctypes._Pointer[_Tensor], count: int) -> Iterator[TensorSpec]:
    for i in range(count):
        tensor = tensors[i]
        shape = tuple(int(tensor.shape[d]) for d in range(tensor.rank))
        yield TensorSpec(tensor.name.decode(), tensor.dtype.decode(), shape)


_spellings: dict[str, list[tuple[int, int, int]]] = {}
_spellings_lock = threading.Lock()


def _fresh_spelling(path: Path) -> str:
    """The path, spelt anew for every file that has had it.

    The dynamic linker takes a name it has seen for the file it has mapped, even when another file has taken that name
    since: a library that is rebuilt and loaded again would silently be the old one.
    """
    name = os.path.abspath(path)
    status = os.stat(name)
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    with _spellings_lock:
        known = _spellings.setdefault(name, [])
        if identity not in known:
            known.append(identity)
        turn = known.index(identity)
    folder, base = os.path.split(name)
    return os.path.join(folder, *["."] * turn, base)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
