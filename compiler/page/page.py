"""The page itself: sections of tables and pictures around the facts, in one file that asks the network for nothing."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from typing import TYPE_CHECKING

from ...errors import several
from ..legend import legend
from ..plans import why_beaten
from . import pictures, precision
from .facts import PageFacts
from .html import line, table
from .svg import seconds, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...targets.plain import Json, JsonView

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #59636e; --paper: #ffffff; --line: #c9d1d9; --plane: #f4f6f8;
  --kernel: #dbe7f5; --tiled: #d3ecd9; --buffer: #cfe0f3; --halo: #f6d9a8; --fresh: #8cc79a; --point: #6b7f95;
  --chosen: #b3401f; --good: #1a7f37; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9aa5b1; --paper: #12161b; --line: #39424d;
  --plane: #1a2027; --kernel: #23405f; --tiled: #1f4d2e; --buffer: #264a70; --halo: #7a5a1e; --fresh: #3f8a52;
  --point: #8fa3b8; --chosen: #ff9b73; --good: #56d364; --bad: #ff8a80; } }
@media print { :root { color-scheme: light; --ink: #000; --dim: #444; --paper: #fff; --line: #999; --plane: #f4f6f8;
  --kernel: #dbe7f5; --tiled: #d3ecd9; --buffer: #cfe0f3; --halo: #f6d9a8; --fresh: #8cc79a; --point: #556;
  --chosen: #b3401f; --good: #060; --bad: #900; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  svg, tr { break-inside: avoid } h2, h3 { break-after: avoid } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  padding: 16px 20px; max-width: 860px; overflow-wrap: anywhere; }
h1 { font-size: 24px; margin: 0 0 8px } h2 { font-size: 18px; margin: 28px 0 8px } h3 { font-size: 15px }
table { border-collapse: collapse; width: 100%; font-size: 13px } th { text-align: left; color: var(--dim) }
th, td { padding: 3px 8px 3px 0; border-bottom: 1px solid var(--line); vertical-align: top }
td.n, th.n { text-align: right; white-space: nowrap } .dim { color: var(--dim) } .good { color: var(--good) }
.bad { color: var(--bad) } svg { display: block; width: 100%; height: auto; margin: 6px 0 }
ul.words { font-size: 13px; margin: 4px 0; padding-left: 18px }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink) } svg text.dim { fill: var(--dim) }
.plane { fill: var(--plane); stroke: var(--line) } .kernel { fill: var(--kernel); stroke: var(--line) }
.tiled { fill: var(--tiled); stroke: var(--line) } .buffer { fill: var(--buffer); stroke: var(--paper) }
.halo { fill: var(--halo); stroke: var(--ink); stroke-width: .5 } .fresh { fill: var(--fresh); stroke: var(--ink);
  stroke-width: .5 } .edge { fill: none; stroke: var(--point); stroke-width: 1.2 } .axis, .roof { stroke: var(--ink) }
.memory { stroke-dasharray: 5 3 } .grid, .leader { stroke: var(--line); stroke-width: .7 }
.curve { fill: none; stroke: var(--point); stroke-width: 1.5 } .point { fill: var(--point) }
.chosen { fill: var(--chosen) } .facts td:first-child { width: 150px; color: var(--dim) }
th, td { overflow-wrap: break-word }
@media screen { section { overflow-x: auto } }
@media screen and (max-width: 700px) { table:not(.facts), svg { min-width: 660px }
  .facts td:first-child { width: 100px } }
"""


def page(facts: PageFacts) -> str:
    """The whole page as HTML."""
    sections = [
        ("Summary", _summary(facts)),
        ("Kernels in order", _graph(facts)),
        ("Times" if facts.seconds else "Kernels", _kernels(facts)),
        ("Timeline", _timeline(facts)),
        ("Roofline", _roofline(facts)),
        ("Arena", _arena(facts)),
        ("Open dimensions", _symbols(facts)),
        ("Tile groups", _tiles(facts)),
        ("Memory against time", _curve(facts)),
        ("Error against time", precision.section(facts.errors, facts.options.target.id)),
        ("Agreement with ONNX Runtime", _agreement(facts)),
        ("Notes", _notes(facts)),
    ]
    body = "\n".join(f"<section><h2>{title}</h2>\n{inner}</section>" for title, inner in sections if inner)
    name = escape(facts.name)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{name} - Halotile</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{STYLE}</style></head>\n'
        f"<body><h1>{name}</h1>\n{body}\n</body></html>\n"
    )


