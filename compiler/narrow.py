"""Options with what a precision means for a model: ranges of bytes, magnitudes for float16, a precision of each layer.

    narrowed("m.onnx", options, "auto", "samples.npz", 0.01)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .budget.bounded import bounded
from .budget.wish import budgeted
from .given import ModelGiven
from .options import checked_precision
from .quantise.halves import largest_of
from .quantise.wish import int8_plan
from .state import Options

if TYPE_CHECKING:
    from .budget.plan import Planner


def narrowed(
    model: ModelGiven, options: Options, precision: str, calibrate: object = None, error: object = None,
    progress: Callable[[str, int, int], None] | None = None, made: Planner | None = None,
) -> Options:  # fmt: skip
    """``options`` in that ``precision``, by the samples in ``calibrate`` and within ``error`` where it takes these.
    ``made``: a planner of the same model and samples, where there is one.

    Raises HalotileError for what does not go together, and for samples that don't fit the model."""
    options = replace(
        options,
        precision=checked_precision(precision, options.exact),
        int8=int8_plan(
            model, precision, calibrate, error, exact=options.exact, fixed=options.fixed, cache=options.cache,
            progress=progress,
        ),
        halves=largest_of(
            model, precision, calibrate, fixed=options.fixed, shapes=options.shapes, cache=options.cache
        ),
    )  # fmt: skip
    if precision == "float16":
        options = replace(options, half_error=bounded(model, options, calibrate, error))
    return budgeted(model, options, precision, calibrate, error, progress, made)
