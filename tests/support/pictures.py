"""What a reader of an SVG would miss: words beyond its edges, and ink without paper of its own."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from xml.etree.ElementTree import Element

GLYPH = 0.55  # of a font's size, a character's width about


def words_outside(svg: str) -> list[str]:
    """The texts that lie partly beyond the picture's edges, by the width that their characters have about."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    return [word for word, x, y, end in _texts(root, 0.0, float(root.get("font-size", 12)))
            if x < -1 or end > width + 1 or y < 5 or y > height]  # fmt: skip


def paper(svg: str) -> bool:
    """Whether the first thing drawn covers the picture with a colour, so that a dark page does not show through."""
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.get("viewBox", "").split())
    first = next(iter(root))
    size = (float(first.get("width", 0)), float(first.get("height", 0)))
    return first.tag.endswith("rect") and size == (width, height) and first.get("fill") == "white"


def _texts(element: Element, top: float, font: float) -> list[tuple[str, float, float, float]]:
    found = []
    for child in element:
        size = float(child.get("font-size", font))
        if child.tag.endswith("text"):
            word = child.text or ""
            wide, x = len(word) * GLYPH * size, float(child.get("x", 0))
            begin = x - wide * {"middle": 0.5, "end": 1.0}.get(child.get("text-anchor", "start"), 0.0)
            found.append((word, begin, top + float(child.get("y", 0)), begin + wide))
        elif child.tag.endswith(("svg", "}g")):
            found += _texts(child, top + float(child.get("y", 0)), size)
    return found
