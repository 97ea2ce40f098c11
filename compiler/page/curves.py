"""The page's curves: what one thing costs of another, the points that no other beats joined."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .svg import WIDTH, box, dot, line, picture, text

if TYPE_CHECKING:
    from .error_curve import ErrorCurve


def errors(found: ErrorCurve) -> str:
    """Predicted time against the error that is expected, which grows by powers of ten; float32 at the left edge."""
    chosen, every = found.chosen, found.every
    joined = sorted(found.points, key=found.error)
    rounded = [found.error(p) for p in every if found.error(p) > 0]
    low, high = math.floor(math.log10(min(rounded))), math.floor(math.log10(max(rounded))) + 1
    left, zero, right, top, tall = 70.0, 40.0, 40.0, 50.0, 260.0
    slow = max(found.part(p) for p in every)

    def place(error: float, part: float) -> tuple[float, float]:
        across = (math.log10(error) - low) / (high - low) if error else 0.0
        start = left + zero if error else left
        return start + across * (WIDTH - left - zero - right), top + tall - part / slow * tall

    parts = [box(left, top, WIDTH - left - right, tall, "plane")]
    for tick in range(5):
        y = top + tall - tick / 4 * tall
        parts.append(text(left - 6, y + 4, f"{slow * tick / 4:.2f}", "end", "dim"))
    for power in range(low, high + 1):
        x, _ = place(10.0**power, 0.0)
        parts += [line(x, top, x, top + tall, "grid"), text(x, top + tall + 18, f"1e{power}", "middle", "dim")]
    parts.append(text(left, top + tall + 18, "0", "middle", "dim"))
    track = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(found.error(p), found.part(p)) for p in joined))
    parts.append(f'<polyline points="{track}" class="curve"/>')
    for p in every:
        x, y = place(found.error(p), found.part(p))
        layers = ", ".join(f"{n} {kind}" for kind, n in p["precisions"].items()) or "all float32"
        tip = f"off by {found.error(p):.1e}, {found.part(p):.3f} of the time: {layers}"
        parts.append(dot(x, y, "chosen" if p == chosen else "point", tip))
        if p == chosen or not p["precisions"]:
            words = "chosen" if p == chosen else "float32"
            parts.append(text(x + 8 if x < WIDTH / 2 else x - 8, y - 10, words, "start" if x < WIDTH / 2 else "end"))
    parts.append(text(left, 18, "predicted time, float32 = 1; expected error of the outputs to the right", kind="dim"))
    return picture(top + tall + 28, parts, "Predicted time against expected error")
