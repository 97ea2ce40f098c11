"""Halotile compiles ONNX models into native libraries for CPUs.

``import halotile`` is light: the compiler (and TVM with it) is loaded by the first call that needs it, and
:func:`load` never needs it.
"""

from __future__ import annotations

import difflib
import importlib
import logging
from typing import TYPE_CHECKING, Any

from . import errors
from .errors import HalotileError
from .version import __version__

__all__ = [
    "Image", "Model", "Output", "Target", "compile", "inspect", "load", "report", "tune", "errors", "HalotileError",
    "__version__",
]  # fmt: skip

__path__ += [f"{folder}/compiler/public" for folder in __path__]  # halotile.onnxruntime and its like

logging.getLogger(__name__).addHandler(logging.NullHandler())  # whoever wants to read along says so

_HOMES = {"compile": "api", "inspect": "api", "report": "api", "tune": "api", "load": "model", "Model": "model",
          "Target": "api", "Image": "images", "Output": "images"}  # fmt: skip

if TYPE_CHECKING:  # for those who read without running; what is not here does not exist for them
    from .compiler.api import Target, compile, inspect, report, tune
    from .compiler.images import Image, Output
    from .compiler.model import Model, load
else:

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            from .compiler.needs import needed

            with needed(f"halotile.{name}"):
                return getattr(importlib.import_module(f".compiler.{_HOMES[name]}", __name__), name)
        near = difflib.get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'halotile' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})  # not what this file imports