def _tensor(t: Json) -> str:
    return f"{t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]"


def _summary(facts: PageFacts) -> str:
    report, manifest, options = facts.report, facts.manifest, facts.options
    run = seconds(facts.run_seconds) if facts.run_seconds else facts.untimed
    rows = [
        ("target", f"{options.target.id} ({options.target.cpu}, {options.target.triple})"),
        *(("input", _tensor(t)) for t in manifest["inputs"]),
        *(("output", _tensor(t)) for t in manifest["outputs"]),
        ("a run", f"{run}, {several(report['threads'], 'thread')}" if facts.run_seconds else run),
        ("kernels", f"{len(report['kernels'])}, of {sum(report.get('operators_before', {}).values())} operators"),
        ("multiply-adds", f"{report.get('macs', 0):,}"),
        ("arena", f"{size(report['arena_bytes'])} ({report['arena_bytes']:,} bytes)"),
        ("weights", size(report.get("weight_bytes", 0))),
        *(("file", f"{name}, {size(file['bytes'])}") for name, file in manifest.get("files", {}).items()),
        ("compiled in", seconds(sum(report.get("seconds", {}).values()))),
        ("options", _asked(facts)),
        ("versions", ", ".join(f"{k} {v}" for k, v in report.get("versions", {}).items())),
    ]
    return table((), rows).replace("<table>", '<table class="facts">')


def _asked(facts: PageFacts) -> str:
    """The options that are not as by default. What samples say is told as the precision that it means."""
    from ..state import Options

    options = facts.options
    usual = Options(options.target, cache=options.cache, formats=options.formats)
    told = {f.name: getattr(options, f.name) for f in fields(options) if f.name not in precision.MADE}
    words = [f"{name}={value}" for name, value in told.items() if value is not None and value != getattr(usual, name)]
    return ", ".join([*precision.words(options), *words]) or "as by default"


def _graph(facts: PageFacts) -> str:
    words = "One box a kernel: everything in it is computed in one pass. Green ones are tile groups. "
    return line(words + "Lines at the side go to kernels that read the result later.") + pictures.graph(facts)


def _kernels(facts: PageFacts) -> str:
    kernels, times = facts.report["kernels"], facts.seconds
    total = sum(times) or 1.0
    rows: list[tuple[object, ...]] = []
    for i, k in enumerate(kernels):
        what = (pictures.label(k), k["name"], k["schedule"])
        if not times:
            rows.append((i + 1, f"{k['flops']:,}", size(k["bytes"]), *what))
            continue
        share = f"{facts.peak.limit_of(k) / times[i]:.0%}" if facts.peak and times[i] else "-"
        rows.append((i + 1, seconds(times[i]), f"{times[i] / total:.1%}", share, *what))
    if not times:
        head = ("", "FLOP", "bytes", "nodes", "kernel", "schedule")
        return line(facts.untimed) + table(head, rows, 3) + _words(kernels)
    return table(("", "time", "share", "of limit", "nodes", "kernel", "schedule"), rows, 4) + _words(kernels)


def _words(kernels: Sequence[JsonView]) -> str:
    """What the short words of the schedules mean."""
    meanings = [f"<li>{escape(meaning)}</li>" for meaning in legend("\n".join(k["schedule"] for k in kernels))]
    return f'{line("Words of schedules:")}<ul class="dim words">{"".join(meanings)}</ul>' if meanings else ""


def _timeline(facts: PageFacts) -> str:
    if not facts.seconds:
        return ""
    words = "One run, kernel after kernel, each as wide as its time. Green ones are tile groups."
    return line(words) + pictures.timeline(facts)


