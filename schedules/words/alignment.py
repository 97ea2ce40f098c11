"""The bytes at whose multiples values, windows, scratch and constants begin in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .size_like import SizeLike

ALIGNMENT = 64  # a cache line, and the widest vector


def aligned(size: SizeLike) -> SizeLike:
    """The next multiple of ``ALIGNMENT`` from ``size`` on, in bytes, which may be open."""
    return -(-size // ALIGNMENT) * ALIGNMENT
