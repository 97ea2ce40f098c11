"""Products of bytes for the target's instruction."""

from __future__ import annotations

from .dots import Dots

__all__ = ["Dots"]
