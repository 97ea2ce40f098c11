"""``halotile inspect --plan`` and ``--pareto``: tile groups, and memory against predicted time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..legend import legend
from ..options import Shapes
from .console import columns, emit, emit_json, size

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView


def show(
    model: str | Path,
    shapes: Shapes | None,
    target: str,
    pareto: bool,
    as_json: bool,
    options: JsonView,
) -> None:
    """Prints the plans of the tile groups, and with ``pareto`` the curve that they were chosen from.

    ``options`` are the pipeline's: typical, fixed, float_mode, tile, memory_budget, optimize and threads."""
    from ...passes.tile.describe import plan_text
    from ...targets.resolve import resolve
    from ..plans import plans
    from ..state import Options

    wish = dict(options)
    if wish.get("tile") is None:
        wish["tile"] = "auto"
    data = plans(model, Options(target=resolve(target), shapes=dict(shapes) if shapes else None, **wish))
    if as_json:
        emit_json(data)
        return
    parts = [columns([("arena", size(data["arena_bytes"])), ("planned in", f"{data['seconds']:.2f} s")])]
    groups = [plan_text(g) for g in data["groups"]]
    parts += groups or list(data["notes"])
    if meanings := legend("\n".join(groups)):
        parts.append("words of plans:\n" + "\n".join(f"  {line}" for line in meanings))
    if pareto:
        parts.append(_curve(data) if "curve" in data else "no curve: there was nothing to choose between")
    emit("\n\n".join(parts))


def _curve(data: Json) -> str:
    from ..plans import undominated, why_beaten

    rows = [("predicted arena", "time, of untiled", "tile groups", "")]
    base, untiled, chosen = data["untiled"]["cycles"], data["untiled"], data["chosen"]
    points = undominated([*data["curve"], untiled])
    points += [p for i, p in enumerate((chosen, untiled)) if p not in points and not (i and p == chosen)]
    for point in sorted(points, key=lambda p: (p["bytes"], p["cycles"])):
        what = ", ".join(w for w, p in (("chosen", chosen), ("untiled", untiled)) if p == point)
        rows.append((size(point["bytes"]), f"{point['cycles'] / base:.3f}", str(point["tiled"]), what))
    why = why_beaten(chosen, points)
    return columns(rows) + (f"\n{why}" if why else "")
