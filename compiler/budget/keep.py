"""The options of a build that keeps an error: assigned by the planner, built, measured, and stepped back if need be.

    keeping(model, options, planner, 0.01) -> what a manifest records as ``assigned``, and the plan's ranges

Where the target's code runs here, the limit is one of the library itself, on all samples: the one that is recorded was
measured. Elsewhere it is one of the roundings as ONNX Runtime computes them, and the record says so.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import HalotileError
from ...targets.plain import Json
from ..cache.library import library
from ..given import ModelGiven
from ..runtime.loader import opened
from ..state import Options
from .plan import Planner, Rung
from .times import with_precisions

if TYPE_CHECKING:
    pass

Found = Json


def keeping(model: ModelGiven, options: Options, planner: Planner, limit: float, runs: bool) -> Found:
    """The record of the fastest build that keeps the ``limit``; ``runs``: its code runs on this machine.

    HalotileError names the least error that can be kept, where that is more."""
    least = float("inf")
    for rung in planner.within(limit):
        record = recorded(planner, rung, limit)
        if not runs:
            return record
        own = applied(options, record)
        errors = planner.shares.off(_answers(model, own, planner))
        least = min(least, max(errors))
        if max(errors) <= limit:
            return {**record, "measured": True, "error": errors[0], "held": errors[1]}
    raise HalotileError(
        f"an error of {limit:g} can't be kept: all in float32, outputs are off by {_above(least)} of their largest "
        "value on the samples, and nothing keeps less; allow that, or build without an error"
    )


def recorded(planner: Planner, rung: Rung, limit: float) -> Found:
    """An assignment as plain data."""
    shares = planner.shares
    return {
        "layers": dict(sorted(rung.precision.items())), "of": len(shares.layers), "limit": limit,
        "expected": rung.error, "error": rung.errors[0], "held": rung.errors[1], "measured": False,
        "samples": [len(shares.used), len(shares.held)], "cycles": rung.cycles,
        "cycles_float32": planner.rungs[0].cycles,
        "left": sorted(n.name for n in shares.layers if rung.precision.get(n.name) != "int8"),
        "ranges": {name: list(pair) for name, pair in shares.ranges.items()} if rung.precision else {},
        "largest": dict(planner.times.largest) if "float16" in rung.precision.values() else None,
    }  # fmt: skip


def applied(options: Options, record: Found) -> Options:
    """The options of the build of a record, from the model itself."""
    precision = record["layers"]
    told = {k: v for k, v in record.items() if k not in ("left", "ranges", "largest")}
    own = with_precisions(options, precision, record["largest"] or {})
    if not precision:
        return replace(own, assigned=told)
    plan = {"ranges": record["ranges"], "left": record["left"], "layers": record["of"], "error": record["error"]}
    return replace(own, int8=plan, assigned=told)


def _answers(model: ModelGiven, options: Options, planner: Planner) -> list[list[np.ndarray]]:
    """The outputs of a build for each sample, in the model's order."""
    shares = planner.shares
    options = replace(
        options, inputs=None, outputs=None, stream=None, formats=("so",), timers=False, dump_ir=None, stop_after=None,
        explain=False,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="halotile-") as folder:
        made = library(model, options, Path(folder) / "library")
        run = opened(Path(folder) / "library" / (made.recorded.library or ""), made.recorded)
        try:
            names = [spec.name for spec in run.inputs]
            found = []
            for sample in (*shares.used, *shares.held):
                answer = run({name: sample[name] for name in names})
                found.append([np.asarray(answer[output.name]) for output in shares.model.graph.output])
            return found
        finally:
            run.close()


def _above(error: float) -> str:
    """The error in two digits, rounded up, so that it can be given as a limit."""
    digits = f"{error:.1e}"
    if float(digits) >= error:
        return digits
    mantissa, exponent = digits.split("e")
    return f"{float(mantissa) + 0.1:.1f}e{exponent}"
