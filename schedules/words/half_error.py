"""What a build in float16 knows of its error, and what stays more exact for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class HalfError:
    """Errors are parts of the largest value of an output: what is ``expected``, what is ``allowed``, and what float16
    ``throughout`` would be off by where that is too much. Then no transform is larger than F(2x2, 3x3), the layers
    that ``stay`` do so in float32, by name, and all of them where ``none`` is in float16."""

    expected: float
    allowed: float
    throughout: float | None = None
    stay: tuple[str, ...] = ()
    none: bool = False

    @property
    def small(self) -> bool:
        """Whether transforms are small ones."""
        return self.throughout is not None

    @property
    def why_none(self) -> str:
        """Why no layer is in float16; empty where some may be."""
        if not self.none or self.throughout is None:
            return ""
        return (
            f"in float16 outputs would be off by about {self.throughout:.1e} of their largest value, and "
            f"{self.allowed:g} is allowed; error={round_up(self.throughout)} would do, and precision auto finds layers "
            "that may"
        )

    @property
    def why_some(self) -> str:
        """Why a layer stays in float32."""
        return f"outputs would be off by more than {self.allowed:g} of their largest value"

    @property
    def is_sound(self) -> bool:
        """Whether a build writes such numbers."""
        told = [n for n in (self.expected, self.allowed, self.throughout) if n is not None]
        return all(math.isfinite(n) and n >= 0 for n in told)


def rtol_within(rtol: float, known: object) -> float:
    """``rtol`` of a comparison, or the error that was allowed where that is more, up to all of the largest value.
    ``known``: a HalfError, or one as plain data; None where there is none."""
    allowed = known.get("allowed") if isinstance(known, Mapping) else getattr(known, "allowed", None)
    return max(rtol, min(float(allowed), 1.0)) if isinstance(allowed, (int, float)) else rtol


def round_up(error: float) -> str:
    """An error to allow where so much is expected: a fifth more, in one digit, rounded up."""
    digits = f"{1.2 * error:.0e}"
    mantissa, exponent = digits.split("e")
    return f"{float(digits) if float(digits) >= 1.2 * error else float(f'{int(mantissa) + 1}e{exponent}'):g}"
