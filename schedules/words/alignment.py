"""The bytes at whose multiples values, windows, scratch and constants begin in memory."""

from __future__ import annotations

from typing import Any

ALIGNMENT = 64  # a cache line, and the widest vector


def aligned(size: Any) -> Any:
    """The next multiple of ``ALIGNMENT`` from ``size`` on, in bytes, which may be open."""
    return -(-size // ALIGNMENT) * ALIGNMENT
