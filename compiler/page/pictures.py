"""The page's pictures: kernels and what they read, the arena over time, tiles to scale, roofline, memory curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import several
from ..plans import undominated
from .facts import ArenaBox, PageFacts
from .svg import GLYPH, WIDTH, box, dot, fitting, line, picture, rate, seconds, size, spread, text

if TYPE_CHECKING:
    from ...targets.plain import JsonView
    from .peak import Peak

_ROW = 30


def label(kernel: JsonView) -> str:
    """A kernel by the first of the model's nodes in it, or by its own name."""
    nodes = kernel.get("nodes") or ()
    more = f" + {len(nodes) - 1}" if len(nodes) > 1 else ""
    return f"{nodes[0]}{more}" if nodes and nodes[0] else str(kernel["name"])


def graph(facts: PageFacts) -> str:
    """Kernels in the order they run, one box each; what is read later than by the next one goes along the side."""
    kernels = facts.report["kernels"]
    tiled = {g["name"] for g in facts.report.get("tile", {}).get("groups", ())}
    ends: list[int] = []  # of each lane at the side, the last kernel that it reaches
    parts = []
    left, wide = 40.0, 580.0
    for first, last in facts.edges:
        top, bottom = first * _ROW + 18.0, last * _ROW + 16.0
        if last == first + 1:
            parts.append(line(left + 20, top + 8, left + 20, bottom - 8, "edge"))
            continue
        lane = next((i for i, end in enumerate(ends) if end <= first), len(ends))
        ends[lane:lane + 1] = [last]  # fmt: skip
        x = left + wide + 10 + min(lane * 8.0, WIDTH - left - wide - 20)
        parts.append(
            f'<path d="M{left + wide} {top} H{x} V{bottom} H{left + wide}" class="edge">'
            f"<title>kernel {first + 1} to kernel {last + 1}</title></path>"
        )
    for i, kernel in enumerate(kernels):
        kind = "tiled" if kernel["name"] in tiled else "kernel"
        operators = ", ".join(o.removeprefix("relax.").removeprefix("halotile.") for o in kernel["operators"])
        y = i * _ROW + 6
        parts.append(text(left - 8, y + 15, str(i + 1), "end", "dim"))
        parts.append(box(left, y, wide, _ROW - 8, kind, f"{kernel['name']}: {', '.join(kernel.get('nodes') or ())}"))
        parts.append(text(left + 30, y + 15, fitting(f"{label(kernel)}: {operators}", wide - 40)))
    return picture(len(kernels) * _ROW + 12, parts, "Kernels in their order, and which read what others wrote")


def timeline(facts: PageFacts) -> str:
    """The kernels of one run from left to right, each as wide as its time; the longest by number and name."""
    kernels, times = facts.report["kernels"], facts.seconds
    tiled = {g["name"] for g in facts.report.get("tile", {}).get("groups", ())}
    left, right, top, high = 20.0, 20.0, 12.0, 44.0
    total, at, parts = max(sum(times), 1e-12), 0.0, []
    for i, (kernel, took) in enumerate(zip(kernels, times)):
        x, wide = left + at / total * (WIDTH - left - right), took / total * (WIDTH - left - right)
        tip = f"{i + 1} {label(kernel)}: {seconds(took)}, {took / total:.1%}"
        parts.append(box(x, top, wide, high, "tiled" if kernel["name"] in tiled else "kernel", tip))
        for row, words in enumerate((str(i + 1), label(kernel))):
            if len(str(i + 1)) * GLYPH <= wide - 4:
                parts.append(text(x + 3, top + 17 + 17 * row, fitting(words, wide - 6), kind="dim" if row else ""))
        at += took
    for tick in range(5):
        x = left + tick / 4 * (WIDTH - left - right)
        anchor = "start" if tick == 0 else "end" if tick == 4 else "middle"
        parts += [line(x, top + high, x, top + high + 5, "axis")]
        parts += [text(x, top + high + 18, seconds(total * tick / 4) if tick else "0", anchor, "dim")]
    return picture(top + high + 26, parts, "One run over time, kernel by kernel")


def arena(boxes: Sequence[ArenaBox], steps: int, planned: int) -> str:
    """Buffers as boxes: the kernels during which they live from left to right, their bytes in the arena upwards."""
    left, right, top, high = 90.0, 20.0, 12.0, 360.0
    total = max(planned, max((b.offset + b.bytes for b in boxes), default=0), 1)
    unit, scale = (WIDTH - left - right) / max(steps, 1), high / total
    parts = [box(left, top, WIDTH - left - right, high, "plane")]
    for tick in range(5):
        y = top + high - tick / 4 * high
        parts += [line(left - 4, y, left, y, "axis"), text(left - 8, y + 4, size(total * tick / 4), "end", "dim")]
    for b in boxes:
        x, y, w, h = left + b.first * unit, top + high - (b.offset + b.bytes) * scale, 0.0, b.bytes * scale
        w = (b.last - b.first + 1) * unit
        tip = f"{b.name}: {b.bytes:,} bytes at {b.offset:,}, kernels {b.first + 1} to {b.last + 1}"
        parts.append(box(x, y, w, h, "buffer", tip))
        if h >= 14 and (words := fitting(b.name, w - 8)):
            parts.append(text(x + 4, y + min(h / 2 + 4, h - 4), words))
    every = max(1, math.ceil(steps / 20))
    for i in range(0, steps, every):
        parts.append(text(left + (i + 0.5) * unit, top + high + 16, str(i + 1), "middle", "dim"))
    parts.append(text(left + (WIDTH - left - right) / 2, top + high + 34, "kernel", "middle", "dim"))
    return picture(top + high + 42, parts, f"The arena over time, {size(total)} high")


