"""The harness's results as Markdown: a table for each thread count, then what to doubt."""

from __future__ import annotations

from collections.abc import Sequence

from ..compiler.page.peak import Peak
from ..errors import several
from .results import OURS, EngineResult, ModelResult, mean_cost, mean_ratio, peak_of, variants_of


def render(results: Sequence[ModelResult]) -> str:
    sections = []
    for threads in sorted({r.threads for r in results}):
        chosen = [r for r in results if r.threads == threads]
        sections.append(_section(chosen, threads, peak_of(results, threads)))
    if variants_of(results):
        sections.append(_memory(results))
    problems = [
        f"- {r.model}, {several(r.threads, 'thread')}: {e.engine} {p}"
        for r in results
        for e in r.engines
        for p in _problems(e)
    ]
    if problems:
        sections.append("### No figure\n\n" + "\n".join(problems))
    doubts = [f"- {r.model}, {several(r.threads, 'thread')}: {w}" for r in results for w in r.warnings]
    if doubts:
        sections.append("### Noise\n\n" + "\n".join(doubts))
    return "\n\n".join(sections) + "\n"


def _memory(results: Sequence[ModelResult]) -> str:
    """Arena and peak resident memory of each of our builds, and the peers' beside them."""
    engines = list(dict.fromkeys(e.engine for r in results for e in r.engines))
    lines = ["### Memory", "", "Arena of ours, peak resident memory of each process.", ""]
    lines += ["| model | threads | " + " | ".join(engines) + " |", "|---|---:|" + "---:|" * len(engines)]
    for result in results:
        cells = [_held(result.engine(name)) for name in engines]
        lines.append(f"| {result.model} | {result.threads} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _held(engine: EngineResult | None) -> str:
    if engine is None or not engine.peak_rss:
        return ""
    arena = f"{_megabytes(engine.arena_bytes)}, " if engine.arena_bytes else ""
    return arena + _megabytes(engine.peak_rss)


def _section(results: list[ModelResult], threads: int, peak: Peak | None) -> str:
    peers = list(dict.fromkeys(e.engine for r in results for e in r.engines if not e.engine.startswith(OURS)))
    variants = variants_of(results)
    short = [v.removeprefix(OURS).strip() for v in variants]
    header = ["model", OURS, *peers, "ratio", *(f"ratio {v}" for v in short), *(f"{v} / ours" for v in short)]
    header += ["FMA peak", "of limit", "arena", "RSS", "peers' RSS", "compile"]
    rows = [_row(r, peers, variants) for r in results]
    title = f"### {threads} thread{'s' if threads > 1 else ''}"
    lines = [title, ""]
    if peak is not None:
        unit = f", by the matrix unit {peak.as_float32 / 1e9:.0f}" if peak.matrix else ""
        lines += [
            f"Peak {peak.flops / 1e9:.0f} GFLOP/s{unit}; triad {peak.cache_bytes / 1e9:.0f} GB/s in cache, "
            f"{peak.memory_bytes / 1e9:.0f} GB/s in memory. Milliseconds are median ± MAD; "
            "ratio = best peer's median / ours.",
            "",
        ]
    lines.append("| " + " | ".join(header) + " |")
    lines.append("|---|" + "---:|" * (len(header) - 1))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    mean = mean_ratio(results, threads)
    if mean is not None:
        lines += ["", f"Geometric mean of the ratios: **{mean:.2f}**"]
    for variant, name in zip(variants, short):
        cost = mean_cost(results, threads, variant)
        if cost is not None:
            lines += ["", f"Geometric mean of {name} / ours: **{cost:.2f}**"]
    return "\n".join(lines)


def _row(result: ModelResult, peers: list[str], variants: list[str]) -> list[str]:
    cells = [result.model, *(_time(result.engine(n)) for n in (OURS, *peers))]
    cells += [_ratio(result.ratio()), *(_ratio(result.ratio(v)) for v in variants)]
    cells += [_ratio(result.cost_of(v)) for v in variants]
    cells += [_percent(result.fma_fraction), _percent(result.limit_fraction)]
    ours = result.engine(OURS)
    cells.append(_megabytes(result.build.arena_bytes) if result.build else "")
    cells.append(_megabytes(ours.peak_rss) if ours and ours.peak_rss else "")
    cells.append(" / ".join(_megabytes(e.peak_rss) for n in peers if (e := result.engine(n)) and e.peak_rss))
    cells.append(f"{result.build.seconds:.1f} s" if result.build else "")
    return cells


def _time(engine: EngineResult | None) -> str:
    if engine is None:
        return ""
    if engine.times is None:
        return "failed"
    text = f"{engine.times.median * 1e3:.2f} ± {engine.times.mad * 1e3:.2f}"
    text += f" {engine.precision}" if engine.precision != "f32" else ""
    return f"{text} (wrong)" if engine.wrong else text


def _problems(engine: EngineResult) -> list[str]:
    found = [f"failed: {engine.error}"] if engine.error else []
    return found + ([f"disagrees: {engine.wrong}"] if engine.wrong else [])


def _ratio(value: float | None) -> str:
    return "" if value is None else f"**{value:.2f}**"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _megabytes(value: int) -> str:
    return f"{value / 1e6:.1f} MB"
