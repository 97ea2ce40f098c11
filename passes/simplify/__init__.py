"""Relax -> Relax: exact algebra, to a fixed point. What is exact is the caller's choice (``float_mode``)."""

from __future__ import annotations

from .simplify import Simplify

__all__ = ["Simplify"]
