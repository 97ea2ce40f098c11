"""The plan of layers in bytes that a manifest records, checked: a manifest may come from anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import HalotileError

if TYPE_CHECKING:
    from ...targets.plain import JsonView


def checked_largest(largest: Any) -> Mapping[str, float]:
    """``largest`` itself: the magnitudes of a build in float16; HalotileError for what no build writes."""
    good = isinstance(largest, Mapping)
    good = good and all(isinstance(n, str) and isinstance(v, (int, float)) and v >= 0 for n, v in largest.items())
    if not good:
        raise HalotileError("halves: no magnitudes of nodes")
    found: Mapping[str, float] = largest
    return found


def checked_assigned(assigned: Any) -> JsonView:
    """``assigned`` itself: the precisions of layers, and the error that they keep; HalotileError for what no build
    writes."""
    try:
        layers, numbers = assigned["layers"], [assigned[k] for k in ("limit", "expected", "error", "held")]
        good = all(isinstance(n, str) and p in ("bfloat16", "float16", "int8") for n, p in layers.items())
        good = good and all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in numbers)
        good = good and isinstance(assigned["of"], int) and isinstance(assigned["measured"], bool)
        good = good and all(isinstance(n, int) for n in assigned["samples"]) and len(assigned["samples"]) == 2
        good = good and all(isinstance(assigned[k], (int, float)) for k in ("cycles", "cycles_float32"))
    except (TypeError, ValueError, KeyError, AttributeError):
        good = False
    if not good:
        raise HalotileError("assigned: no precisions of layers")
    found: JsonView = assigned
    return found


def checked_plan(plan: Any) -> JsonView:
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
    found: JsonView = plan
    return found