def tiles(group: JsonView) -> str:
    """Each tensor of a tile group to one scale: its plane, the box that is kept of it, and the part that is new in a
    stripe; what is kept besides is the halo, which a ring holds from the stripe before."""
    shown = [v for v in group["values"] if len(v["shape"]) >= 2 and all(isinstance(d, int) for d in v["shape"][-2:])]
    largest = max((max(v["shape"][-2:]) for v in shown), default=1)
    cell, across = 200.0, 4
    scale, parts, y0 = (cell - 24) / largest, [], 0.0
    boxes = {m["name"]: m["boxes"] for m in group["members"]}
    boxes.update({n: m["boxes"] for m in group["members"] for n in m["nodes"]})
    for start in range(0, len(shown), across):
        row = shown[start : start + across]
        tallest = max(v["shape"][-2] for v in row) * scale
        for i, v in enumerate(row):
            rows, columns = v["shape"][-2:]
            x, y = i * (cell + 10) + 4, y0 + 6
            parts.append(box(x, y, columns * scale, rows * scale, "plane", f"{v['name']}: {rows} x {columns}"))
            kept: list[int] = list(v.get("window") or ())[-2:]
            new = max(boxes.get(v.get("node"), ()), key=lambda b: b["rows"] * b["columns"], default=None)
            at_x, at_y = x, y
            if len(kept) == 2:
                high, wide = min(kept[0], rows), min(kept[1], columns)
                at_x = x + (columns - wide) // 2 * scale
                at_y = y + (rows - high) // 2 * scale
                tip = f"in scratch: {kept[0]} x {kept[1]}, {v['mode']}"
                parts.append(box(at_x, at_y, wide * scale, high * scale, "halo", tip))
                if new:
                    at_y += max(0, high - new["rows"]) * scale
                    at_x += max(0, wide - new["columns"]) * scale / 2
            elif new:
                at_y += max(0, rows - new["rows"]) // 2 * scale
                at_x += max(0, columns - new["columns"]) // 2 * scale
            if new:
                tip = f"new in a stripe: {new['rows']} x {new['columns']}"
                wide, high = min(new["columns"], columns) * scale, min(new["rows"], rows) * scale
                parts.append(box(at_x, at_y, wide, high, "fresh", tip))
            foot = y + tallest + 16
            parts.append(text(x, foot, fitting(str(v["name"]), cell)))
            words = f"{v['mode']}, {rows}x{columns}"
            parts.append(text(x, foot + 15, words, kind="dim"))
            lengths = [f"holds {kept[0]}x{kept[1]}"] if len(kept) == 2 else []
            lengths += [f"new {new['rows']}x{new['columns']}"] if new else []
            parts.append(text(x, foot + 30, ", ".join(lengths), kind="dim"))
        y0 += tallest + 62
    keys = (("plane", "the whole tensor"), ("halo", "in scratch besides"), ("fresh", "computed in a stripe"))
    for i, (kind, words) in enumerate(keys):
        parts += [box(4 + i * 220, y0 + 4, 14, 14, kind), text(24 + i * 220, y0 + 16, words)]
    return picture(y0 + 26, parts, f"Tiles of {group['name']}, rows by columns, to scale")


def curve(points: Sequence[JsonView], chosen: JsonView | None, untiled: JsonView) -> str:
    """Predicted time against bytes of arena: the points that no other beats, joined, the one chosen, and no tiles."""
    best = undominated([*points, untiled])
    every = [*best, *(p for p in (chosen, untiled) if p and p not in best)]
    every = [p for i, p in enumerate(every) if p not in every[:i]]
    left, right, top, high = 70.0, 40.0, 50.0, 260.0
    most, slow = max(p["bytes"] for p in every), max(p["cycles"] for p in every) / untiled["cycles"]

    def place(p: JsonView) -> tuple[float, float]:
        x = left + p["bytes"] / max(most, 1) * (WIDTH - left - right)
        return x, top + high - p["cycles"] / untiled["cycles"] / slow * high

    parts = [box(left, top, WIDTH - left - right, high, "plane")]
    for tick in range(5):
        x, y = left + tick / 4 * (WIDTH - left - right), top + high - tick / 4 * high
        parts += [
            text(x, top + high + 18, size(most * tick / 4), "middle", "dim"),
            text(left - 6, y + 4, f"{slow * tick / 4:.2f}", "end", "dim"),
        ]
    parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, best))}" class="curve"/>')
    for p in every:
        x, y = place(p)
        words = " ".join(w for w, on in (("chosen", p == chosen), ("untiled", p == untiled)) if on)
        tip = f"{size(p['bytes'])}, {p['cycles'] / untiled['cycles']:.3f} of the time, {p['tiled']} tile groups {words}"
        parts.append(dot(x, y, "chosen" if p == chosen else "point", tip))
        if words:
            parts.append(text(x, y - 10, words, "end" if x > WIDTH / 2 else "start"))
    parts.append(text(left, 18, "predicted time, untiled = 1; arena to the right", kind="dim"))
    return picture(top + high + 28, parts, "Predicted time against bytes of arena")


