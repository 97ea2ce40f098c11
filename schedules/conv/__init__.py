"""The convolution family: facts of a node, choice of a register tile, and the kernels."""

from __future__ import annotations

from .build import build_conv, supports_conv
from .facts import ConvFacts

__all__ = ["ConvFacts", "build_conv", "supports_conv"]
