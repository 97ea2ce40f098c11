"""The harness's results as one SVG: bars of speed beside the best peer, and a roofline with a dot a model or kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from ..compiler.page.peak import Peak
from ..errors import several
from .results import OURS, EngineResult, ModelResult, peak_of

WIDTH, LABEL, KEY, BAR, ROOF = 920, 170, 150, 14, 360
GLYPH = 6.6  # width of a character at most
NAMED = 12  # kernels that have their names beside them, the slowest
COLOURS = ("#1f6f8b", "#c8553d", "#e0a458", "#7a8b69", "#8d6a9f", "#5b5f66")


def render(results: Sequence[ModelResult]) -> str:
    """Bars for every thread count, then the roofline of the highest one."""
    parts: list[str] = []
    y = 16.0
    for threads in sorted({r.threads for r in results}):
        drawn, height = _bars([r for r in results if r.threads == threads], threads, y)
        parts += drawn
        y += height
    highest = max((r.threads for r in results), default=1)
    peak = peak_of(results, highest)
    if peak is not None:
        parts += _roofline([r for r in results if r.threads == highest], peak, y + 24)
        y += ROOF + 90
    box = f'viewBox="0 0 {WIDTH} {y:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">'
    return (
        "\n".join([head, f'<rect width="{WIDTH}" height="{y:.0f}" fill="white"/>', *parts, "</svg>"]) + "\n"
    )


def _bars(results: list[ModelResult], threads: int, top: float) -> tuple[list[str], float]:
    """Speed of each engine over that of the best peer; the line at 1 is the best peer."""
    names = sorted({e.engine for r in results for e in r.engines}, key=lambda n: (n != OURS, n))
    speeds = {(r.model, e.engine): _speed(r, e) for r in results for e in r.engines}
    highest = max([1.25, *speeds.values()])
    scale = (WIDTH - LABEL - 60) / highest
    parts = [
        _text(8, top + 10, f"Speed over the best peer, {threads} thread{'s' if threads > 1 else ''}", 13)
    ]
    row = int(WIDTH - LABEL) // KEY
    for i, name in enumerate(names):
        x, line = float(LABEL + i % row * KEY), top + 18 + i // row * 16
        parts += [_rect(x, line, 10, 10, COLOURS[i % len(COLOURS)]), _text(x + 14, line + 9, _fitting(name, KEY - 20))]
    y = first = top + 40 + (len(names) - 1) // row * 16
    for result in results:
        parts.append(_text(LABEL - 8, y + BAR * len(names) / 2 + 4, _fitting(result.model, LABEL - 16), anchor="end"))
        for i, name in enumerate(names):
            speed = speeds.get((result.model, name), 0.0)
            if speed > 0:
                parts.append(_rect(LABEL, y + i * BAR, speed * scale, BAR - 2, COLOURS[i % len(COLOURS)]))
                parts.append(_text(LABEL + speed * scale + 4, y + i * BAR + 10, f"{speed:.2f}"))
        y += BAR * len(names) + 8
    x = LABEL + scale
    parts.append(
        f'<line x1="{x:.1f}" y1="{first:.1f}" x2="{x:.1f}" y2="{y:.1f}" stroke="black" stroke-dasharray="3 3"/>'
    )
    return parts, y - top + 16


def _speed(result: ModelResult, engine: EngineResult) -> float:
    peer = result.best_peer
    if peer is None or peer.times is None or engine.times is None or not engine.counts:
        return 0.0
    return peer.times.median / engine.times.median


def _roofline(results: list[ModelResult], peak: Peak, top: float) -> list[str]:
    """FLOP/s over FLOPs per byte, both logarithmic: kernels where their times are known, else whole models."""
    dots = [dot for r in results for dot in _dots(r)]
    low, high = 2.0**-4, 2.0**11
    floor = min([peak.flops / 1000, *(d[1] / 2 for d in dots)])
    ceiling = max([peak.flops * 2, peak.as_float32 * 1.3, *(d[1] * 1.3 for d in dots)])
    left, width = 70.0, WIDTH - 100.0

    def place(intensity: float, rate: float) -> tuple[float, float]:
        u = math.log(min(max(intensity, low), high) / low) / math.log(high / low)
        v = math.log(max(rate, floor) / floor) / math.log(ceiling / floor)
        return left + u * width, top + 20 + (1 - v) * ROOF

    unit = f", {peak.as_float32 / 1e9:.0f} by the matrix unit" if peak.matrix else ""
    rates = f"{peak.flops / 1e9:.0f} GFLOP/s{unit}, {peak.memory_bytes / 1e9:.0f} GB/s"
    parts = [_text(8, top + 10, f"Roofline, {several(peak.threads, 'thread')}: {rates}", 13)]
    ridge = peak.flops / peak.memory_bytes
    roof = [(low, low * peak.memory_bytes), (ridge, peak.flops), (high, peak.flops)]
    parts.append(_lines(map(place, *zip(*roof)), 'stroke-width="1.5"'))
    if peak.as_float32 > peak.flops:
        higher = [(ridge, peak.flops), (peak.as_float32 / peak.memory_bytes, peak.as_float32), (high, peak.as_float32)]
        parts.append(_lines(map(place, *zip(*higher)), 'stroke-dasharray="5 3"'))
    for power in range(-4, 12, 2):
        x, y = place(2.0**power, floor)
        parts.append(_text(x, y + 14, f"{2.0**power:g}", anchor="middle"))
    parts.append(_text(left + width / 2, top + ROOF + 50, "FLOPs per byte", anchor="middle"))
    for decade in range(math.ceil(math.log10(floor)), math.floor(math.log10(ceiling)) + 1):
        x, y = place(low, 10.0**decade)
        parts.append(_text(x - 6, y + 4, f"{10.0 ** (decade - 9):g} G", anchor="end"))
    taken: list[tuple[float, float, float]] = []
    for intensity, rate, label, named in dots:
        x, y = place(intensity, rate)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{COLOURS[0]}"><title>{escape(label)}</title></circle>'
        )
        if named:
            words = _fitting(label, width / 2)
            begin = x + 6 if x + 6 + len(words) * GLYPH <= WIDTH else x - 6 - len(words) * GLYPH
            end = begin + len(words) * GLYPH
            if all(abs(y - at) > 11 or end < low_x or begin > high_x for at, low_x, high_x in taken):
                taken.append((y, begin, end))
                parts.append(_text(begin, y + 3, words))
    return parts


def _dots(result: ModelResult) -> list[tuple[float, float, str, bool]]:
    """(FLOPs per byte, FLOP/s, label, whether the label is written) for the kernels, or for the model as a whole."""
    ours = result.engine(OURS)
    if result.build is None or ours is None or ours.times is None or not ours.counts:
        return []
    timed = [k for k in result.build.kernels if k.get("seconds") and k["flops"] > 0 and k["bytes"] > 0]
    if timed:
        ordered = sorted(timed, key=lambda k: -k["seconds"])
        return [
            (k["flops"] / k["bytes"], k["flops"] / k["seconds"], f"{k['name']}, {result.model}", i < NAMED)
            for i, k in enumerate(ordered)
        ]
    build = result.build
    if not build.flops or not build.moved:
        return []
    return [(build.flops / build.moved, build.flops / ours.times.median, result.model, True)]


def _fitting(words: str, width: float) -> str:
    """As much of a text as goes into a width."""
    most = int(width / GLYPH)
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _lines(points: Iterable[tuple[float, float]], style: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="black" {style}/>'


def _text(x: float, y: float, text: str, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
