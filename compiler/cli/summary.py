"""The end of a build in words: the table, and the explanation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import several
from ..legend import legend
from .console import columns, count, seconds, size
from .failure import one_line

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView


def _stored(stored: Json | None) -> list[tuple[str, str]]:
    """Weights in few bytes, beside what they would take, and how far they are off."""
    if stored is None:
        return []
    text = f"{stored['bytes']} bytes in place of {stored['bytes_in_float32']}"
    if stored.get("largest_rounding"):
        text += f", each off by at most {stored['largest_rounding']:.1e} of its channel's largest"
    return [(f"weights in {stored['as']}", text)]


def _level(one: dict[str, Any]) -> str:
    made = f", {size(one['made_bytes'])} made of the others" if one.get("made_bytes") else ""
    return f"{size(one['weight_bytes'])} of weights{made}, arena {size(one['arena_bytes'])}"


def rows(report: Json, model: Path, output: Path | None) -> list[tuple[str, str]]:
    """What the table says, as (what, value); what the stages run did not find out is left out."""
    before = report.get("operators_before") or {}
    kernels = report.get("kernels")
    found: list[tuple[str, str]] = [("model", one_line(model.name)), ("target", str(report.get("target", "")))]
    if before:
        found.append(("nodes of the model", f"{sum(before.values())} ({_top(before)})"))
    found += [("dimension", symbol_text(s)) for s in report.get("symbols") or ()]
    if kernels:
        found.append(("kernels made of them", str(len(kernels))))
    if report.get("macs") is not None:
        found.append(("multiply-adds", count(report["macs"])))
    found += [
        (f"level {one['target']}", _level(one))
        for one in report.get("levels") or ()
    ]
    if (int8 := report.get("int8")) is not None:
        done = int8["layers"] - len(int8["left"])
        found.append(("layers in int8", f"{done} of {int8['layers']}, off by {int8['error']:.1e} on the samples"))
    if (auto := report.get("auto")) is not None:
        found.append(("layers by precision", ", ".join(f"{n} {kind}" for kind, n in auto["precisions"].items())))
        how = "measured" if auto["measured"] else "expected, not measured: the target's code does not run here"
        used, held = auto["samples"]
        text = f"{auto['error']:.1e} on {several(used, 'sample')}, {auto['held']:.1e} on {held} held back"
        text += f", limit {auto['limit']:g}"
        found.append(("error kept", f"{text} ({how})"))
        found.append(("predicted time", f"{auto['cycles'] / auto['cycles_float32']:.2f} of float32's"))
    if (found_in := report.get("precision")) is not None:
        found += _narrow(found_in)
    for key, label in (("weight_bytes", "weights"), ("arena_bytes", "arena")):
        if report.get(key) is not None:
            found.append((label, f"{size(report[key])} ({report[key]} bytes)"))
    found += _stored(report.get("stored_weights"))
    found += [("memory budget", line) for line in (report.get("notes") or {}).get("plan", ())]
    check = report.get("verification")
    if check:
        error = f"{check['max_error']:.2e} against {check['reference']} on {several(check['inputs'], 'input')}"
        if any(o["constant"] for o in check["outputs"]):
            error += "; some outputs have one value everywhere"
        found.append(("largest error", error))
    elif output is not None:
        found.append(("largest error", "not compared"))
    times = report.get("seconds") or {}
    found += [(f"time, {stage}", seconds(t)) for stage, t in times.items()]
    if times:
        found.append(("time, all stages", seconds(sum(times.values()))))
    if output is not None:
        found.append(("library", one_line(str(output))))
    return found


def _narrow(found: JsonView) -> list[tuple[str, str]]:
    """Kernels in a narrower float; what float16 is expected to do to outputs, and would have done without a limit."""
    rows = [(f"kernels in {found['asked']}", f"{found['kernels']} of {found['of']} that multiply")]
    if found.get("expected"):
        text = f"{found['expected']:.1e} of the largest value, {found['allowed']:g} allowed"
        more = f"; {found['of_all']:.1e} with larger transforms and all layers" if found.get("of_all") else ""
        rows.append(("error expected", text + more))
    return rows


def symbol_text(symbol: JsonView) -> str:
    """An open dimension: its sizes, the one that is planned for, and why it has its bounds."""
    from ..extents import sizes_text

    sizes = sizes_text(symbol["low"], symbol["high"], symbol["multiple"])
    return "; ".join((f"{one_line(symbol['name'])}: {sizes}, planned for {symbol['typical']}", *symbol["why"]))


def print_table(report: Json, model: Path, output: Path | None) -> None:
    """The table on stderr."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for what, value in rows(report, model, output):
        table.add_row(what, value)
    Console(stderr=True, highlight=False).print(table)


def explanation(report: Json) -> str:
    """Each stage's notes, then each kernel with the operators in it, its schedule and its reasons."""
    parts = []
    for stage, notes in (report.get("notes") or {}).items():
        if notes:
            parts.append(f"{stage}:\n" + "\n".join(f"  {line}" for line in notes))
    kernels = report.get("kernels") or []
    if kernels:
        parts.append("kernels:")
    for kernel in kernels:
        facts = [
            ("nodes", ", ".join(map(str, kernel.get("nodes", ())))),
            ("operators", ", ".join(map(str, kernel.get("operators", ())))),
            ("schedule", str(kernel.get("schedule", ""))),
            ("work", f"{count(kernel.get('flops', 0))} flops, {size(kernel.get('bytes', 0))}"),
        ]
        reasons = kernel.get("notes") or kernel.get("reasons") or ()
        facts += [("because", str(r)) for r in ([reasons] if isinstance(reasons, str) else reasons)]
        parts.append(f"  {kernel.get('name', 'kernel')}\n" + columns([f for f in facts if f[1]], indent=4))
    if meanings := legend("\n".join(str(k.get("schedule", "")) for k in kernels)):
        parts.append("words of schedules:\n" + "\n".join(f"  {line}" for line in meanings))
    return "\n".join(parts) or "no pass left a note"


def _top(before: dict[str, int], shown: int = 4) -> str:
    most = sorted(before.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{n} {name}" for name, n in most[:shown])
    return text + (", ..." if len(most) > shown else "")
