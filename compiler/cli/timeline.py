"""``halotile inspect --timeline``: when stripes load, compute and store, as text, JSON and SVG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...errors import OutputError, several
from ..given import ModelGiven
from ..options import Fixed, Shapes
from .console import emit, emit_json, size


def show(
    model: ModelGiven, shapes: Shapes | None, fixed: Mapping[str, Fixed] | None, target: str, svg: str | None,
    as_json: bool, typical: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """Prints the timelines of all chains; ``svg`` is a file that gets their picture."""
    from ...passes.tile.scratchpad.timeline_text import as_svg, as_text, seconds
    from ..timelines import timelines

    chains = timelines(model, shapes, target, fixed=fixed, typical=typical)
    if svg is not None:
        titled = [(f"{c.name}, {several(c.stripes, 'stripe')} of {several(c.rows, 'row')}", c.timeline) for c in chains]
        picture = as_svg(titled)
        try:
            Path(svg).write_text(picture, encoding="utf-8")
        except OSError as error:
            raise OutputError(f"can't write {svg}: {error.strerror}; name a file that can be written") from None
    if as_json:
        emit_json({"chains": [c.data() for c in chains]})
        return
    parts = []
    for c in chains:
        gain = seconds(c.one_by_one.seconds)
        parts.append(
            f"{c.name}: {several(len(c.groups), 'group')}, {several(c.stripes, 'stripe')} of {several(c.rows, 'row')}, "
            f"{size(c.scratchpad_bytes)} of the scratchpad; {seconds(c.timeline.seconds)} predicted, "
            f"{gain} without overlap\n{as_text(c.timeline)}"
        )
    emit("\n\n".join(parts) or "no group is computed in stripes")
