"""Per-kernel times as a table: which kernels a model's time goes to, and how near each is to the machine's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compiler.page.peak import Peak
from .results import ModelResult

if TYPE_CHECKING:
    from ..targets.plain import Json


@dataclass(frozen=True)
class ProfileRow:
    """Kernels that share one function: ``count`` of them, with their times, arithmetic and traffic added up.

    ``nodes``: the first of the model's nodes in each. ``limit`` is the sum of the seconds below which none of them can
    stay; 0 where the peak is unknown.
    """

    name: str
    nodes: tuple[str, ...]
    schedule: str
    count: int
    seconds: float
    flops: float
    moved: float
    limit: float
    bound: str


def derive(kernel: Json, peak: Peak | None) -> Json:
    """``kernel`` with what its time means: flops and bytes a second, and the share of its own roofline."""
    seconds = kernel.get("seconds")
    if not seconds:
        return kernel
    found = {**kernel, "flops_per_second": kernel["flops"] / seconds, "bytes_per_second": kernel["bytes"] / seconds}
    if peak is not None:
        found["limit_fraction"] = peak.limit_of(kernel) / seconds
        found["bound"] = _bound(kernel, peak)
    return found


def rows(kernels: Sequence[Json], peak: Peak | None) -> list[ProfileRow]:
    """Timed kernels by function, the slowest first."""
    together: dict[Any, list[Json]] = {}
    for kernel in kernels:
        if kernel.get("seconds"):
            together.setdefault(kernel.get("function", kernel["name"]), []).append(kernel)
    found = [
        ProfileRow(
            members[0]["name"],
            tuple(k["nodes"][0] for k in members if k.get("nodes")),
            members[0].get("schedule", ""),
            len(members),
            sum(k["seconds"] for k in members),
            sum(k["flops"] for k in members),
            sum(k["bytes"] for k in members),
            sum(peak.limit_of(k) for k in members) if peak else 0.0,
            _bound(members[0], peak) if peak else "",
        )
        for members in together.values()
    ]
    return sorted(found, key=lambda row: -row.seconds)


def render(result: ModelResult, most: int = 25) -> str:
    """One model's kernels as a Markdown table; empty when none was timed."""
    if result.build is None:
        return ""
    found = rows(result.build.kernels, result.peak)
    if not found:
        return ""
    total = sum(row.seconds for row in found)
    lines = [
        f"### {result.model}, {result.threads} thread{'s' if result.threads > 1 else ''}: kernels",
        "",
        "| kernel | from node | schedule | count | ms | share | GFLOP/s | GB/s | of limit | bound by |",
        "|---|---|---|" + "---:|" * 6 + "---|",
    ]
    for row in found[:most]:
        lines.append("| " + " | ".join(_cells(row, total)) + " |")
    rest = found[most:]
    if rest:
        seconds = sum(row.seconds for row in rest)
        lines.append(
            f"| {sum(row.count for row in rest)} others | | | | {seconds * 1e3:.3f} | {seconds / total:.0%} | | | | |"
        )
    limit = sum(row.limit for row in found)
    lines += ["", f"All kernels: {total * 1e3:.3f} ms" + (f", {limit / total:.0%} of their limits" if limit else "")]
    return "\n".join(lines) + "\n"


def _cells(row: ProfileRow, total: float) -> list[str]:
    return [
        row.name,
        row.nodes[0] + (f" and {len(row.nodes) - 1} more" if len(row.nodes) > 1 else "") if row.nodes else "",
        row.schedule,
        str(row.count),
        f"{row.seconds * 1e3:.3f}",
        f"{row.seconds / total:.1%}",
        f"{row.flops / row.seconds / 1e9:.1f}",
        f"{row.moved / row.seconds / 1e9:.1f}",
        f"{row.limit / row.seconds:.0%}" if row.limit else "",
        row.bound,
    ]


def _bound(kernel: Json, peak: Peak) -> str:
    if kernel["flops"] / peak.rate_of(kernel) < kernel["bytes"] / peak.bandwidth(kernel["bytes"]):
        return "bandwidth"
    return "matrix unit" if kernel.get("matrix") and peak.matrix else "FMA"
