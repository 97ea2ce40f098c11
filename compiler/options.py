"""Checks what callers pass as options, before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import HalotileError, ShapeError

MAX_THREADS = 1024
FLOAT_MODES = ("strict", "finite", "exact")


def checked_shapes(shapes: Mapping[str, Sequence[int]] | None) -> dict[str, tuple[int, ...]] | None:
    """Input name -> whole shape of plain non-negative integers; None when nothing is fixed."""
    if not shapes:
        return None
    return {str(name): _shape(str(name), dims) for name, dims in shapes.items()}


def checked_threads(threads: int | None) -> int | None:
    """None, or a number of threads from 1 to 1024."""
    if threads is None:
        return None
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= MAX_THREADS:
        raise HalotileError(
            f"threads={threads!r}: give a whole number from 1 to {MAX_THREADS}, or None for the target's cores"
        )
    return threads


def checked_float_mode(mode: str) -> str:
    """``strict``, ``finite`` or ``exact``."""
    if mode not in FLOAT_MODES:
        raise HalotileError(f"float_mode={mode!r} is not one of {', '.join(FLOAT_MODES)}")
    return mode


def _shape(name: str, dims: Any) -> tuple[int, ...]:
    try:
        shape = tuple(int(d) for d in dims)
    except (TypeError, ValueError):
        raise ShapeError(
            f"shape of {name!r} is {dims!r}; give whole numbers, such as (1, 3, 224, 224)"
        ) from None
    if any(d < 0 for d in shape):
        raise ShapeError(f"shape of {name!r} is {list(shape)}; dimensions can't be negative")
    return shape