def roofline(kernels: Sequence[JsonView], times: Sequence[float], peak: Peak | None) -> str:
    """Speed against arithmetic per byte, both logarithmic, with the machine's limits; the slowest kernels by name."""
    timed = [(i, k, t) for i, (k, t) in enumerate(zip(kernels, times)) if t > 0 and k["flops"] > 0 and k["bytes"] > 0]
    if not timed:
        return ""
    left, right, top, high = 60.0, 250.0, 26.0, 340.0
    xs = [k["flops"] / k["bytes"] for _, k, _ in timed]
    ys = [k["flops"] / t for _, k, t in timed]
    rates = _rates(peak, [k for _, k, _ in timed]) if peak else {}
    roofs = list(rates)
    x0, x1 = math.floor(math.log10(min(xs))), math.floor(math.log10(max(*xs, 100))) + 1
    y0, y1 = math.floor(math.log10(min(ys))), math.floor(math.log10(max(*ys, *roofs))) + 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - x0) / (x1 - x0)
        return left + across * (WIDTH - left - right), top + high - (math.log10(y) - y0) / (y1 - y0) * high

    parts = [box(left, top, WIDTH - left - right, high, "plane")]
    for e in range(x0, x1 + 1):
        x, _ = place(10.0**e, 10.0**y0)
        parts.append(text(x, top + high + 18, f"{10.0**e:g}", "middle", "dim"))
    for e in range(y0, y1 + 1):
        _, y = place(10.0**x0, 10.0**e)
        parts += [line(left, y, WIDTH - right, y, "grid"), text(left - 6, y + 4, rate(10.0**e), "end", "dim")]
    bandwidths = ((peak.cache_bytes, "cache"), (peak.memory_bytes, "memory")) if peak else ()
    for roof in roofs:
        for bandwidth, name in bandwidths:
            low, knee = max(10.0**x0, 10.0**y0 / bandwidth), min(roof / bandwidth, 10.0**x1)
            flat = max(knee, 10.0**x0)
            if low < knee:
                parts.append(line(*place(low, low * bandwidth), *place(knee, knee * bandwidth), f"roof {name}"))
            if roof / bandwidth < 10.0**x1:
                parts.append(line(*place(flat, roof), *place(10.0**x1, roof), "roof"))
        _, y = place(10.0**x0, roof)  # where no kernel can be: beyond both bandwidths
        parts.append(text(left + 5, y - 5, f"{rates[roof]} {rate(roof)}FLOP/s", kind="dim"))
    named = sorted(timed, key=lambda e: -e[2])[:16]
    shown = {i for i, _, _ in named}
    for i, k, t in timed:
        x, y = place(k["flops"] / k["bytes"], k["flops"] / t)
        tip = f"{i + 1} {label(k)}: {rate(k['flops'] / t)}FLOP/s"
        parts.append(dot(x, y, "chosen" if i in shown else "point", tip))
    places = sorted((place(k["flops"] / k["bytes"], k["flops"] / t)[::-1], i, k) for i, k, t in named)
    for ((y, x), i, k), at in zip(places, spread([p[0][0] for p in places], 17, top + 4, top + high)):
        parts.append(line(x + 5, y, WIDTH - right + 12, at, "leader"))
        parts.append(text(WIDTH - right + 16, at + 4, fitting(f"{i + 1} {label(k)}", right - 18 - GLYPH)))
    parts.append(text(left, 16, "FLOP/s; arithmetic per byte to the right", kind="dim"))
    return picture(top + high + 28, parts, "Roofline: speed against arithmetic per byte")


def _rates(peak: Peak, kernels: Sequence[JsonView]) -> dict[float, str]:
    """The FLOP/s that arithmetic can reach, and what that is of: float32, and what else the kernels compute in."""
    found = {peak.flops: "fused multiply-adds"}
    if peak.matrix:
        found.setdefault(peak.as_float32, "matrix unit, 3 products")
    for kernel in kernels:
        if kernel.get("matrix") and peak.matrix:
            parts = several(round(kernel["matrix"]), "product") if kernel["matrix"] >= 1 else "bytes"
            found.setdefault(peak.rate_of(kernel), f"matrix unit, {parts}")
        elif kernel.get("at_once", 1) > 1:
            found.setdefault(peak.rate_of(kernel), "products of bytes")
    return found
