"""What the page shows of precisions: the curve of expected error against predicted time, from sample inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import HalotileError, several
from . import curves
from .error_curve import ErrorCurve
from .html import line, table

if TYPE_CHECKING:
    from ...targets.plain import JsonView
    from ..budget.plan import Planner
    from ..given import ModelGiven
    from ..state import Options, Progress

MADE = ("precision", "int8", "halves", "half_error", "assigned")  # options that a precision comes down to
SAMPLED = ("int8", "float16", "auto")  # the precisions that take samples of their own


@dataclass(frozen=True)
class PrecisionWish:
    """What a page is asked of precision: that of the build, the samples and the error, as a build takes them. Samples
    are welcome whatever the precision: the curve is of them."""

    precision: str = "float32"
    calibrate: object = None
    error: Any = None

    def options(
        self, model: ModelGiven, options: Options, progress: Progress | None, made: Planner | None
    ) -> Options:
        """The options of the build in that precision; ``made`` as :meth:`planner` gives it."""
        from ..narrow import narrowed

        samples = self.calibrate if self.precision in SAMPLED else None
        return narrowed(model, options, self.precision, samples, self.error, progress, made)

    def planner(self, model: ModelGiven, options: Options, progress: Progress | None) -> Planner | None:
        """What knows the curve of a model; ``options`` without its precision. None without samples."""
        from ..budget.wish import planner

        if self.calibrate is None:
            return None
        if options.exact:
            raise HalotileError("calibrate is for precisions that round, which exact forbids: choose one of them")
        return planner(model, options, self.calibrate, progress)


def words(options: Options) -> list[str]:
    """The precision that options came of, where it is not float32."""
    if (own := options.assigned) is not None:
        return [f"precision=auto, error={own['limit']:g}"]
    if (plan := options.int8) is not None:
        return [f"precision=int8 ({plan['layers'] - len(plan['left'])} of {several(plan['layers'], 'layer')})"]
    return [] if options.precision == "float32" else [f"precision={options.precision}"]


def section(found: ErrorCurve | None, target: str) -> str:
    """The page's section: the curve as a picture and a table, and the layers it is made of."""
    if found is None:
        return line("Needs sample inputs, since errors are of inputs: --calibrate samples.npz, in Python calibrate=.")
    if len(found.kinds) == 1:
        return line(f"{target} computes nothing faster than float32, so there is nothing to choose between.")
    told = (
        "What rounding layers is expected to do to the outputs on the samples (their largest difference over their "
        "largest value), and the time that is predicted then. No other assignment of precisions beats these in both."
    )
    if (own := found.assigned) is not None:
        how = "was measured" if own["measured"] else "is expected"
        told += f" Chosen for an error of {own['limit']:g}: {max(own['error'], own['held']):.1e} {how}."
    rows = [
        (f"{found.error(p):.1e}", f"{found.part(p):.3f}", _layers(p), "chosen" if p == found.chosen else "")
        for p in found.every
    ]
    head = ("expected error", "time, of float32's", "layers that are narrower", "")
    drawn = curves.errors(found) if len(found.points) > 1 else ""
    return line(told) + drawn + table(head, rows, 2) + _shares(found)


def _layers(point: JsonView) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in point["precisions"].items()) or "none"


def _shares(found: ErrorCurve) -> str:
    """Every layer with what each precision costs it in error, and saves in time."""
    kinds = [kind for kind in found.kinds if kind != "float32"]
    own = {} if found.assigned is None else found.assigned["layers"]
    rows: list[tuple[object, ...]] = []
    for row in found.layers:
        cells: list[object] = []
        for kind in kinds:
            there = kind in row["shares"]
            cells.append(f"{row['shares'][kind]:.1e}" if there else "-")
            cells.append(f"{row['cycles'][kind] / row['cycles']['float32']:.2f}" if there else "-")
        name = row["layers"][0] + (f" + {len(row['layers']) - 1}" if len(row["layers"]) > 1 else "")
        rows.append((*cells, name, row["operator"], own.get(row["layers"][0], "float32") if found.assigned else ""))
    head = [cell for kind in kinds for cell in (f"error, {kind}", "time")]
    listed = table((*head, "layer", "operator", "precision" if found.assigned else ""), rows, 2 * len(kinds))
    return f"<details><summary>{several(len(rows), 'layer')} by precision</summary>{listed}</details>"
