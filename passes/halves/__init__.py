"""Layers in float16, where the target computes in it."""

from .halves import Halves

__all__ = ["Halves"]
