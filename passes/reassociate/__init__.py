"""Linear maps in another order, where that is less work."""

from __future__ import annotations

from .reassociate import Reassociate

__all__ = ["Reassociate"]
