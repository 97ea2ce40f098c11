"""``halotile inspect --reach``: which input rows an output row needs, and what keeps tiles from cutting an axis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..options import Shapes
from ..reach.words import AxisReach, Cut, Reach
from .console import columns, emit, emit_json

if TYPE_CHECKING:
    from ...targets.plain import JsonView


def show(model: str | Path, shapes: Shapes | None, target: str, as_json: bool, options: JsonView) -> None:
    """Prints the reach of every output of a model that is only simplified. ``options`` are the pipeline's."""
    from ...targets.resolve import resolve
    from ..pipeline import run_pipeline
    from ..reach.build import model_reach
    from ..state import Options

    known = Options(target=resolve(target), shapes=dict(shapes) if shapes else None, stop_after="simplify", **options)
    build = run_pipeline(model, known)
    reaches = model_reach(build)
    if as_json:
        emit_json({"name": build.imported.name, "reach": [reach.plain() for reach in reaches]})
        return
    emit("\n\n".join(map(text, reaches)) or "sizes of the open dimensions that go together were not found")


def text(reach: Reach) -> str:
    """A table: a line for each axis and input, then what keeps tiles from cutting axes."""
    rows: list[tuple[str, ...]] = [("output axis", "input axis", "stride", "before", "after", "multiple", "")]
    rows += [_row(reach, number, axis) for axes in reach.inputs.values() for number, axis in enumerate(axes)]
    lines = [f"{reach.output}", columns(rows, indent=2)] if reach.inputs else [f"{reach.output} depends on no input"]
    whole = ((i, cut) for i, cut in enumerate(reach.cuts) if _told(reach, i, cut))
    lines += [f"  axis {i} is computed whole: {cut.problem}" for i, cut in whole]
    return "\n".join(lines)


def _row(reach: Reach, number: int, axis: AxisReach) -> tuple[str, ...]:
    where = f"{axis.input}.{axis.input_axis}" if axis.input_axis is not None else axis.input
    if axis.kind == "rows":
        numbers = (str(axis.stride), str(axis.before), str(axis.after), str(axis.multiple))
        return f"{reach.output}.{number}", where, *numbers, ""
    return f"{reach.output}.{number}", where, "", "", "", "", str(axis)


def _told(reach: Reach, number: int, cut: Cut) -> bool:
    """Whether what keeps an axis whole is news beside the table."""
    return bool(cut.problem) and all(cut.problem != axes[number].why for axes in reach.inputs.values())
