"""What a build in float16 knows of its error, beside the magnitudes of its numbers, in one map of names and numbers.

    {"conv1": 3.2, ...                    the largest magnitude around a node (compiler/quantise/halves.py)
     " expected": 0.008,                  what outputs are expected to be off by, of their largest value
     " allowed": 0.01,                    and may be
     " of all": 0.0123,                   what they would be off by in float16 throughout, where that is too much: then
     " small transforms": 1.0,            no transform is larger than F(2x2, 3x3),
     "conv1 stays": 1.0,                  layers that stay in float32,
     " stays": 1.0}                       all of them do
"""

from __future__ import annotations

import math
from collections.abc import Mapping

EXPECTED, ALLOWED, OF_ALL = " expected", " allowed", " of all"
SMALL, STAYS = " small transforms", " stays"


def why_none(known: Mapping[str, float]) -> str:
    """Why no layer is in float16; empty where some may be."""
    if STAYS not in known or not all(math.isfinite(known.get(k, math.nan)) for k in (OF_ALL, ALLOWED)):
        return ""
    return (
        f"in float16 outputs would be off by about {known[OF_ALL]:.1e} of their largest value, and {known[ALLOWED]:g} "
        f"is allowed; error={round_up(known[OF_ALL])} would do, and precision auto finds layers that may"
    )


def rtol_within(rtol: float, known: object) -> float:
    """``rtol`` of a comparison, or the error that was allowed where that is more, up to all of the largest value."""
    allowed = known.get(ALLOWED) if isinstance(known, Mapping) else None
    return max(rtol, min(float(allowed), 1.0)) if isinstance(allowed, (int, float)) else rtol


def round_up(error: float) -> str:
    """An error to allow where so much is expected: a fifth more, in one digit, rounded up."""
    digits = f"{1.2 * error:.0e}"
    mantissa, exponent = digits.split("e")
    return f"{float(digits) if float(digits) >= 1.2 * error else float(f'{int(mantissa) + 1}e{exponent}'):g}"
