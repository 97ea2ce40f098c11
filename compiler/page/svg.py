"""Small pieces of SVG: text, boxes and lines, whose colours the page's style sheet gives by class."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

WIDTH = 840  # of every picture, in its own units; the page scales it
GLYPH = 6.6  # width of a character of the pictures' font


def picture(height: float, parts: Iterable[str], title: str) -> str:
    """A picture as wide as the page, with a title for those who can't see it."""
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img">'
        f"<title>{escape(title)}</title>\n{inner}\n</svg>"
    )


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, tip: str = "") -> str:
    """A rectangle with a tooltip; never thinner than half a unit, so that it can be seen."""
    inner = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0.5):.2f}" height="{max(height, 0.5):.2f}" '
        f'class="{kind}">{inner}</rect>'
    )


def line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:.2f}" y1="{y:.2f}" x2="{to_x:.2f}" y2="{to_y:.2f}" class="{kind}"/>'


def dot(x: float, y: float, kind: str, tip: str, radius: float = 4.5) -> str:
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius}" class="{kind}"><title>{escape(tip)}</title></circle>'


def fitting(words: str, width: float) -> str:
    """As much of a text as fits a width, its end replaced by an ellipsis; empty where hardly anything does."""
    most = int(width / GLYPH)
    if len(words) <= most:
        return words
    return f"{words[: most - 1]}…" if most >= 5 else ""


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Heights of labels, near to the wanted ones (ascending), ``gap`` apart and within bounds where there is room."""
    places: list[float] = []
    for y in wanted:
        places.append(max(y, low, places[-1] + gap if places else low))
    bound = high
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], bound)
        bound = places[i] - gap
    return places


def size(value: float) -> str:
    """Bytes with the unit that fits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def seconds(value: float) -> str:
    """A time with the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def rate(value: float) -> str:
    """FLOP/s or the like with the prefix that fits."""
    power = min(4, max(0, int(math.log10(value) // 3))) if value > 0 else 0
    return f"{value / 1000**power:.3g} {' KMGT'[power]}".strip()
