"""What users may give where a model is asked for. A library that is found in the cache needs no ONNX for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx

ModelGiven: TypeAlias = "str | os.PathLike[str] | bytes | onnx.ModelProto"