def _roofline(facts: PageFacts) -> str:
    if not facts.seconds:
        return ""
    words = "Solid: bandwidth of the second-level cache; dashed: of memory. The slowest kernels have their names."
    if facts.peak is None:
        words = "The machine's limits were not measured."
    elif any(0 < t < 0.9 * facts.peak.limit_of(k) for k, t in zip(facts.report["kernels"], facts.seconds)):
        words += " Some kernels are beyond: the machine did something else while its limits were measured."
    drawn = pictures.roofline(facts.report["kernels"], facts.seconds, facts.peak)
    return drawn and line(words) + drawn


def _arena(facts: PageFacts) -> str:
    if not facts.boxes:
        return line("Nothing lies in the arena between kernels.")
    per_thread = facts.report.get("workspace_bytes", 0)
    more = f" Each thread has {size(per_thread)} more." if per_thread else ""
    words = f"Buffers by offset and by the kernels during which they are in use.{more}"
    drawn = pictures.arena(facts.boxes, len(facts.report["kernels"]), facts.report["planned_bytes"])
    rows = [(f"{b.offset:,}", f"{b.bytes:,}", f"{b.first + 1}-{b.last + 1}", b.name) for b in facts.boxes]
    listed = table(("offset", "bytes", "kernels", "buffer"), rows, 3)
    return f"{line(words)}{drawn}<details><summary>{several(len(rows), 'buffer')} by offset</summary>{listed}</details>"


def _symbols(facts: PageFacts) -> str:
    symbols = facts.report.get("symbols", ())
    if not symbols:
        return ""
    rows = [
        (s["name"], f"{s['low']} to {'any' if s['high'] is None else s['high']}", s["multiple"], s["typical"])
        for s in symbols
    ]
    words = "Pictures, bytes and times are those of the sizes planned for. The arena ends with its highest slot:"
    formulas = "".join(f"<li><code>{escape(f)}</code></li>" for f in facts.arena)
    head = ("dimension", "sizes", "multiple of", "planned for")
    return table(head, rows) + (f"{line(words)}<ul>{formulas}</ul>" if formulas else "")


def _tiles(facts: PageFacts) -> str:
    parts = []
    for g in facts.report.get("tile", {}).get("groups", ()):
        words = (
            f"{several(g['tasks'], 'task')} of up to {several(g['stripes'], 'stripe')}, "
            f"{size(g['bytes_per_task'])} a task, work x {g['extra_work']:.3f}"
        )
        parts.append(f"<h3>{escape(g['name'])}</h3>{line(words)}{pictures.tiles(g)}")
        rows = [
            (m["name"], ", ".join(m["nodes"]), ", ".join(f"{b['count']} of {b['rows']}x{b['columns']}" for b in boxes))
            for m in g["members"]
            for boxes in (m["boxes"],)
        ]
        listed = table(("member", "nodes", "boxes, rows x columns"), rows)
        parts.append(f"<details><summary>Boxes of {several(len(rows), 'member')}</summary>{listed}</details>")
    return "".join(parts)


def _curve(facts: PageFacts) -> str:
    tile = facts.report.get("tile", {})
    if not tile.get("curve") or not tile.get("untiled", {}).get("cycles"):
        return ""
    chosen, untiled = tile.get("chosen"), tile["untiled"]
    words = "What tiling could have: predicted, without the plans that another beats in both."
    why = why_beaten(chosen, [*tile["curve"], untiled]) if chosen else ""
    return line(f"{words} {why}".strip()) + pictures.curve(tile["curve"], chosen, untiled)


def _agreement(facts: PageFacts) -> str:
    words, good = facts.agreement
    kind = "dim" if good is None else "good" if good else "bad"
    rows = [(f"{o['error']:.3g}", f"{o['limit']:.3g}", o["name"], "agrees" if o["ok"] else "differs")
            for o in facts.outputs]  # fmt: skip
    return line(words, kind) + (table(("largest error", "allowed", "output", "answer"), rows, 2) if rows else "")


def _notes(facts: PageFacts) -> str:
    lines = [f"<li>{escape(f'{stage}: {n}')}</li>" for stage, notes in facts.report.get("notes", {}).items()
             for n in notes]  # fmt: skip
    if not lines:
        return ""
    return f"<details><summary>{several(len(lines), 'note')} of the passes</summary><ul>{''.join(lines)}</ul></details>"
