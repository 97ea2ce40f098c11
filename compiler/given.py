"""What users may give where a model is asked for."""

from __future__ import annotations

import os
from typing import TypeAlias

import onnx

ModelGiven: TypeAlias = str | os.PathLike[str] | bytes | onnx.ModelProto
