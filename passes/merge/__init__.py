"""Products of one value side by side become one, where that is faster."""

from __future__ import annotations

from .merge import Merge

__all__ = ["Merge"]
