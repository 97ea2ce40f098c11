"""``halotile inspect --precision-plan``: the precision of each layer within an error, and error against time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..options import Shapes
from .console import StageProgress, columns, count, emit, emit_json

if TYPE_CHECKING:
    from ...targets.plain import Json, JsonView


def show(
    model: Path, shapes: Shapes | None, target: str, as_json: bool, options: JsonView, calibrate: str | None,
    error: float | None,
) -> None:  # fmt: skip
    """Prints layers with precision, share of the error, predicted cycles and reason, and the curve of error against
    predicted time. ``options`` are the pipeline's: fixed, float_mode, typical and threads. Nothing is built: errors are
    those that rounding is expected to make."""
    from ...targets.resolve import resolve
    from ..budget.look import look
    from ..state import Options

    wish = Options(target=resolve(target), shapes=dict(shapes) if shapes else None, **options)
    with StageProgress(quiet=as_json) as progress:
        data = look(model, wish, calibrate, error, progress)
    if as_json:
        emit_json(data)
        return
    emit("\n\n".join((_head(data), _layers(data), _curve(data))))


def _head(data: Json) -> str:
    rows = [("target", data["target"]), ("layers", f"{len(data['layers'])}, in what is computed together")]
    if (chosen := data["chosen"]) is not None:
        rows += [
            ("limit", f"{data['limit']:g} of the largest value"),
            ("expected error", f"{chosen['error']:.1e} on the samples, {chosen['held']:.1e} on those held back"),
            ("predicted time", f"{_part(data, chosen):.3f} of float32's"),
        ]
    else:
        rows.append(("limit", "none: --error says what outputs may be off by"))
    return columns(rows)


def _layers(data: Json) -> str:
    """Each unit in its precision; without a limit, in every one that is faster."""
    rows = [("layer", "operator", "precision", "error share", "predicted cycles", "reason")]
    for row in data["layers"]:
        more = f" (+{len(row['layers']) - 1})" if len(row["layers"]) > 1 else ""
        own = [row["precision"]] if data["chosen"] is not None else list(row["cycles"])
        for i, kind in enumerate(own):
            share = f"{row['shares'][kind]:.1e}" if kind in row["shares"] else "0"
            name = f"{row['layers'][0]}{more}" if i == 0 else ""
            reason = row["reason"] if data["chosen"] is not None else ""
            rows.append((name, row["operator"] if name else "", kind, share, count(int(row["cycles"][kind])), reason))
    return columns(rows)


def _curve(data: Json) -> str:
    rows = [("expected error", "time, of float32", "layers that are narrower", "")]
    for point in data["curve"]:
        what = ", ".join(f"{n} {kind}" for kind, n in point["precisions"].items()) or "none"
        rows.append((f"{max(point['error'], point['held']):.1e}", f"{_part(data, point):.3f}", what,
                     "chosen" if point == data["chosen"] else ""))  # fmt: skip
    return columns(rows)


def _part(data: Json, point: Json) -> float:
    return float(point["cycles"] / data["cycles_float32"])
