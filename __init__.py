"""Halotile compiles ONNX models into native libraries for CPUs.

``import halotile`` is light: the compiler (and TVM with it) is loaded by the first call that needs it, and
:func:`load` never needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from .errors import HalotileError
from .version import __version__

__all__ = ["compile", "inspect", "load", "tune", "errors", "HalotileError", "__version__"]

__path__ += [f"{folder}/compiler/public" for folder in __path__]  # halotile.onnxruntime and its like

if TYPE_CHECKING:
    from .compiler.api import compile, inspect, tune
    from .compiler.runtime.loader import load


def __getattr__(name: str) -> Any:
    if name in ("compile", "inspect", "tune"):
        from .compiler import api

        return getattr(api, name)
    if name == "load":
        from .compiler.runtime.loader import load

        return load
    raise AttributeError(f"module 'halotile' has no attribute {name!r}")
