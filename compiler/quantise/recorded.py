"""The plan of layers in bytes that a manifest records, checked: a manifest may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...errors import HalotileError


def checked_largest(largest: Any) -> Mapping[str, float]:
    """``largest`` itself: the magnitudes of a build in float16; HalotileError for what no build writes."""
    good = isinstance(largest, Mapping)
    good = good and all(isinstance(n, str) and isinstance(v, (int, float)) and v >= 0 for n, v in largest.items())
    if not good:
        raise HalotileError("halves: no magnitudes of nodes")
    found: Mapping[str, float] = largest
    return found


def checked_plan(plan: Any) -> Mapping[str, Any]:
    """``plan`` itself; HalotileError for what no build writes."""
    try:
        good = all(
            isinstance(name, str) and math.isfinite(low) and math.isfinite(high) and low <= high
            for name, (low, high) in plan["ranges"].items()
        )
        good = good and all(isinstance(name, str) for name in plan["left"])
        good = good and isinstance(plan["layers"], int) and isinstance(plan["error"], (int, float))
    except (TypeError, ValueError, KeyError, AttributeError):
        good = False
    if not good:
        raise HalotileError("int8: no plan of layers in bytes")
    found: Mapping[str, Any] = plan
    return found
