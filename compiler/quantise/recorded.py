"""The plan of layers in bytes that a manifest records, checked: a manifest may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...errors import HalotileError


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
