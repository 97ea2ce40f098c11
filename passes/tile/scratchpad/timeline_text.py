"""Draws timelines as text and as SVG. The text has a lane for the loads, the processor and the stores:

load       0000 1111    2222
processor       00000000 11111111 22222222
store                   000      111      222
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .timeline import Bar, Timeline

LANES = ("load", "processor", "store")


def as_text(timeline: Timeline, width: int = 100) -> str:
    """Three lanes of digits (the stripe's last one; '.' is issuing or waiting), then start and end of every bar."""
    total = timeline.seconds or 1.0
    lines = []
    for lane in LANES:
        row = [" "] * width
        for bar in timeline.bars:
            if bar.lane != lane:
                continue
            first = min(round(bar.start / total * width), width - 1)
            last = max(first + 1, round(bar.end / total * width))
            mark = str(bar.event.stripe % 10) if bar.is_work else "."
            row[first:last] = mark * (min(last, width) - first)
        lines.append(f"{lane:<10}|{''.join(row)}|")
    on_path = set(map(id, timeline.critical_path))
    lines.append("")
    lines.append(f"{'event':<16}{'start':>12}{'end':>12}")
    for bar in sorted(timeline.bars, key=lambda b: (b.start, LANES.index(b.lane))):
        mark = "  critical" if id(bar) in on_path else ""
        lines.append(f"{label(bar):<16}{seconds(bar.start):>12}{seconds(bar.end):>12}{mark}")
    lines.append(f"{'total':<16}{'':>12}{seconds(timeline.seconds):>12}")
    return "\n".join(lines)


def label(bar: Bar) -> str:
    """What a bar is: "load 1", "compute 1", "issue store 1", "wait load 2"."""
    if bar.is_work or bar.event.action.startswith("wait"):
        return str(bar.event)
    return f"issue {bar.event}"


def seconds(value: float) -> str:
    """A time with the unit that fits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3f} {unit}"
    return f"{value * 1e9:.0f} ns" if value else "0"


_FILL = {"load": "#4477aa", "compute": "#228833", "store": "#ee6677"}
_ROW, _GAP, _LEFT, _WIDTH = 28, 8, 90, 900
_HEIGHT = 40 + len(LANES) * (_ROW + _GAP) + 30


def as_svg(timelines: Sequence[tuple[str, Timeline]]) -> str:
    """One picture of all (title, timeline): three lanes each, names as tooltips, the critical paths framed."""
    width, height = _LEFT + _WIDTH + 20, len(timelines) * _HEIGHT
    box = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {box}>']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    parts += [_picture(t, title, i * _HEIGHT) for i, (title, t) in enumerate(timelines)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _picture(timeline: Timeline, title: str, top: int) -> str:
    total = timeline.seconds or 1.0
    on_path = set(map(id, timeline.critical_path))
    parts = [
        f'<svg y="{top}" width="{_LEFT + _WIDTH + 20}" height="{_HEIGHT}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<text x="8" y="20">{escape(_fitting(title))}: {seconds(timeline.seconds)}</text>',
    ]
    for index, lane in enumerate(LANES):
        parts.append(f'<text x="8" y="{_y(index) + 18}">{lane}</text>')
    for bar in timeline.bars:
        x, w = _LEFT + bar.start / total * _WIDTH, max((bar.end - bar.start) / total * _WIDTH, 0.5)
        y = _y(LANES.index(bar.lane))
        fill = _FILL[bar.event.action] if bar.is_work else "#bbbbbb"
        frame = ' stroke="#000000" stroke-width="1.5"' if id(bar) in on_path else ""
        tip = f"{label(bar)}: {seconds(bar.start)} to {seconds(bar.end)}"
        parts.append(
            f'<rect x="{x:.2f}" y="{y}" width="{w:.2f}" height="{_ROW}" fill="{fill}"{frame}>'
            f"<title>{escape(tip)}</title></rect>"
        )
        if bar.is_work and w > 14:
            parts.append(f'<text x="{x + 4:.2f}" y="{y + 18}" fill="#ffffff">{bar.event.stripe}</text>')
    for tick in range(5):
        x = _LEFT + tick / 4 * _WIDTH
        anchor = "end" if tick == 4 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 10}" text-anchor="{anchor}">{seconds(total * tick / 4)}</text>')
    return "\n".join([*parts, "</svg>"])


def _fitting(title: str) -> str:
    """As much of a title as goes into the picture's width."""
    most = (_LEFT + _WIDTH) // 8 - 16
    return title if len(title) <= most else f"{title[: most - 1]}…"


def _y(lane: int) -> int:
    return 34 + lane * (_ROW + _GAP)
